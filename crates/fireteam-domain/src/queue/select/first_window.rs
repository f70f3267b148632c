//! First-window selection: takes the first window over the sorted ratings that is good enough. Serves the highest
//! rating or the longest wait first.

use crate::filter::Refusal;
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::select::changed_windows::ChangedTickets;
use crate::queue::select::{PartialMatch, Selector};
use crate::ruleset::queue::SelectionOrder;

impl<'a> Selector<'_, 'a> {
    pub(super) fn select_first_windows(&mut self, pool: &[u32]) {
        let mut changed =
            self.queue_before_newcomers.map(|evaluated| ChangedTickets::new(pool, self.pass_state, evaluated));
        let start_with = self.pass_state.input.queue.selection.start_with;
        self.match_each_in_turn(pool, |selector, row| {
            if changed.as_ref().is_some_and(|changed| !changed.may_be_in_window_of(row, selector.pass_state)) {
                return None;
            }
            let found = match start_with {
                SelectionOrder::HighestRated => selector.window_starting_at(row, None),
                SelectionOrder::LongestWaiting => selector.first_window_around(row),
            };
            if let (Some(changed), Some(candidate)) = (&mut changed, &found) {
                changed.record_matched(candidate.ticket_indices());
            }
            found
        });
    }

    /// First window that contains `row` and is good enough, from the highest start down.
    pub(super) fn first_window_around(&mut self, row: u32) -> Option<CandidateMatch<'a>> {
        let mut starts = vec![row];
        for _ in 1..self.pass_state.input.teams.players_per_match() {
            let Some(above) = starts.last().and_then(|&it| self.waiting_list.next_waiting_above(it)) else { break };
            starts.push(above);
        }
        starts.into_iter().rev().find_map(|start| self.window_starting_at(start, Some(row)))
    }

    /// Window from `start` downwards: adds tickets that may meet all those above, until the match is full.
    fn window_starting_at(&mut self, start: u32, required: Option<u32>) -> Option<CandidateMatch<'a>> {
        let (pass_state, progress) = (self.pass_state, &mut *self.progress);
        let served = required.unwrap_or(start);
        let mut partial_match = PartialMatch::new(pass_state, start);
        let mut next = self.waiting_list.next_waiting_below(start);
        let mut examined = 0;
        while let Some(row) = next.filter(|_| !partial_match.is_full()) {
            if examined == pass_state.input.queue.selection.max_candidates.max(1) {
                progress.candidate_limit_reached = true;
                break;
            }
            examined += 1;
            if let Some(refusal) = pass_state.refusal_of_all_beyond(start, row) {
                progress.record_refusal(served, refusal);
                break;
            }
            if let Err(refusal) = partial_match.try_add(row, progress)? {
                progress.record_refusal(served, refusal);
                if required == Some(row) {
                    return None;
                }
            }
            next = self.waiting_list.next_waiting_below(row);
        }
        let has_required = required.is_none_or(|required| partial_match.ticket_indices().contains(&required));
        if !partial_match.is_full() || !has_required {
            if progress.leading_refusal(served).is_none() {
                progress.record_refusal(
                    served,
                    if examined == 0 { Refusal::CandidatesTaken } else { Refusal::TeamsNotFilled },
                );
            }
            return None;
        }
        pass_state
            .build_match(partial_match.ticket_indices(), progress)
            .map_err(|refusal| progress.record_refusal(served, refusal))
            .ok()
    }
}
