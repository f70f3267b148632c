//! Glicko (Glickman, *Parameter estimation in large dynamic paired comparison experiments*, 1999; S1-62). Each match is a rating
//! period. Several opponents: every one of `m` counts as the `m`-th part of a game, so that a match of teams is one game's worth
//! (B-18).

use std::f64::consts::{LN_10, PI};

use crate::rating::elo::expected_score;
use crate::rating::{Side, Skill, actual_score};
use crate::ruleset::rating::RatedGameUnit;

/// What a point of rating is in natural units: `ln 10 / 400`.
const GLICKO_Q: f64 = LN_10 / 400.0;

/// How much a result is held back that rests on a rating of this variance.
pub(super) fn g_factor(variance: f64) -> f64 {
    1.0 / (1.0 + 3.0 * GLICKO_Q * GLICKO_Q * variance / (PI * PI)).sqrt()
}

/// What a match was to one player so far.
#[derive(Clone, Copy, Debug, Default)]
struct GlickoEvidence {
    /// `1 / d²`: how much the games say.
    information: f64,
    /// What was scored beyond expectation, each game held back by `g`.
    score_above_expected: f64,
}

impl GlickoEvidence {
    /// Adds the `weight`-th part of a game of somebody rated `own` against `other`.
    fn add_game(&mut self, own: f64, other: &Skill, scored: f64, weight: f64) {
        let g = g_factor(other.estimate.deviation * other.estimate.deviation);
        let chance = expected_score(g * own, g * other.estimate.rating, 400.0);
        self.information += weight * GLICKO_Q * GLICKO_Q * g * g * chance * (1.0 - chance);
        self.score_above_expected += weight * g * (scored - chance);
    }

    /// The new rating and deviation: `r' = r + q / (1/RD² + 1/d²) * surprise`, `RD' = sqrt(1 / (1/RD² + 1/d²))` (S1-63).
    fn apply_to(self, before: &Skill) -> (f64, f64) {
        let deviation = before.estimate.deviation;
        // The same as the sum of inverses, and right where the deviation is 0.
        let variance = deviation * deviation / (1.0 + deviation * deviation * self.information);
        (before.estimate.rating + GLICKO_Q * variance * self.score_above_expected, variance.sqrt())
    }
}

/// No match makes anybody surer than `least`, so that no rating ever freezes.
pub(super) fn rate_match(sides: &[Side], least: f64, game_per: RatedGameUnit) -> Vec<Vec<Skill>> {
    let all: usize = sides.iter().map(|side| side.players.len()).sum();
    let rated = |(number, side): (usize, &Side)| {
        let weight = match game_per {
            RatedGameUnit::Match => 1.0 / (all - side.players.len()) as f64,
            RatedGameUnit::Opponent => 1.0,
        };
        let each = |skill: &Skill| {
            let mut evidence = GlickoEvidence::default();
            for (_, other) in sides.iter().enumerate().filter(|(other, _)| *other != number) {
                let scored = actual_score(side.rank, other.rank);
                other.players.iter().for_each(|it| evidence.add_game(skill.estimate.rating, it, scored, weight));
            }
            let mut after = *skill;
            let (rating, deviation) = evidence.apply_to(skill);
            after.estimate.rating = rating;
            // Who was surer than the least already is not made less sure by playing.
            after.estimate.deviation = deviation.max(least.min(skill.estimate.deviation));
            after
        };
        side.players.iter().map(each).collect()
    };
    sides.iter().enumerate().map(rated).collect()
}
