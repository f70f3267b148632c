//! Which of the matches that would do is made: the nearest, one that is drawn, the first window, or all at once.

mod draw;
mod gather;
mod nearest;
mod together;
mod tree;
mod window;

pub(super) use gather::Gathering;

use crate::domain::filter::Refusal;
use crate::domain::queue::desk::Desk;
use crate::domain::queue::dice::Dice;
use crate::domain::queue::field::{Field, ordered_bits};
use crate::domain::queue::line::Line;
use crate::domain::queue::made::Made;
use crate::domain::ruleset::queue::{SelectionMode, StartWith};
use crate::domain::time::UnixMs;

/// A pass at work.
pub(super) struct Work<'w, 'a> {
    pub(super) field: &'w Field<'a>,
    pub(super) line: &'w mut Line,
    pub(super) desk: &'w mut Desk,
    pub(super) dice: &'w mut Dice,
    /// Matches that may still be made.
    pub(super) room: usize,
    pub(super) made: Vec<Made<'a>>,
}

impl<'a> Work<'_, 'a> {
    /// Makes matches out of one pool.
    pub(super) fn run(&mut self, pool: &[u32]) {
        if pool.len() < 2 && self.field.rows[pool[0] as usize].size < self.field.input.teams.match_size() {
            return self.desk.refused(pool[0], Refusal::Nobody);
        }
        match self.field.input.queue.selection.mode {
            SelectionMode::Nearest => self.nearest(pool),
            SelectionMode::WeightedSample => self.draw(pool),
            SelectionMode::BestWindow => self.windows(pool),
            SelectionMode::MaximumWeight => self.together(pool),
        }
    }

    /// The one match that is made for `row` when it is served first, if there is one.
    pub(super) fn serve(&mut self, row: u32) -> Option<Made<'a>> {
        match self.field.input.queue.selection.mode {
            SelectionMode::Nearest | SelectionMode::MaximumWeight => self.nearest_to(row),
            SelectionMode::WeightedSample => self.drawn_for(row),
            SelectionMode::BestWindow => self.window_around(row),
        }
    }

    /// Those of a pool who wait, in the order in which they are served.
    fn served(&self, pool: &[u32]) -> Vec<u32> {
        let rows = &self.field.rows;
        let first = |row: u32| match self.field.input.queue.selection.start_with {
            StartWith::LongestWaiting => 0,
            StartWith::HighestRated => !ordered_bits(rows[row as usize].entrant.rating),
        };
        let waiting = pool.iter().copied().filter(|&row| self.line.is_waiting(row));
        let entered = |row: u32| rows[row as usize].entrant.ticket.entered;
        let mut order: Vec<(u64, UnixMs, u32)> = waiting.map(|row| (first(row), entered(row), row)).collect();
        order.sort_unstable_by(|one, other| {
            let by_id = || rows[one.2 as usize].seniority(&rows[other.2 as usize]);
            (one.0, one.1).cmp(&(other.0, other.1)).then_with(by_id)
        });
        order.into_iter().map(|(_, _, row)| row).collect()
    }

    /// Serves everybody in turn, each by `serve`.
    fn in_turn(&mut self, pool: &[u32], serve: impl Fn(&mut Self, u32) -> Option<Made<'a>>) {
        for row in self.served(pool) {
            if self.room == 0 || self.desk.out_of_looks {
                return;
            }
            if self.line.is_waiting(row)
                && let Some(made) = serve(self, row)
            {
                self.take(made);
            }
        }
    }

    fn take(&mut self, made: Made<'a>) {
        made.rows().for_each(|row| self.line.remove(row));
        self.room -= 1;
        self.made.push(made);
    }
}
