//! Why the engine did not do what it was asked. Closed, so that `api/status.rs` gives each a status.

use crate::domain::facts::FieldProblem;
use crate::domain::filter::Side;
use crate::domain::id::{RulesetHash, SetId, TicketId};

/// A refusal to act. The text of each is made at the door, in `api/status.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Fields at fault. Paths that begin with `session_composition` are relative to the request.
    Fields(Vec<FieldProblem>),
    /// No ruleset rules this set.
    UnknownSet(SetId),
    /// The client's ruleset is gone; it must fetch the current one.
    UnknownHash {
        /// What it sent.
        given: RulesetHash,
        /// What is current.
        current: RulesetHash,
    },
    /// A token that is missing, forged or another's. The same whether or not the thing exists.
    NotYours,
    /// Only game servers may.
    NotAServer,
    /// Only players may.
    NotAPlayer,
    /// The advertisement does not exist or has expired.
    AdvertisementNotFound,
    /// The ticket does not exist, or ended and was forgotten.
    TicketNotFound,
    /// It was deleted and stays so.
    Deleted,
    /// Fewer seats are open than the party needs.
    SeatsTaken {
        /// Seats open now.
        open_seats: u16,
    },
    /// A rule refuses the pair, as they are now.
    Refused {
        /// The rule: a hard filter's name, or `own`, `expired`, `silo`, `allowed`.
        rule: String,
        /// Whose rule.
        side: Side,
    },
    /// The idempotency key stands for something else.
    KeyReused,
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
        most: u16,
    },
    /// A player of the party waits already.
    AlreadyQueued {
        /// Which, by its place in the party.
        player: usize,
        /// The ticket that the player waits in, where it is the caller's own.
        ticket: Option<TicketId>,
    },
    /// A player of the party is in a match.
    InAMatch {
        /// Which, by its place in the party.
        player: usize,
    },
    /// A player of the party let others down and may not queue yet.
    Barred {
        /// Which, by its place in the party.
        player: usize,
        /// When it may.
        retry_after_ms: u32,
    },
    /// The ticket does not wait, or is passed over while a player of it is in a match.
    NotWaiting,
    /// There is no ready check to answer, or no longer.
    NoReadyCheck,
    /// The match is not played yet.
    NotBegun,
    /// There is no such match, or no longer.
    NoSuchMatch,
    /// The match has not begun, or nothing came of it: there is no result.
    NotPlayed,
    /// Something else was said of the match before.
    AlreadyReported {
        /// What, in a few words.
        first: String,
    },
    /// The player has scored the match before, otherwise.
    AlreadyScored {
        /// So.
        score: u8,
    },
    /// The set keeps no ratings.
    NoRatings(SetId),
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
