//! Who still waits during a pass, each knowing the nearest to either side: whoever is taken is passed over from then on, at
//! no cost to those who look.

use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::PassState;

/// No row.
const NO_TICKET: u32 = u32::MAX;

/// Rows in their order, pool by pool; rows of different pools do not see each other.
#[derive(Clone, Debug)]
pub(super) struct WaitingList {
    next_above: Vec<u32>,
    next_below: Vec<u32>,
    /// The first row of those with the same key.
    first_with_key: Vec<u32>,
    /// Where to go on looking from a row: itself while it waits, else somebody after it.
    forward_links: Vec<u32>,
}

impl WaitingList {
    pub(super) fn new(field: &PassState<'_>, pools: &[Vec<u32>]) -> Self {
        let rows = field.tickets.len();
        let mut line = Self {
            next_above: vec![NO_TICKET; rows],
            next_below: vec![NO_TICKET; rows],
            first_with_key: vec![NO_TICKET; rows],
            forward_links: vec![NO_TICKET; rows],
        };
        for pool in pools {
            for (place, &row) in pool.iter().enumerate() {
                let before = place.checked_sub(1).map(|before| pool[before]);
                let at = row as usize;
                (line.forward_links[at], line.next_below[at]) = (row, before.unwrap_or(NO_TICKET));
                line.next_above[at] = pool.get(place + 1).copied().unwrap_or(NO_TICKET);
                let key = |row: u32| field.sort_keys[row as usize].to_bits();
                line.first_with_key[at] =
                    before.filter(|&it| key(it) == key(row)).map_or(row, |it| line.first_with_key[it as usize]);
            }
        }
        line
    }

    pub(super) fn is_waiting(&self, row: u32) -> bool {
        self.forward_links[row as usize] == row
    }

    /// The next higher row of the pool that still waits.
    pub(super) fn waiting_above(&self, row: u32) -> Option<u32> {
        none_if_sentinel(self.next_above[row as usize])
    }

    /// The next lower row of the pool that still waits.
    pub(super) fn waiting_below(&self, row: u32) -> Option<u32> {
        none_if_sentinel(self.next_below[row as usize])
    }

    /// The first that still waits of those with the same key; `row` itself waits.
    fn first_waiting_with_key(&self, row: u32) -> u32 {
        let mut at = self.first_with_key[row as usize];
        while !self.is_waiting(at) {
            at = self.forward_links[at as usize];
        }
        at
    }

    /// Takes a row out.
    pub(super) fn remove(&mut self, row: u32) {
        let (next, prev) = (self.next_above[row as usize], self.next_below[row as usize]);
        if next != NO_TICKET {
            self.next_below[next as usize] = prev;
        }
        if prev != NO_TICKET {
            self.next_above[prev as usize] = next;
        }
        self.forward_links[row as usize] = next;
        // The first of a run that is gone is asked for again and again: it points to who waits.
        let first = self.first_with_key[row as usize] as usize;
        if self.forward_links[first] == row {
            self.forward_links[first] = next;
        }
    }
}

fn none_if_sentinel(row: u32) -> Option<u32> {
    (row != NO_TICKET).then_some(row)
}

/// Those who still wait, nearest to one row first, ties by seniority (S0-12).
pub(super) struct NearestIter<'n, 'a> {
    pass_state: &'n PassState<'a>,
    waiting_list: &'n WaitingList,
    origin: u32,
    /// Who comes next among those below, and the first of them with that key.
    below: Option<(u32, u32)>,
    /// Who comes next among those above; at first, those with the same key.
    above: Option<u32>,
}

impl<'n, 'a> NearestIter<'n, 'a> {
    pub(super) fn new(field: &'n PassState<'a>, line: &'n WaitingList, from: u32) -> Self {
        let first = line.first_waiting_with_key(from);
        let below = |it: u32| line.waiting_below(it).map(|it| line.first_waiting_with_key(it));
        Self {
            pass_state: field,
            waiting_list: line,
            origin: from,
            below: below(first).map(|it| (it, it)),
            above: Some(first),
        }
    }

    /// The next nearest; `None` when there is none, or none that need be asked.
    pub(super) fn next_candidate(&mut self, desk: &mut PassProgress) -> Option<u32> {
        if self.above == Some(self.origin) {
            self.above = self.waiting_list.waiting_above(self.origin);
        }
        let beyond = |row: u32| self.pass_state.out_of_reach(self.origin, row);
        if let Some(refusal) = self.below.and_then(|(row, _)| beyond(row)) {
            desk.record_refusal(self.origin, refusal);
            self.below = None;
        }
        if let Some(refusal) = self.above.and_then(beyond) {
            desk.record_refusal(self.origin, refusal);
            self.above = None;
        }
        let (low, high) = match (self.below, self.above) {
            (None, None) => return None,
            (Some(_), None) => return self.take_below(),
            (None, Some(_)) => return self.take_above(),
            (Some((low, _)), Some(high)) => (low, high),
        };
        let distance = |row: u32| self.pass_state.key_distance(self.origin, row);
        let rows = &self.pass_state.tickets;
        let seniority = || rows[low as usize].compare_seniority(&rows[high as usize]);
        let goes_down = distance(low).total_cmp(&distance(high)).then_with(seniority).is_lt();
        if goes_down { self.take_below() } else { self.take_above() }
    }

    fn take_above(&mut self) -> Option<u32> {
        let row = self.above?;
        self.above = self.waiting_list.waiting_above(row);
        Some(row)
    }

    /// Those with one key come in their order, the senior first; then those with the next lower.
    fn take_below(&mut self) -> Option<u32> {
        let (row, first) = self.below?;
        let key = |row: u32| self.pass_state.sort_keys[row as usize].to_bits();
        self.below = match self.waiting_list.waiting_above(row).filter(|&it| key(it) == key(row)) {
            Some(next) => Some((next, first)),
            None => self
                .waiting_list
                .waiting_below(first)
                .map(|it| self.waiting_list.first_waiting_with_key(it))
                .map(|it| (it, it)),
        };
        Some(row)
    }
}
