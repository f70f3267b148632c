//! Partners are drawn, with quality as weight (S2-6): who suits better is likelier, and nobody meets the same opponent for ever.

use crate::filter::Refusal;
use crate::queue::candidate_match::CandidateMatch;
use crate::queue::quality::{self, QualityInput};
use crate::queue::select::{PartialMatch, Selector};
use crate::queue::waiting_list::NearestIter;

/// How often a larger match is drawn for one ticket before it waits for the next pass.
const SAMPLE_ATTEMPTS_MAX: u32 = 3;

/// Whoever may be drawn weighs something: what is good enough has a chance, however small its quality.
const SAMPLE_WEIGHT_MIN: f64 = 1e-9;

impl<'a> Selector<'_, 'a> {
    pub(super) fn select_weighted_samples(&mut self, pool: &[u32]) {
        self.match_each_in_turn(pool, Self::weighted_sample_match);
    }

    /// The match of `row` with those whom it draws.
    pub(super) fn weighted_sample_match(&mut self, row: u32) -> Option<CandidateMatch<'a>> {
        let mut made = self.sample_match(row)?;
        // Who is in the first team is nobody's right (S2-13).
        let sizes = &self.pass_state.input.teams.team_sizes;
        if sizes.iter().all(|size| *size == sizes[0]) {
            let turn = (self.rng.next_u64() % sizes.len() as u64) as usize;
            made.teams.rotate_left(turn);
        }
        Some(made)
    }

    fn sample_match(&mut self, row: u32) -> Option<CandidateMatch<'a>> {
        let size = |row: u32| self.pass_state.tickets[row as usize].player_count;
        let match_size = self.pass_state.input.teams.players_per_match();
        if size(row) == match_size {
            return self.build_or_record_refusal(row, &[row]);
        }
        let mut candidates = self.weighted_candidates(row);
        let alike = self.pass_state.input.queue.like_parties_first;
        if alike && candidates.iter().any(|&(other, _)| size(other) == size(row)) {
            // Those of another size only when those of its own do not suffice.
            let likes: Vec<(u32, f64)> = candidates.iter().copied().filter(|&(it, _)| size(it) == size(row)).collect();
            if let Some(made) = self.sample_from_candidates(row, &likes) {
                return Some(made);
            }
        }
        candidates.retain(|(_, weight)| 0.0 < *weight);
        self.sample_from_candidates(row, &candidates)
    }

    /// Those who may meet `row`, with what they weigh. Of two, the pair must be good enough as it is; of more, only everybody
    /// together can tell.
    fn weighted_candidates(&mut self, row: u32) -> Vec<(u32, f64)> {
        let (field, desk) = (self.pass_state, &mut *self.progress);
        let teams = field.input.teams;
        let mut near = NearestIter::new(field, self.waiting_list, row);
        let mut found = Vec::new();
        for looked in 0.. {
            let Some(other) = near.next_candidate(desk) else { break };
            if looked == field.input.queue.selection.look_at.max(1) {
                desk.candidate_limit_reached = true;
                break;
            }
            if !desk.spend_pair_check() {
                break;
            }
            let together = field.tickets[row as usize].player_count + field.tickets[other as usize].player_count;
            let weight = match field.check_pair(row, other) {
                Err(refusal) => Err(refusal),
                Ok(()) if together == teams.players_per_match() => {
                    let reached = field.pair_quality(row, other, desk);
                    reached.map(|it| quality::selection_weight(&field.input.queue.quality, it))
                }
                Ok(()) if together < teams.players_per_match() => {
                    let pair: [QualityInput<'_>; 2] =
                        [field.tickets[row as usize].quality_input(0), field.tickets[other as usize].quality_input(1)];
                    let reached = quality::base_quality(field.input.ruleset, &field.input.queue.quality, &pair);
                    Ok(quality::selection_weight(&field.input.queue.quality, reached))
                }
                Ok(()) => Err(Refusal::TeamsNotFilled),
            };
            match weight {
                Ok(weight) => found.push((other, weight.max(SAMPLE_WEIGHT_MIN))),
                Err(refusal) => desk.record_refusal(row, refusal),
            }
        }
        if found.is_empty() && desk.leading_refusal(row).is_none() {
            desk.record_refusal(row, Refusal::CandidatesTaken);
        }
        // Dice must not depend on how near came to be sorted.
        found.sort_unstable_by_key(|(row, _)| *row);
        found
    }

    fn sample_from_candidates(&mut self, row: u32, candidates: &[(u32, f64)]) -> Option<CandidateMatch<'a>> {
        for _ in 0..SAMPLE_ATTEMPTS_MAX {
            let mut weights: Vec<f64> = candidates.iter().map(|(_, weight)| *weight).collect();
            let mut gathering = PartialMatch::new(self.pass_state, row);
            while !gathering.is_full() {
                let Some(drawn) = self.rng.weighted_index(&weights) else { break };
                weights[drawn] = 0.0;
                if let Err(refusal) = gathering.try_add(candidates[drawn].0, self.progress)? {
                    self.progress.record_refusal(row, refusal);
                }
            }
            if gathering.is_full()
                && let Some(made) = self.build_or_record_refusal(row, gathering.ticket_indices())
            {
                return Some(made);
            }
        }
        if !candidates.is_empty() {
            self.progress.record_refusal(row, Refusal::TeamsNotFilled);
        }
        None
    }

    fn build_or_record_refusal(&mut self, row: u32, rows: &[u32]) -> Option<CandidateMatch<'a>> {
        self.pass_state
            .build_match(rows, self.progress)
            .map_err(|refusal| self.progress.record_refusal(row, refusal))
            .ok()
    }
}
