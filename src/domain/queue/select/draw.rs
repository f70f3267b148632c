//! Partners are drawn, with quality as weight (S2-6): who suits better is likelier, and nobody meets the same opponent for ever.

use crate::domain::filter::Refusal;
use crate::domain::queue::line::Near;
use crate::domain::queue::made::Made;
use crate::domain::queue::quality::{self, Member};
use crate::domain::queue::select::{Gathering, Work};

/// How often a larger match is drawn for one ticket before it waits for the next pass.
const DRAWS_MAX: u32 = 3;

/// Whoever may be drawn weighs something: what is good enough has a chance, however small its quality.
const LEAST_WEIGHT: f64 = 1e-9;

impl<'a> Work<'_, 'a> {
    pub(super) fn draw(&mut self, pool: &[u32]) {
        self.in_turn(pool, Self::drawn_for);
    }

    /// The match of `row` with those whom it draws.
    pub(super) fn drawn_for(&mut self, row: u32) -> Option<Made<'a>> {
        let mut made = self.drawn(row)?;
        // Who is in the first team is nobody's right (S2-13).
        let sizes = &self.field.input.teams.sizes;
        if sizes.iter().all(|size| *size == sizes[0]) {
            let turn = (self.dice.next() % sizes.len() as u64) as usize;
            made.teams.rotate_left(turn);
        }
        Some(made)
    }

    fn drawn(&mut self, row: u32) -> Option<Made<'a>> {
        let size = |row: u32| self.field.rows[row as usize].size;
        let match_size = self.field.input.teams.match_size();
        if size(row) == match_size {
            return self.close(row, &[row]);
        }
        let mut candidates = self.candidates(row);
        let alike = self.field.input.queue.like_parties_first;
        if alike && candidates.iter().any(|&(other, _)| size(other) == size(row)) {
            // Those of another size only when those of its own do not suffice.
            let likes: Vec<(u32, f64)> = candidates.iter().copied().filter(|&(it, _)| size(it) == size(row)).collect();
            if let Some(made) = self.draw_among(row, &likes) {
                return Some(made);
            }
        }
        candidates.retain(|(_, weight)| 0.0 < *weight);
        self.draw_among(row, &candidates)
    }

    /// Those who may meet `row`, with what they weigh. Of two, the pair must be good enough as it is; of more, only everybody
    /// together can tell.
    fn candidates(&mut self, row: u32) -> Vec<(u32, f64)> {
        let (field, desk) = (self.field, &mut *self.desk);
        let teams = field.input.teams;
        let mut near = Near::to(field, self.line, row);
        let mut found = Vec::new();
        for looked in 0.. {
            let Some(other) = near.next(desk) else { break };
            if looked == field.input.queue.selection.look_at.max(1) {
                desk.narrowed = true;
                break;
            }
            if !desk.look() {
                break;
            }
            let together = field.rows[row as usize].size + field.rows[other as usize].size;
            let weight = match field.meet(row, other) {
                Err(refusal) => Err(refusal),
                Ok(()) if together == teams.match_size() => {
                    let reached = field.pair_quality(row, other, desk);
                    reached.map(|it| quality::weight(&field.input.queue.quality, it))
                }
                Ok(()) if together < teams.match_size() => {
                    let pair: [Member<'_>; 2] =
                        [field.rows[row as usize].member(0), field.rows[other as usize].member(1)];
                    let reached = quality::base(field.input.ruleset, &field.input.queue.quality, &pair);
                    Ok(quality::weight(&field.input.queue.quality, reached))
                }
                Ok(()) => Err(Refusal::Team),
            };
            match weight {
                Ok(weight) => found.push((other, weight.max(LEAST_WEIGHT))),
                Err(refusal) => desk.refused(row, refusal),
            }
        }
        if found.is_empty() && desk.why(row).is_none() {
            desk.refused(row, Refusal::Taken);
        }
        // Dice must not depend on how near came to be sorted.
        found.sort_unstable_by_key(|(row, _)| *row);
        found
    }

    fn draw_among(&mut self, row: u32, candidates: &[(u32, f64)]) -> Option<Made<'a>> {
        for _ in 0..DRAWS_MAX {
            let mut weights: Vec<f64> = candidates.iter().map(|(_, weight)| *weight).collect();
            let mut gathering = Gathering::of(self.field, row);
            while !gathering.is_full() {
                let Some(drawn) = self.dice.draw(&weights) else { break };
                weights[drawn] = 0.0;
                if let Err(refusal) = gathering.admit(candidates[drawn].0, self.desk)? {
                    self.desk.refused(row, refusal);
                }
            }
            if gathering.is_full()
                && let Some(made) = self.close(row, gathering.rows())
            {
                return Some(made);
            }
        }
        if !candidates.is_empty() {
            self.desk.refused(row, Refusal::Team);
        }
        None
    }

    fn close(&mut self, row: u32, rows: &[u32]) -> Option<Made<'a>> {
        self.field.finish(rows, self.desk).map_err(|refusal| self.desk.refused(row, refusal)).ok()
    }
}
