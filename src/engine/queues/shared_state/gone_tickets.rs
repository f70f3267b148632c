//! Tickets that the store did not have: heartbeats and watches of purged tickets do not read it again each time.

use std::collections::{BTreeMap, VecDeque};

use crate::domain::id::TicketId;
use crate::domain::time::UnixMs;

/// Number of tickets that are remembered; then the oldest is forgotten.
const TICKETS_MAX: usize = 16_384;
/// Time for which a ticket counts as gone, milliseconds. An id returns if its caller enters again with the same idempotency key.
const GONE_MS: u64 = 10_000;

/// Tickets that the store did not have, with the time at which it was asked.
#[derive(Debug, Default)]
pub(crate) struct GoneTickets {
    asked_at: BTreeMap<TicketId, UnixMs>,
    /// In the order in which they were added.
    order: VecDeque<TicketId>,
}

impl GoneTickets {
    /// Remembers that the store did not have a ticket at `now`.
    pub(crate) fn insert(&mut self, id: TicketId, now: UnixMs) {
        if self.asked_at.insert(id, now).is_some() {
            return;
        }
        self.order.push_back(id);
        if self.order.len() > TICKETS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.asked_at.remove(&oldest);
        }
    }

    /// Whether the store did not have a ticket a short time ago.
    pub(crate) fn is_gone(&self, id: TicketId, now: UnixMs) -> bool {
        self.asked_at.get(&id).is_some_and(|asked_at| now.ms_since(*asked_at) < GONE_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: usize) -> TicketId {
        TicketId::from_bytes((number as u128).to_be_bytes())
    }

    #[test]
    fn ticket_is_gone_for_ten_seconds_after_the_last_read() {
        let mut gone = GoneTickets::default();
        gone.insert(id(1), UnixMs(1_000));
        assert!(gone.is_gone(id(1), UnixMs(10_999)) && !gone.is_gone(id(1), UnixMs(11_000)));
        gone.insert(id(1), UnixMs(11_000));
        assert!(gone.is_gone(id(1), UnixMs(20_999)) && !gone.is_gone(id(2), UnixMs(11_000)));
    }

    #[test]
    fn gone_tickets_are_limited() {
        let mut gone = GoneTickets::default();
        (0..TICKETS_MAX + 100).for_each(|number| gone.insert(id(number), UnixMs(0)));
        assert_eq!((gone.order.len(), gone.asked_at.len()), (TICKETS_MAX, TICKETS_MAX));
        assert!(!gone.is_gone(id(99), UnixMs(0)) && gone.is_gone(id(100), UnixMs(0)));
    }
}
