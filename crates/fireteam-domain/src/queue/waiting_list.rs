//! Waiting list of a pass: a doubly linked list of the tickets not yet matched, and an iterator over the nearest ones.

use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::PassState;
use crate::ruleset::queue::LookDirection;

/// Marks the end of a list.
const NO_TICKET: u32 = u32::MAX;

/// Linked lists of ticket indices, one per pool, in the order of `PassState::tickets`.
#[derive(Clone, Debug)]
pub(super) struct WaitingList {
    next_above: Vec<u32>,
    next_below: Vec<u32>,
    /// First ticket with the same key.
    first_with_key: Vec<u32>,
    /// Next ticket to visit: the ticket itself while it waits, otherwise a later one.
    self_or_later_ticket: Vec<u32>,
}

impl WaitingList {
    pub(super) fn new(pass_state: &PassState<'_>, pools: &[Vec<u32>]) -> Self {
        let count = pass_state.tickets.len();
        let mut list = Self {
            next_above: vec![NO_TICKET; count],
            next_below: vec![NO_TICKET; count],
            first_with_key: vec![NO_TICKET; count],
            self_or_later_ticket: vec![NO_TICKET; count],
        };
        for pool in pools {
            for (position, &row) in pool.iter().enumerate() {
                let before = position.checked_sub(1).map(|before| pool[before]);
                let at = row as usize;
                (list.self_or_later_ticket[at], list.next_below[at]) = (row, before.unwrap_or(NO_TICKET));
                list.next_above[at] = pool.get(position + 1).copied().unwrap_or(NO_TICKET);
                let key = |row: u32| pass_state.sort_keys[row as usize].to_bits();
                list.first_with_key[at] =
                    before.filter(|&it| key(it) == key(row)).map_or(row, |it| list.first_with_key[it as usize]);
            }
        }
        list
    }

    pub(super) fn is_waiting(&self, row: u32) -> bool {
        self.self_or_later_ticket[row as usize] == row
    }

    /// Next higher waiting ticket of the pool.
    pub(super) fn next_waiting_above(&self, row: u32) -> Option<u32> {
        none_if_sentinel(self.next_above[row as usize])
    }

    /// Next lower waiting ticket of the pool.
    pub(super) fn next_waiting_below(&self, row: u32) -> Option<u32> {
        none_if_sentinel(self.next_below[row as usize])
    }

    /// First waiting ticket with the same key as `row`, which must be waiting.
    fn first_waiting_with_key(&self, row: u32) -> u32 {
        let mut at = self.first_with_key[row as usize];
        while !self.is_waiting(at) {
            at = self.self_or_later_ticket[at as usize];
        }
        at
    }

    /// Removes a ticket.
    pub(super) fn remove(&mut self, row: u32) {
        let (next, prev) = (self.next_above[row as usize], self.next_below[row as usize]);
        if next != NO_TICKET {
            self.next_below[next as usize] = prev;
        }
        if prev != NO_TICKET {
            self.next_above[prev as usize] = next;
        }
        self.self_or_later_ticket[row as usize] = next;
        // The first ticket of a key is looked up often, so shorten its path.
        let first = self.first_with_key[row as usize] as usize;
        if self.self_or_later_ticket[first] == row {
            self.self_or_later_ticket[first] = next;
        }
    }
}

fn none_if_sentinel(row: u32) -> Option<u32> {
    (row != NO_TICKET).then_some(row)
}

/// Iterator over waiting tickets from nearest to farthest; ties by seniority.
pub(super) struct NearestIter<'n, 'a> {
    pass_state: &'n PassState<'a>,
    waiting_list: &'n WaitingList,
    origin: u32,
    /// Next candidate below, and the first ticket with its key.
    below: Option<(u32, u32)>,
    /// Next candidate above. Starts with the tickets of the same key.
    above: Option<u32>,
    /// Candidates above are those of the same key only.
    same_key_above_only: bool,
}

impl<'n, 'a> NearestIter<'n, 'a> {
    pub(super) fn new(pass_state: &'n PassState<'a>, waiting_list: &'n WaitingList, from: u32) -> Self {
        let first = waiting_list.first_waiting_with_key(from);
        let below = |it: u32| waiting_list.next_waiting_below(it).map(|it| waiting_list.first_waiting_with_key(it));
        let look = pass_state.input.queue.selection.look;
        Self {
            pass_state,
            waiting_list,
            origin: from,
            below: below(first).filter(|_| look != LookDirection::Up).map(|it| (it, it)),
            above: Some(first),
            same_key_above_only: look == LookDirection::Down,
        }
    }

    /// Next nearest ticket. `None` if there is none, or if all others are out of reach.
    pub(super) fn next_candidate(&mut self, progress: &mut PassProgress) -> Option<u32> {
        if self.above == Some(self.origin) {
            self.above = self.waiting_list.next_waiting_above(self.origin);
        }
        if self.same_key_above_only {
            let key = |row: u32| self.pass_state.sort_keys[row as usize].to_bits();
            self.above = self.above.filter(|&row| key(row) == key(self.origin));
        }
        let beyond = |row: u32| self.pass_state.refusal_of_all_beyond(self.origin, row);
        if let Some(refusal) = self.below.and_then(|(row, _)| beyond(row)) {
            progress.record_refusal(self.origin, refusal);
            self.below = None;
        }
        if let Some(refusal) = self.above.and_then(beyond) {
            progress.record_refusal(self.origin, refusal);
            self.above = None;
        }
        let (low, high) = match (self.below, self.above) {
            (None, None) => return None,
            (Some(_), None) => return self.take_below(),
            (None, Some(_)) => return self.take_above(),
            (Some((low, _)), Some(high)) => (low, high),
        };
        let distance = |row: u32| self.pass_state.sort_key_distance(self.origin, row);
        let rows = &self.pass_state.tickets;
        let seniority = || rows[low as usize].compare_seniority(&rows[high as usize]);
        let goes_down = distance(low).total_cmp(&distance(high)).then_with(seniority).is_lt();
        if goes_down { self.take_below() } else { self.take_above() }
    }

    fn take_above(&mut self) -> Option<u32> {
        let row = self.above?;
        self.above = self.waiting_list.next_waiting_above(row);
        Some(row)
    }

    /// Tickets with equal keys come in list order, senior first. Then follows the next lower key.
    fn take_below(&mut self) -> Option<u32> {
        let (row, first) = self.below?;
        let key = |row: u32| self.pass_state.sort_keys[row as usize].to_bits();
        self.below = match self.waiting_list.next_waiting_above(row).filter(|&it| key(it) == key(row)) {
            Some(next) => Some((next, first)),
            None => self
                .waiting_list
                .next_waiting_below(first)
                .map(|it| self.waiting_list.first_waiting_with_key(it))
                .map(|it| (it, it)),
        };
        Some(row)
    }
}
