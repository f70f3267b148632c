//! Why the engine did not do what it was asked. Closed, so that `api/status.rs` gives each a status.

use crate::domain::attribute_values::FieldProblem;
use crate::domain::filter::RefusingSide;
use crate::domain::id::{RulesetHash, SetId, TicketId};

/// A refusal to act. The text of each is made at the door, in `api/status.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// Fields at fault. Paths that begin with `session_composition` are relative to the request.
    InvalidFields(Vec<FieldProblem>),
    /// No ruleset rules this set.
    UnknownSet(SetId),
    /// The client's ruleset is gone; it must fetch the current one.
    UnknownRulesetHash {
        /// What it sent.
        requested: RulesetHash,
        /// What is current.
        current: RulesetHash,
    },
    /// A token that is missing, forged or another's. The same whether or not the thing exists.
    NotOwner,
    /// Only game servers may.
    GameServerRoleRequired,
    /// Only players may.
    ClientRoleRequired,
    /// The advertisement does not exist or has expired.
    AdvertisementNotFound,
    /// The ticket does not exist, or ended and was forgotten.
    TicketNotFound,
    /// It was deleted and stays so.
    AdvertisementDeleted,
    /// Fewer seats are open than the party needs.
    SeatsTaken {
        /// Seats open now.
        open_seats: u16,
    },
    /// A rule refuses the pair, as they are now.
    RefusedByRule {
        /// The rule: a hard filter's name, or `own`, `expired`, `silo`, `allowed`.
        rule: String,
        /// Whose rule.
        side: RefusingSide,
    },
    /// The idempotency key stands for something else.
    IdempotencyKeyReused,
    /// The seats had been taken and were given back or lapsed.
    ReservationEnded,
    /// The advertisement holds as many reservations as it may.
    TooManyReservations,
    /// The set is only advertised and searched.
    NoQueue(SetId),
    /// More players than the ruleset lets into a queue together.
    PartyTooLarge {
        /// How many they are.
        size: u16,
        /// How many they may be.
        max: u16,
    },
    /// A player of the party waits already.
    AlreadyQueued {
        /// Which, by its place in the party.
        player_index: usize,
        /// The ticket that the player waits in, where it is the caller's own.
        own_ticket: Option<TicketId>,
    },
    /// A player of the party is in a match.
    AlreadyInMatch {
        /// Which, by its place in the party.
        player_index: usize,
    },
    /// A player of the party let others down and may not queue yet.
    QueueCooldown {
        /// Which, by its place in the party.
        player_index: usize,
        /// When it may.
        retry_after_ms: u32,
    },
    /// The ticket does not wait, or is passed over while a player of it is in a match.
    TicketNotWaiting,
    /// There is no ready check to answer, or no longer.
    NoReadyCheck,
    /// The match is not played yet.
    MatchNotStarted,
    /// There is no such match, or no longer.
    MatchNotFound,
    /// The match has not begun, or nothing came of it: there is no result.
    MatchNotPlayed,
    /// Something else was said of the match before.
    AlreadyReported {
        /// What, in a few words.
        first_report: String,
    },
    /// The player has scored the match before, otherwise.
    FeedbackAlreadyGiven {
        /// So.
        stars: u8,
    },
    /// The set keeps no ratings.
    NoRatingSystem(SetId),
    /// The server does not allow overrides.
    OverridesForbidden,
    /// Too much is waiting to be written.
    Overloaded {
        /// When to try again.
        retry_after_ms: u32,
    },
    /// The store is out of reach.
    StoreUnavailable {
        /// When to try again.
        retry_after_ms: u32,
    },
    /// The server is going away.
    Draining,
    /// The server broke a promise to itself; the log has more.
    Internal,
}
