//! The first window over the sorted ratings that is good enough (S4-5): neighbours play each other, and whoever is rated highest,
//! or has waited longest, is served first.

use crate::filter::Refusal;
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::select::{PartialMatch, Selector};
use crate::ruleset::queue::SelectionOrder;

impl<'a> Selector<'_, 'a> {
    pub(super) fn select_first_windows(&mut self, pool: &[u32]) {
        match self.pass_state.input.queue.selection.start_with {
            SelectionOrder::HighestRated => {
                self.match_each_in_turn(pool, |work, row| work.window_starting_at(row, None))
            }
            SelectionOrder::LongestWaiting => self.match_each_in_turn(pool, Self::first_window_around),
        }
    }

    /// The first window that is good enough of those that have `row` in them, from the highest down.
    pub(super) fn first_window_around(&mut self, row: u32) -> Option<CandidateMatch<'a>> {
        let mut starts = vec![row];
        for _ in 1..self.pass_state.input.teams.players_per_match() {
            let Some(above) = starts.last().and_then(|&it| self.waiting_list.waiting_above(it)) else { break };
            starts.push(above);
        }
        starts.into_iter().rev().find_map(|start| self.window_starting_at(start, Some(row)))
    }

    /// The window that begins with `start` and goes down: those below who may meet everybody above them, until they are as many
    /// as a match takes.
    fn window_starting_at(&mut self, start: u32, wanted: Option<u32>) -> Option<CandidateMatch<'a>> {
        let (field, desk) = (self.pass_state, &mut *self.progress);
        let asks = wanted.unwrap_or(start);
        let mut gathering = PartialMatch::new(field, start);
        let mut next = self.waiting_list.waiting_below(start);
        let mut looked = 0;
        while let Some(row) = next.filter(|_| !gathering.is_full()) {
            if looked == field.input.queue.selection.look_at.max(1) {
                desk.candidate_limit_reached = true;
                break;
            }
            looked += 1;
            if let Some(refusal) = field.out_of_reach(start, row) {
                desk.record_refusal(asks, refusal);
                break;
            }
            if let Err(refusal) = gathering.try_add(row, desk)? {
                desk.record_refusal(asks, refusal);
                if wanted == Some(row) {
                    return None;
                }
            }
            next = self.waiting_list.waiting_below(row);
        }
        let has_wanted = wanted.is_none_or(|wanted| gathering.ticket_indices().contains(&wanted));
        if !gathering.is_full() || !has_wanted {
            if desk.leading_refusal(asks).is_none() {
                desk.record_refusal(asks, if looked == 0 { Refusal::CandidatesTaken } else { Refusal::TeamsNotFilled });
            }
            return None;
        }
        field.build_match(gathering.ticket_indices(), desk).map_err(|refusal| desk.record_refusal(asks, refusal)).ok()
    }
}
