//! Selection with bots: tickets that have waited long enough get a match with the players that there are.

use crate::filter::Refusal;
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::select::{PartialMatch, Selector};
use crate::queue::waiting_list::NearestIter;

/// Maximum number of matches built per ticket, because splitting teams is expensive.
const BUILD_ATTEMPTS_MAX: u32 = 16;

impl<'a> Selector<'_, 'a> {
    /// Matches the waiting tickets of a pool that have waited for `<Bots AfterMs>`, in the order in which they are served.
    pub(in crate::queue) fn select_with_bots(&mut self, pool: &[u32]) {
        if self.pass_state.input.teams.bots.is_some() {
            self.match_each_in_turn(pool, Self::match_with_bots);
        }
    }

    /// Match of `row` with all its nearest compatible candidates, if it has waited long enough. If they are refused together, the
    /// farthest ones are left out.
    pub(super) fn match_with_bots(&mut self, row: u32) -> Option<CandidateMatch<'a>> {
        let (pass_state, progress) = (self.pass_state, &mut *self.progress);
        let bots = pass_state.input.teams.bots?;
        if pass_state.tickets[row as usize].waiting_session.waited_ms < bots.after_ms {
            return None;
        }
        let mut partial_match = PartialMatch::new(pass_state, row);
        let mut candidates = NearestIter::new(pass_state, self.waiting_list, row);
        let max_candidates = pass_state.input.queue.selection.max_candidates.max(1);
        for examined in 0.. {
            if partial_match.is_full() {
                break;
            }
            let Some(other) = candidates.next_candidate(progress) else { break };
            if examined == max_candidates {
                progress.candidate_limit_reached = true;
                break;
            }
            if let Err(refusal) = partial_match.try_add(other, progress)? {
                progress.record_refusal(row, refusal);
            }
        }
        for _ in 0..BUILD_ATTEMPTS_MAX {
            if partial_match.player_count() < bots.min_players {
                progress.record_refusal(row, Refusal::TeamsNotFilled);
                break;
            }
            match pass_state.build_match(partial_match.ticket_indices(), progress) {
                Ok(candidate) => return Some(candidate),
                Err(refusal) => progress.record_refusal(row, refusal),
            }
            // The ticket itself stays.
            if let [_] = partial_match.ticket_indices() {
                break;
            }
            partial_match.remove_last();
        }
        None
    }
}
