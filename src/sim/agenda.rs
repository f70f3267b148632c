//! What is still to come, in order of time; of two things at one moment the one that was planned first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::domain::id::{MatchId, TicketId};
use crate::domain::time::UnixMs;

/// Something that is due at a moment. Much of it is stale when its moment comes; whoever it concerns then does nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// A party sits down to play.
    Arrives(usize),
    /// A party that sits enters the queue, again.
    Enters(usize),
    /// A party has had enough of waiting.
    GivesUp(TicketId),
    /// The queue may be looked at.
    Pass,
    /// A party answers the ready check.
    Answers(MatchId, TicketId),
    /// What a stage names as its end.
    Deadline(MatchId),
    /// A server has been found for a match.
    Hosted(MatchId),
    /// A match has been played.
    Played(MatchId),
}

/// The plan.
#[derive(Debug, Default)]
pub struct Agenda {
    heap: BinaryHeap<Reverse<Entry>>,
    planned: u64,
}

#[derive(Debug)]
struct Entry {
    at: UnixMs,
    order: u64,
    due: Due,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        (self.at, self.order) == (other.at, other.order)
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

impl Agenda {
    /// Plans something.
    pub fn plan(&mut self, at: UnixMs, due: Due) {
        self.planned += 1;
        self.heap.push(Reverse(Entry { at, order: self.planned, due }));
    }

    /// What comes next before `end`, and when.
    pub fn next(&mut self, end: UnixMs) -> Option<(UnixMs, Due)> {
        if end <= self.heap.peek()?.0.at {
            return None;
        }
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.due))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_come_in_the_order_of_time_and_then_of_planning() {
        let mut agenda = Agenda::default();
        for (at, party) in [(5, 1), (3, 2), (5, 3), (9, 4)] {
            agenda.plan(UnixMs(at), Due::Arrives(party));
        }
        let mut seen = Vec::new();
        while let Some((at, due)) = agenda.next(UnixMs(9)) {
            seen.push((at.0, due));
        }
        assert_eq!(seen, [(3, Due::Arrives(2)), (5, Due::Arrives(1)), (5, Due::Arrives(3))]);
    }
}
