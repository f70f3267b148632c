//! The nearest partners first, ties by longest wait (S0-12).

use crate::domain::filter::Refusal;
use crate::domain::queue::line::Near;
use crate::domain::queue::made::Made;
use crate::domain::queue::select::{Gathering, Work};

/// Full matches that are judged for one ticket; dividing teams is the dearest step.
const FINISHES_MAX: u32 = 16;

impl<'a> Work<'_, 'a> {
    pub(super) fn nearest(&mut self, pool: &[u32]) {
        self.in_turn(pool, Self::nearest_to);
    }

    /// The match of `row` with those who are nearest to it. Parties of its own size first, where the ruleset likes that.
    pub(super) fn nearest_to(&mut self, row: u32) -> Option<Made<'a>> {
        if self.field.input.queue.like_parties_first
            && let Some(made) = self.gather_near(row, true)
        {
            return Some(made);
        }
        self.gather_near(row, false)
    }

    fn gather_near(&mut self, row: u32, alike: bool) -> Option<Made<'a>> {
        let (field, desk) = (self.field, &mut *self.desk);
        let mut gathering = Gathering::of(field, row);
        if gathering.is_full() {
            return field.finish(gathering.rows(), desk).map_err(|refusal| desk.refused(row, refusal)).ok();
        }
        let mut near = Near::to(field, self.line, row);
        let (mut finishes, mut anybody) = (0, false);
        let look_at = field.input.queue.selection.look_at.max(1);
        for looked in 0.. {
            let Some(other) = near.next(desk) else { break };
            if looked == look_at {
                desk.narrowed = true;
                break;
            }
            anybody = true;
            if alike && field.rows[other as usize].size != field.rows[row as usize].size {
                continue;
            }
            match gathering.admit(other, desk)? {
                Ok(()) if !gathering.is_full() => continue,
                Ok(()) => {}
                Err(refusal) => {
                    desk.refused(row, refusal);
                    continue;
                }
            }
            match field.finish(gathering.rows(), desk) {
                Ok(made) => return Some(made),
                Err(refusal) => desk.refused(row, refusal),
            }
            gathering.dismiss();
            finishes += 1;
            if finishes == FINISHES_MAX {
                break;
            }
        }
        if !alike && finishes == 0 {
            // Whoever would do is not enough, or is no longer there.
            let enough = anybody && desk.why(row).is_none_or(|_| 1 < gathering.rows().len());
            if enough {
                desk.refused(row, Refusal::Team);
            } else if desk.why(row).is_none() {
                desk.refused(row, Refusal::Taken);
            }
        }
        None
    }
}
