//! Who still waits during a pass, each knowing the nearest to either side: whoever is taken is passed over from then on, at
//! no cost to those who look.

use crate::domain::queue::desk::Desk;
use crate::domain::queue::field::Field;

/// No row.
const NONE: u32 = u32::MAX;

/// Rows in their order, pool by pool; rows of different pools do not see each other.
#[derive(Clone, Debug)]
pub(super) struct Line {
    next: Vec<u32>,
    prev: Vec<u32>,
    /// The first row of those with the same key.
    run: Vec<u32>,
    /// Where to go on looking from a row: itself while it waits, else somebody after it.
    skip: Vec<u32>,
}

impl Line {
    pub(super) fn of(field: &Field<'_>, pools: &[Vec<u32>]) -> Self {
        let rows = field.rows.len();
        let mut line =
            Self { next: vec![NONE; rows], prev: vec![NONE; rows], run: vec![NONE; rows], skip: vec![NONE; rows] };
        for pool in pools {
            for (place, &row) in pool.iter().enumerate() {
                let before = place.checked_sub(1).map(|before| pool[before]);
                let at = row as usize;
                (line.skip[at], line.prev[at]) = (row, before.unwrap_or(NONE));
                line.next[at] = pool.get(place + 1).copied().unwrap_or(NONE);
                let key = |row: u32| field.keys[row as usize].to_bits();
                line.run[at] = before.filter(|&it| key(it) == key(row)).map_or(row, |it| line.run[it as usize]);
            }
        }
        line
    }

    pub(super) fn is_waiting(&self, row: u32) -> bool {
        self.skip[row as usize] == row
    }

    /// The next higher row of the pool that still waits.
    pub(super) fn above(&self, row: u32) -> Option<u32> {
        some(self.next[row as usize])
    }

    /// The next lower row of the pool that still waits.
    pub(super) fn below(&self, row: u32) -> Option<u32> {
        some(self.prev[row as usize])
    }

    /// The first that still waits of those with the same key; `row` itself waits.
    fn first_of_run(&self, row: u32) -> u32 {
        let mut at = self.run[row as usize];
        while !self.is_waiting(at) {
            at = self.skip[at as usize];
        }
        at
    }

    /// Takes a row out.
    pub(super) fn remove(&mut self, row: u32) {
        let (next, prev) = (self.next[row as usize], self.prev[row as usize]);
        if next != NONE {
            self.prev[next as usize] = prev;
        }
        if prev != NONE {
            self.next[prev as usize] = next;
        }
        self.skip[row as usize] = next;
        // The first of a run that is gone is asked for again and again: it points to who waits.
        let first = self.run[row as usize] as usize;
        if self.skip[first] == row {
            self.skip[first] = next;
        }
    }
}

fn some(row: u32) -> Option<u32> {
    (row != NONE).then_some(row)
}

/// Those who still wait, nearest to one row first, ties by seniority (S0-12).
pub(super) struct Near<'n, 'a> {
    field: &'n Field<'a>,
    line: &'n Line,
    from: u32,
    /// Who comes next among those below, and the first of them with that key.
    low: Option<(u32, u32)>,
    /// Who comes next among those above; at first, those with the same key.
    high: Option<u32>,
}

impl<'n, 'a> Near<'n, 'a> {
    pub(super) fn to(field: &'n Field<'a>, line: &'n Line, from: u32) -> Self {
        let first = line.first_of_run(from);
        let below = |it: u32| line.below(it).map(|it| line.first_of_run(it));
        Self { field, line, from, low: below(first).map(|it| (it, it)), high: Some(first) }
    }

    /// The next nearest; `None` when there is none, or none that need be asked.
    pub(super) fn next(&mut self, desk: &mut Desk) -> Option<u32> {
        if self.high == Some(self.from) {
            self.high = self.line.above(self.from);
        }
        let beyond = |row: u32| self.field.beyond(self.from, row);
        if let Some(refusal) = self.low.and_then(|(row, _)| beyond(row)) {
            desk.refused(self.from, refusal);
            self.low = None;
        }
        if let Some(refusal) = self.high.and_then(beyond) {
            desk.refused(self.from, refusal);
            self.high = None;
        }
        let (low, high) = match (self.low, self.high) {
            (None, None) => return None,
            (Some(_), None) => return self.step_down(),
            (None, Some(_)) => return self.step_up(),
            (Some((low, _)), Some(high)) => (low, high),
        };
        let distance = |row: u32| self.field.nearness(self.from, row);
        let rows = &self.field.rows;
        let seniority = || rows[low as usize].seniority(&rows[high as usize]);
        let goes_down = distance(low).total_cmp(&distance(high)).then_with(seniority).is_lt();
        if goes_down { self.step_down() } else { self.step_up() }
    }

    fn step_up(&mut self) -> Option<u32> {
        let row = self.high?;
        self.high = self.line.above(row);
        Some(row)
    }

    /// Those with one key come in their order, the senior first; then those with the next lower.
    fn step_down(&mut self) -> Option<u32> {
        let (row, first) = self.low?;
        let key = |row: u32| self.field.keys[row as usize].to_bits();
        self.low = match self.line.above(row).filter(|&it| key(it) == key(row)) {
            Some(next) => Some((next, first)),
            None => self.line.below(first).map(|it| self.line.first_of_run(it)).map(|it| (it, it)),
        };
        Some(row)
    }
}
