//! Facts about tickets that transitions need and matches do not have.

use crate::id::TicketId;

/// Source of facts about the tickets of a match.
pub trait TicketFacts {
    /// Whether the players of a ticket have an open NAT, as reported by their clients.
    fn has_open_nat(&self, id: TicketId) -> bool;

    /// Whether the ticket was silent for longer than its TTL.
    fn has_expired(&self, id: TicketId) -> bool;
}
