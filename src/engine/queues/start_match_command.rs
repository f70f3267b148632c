//! Command to start the match of a searched session, and its answer.

use crate::domain::id::{AdvertisementId, ReservationId, TicketId};
use crate::domain::session::Player;
use crate::engine::command::PartyConsents;
use crate::engine::hosted_match::HostedMatch;

/// Starts a match of a session, as its host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StartMatchCommand {
    /// Advertisement of the session; `None` if the id is invalid.
    pub advertisement_id: Option<AdvertisementId>,
    /// Proof of ownership of the advertisement.
    pub advertisement_token: Vec<u8>,
    /// Key that makes a retried start return the same match.
    pub idempotency_key: String,
    /// Players of the host's own party besides the host.
    pub others_in_host_party: Vec<Player>,
    /// Their consent tokens.
    pub consents: PartyConsents,
    /// Teams, in their order; at least one.
    pub teams: Vec<StartMatchTeam>,
}

/// Team of a match, as the host names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StartMatchTeam {
    /// The host's own party is in the team.
    pub has_host_party: bool,
    /// Reservations of the other parties.
    pub reservations: Vec<ReservationId>,
}

/// Answer to the start of a match.
#[derive(Clone, Debug, PartialEq)]
pub struct StartMatchAnswer {
    /// The match as its host sees it.
    pub hosted: HostedMatch,
    /// Parties that were left out: a player plays elsewhere, or the party has left the session.
    pub unavailable: Vec<ReservationId>,
    /// Ticket of the host's own party, with its token; `None` for a game server.
    pub own_ticket: Option<(TicketId, Vec<u8>)>,
    /// Interval until the next heartbeat, milliseconds.
    pub next_beat_in_ms: u64,
}
