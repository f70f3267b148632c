//! What is still to come, in order of time; of two things at one moment the one that was planned first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fireteam_domain::id::{MatchId, TicketId};
use fireteam_domain::time::UnixMs;

/// Something that is due at a moment. Much of it is stale when its moment comes; whoever it concerns then does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduledEvent {
    /// A party sits down to play.
    PlaySessionStarts(usize),
    /// A party that sits enters the queue, again.
    PartyEntersQueue(usize),
    /// A party has had enough of waiting.
    PatienceEnds(TicketId),
    /// The queue may be looked at.
    PassDue,
    /// A party answers the ready check.
    ReadyCheckResponse(MatchId, TicketId),
    /// What a stage names as its end.
    MatchDeadline(MatchId),
    /// A server has been found for a match.
    GameServerFound(MatchId),
    /// A match has been played.
    MatchFinished(MatchId),
}

/// The plan.
#[derive(Debug, Default)]
pub struct EventQueue {
    heap: BinaryHeap<Reverse<EventQueueEntry>>,
    scheduled_count: u64,
}

#[derive(Debug)]
struct EventQueueEntry {
    at: UnixMs,
    sequence: u64,
    event: ScheduledEvent,
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
    /// Plans something.
    pub fn schedule(&mut self, at: UnixMs, due: ScheduledEvent) {
        self.scheduled_count += 1;
        self.heap.push(Reverse(EventQueueEntry { at, sequence: self.scheduled_count, event: due }));
    }

    /// What comes next before `end`, and when.
    pub fn pop_before(&mut self, end: UnixMs) -> Option<(UnixMs, ScheduledEvent)> {
        if end <= self.heap.peek()?.0.at {
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
        let mut agenda = EventQueue::default();
        for (at, party) in [(5, 1), (3, 2), (5, 3), (9, 4)] {
            agenda.schedule(UnixMs(at), ScheduledEvent::PlaySessionStarts(party));
        }
        let mut seen = Vec::new();
        while let Some((at, due)) = agenda.pop_before(UnixMs(9)) {
            seen.push((at.0, due));
        }
        assert_eq!(
            seen,
            [
                (3, ScheduledEvent::PlaySessionStarts(2)),
                (5, ScheduledEvent::PlaySessionStarts(1)),
                (5, ScheduledEvent::PlaySessionStarts(3))
            ]
        );
    }
}
