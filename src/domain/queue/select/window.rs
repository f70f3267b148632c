//! The first window over the sorted ratings that is good enough (S4-5): neighbours play each other, and whoever is rated highest,
//! or has waited longest, is served first.

use crate::domain::filter::Refusal;
use crate::domain::queue::made::Made;
use crate::domain::queue::select::{Gathering, Work};
use crate::domain::ruleset::queue::StartWith;

impl<'a> Work<'_, 'a> {
    pub(super) fn windows(&mut self, pool: &[u32]) {
        match self.field.input.queue.selection.start_with {
            StartWith::HighestRated => self.in_turn(pool, |work, row| work.window_from(row, None)),
            StartWith::LongestWaiting => self.in_turn(pool, Self::window_around),
        }
    }

    /// The first window that is good enough of those that have `row` in them, from the highest down.
    pub(super) fn window_around(&mut self, row: u32) -> Option<Made<'a>> {
        let mut starts = vec![row];
        for _ in 1..self.field.input.teams.match_size() {
            let Some(above) = starts.last().and_then(|&it| self.line.above(it)) else { break };
            starts.push(above);
        }
        starts.into_iter().rev().find_map(|start| self.window_from(start, Some(row)))
    }

    /// The window that begins with `start` and goes down: those below who may meet everybody above them, until they are as many
    /// as a match takes.
    fn window_from(&mut self, start: u32, wanted: Option<u32>) -> Option<Made<'a>> {
        let (field, desk) = (self.field, &mut *self.desk);
        let asks = wanted.unwrap_or(start);
        let mut gathering = Gathering::of(field, start);
        let mut next = self.line.below(start);
        let mut looked = 0;
        while let Some(row) = next.filter(|_| !gathering.is_full()) {
            if looked == field.input.queue.selection.look_at.max(1) {
                desk.narrowed = true;
                break;
            }
            looked += 1;
            if let Some(refusal) = field.beyond(start, row) {
                desk.refused(asks, refusal);
                break;
            }
            if let Err(refusal) = gathering.admit(row, desk)? {
                desk.refused(asks, refusal);
                if wanted == Some(row) {
                    return None;
                }
            }
            next = self.line.below(row);
        }
        let has_wanted = wanted.is_none_or(|wanted| gathering.rows().contains(&wanted));
        if !gathering.is_full() || !has_wanted {
            if desk.why(asks).is_none() {
                desk.refused(asks, if looked == 0 { Refusal::Taken } else { Refusal::Team });
            }
            return None;
        }
        field.finish(gathering.rows(), desk).map_err(|refusal| desk.refused(asks, refusal)).ok()
    }
}
