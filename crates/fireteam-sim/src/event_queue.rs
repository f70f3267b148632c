//! Event queue of the simulator, ordered by time, then by the order of scheduling.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fireteam_domain::id::{MatchId, TicketId};
use fireteam_domain::time::UnixMs;

/// Event at a moment of simulated time. It may be stale when it is handled; then it changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimEvent {
    /// A party starts a play session.
    PlaySessionStarts(usize),
    /// A party in a play session enters the queue.
    PartyEntersQueue(usize),
    /// The patience of a waiting ticket ends.
    PatienceEnds(TicketId),
    /// A pass is due.
    PassDue,
    /// The ready check response of a ticket.
    ReadyCheckResponse(MatchId, TicketId),
    /// The deadline of a match's current stage.
    MatchDeadline(MatchId),
    /// A game server has been allocated to a match.
    GameServerFound(MatchId),
    /// A match has been played.
    MatchFinished(MatchId),
}

/// Scheduled events.
#[derive(Debug, Default)]
pub struct EventQueue {
    heap: BinaryHeap<Reverse<EventQueueEntry>>,
    scheduled_count: u64,
}

#[derive(Debug)]
struct EventQueueEntry {
    at: UnixMs,
    sequence: u64,
    event: SimEvent,
}

impl PartialEq for EventQueueEntry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.sequence) == (other.at, other.sequence)
    }
}

impl Eq for EventQueueEntry {}

impl PartialOrd for EventQueueEntry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for EventQueueEntry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

impl EventQueue {
    /// Schedules an event.
    pub fn schedule(&mut self, at: UnixMs, event: SimEvent) {
        self.scheduled_count += 1;
        self.heap.push(Reverse(EventQueueEntry { at, sequence: self.scheduled_count, event }));
    }

    /// Removes and returns the next event before `end`, with its time.
    pub fn pop_before(&mut self, end: UnixMs) -> Option<(UnixMs, SimEvent)> {
        if self.heap.peek()?.0.at >= end {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_queue_pops_by_time_and_then_by_schedule_order() {
        let mut event_queue = EventQueue::default();
        for (at, party) in [(5, 1), (3, 2), (5, 3), (9, 4)] {
            event_queue.schedule(UnixMs(at), SimEvent::PlaySessionStarts(party));
        }
        let mut popped = Vec::new();
        while let Some((at, event)) = event_queue.pop_before(UnixMs(9)) {
            popped.push((at.0, event));
        }
        assert_eq!(
            popped,
            [
                (3, SimEvent::PlaySessionStarts(2)),
                (5, SimEvent::PlaySessionStarts(1)),
                (5, SimEvent::PlaySessionStarts(3))
            ]
        );
    }
}
