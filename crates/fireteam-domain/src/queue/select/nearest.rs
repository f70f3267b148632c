//! The nearest partners first, ties by longest wait (S0-12).

use crate::filter::Refusal;
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::select::{PartialMatch, Selector};
use crate::queue::waiting_list::NearestIter;

/// Full matches that are judged for one ticket; dividing teams is the dearest step.
const BUILD_ATTEMPTS_MAX: u32 = 16;

impl<'a> Selector<'_, 'a> {
    pub(super) fn select_nearest(&mut self, pool: &[u32]) {
        self.match_each_in_turn(pool, Self::nearest_match);
    }

    /// The match of `row` with those who are nearest to it. Parties of its own size first, where the ruleset likes that.
    pub(super) fn nearest_match(&mut self, row: u32) -> Option<CandidateMatch<'a>> {
        if self.pass_state.input.queue.like_parties_first
            && let Some(made) = self.fill_from_nearest(row, true)
        {
            return Some(made);
        }
        self.fill_from_nearest(row, false)
    }

    fn fill_from_nearest(&mut self, row: u32, alike: bool) -> Option<CandidateMatch<'a>> {
        let (field, desk) = (self.pass_state, &mut *self.progress);
        let mut gathering = PartialMatch::new(field, row);
        if gathering.is_full() {
            return field
                .build_match(gathering.ticket_indices(), desk)
                .map_err(|refusal| desk.record_refusal(row, refusal))
                .ok();
        }
        let mut near = NearestIter::new(field, self.waiting_list, row);
        let (mut finishes, mut anybody) = (0, false);
        let look_at = field.input.queue.selection.look_at.max(1);
        for looked in 0.. {
            let Some(other) = near.next_candidate(desk) else { break };
            if looked == look_at {
                desk.candidate_limit_reached = true;
                break;
            }
            anybody = true;
            if alike && field.tickets[other as usize].player_count != field.tickets[row as usize].player_count {
                continue;
            }
            match gathering.try_add(other, desk)? {
                Ok(()) if !gathering.is_full() => continue,
                Ok(()) => {}
                Err(refusal) => {
                    desk.record_refusal(row, refusal);
                    continue;
                }
            }
            match field.build_match(gathering.ticket_indices(), desk) {
                Ok(made) => return Some(made),
                Err(refusal) => desk.record_refusal(row, refusal),
            }
            gathering.remove_last();
            finishes += 1;
            if finishes == BUILD_ATTEMPTS_MAX {
                break;
            }
        }
        if !alike && finishes == 0 {
            // Whoever would do is not enough, or is no longer there.
            let enough = anybody && desk.leading_refusal(row).is_none_or(|_| 1 < gathering.ticket_indices().len());
            if enough {
                desk.record_refusal(row, Refusal::TeamsNotFilled);
            } else if desk.leading_refusal(row).is_none() {
                desk.record_refusal(row, Refusal::CandidatesTaken);
            }
        }
        None
    }
}
