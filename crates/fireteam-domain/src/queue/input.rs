//! Input of a pass: waiting tickets, open sessions, settings, time and limits.

use std::sync::Arc;

use crate::advertisement::Advertisement;
use crate::attribute_values::AttributeValues;
use crate::chosen_value::ChosenValue;
use crate::id::UserKey;
use crate::queue::avoidance::PastMatches;
use crate::queue::gate::GateCounts;
use crate::queue::prepared_ticket::PreparedTicket;
use crate::queue::seated_party::SeatedParty;
use crate::queue::ticket_vector::TicketBeaconVector;
use crate::ruleset::Ruleset;
use crate::ruleset::queue::QueueSpec;
use crate::ruleset::teams::TeamsSpec;
use crate::time::UnixMs;

/// Input of a pass.
#[derive(Clone, Copy, Debug)]
pub struct PassInput<'a> {
    /// Ruleset.
    pub ruleset: &'a Ruleset,
    /// Queue settings of the ruleset.
    pub queue: &'a QueueSpec,
    /// Team settings of the ruleset.
    pub teams: &'a TeamsSpec,
    /// Waiting tickets of one silo, in any order. Tickets with a user in a match are excluded.
    pub tickets: &'a [&'a PreparedTicket],
    /// Sessions with open seats; used if the queue backfills.
    pub open_sessions: &'a [OpenSession],
    /// Recent matches of users; used if the queue has avoidance rules.
    pub past_matches: &'a PastMatches,
    /// Counts for the gate.
    pub gate_counts: GateCounts,
    /// Time of the pass.
    pub now: UnixMs,
    /// Seed of the random number generator.
    pub rng_seed: u64,
    /// Maximum number of pair evaluations, which bounds the time of the pass.
    pub max_pair_checks: u64,
}

/// Session with open seats, as input of a pass.
#[derive(Clone, Debug)]
pub struct OpenSession {
    /// Advertisement of a kind, set and silo that this queue may fill.
    pub advertisement: Arc<Advertisement>,
    /// Attribute values of the session.
    pub attribute_values: AttributeValues,
    /// End of the advertisement's TTL.
    pub expires_at: UnixMs,
    /// Seats that are neither taken nor reserved, nor promised to guests of a proposed match.
    pub open_seats: u16,
    /// Parties that have its other seats, with the guests who are not in the advertisement yet.
    pub parties: Box<[SeatedParty]>,
    /// Users whom players of the session have in their durable block lists, sorted.
    pub blocked_users: Vec<UserKey>,
    /// Entries of its lists that guests were told who are not in the advertisement yet; at most one for each attribute.
    pub promised_values: Box<[ChosenValue]>,
    /// Its completed published vector, if the ruleset predicts round trips and the vector counts.
    pub vector: Option<Arc<TicketBeaconVector>>,
}

impl OpenSession {
    /// Its vector, unless it has expired by `now`.
    pub(in crate::queue) fn vector_at(&self, now: UnixMs) -> Option<&TicketBeaconVector> {
        self.vector.as_deref().filter(|vector| now < vector.expires_at)
    }
}
