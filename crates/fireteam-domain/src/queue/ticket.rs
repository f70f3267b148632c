//! Matchmaking ticket: a party waiting in a queue.

use std::sync::Arc;

use crate::id::{RatingKey, SetId, TicketId, UserKey};
use crate::locality::Locality;
use crate::location_privacy::{RegionPlaces, coarsen_region_latencies};
use crate::session::Session;
use crate::time::UnixMs;

/// Party waiting in the queue of a set, for players of the same silo.
#[derive(Clone, Debug, PartialEq)]
pub struct Ticket {
    /// Ticket id.
    pub id: TicketId,
    /// Matchmaking set of the queue.
    pub set_id: SetId,
    /// Authenticated caller that entered the ticket. `None` if anonymous.
    pub subject: Option<UserKey>,
    /// Start of the wait. Limits, ranges and bonus depend on it, and it stays the same when the ticket returns from a
    /// failed match.
    pub entered_at: UnixMs,
    /// Party as others judge it: one entry in `party_sizes`, with all players listed. Its position is the center of a
    /// grid cell, and its round trips are rounded (`location_privacy`).
    pub session: Session,
    /// Round trips as the party measured them, milliseconds, in the order of `session.region_latencies`. Only its own
    /// limits of regions use them. `None`: those of `session` are exact.
    pub exact_round_trips_ms: Option<Box<[f32]>>,
    /// Ratings of the players at entry, in the order of `session.players`, unchanged until the ticket ends. If the set
    /// has a rating system, they replace the `skill` values of `session`.
    pub player_ratings: Vec<PlayerRating>,
    /// Pool and scale of `player_ratings`, if it is a digest key. `None` on the first scale of the set, and without a
    /// rating system.
    pub rating_digest_key: Option<RatingKey>,
    /// Users blocked by any of the players, sorted and unique; at most `limit::BLOCKED_USERS_PER_TICKET_MAX`.
    pub blocked_users: Vec<UserKey>,
    /// Its users may have no other ticket at the same time.
    pub excludes_other_tickets: bool,
    /// Players who answer for themselves, sorted: the player who entered the ticket may not answer for them.
    pub self_answering_users: Vec<UserKey>,
}

impl Ticket {
    /// Measured round trip to the region at `index` of `session.region_latencies`, milliseconds.
    pub fn measured_round_trip_to_region_ms(&self, index: usize) -> f32 {
        let own = self.exact_round_trips_ms.as_ref().and_then(|own| own.get(index));
        own.copied().unwrap_or_else(|| self.session.region_latencies[index].round_trip_ms)
    }

    /// The ticket with the position and the round trips that others may judge it by. `center_of` gives the center of a
    /// place's grid cell. A ticket that is coarse already stays as it is.
    pub fn coarsened_for_location_privacy(
        self: Arc<Self>,
        region_places: &RegionPlaces,
        center_of: impl FnOnce(Locality) -> Locality,
    ) -> Arc<Self> {
        let place = self.session.locality;
        let center = place.map(center_of);
        let has_exact_round_trips = self.exact_round_trips_ms.is_none() && !self.session.region_latencies.is_empty();
        if center == place && !has_exact_round_trips {
            return self;
        }
        let mut ticket = Arc::unwrap_or_clone(self);
        ticket.session.locality = center;
        if has_exact_round_trips {
            let latencies = &mut ticket.session.region_latencies;
            ticket.exact_round_trips_ms = Some(latencies.iter().map(|latency| latency.round_trip_ms).collect());
            coarsen_region_latencies(latencies, place.zip(center), |region| region_places.place_of(region));
        }
        Arc::new(ticket)
    }
}

/// Rating of a player on the scale of the set's rating system.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PlayerRating {
    /// Rating in Elo and Glicko, mu in TrueSkill and OpenSkill.
    pub rating: f64,
    /// Standard deviation of the rating; 0 for systems without one.
    pub deviation: f64,
}

impl PlayerRating {
    /// Number by which a player with this rating is matched: the rating less `z` deviations, with the `match_z` of the
    /// ruleset. A rating that is not finite counts as 0.
    pub fn matching_rating(self, z: f64) -> f64 {
        let rating = if z == 0.0 { self.rating } else { self.rating - z * self.deviation };
        if rating.is_finite() { rating } else { 0.0 }
    }
}

/// Reason why a ticket ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TicketEndReason {
    /// The party left.
    Left,
    /// No heartbeat arrived within the TTL.
    Expired,
    /// Its match started.
    Played,
    /// Another ticket of one of its users was in a match that started.
    MatchedElsewhere,
    /// One of its players declined.
    Declined,
    /// One of its players did not respond to the ready check in time.
    NotAcceptedInTime,
    /// Ended by an operator, or because the ruleset no longer has a queue.
    EndedByServer,
    /// The set was retired: its ruleset's file was removed and the grace period is over, or an operator ended it.
    RulesetRetired,
}
