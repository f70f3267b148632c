//! Properties of stored tickets: expiry, nearest region, whether a ticket has ended.

use crate::domain::queue::ticket::Ticket;
use crate::domain::ruleset::queue::QueueSpec;
use crate::domain::time::UnixMs;
use crate::store::queues::{QueueKey, StoredTicket, TicketState};

/// Queue of a ticket.
pub(crate) fn queue_key_of(ticket: &Ticket) -> QueueKey {
    QueueKey { set_id: ticket.set_id, silo: ticket.session.silo }
}

/// Ticket expiry after a heartbeat at `now`.
pub(crate) fn expiry_after_heartbeat(queue: &QueueSpec, now: UnixMs) -> UnixMs {
    now.plus_ms(u64::from(queue.ticket_ttl_ms))
}

/// Region with the shortest round trip of the party; empty if it measured none.
pub(crate) fn nearest_region(stored: &StoredTicket) -> Box<str> {
    stored.ticket.session.nearest_region().unwrap_or_default().into()
}

/// Whether a ticket has ended.
pub(crate) fn is_ticket_ended(stored: &StoredTicket) -> bool {
    matches!(stored.state, TicketState::Ended { .. })
}
