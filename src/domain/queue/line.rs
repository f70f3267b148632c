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
    waiting: Vec<bool>,
}

impl Line {
    pub(super) fn of(rows: usize, pools: &[Vec<u32>]) -> Self {
        let mut line = Self { next: vec![NONE; rows], prev: vec![NONE; rows], waiting: vec![false; rows] };
        for pool in pools {
            for pair in pool.windows(2) {
                line.next[pair[0] as usize] = pair[1];
                line.prev[pair[1] as usize] = pair[0];
            }
            pool.iter().for_each(|&row| line.waiting[row as usize] = true);
        }
        line
    }

    pub(super) fn is_waiting(&self, row: u32) -> bool {
        self.waiting[row as usize]
    }

    /// The next higher row of the pool that still waits.
    pub(super) fn above(&self, row: u32) -> Option<u32> {
        some(self.next[row as usize])
    }

    /// The next lower row of the pool that still waits.
    pub(super) fn below(&self, row: u32) -> Option<u32> {
        some(self.prev[row as usize])
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
        self.waiting[row as usize] = false;
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
    low: Option<u32>,
    high: Option<u32>,
    /// Those who are equally near, the most senior last.
    run: Vec<u32>,
}

impl<'n, 'a> Near<'n, 'a> {
    pub(super) fn to(field: &'n Field<'a>, line: &'n Line, from: u32) -> Self {
        Self { field, line, from, low: line.below(from), high: line.above(from), run: Vec::new() }
    }

    /// The next nearest; `None` when there is none, or none that need be asked.
    pub(super) fn next(&mut self, desk: &mut Desk) -> Option<u32> {
        if self.run.is_empty() {
            self.fill(desk);
        }
        self.run.pop()
    }

    fn fill(&mut self, desk: &mut Desk) {
        for side in [&mut self.low, &mut self.high] {
            if let Some(refusal) = side.and_then(|row| self.field.beyond(self.from, row)) {
                desk.refused(self.from, refusal);
                *side = None;
            }
        }
        let far = |side: Option<u32>| side.map_or(f64::INFINITY, |row| self.field.nearness(self.from, row));
        let nearest = far(self.low).min(far(self.high));
        // A crowd that is equally near is asked in parts: nobody looks at more at once than he may look at in all.
        let most = self.field.input.queue.selection.look_at.max(1) as usize;
        while let Some(row) =
            self.low.filter(|&row| self.run.len() < most && is_at(self.field, self.from, row, nearest))
        {
            self.run.push(row);
            self.low = self.line.below(row);
        }
        let most = self.run.len() + most;
        while let Some(row) =
            self.high.filter(|&row| self.run.len() < most && is_at(self.field, self.from, row, nearest))
        {
            self.run.push(row);
            self.high = self.line.above(row);
        }
        let rows = &self.field.rows;
        self.run.sort_unstable_by(|&one, &other| rows[other as usize].seniority(&rows[one as usize]));
    }
}

/// Whether `row` is as near to `from` as `nearest`. Those who have no place are at no distance that could be told.
fn is_at(field: &Field<'_>, from: u32, row: u32, nearest: f64) -> bool {
    let distance = field.nearness(from, row);
    distance <= nearest || distance.is_nan()
}
