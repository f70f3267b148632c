//! Match selection: nearest, weighted sample, first window or maximum weight.

mod changed_windows;
pub(super) mod failed_searches;
mod fill_match;
mod fill_with_bots;
mod first_window;
mod maximum_weight;
mod nearest;
mod soft_kd_tree;
mod weighted_sample;

use crate::filter::Refusal;
use crate::order::ordered_bits;
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::pass_progress::PassProgress;
use crate::queue::pass_state::PassState;
use crate::queue::queue_without_matches::QueueWithoutMatches;
use crate::queue::rng::SplitMix64;
use crate::queue::select::failed_searches::{RowSearches, SearchTrace};
use crate::queue::waiting_list::WaitingList;
use crate::ruleset::queue::{SelectionMode, SelectionOrder};
use crate::time::UnixMs;

pub(super) use crate::queue::select::fill_match::PartialMatch;

/// Selection state of a pass.
pub(super) struct Selector<'w, 'a> {
    pub(super) pass_state: &'w PassState<'a>,
    pub(super) waiting_list: &'w mut WaitingList,
    pub(super) progress: &'w mut PassProgress,
    pub(super) rng: &'w mut SplitMix64,
    /// The queue before its newcomers, if only their windows are examined.
    pub(super) queue_before_newcomers: Option<&'w QueueWithoutMatches>,
    /// Searches that found no match, if they can be kept between passes.
    pub(super) searches: Option<&'w mut RowSearches>,
    /// Trace of the running search.
    pub(super) search_trace: SearchTrace,
    /// Matches that may still be made.
    pub(super) matches_left: usize,
    pub(super) matches: Vec<CandidateMatch<'a>>,
}

impl<'a> Selector<'_, 'a> {
    /// Selects matches from one pool.
    pub(super) fn select_from_pool(&mut self, pool: &[u32]) {
        if pool.len() < 2
            && self.pass_state.tickets[pool[0] as usize].player_count < self.pass_state.input.teams.players_per_match()
        {
            return self.progress.record_refusal(pool[0], Refusal::NoCandidates);
        }
        match self.pass_state.input.queue.selection.mode {
            SelectionMode::Nearest => self.select_nearest(pool),
            SelectionMode::WeightedSample => self.select_weighted_samples(pool),
            SelectionMode::FirstWindow => self.select_first_windows(pool),
            SelectionMode::MaximumWeight => self.select_maximum_weight(pool),
        }
    }

    /// Match that `row` gets if it is served first, if any.
    pub(super) fn find_match_for(&mut self, row: u32) -> Option<CandidateMatch<'a>> {
        let found = match self.pass_state.input.queue.selection.mode {
            SelectionMode::Nearest | SelectionMode::MaximumWeight => self.nearest_match(row),
            SelectionMode::WeightedSample => self.weighted_sample_match(row),
            SelectionMode::FirstWindow => self.first_window_around(row),
        };
        found.or_else(|| self.match_with_bots(row))
    }

    /// Waiting tickets of a pool, in the order in which they are served.
    fn serving_order(&self, pool: &[u32]) -> Vec<u32> {
        let tickets = &self.pass_state.tickets;
        let priority = |row: u32| match self.pass_state.input.queue.selection.start_with {
            SelectionOrder::LongestWaiting => 0,
            SelectionOrder::HighestRated => !ordered_bits(tickets[row as usize].prepared.party_rating),
        };
        let waiting = pool.iter().copied().filter(|&row| self.waiting_list.is_waiting(row));
        let entered_at = |row: u32| tickets[row as usize].prepared.ticket.entered_at;
        let mut order: Vec<(u64, UnixMs, u32)> = waiting.map(|row| (priority(row), entered_at(row), row)).collect();
        order.sort_unstable_by(|one, other| {
            let by_id = || tickets[one.2 as usize].compare_seniority(&tickets[other.2 as usize]);
            (one.0, one.1).cmp(&(other.0, other.1)).then_with(by_id)
        });
        order.into_iter().map(|(_, _, row)| row).collect()
    }

    /// Serves all waiting tickets in order, each with `serve`.
    fn match_each_in_turn(
        &mut self,
        pool: &[u32],
        mut serve: impl FnMut(&mut Self, u32) -> Option<CandidateMatch<'a>>,
    ) {
        for row in self.serving_order(pool) {
            if self.matches_left == 0 || self.progress.truncated {
                return;
            }
            if self.waiting_list.is_waiting(row)
                && let Some(candidate) = serve(self, row)
            {
                self.record_match(candidate);
            }
        }
    }

    fn record_match(&mut self, candidate: CandidateMatch<'a>) {
        candidate.ticket_indices().for_each(|row| self.waiting_list.remove(row));
        self.matches_left -= 1;
        self.matches.push(candidate);
    }
}
