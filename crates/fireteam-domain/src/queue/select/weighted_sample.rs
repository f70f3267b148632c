//! Weighted-sample selection: draws partners at random with their quality as weight, so that opponents vary.

use crate::filter::Refusal;
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::quality::{self, PartyQualityInput};
use crate::queue::select::{PartialMatch, Selector};
use crate::queue::waiting_list::NearestIter;

/// Attempts to draw a larger match for one ticket per pass.
const MATCH_DRAW_ATTEMPTS_MAX: u32 = 3;

/// Minimum weight, so that every candidate that is good enough can be drawn.
const SAMPLE_WEIGHT_MIN: f64 = 1e-9;

impl<'a> Selector<'_, 'a> {
    pub(super) fn select_weighted_samples(&mut self, pool: &[u32]) {
        self.match_each_in_turn(pool, Self::weighted_sample_match);
    }

    /// Match of `row` with randomly drawn partners.
    pub(super) fn weighted_sample_match(&mut self, row: u32) -> Option<CandidateMatch<'a>> {
        let mut candidate = self.sample_match_preferring_same_size(row)?;
        // Rotate teams of equal size, so that each ticket is equally likely to be in the first team.
        let sizes = &self.pass_state.input.teams.team_sizes;
        if sizes.iter().all(|size| *size == sizes[0]) {
            let rotation = (self.rng.next_u64() % sizes.len() as u64) as usize;
            candidate.teams.rotate_left(rotation);
        }
        Some(candidate)
    }

    fn sample_match_preferring_same_size(&mut self, row: u32) -> Option<CandidateMatch<'a>> {
        let size = |row: u32| self.pass_state.tickets[row as usize].player_count;
        let match_size = self.pass_state.input.teams.players_per_match();
        if size(row) == match_size {
            return self.build_or_record_refusal(row, &[row]);
        }
        let mut candidates = self.weighted_candidates(row);
        let prefers_same_size = self.pass_state.input.queue.prefer_same_party_size;
        if prefers_same_size && candidates.iter().any(|&(other, _)| size(other) == size(row)) {
            // Parties of other sizes are drawn only if those of the same size do not suffice.
            let same_size: Vec<(u32, f64)> =
                candidates.iter().copied().filter(|&(it, _)| size(it) == size(row)).collect();
            if let Some(candidate) = self.sample_match_from_candidates(row, &same_size) {
                return Some(candidate);
            }
        }
        candidates.retain(|(_, weight)| *weight > 0.0);
        self.sample_match_from_candidates(row, &candidates)
    }

    /// Candidates that may meet `row`, with weights. A pair that fills a match must pass its quality. Larger matches
    /// are checked when complete.
    fn weighted_candidates(&mut self, row: u32) -> Vec<(u32, f64)> {
        let (pass_state, progress) = (self.pass_state, &mut *self.progress);
        let teams = pass_state.input.teams;
        let mut candidates = NearestIter::new(pass_state, self.waiting_list, row);
        let mut found = Vec::new();
        for examined in 0.. {
            let Some(other) = candidates.next_candidate(progress) else { break };
            if examined == pass_state.input.queue.selection.max_candidates.max(1) {
                progress.candidate_limit_reached = true;
                break;
            }
            if !progress.spend_pair_check() {
                break;
            }
            let player_count =
                pass_state.tickets[row as usize].player_count + pass_state.tickets[other as usize].player_count;
            let weight = match pass_state.check_pair(row, other) {
                Err(refusal) => Err(refusal),
                Ok(()) if player_count == teams.players_per_match() => {
                    let reached = pass_state.pair_quality(row, other, progress);
                    reached.map(|reached| quality::selection_weight(&pass_state.input.queue.quality, reached))
                }
                Ok(()) if player_count < teams.players_per_match() => {
                    let pair: [PartyQualityInput<'_>; 2] = [
                        pass_state.tickets[row as usize].quality_input(0),
                        pass_state.tickets[other as usize].quality_input(1),
                    ];
                    let reached =
                        quality::base_quality(pass_state.input.ruleset, &pass_state.input.queue.quality, &pair);
                    Ok(quality::selection_weight(&pass_state.input.queue.quality, reached))
                }
                Ok(()) => Err(Refusal::TeamsNotFilled),
            };
            match weight {
                Ok(weight) => found.push((other, weight.max(SAMPLE_WEIGHT_MIN))),
                Err(refusal) => progress.record_refusal(row, refusal),
            }
        }
        if found.is_empty() && progress.leading_refusal(row).is_none() {
            progress.record_refusal(row, Refusal::CandidatesTaken);
        }
        // The draw must not depend on the order of the candidates by distance.
        found.sort_unstable_by_key(|(row, _)| *row);
        found
    }

    fn sample_match_from_candidates(&mut self, row: u32, candidates: &[(u32, f64)]) -> Option<CandidateMatch<'a>> {
        for _ in 0..MATCH_DRAW_ATTEMPTS_MAX {
            let mut weights: Vec<f64> = candidates.iter().map(|(_, weight)| *weight).collect();
            let mut partial_match = PartialMatch::new(self.pass_state, row);
            while !partial_match.is_full() {
                let Some(drawn) = self.rng.weighted_index(&weights) else { break };
                weights[drawn] = 0.0;
                if let Err(refusal) = partial_match.try_add(candidates[drawn].0, self.progress)? {
                    self.progress.record_refusal(row, refusal);
                }
            }
            if partial_match.is_full()
                && let Some(candidate) = self.build_or_record_refusal(row, partial_match.ticket_indices())
            {
                return Some(candidate);
            }
        }
        if !candidates.is_empty() {
            self.progress.record_refusal(row, Refusal::TeamsNotFilled);
        }
        None
    }

    fn build_or_record_refusal(&mut self, row: u32, members: &[u32]) -> Option<CandidateMatch<'a>> {
        self.pass_state
            .build_match(members, self.progress)
            .map_err(|refusal| self.progress.record_refusal(row, refusal))
            .ok()
    }
}
