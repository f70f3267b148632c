//! Nearest selection: matches each ticket with the nearest candidates; ties by longest wait.

use crate::filter::Refusal;
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::refusal_majority::SearchRefusals;
use crate::queue::select::failed_searches::SearchTrace;
use crate::queue::select::{PartialMatch, Selector};
use crate::queue::waiting_list::NearestIter;

/// Maximum number of full matches built per ticket, because splitting teams is expensive.
const BUILD_ATTEMPTS_MAX: u32 = 16;

impl<'a> Selector<'_, 'a> {
    pub(super) fn select_nearest(&mut self, pool: &[u32]) {
        self.match_each_in_turn(pool, Self::nearest_match_if_not_known);
    }

    /// As [`Self::nearest_match`], without the searches that would fail again as they did in an earlier pass.
    fn nearest_match_if_not_known(&mut self, row: u32) -> Option<CandidateMatch<'a>> {
        let Some(searches) = &mut self.searches else { return self.nearest_match(row) };
        if searches.fails_again(self.pass_state, row, self.waiting_list, self.progress) {
            return None;
        }
        let (refusals_before, counts_before) = (self.progress.take_refusals(row), self.progress.refusal_counts.clone());
        self.search_trace = SearchTrace::default();
        let found = self.nearest_match(row);
        let majority = self.progress.take_refusals(row);
        self.progress.add_refusals(row, refusals_before);
        self.progress.add_refusals(row, majority);
        if let Some(searches) = &mut self.searches
            && found.is_none()
            && !self.progress.truncated
        {
            let counts = self.progress.refusal_counts.iter().zip(counts_before).zip(0_u16..);
            let counts = counts.map(|((after, before), counter)| (counter, (after - before) as u32));
            let refusals = SearchRefusals { majority, counts: counts.filter(|(_, count)| 0 < *count).collect() };
            searches.record_failure(self.pass_state, row, &self.search_trace, refusals);
        }
        found
    }

    /// Match of `row` with its nearest candidates. Parties of the same size come first if the ruleset prefers that.
    pub(super) fn nearest_match(&mut self, row: u32) -> Option<CandidateMatch<'a>> {
        if self.pass_state.input.queue.prefer_same_party_size
            && let Some(candidate) = self.fill_from_nearest(row, true)
        {
            return Some(candidate);
        }
        self.fill_from_nearest(row, false)
    }

    fn fill_from_nearest(&mut self, row: u32, same_size_only: bool) -> Option<CandidateMatch<'a>> {
        let (pass_state, progress, trace) = (self.pass_state, &mut *self.progress, &mut self.search_trace);
        let mut partial_match = PartialMatch::new(pass_state, row);
        if partial_match.is_full() {
            trace.built_match = true;
            return pass_state
                .build_match(partial_match.ticket_indices(), progress)
                .map_err(|refusal| progress.record_refusal(row, refusal))
                .ok();
        }
        let mut candidates = NearestIter::new(pass_state, self.waiting_list, row);
        let (mut attempts, mut has_candidates, mut last_distance) = (0, false, 0.0);
        let max_candidates = pass_state.input.queue.selection.max_candidates.max(1);
        for examined in 0.. {
            let Some(other) = candidates.next_candidate(progress) else { break };
            if examined == max_candidates {
                progress.candidate_limit_reached = true;
                trace.limit_distance = Some(last_distance);
                break;
            }
            (has_candidates, trace.candidate_count) = (true, trace.candidate_count.saturating_add(1));
            last_distance = pass_state.sort_key_distance(row, other);
            if same_size_only
                && pass_state.tickets[other as usize].player_count != pass_state.tickets[row as usize].player_count
            {
                continue;
            }
            match partial_match.try_add(other, progress)? {
                Ok(()) if !partial_match.is_full() => continue,
                Ok(()) => {}
                Err(refusal) => {
                    progress.record_refusal(row, refusal);
                    continue;
                }
            }
            trace.built_match = true;
            match pass_state.build_match(partial_match.ticket_indices(), progress) {
                Ok(candidate) => return Some(candidate),
                Err(refusal) => progress.record_refusal(row, refusal),
            }
            partial_match.remove_last();
            attempts += 1;
            if attempts == BUILD_ATTEMPTS_MAX {
                break;
            }
        }
        trace.added.extend(&partial_match.ticket_indices()[1..]);
        if !same_size_only && attempts == 0 {
            // There are too few compatible candidates, or they are already matched.
            let too_few_compatible = has_candidates
                && progress.leading_refusal(row).is_none_or(|_| partial_match.ticket_indices().len() > 1);
            if too_few_compatible {
                progress.record_refusal(row, Refusal::TeamsNotFilled);
            } else if progress.leading_refusal(row).is_none() {
                progress.record_refusal(row, Refusal::CandidatesTaken);
            }
        }
        None
    }
}
