//! Facts about tickets, and outages, that transitions need and matches do not have.

use crate::available_time::OutageTimes;
use crate::id::{TicketId, UserKey};
use crate::time::UnixMs;

/// Source of facts about the tickets of a match.
pub trait TicketFacts {
    /// Whether the players of a ticket have an open NAT, as reported by their clients.
    fn has_open_nat(&self, id: TicketId) -> bool;

    /// High end of the estimated round trip between players of two tickets, milliseconds. `None` if it is unknown, or if the ruleset
    /// predicts no round trips: then hosts are chosen without them.
    fn high_round_trip_ms(&self, _one: TicketId, _other: TicketId) -> Option<f64> {
        None
    }

    /// Whether the ticket was silent for longer than its TTL; outages do not count.
    fn has_expired(&self, id: TicketId) -> bool;

    /// Whether a player had the chance to answer the ready check: the player's client, or the one that may answer for the
    /// player, received the match that the ticket is in, and was heard after that.
    fn has_acknowledged_ready_check(&self, id: TicketId, user: UserKey) -> bool;

    /// Outages, which extend deadlines.
    fn outages(&self) -> &OutageTimes {
        OutageTimes::NONE
    }

    /// Deadlines up to this time, at most `now`, are enforced. It is earlier while another server, through which players may
    /// have been unable to meet a later deadline, may have died since.
    fn deadlines_enforced_until(&self, now: UnixMs) -> UnixMs {
        now
    }
}
