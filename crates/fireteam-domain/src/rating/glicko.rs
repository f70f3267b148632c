//! Glicko (Glickman, *Parameter estimation in large dynamic paired comparison experiments*, 1999). Each match is a
//! rating period. With m opponents, each counts as 1/m of a game, so that a team match weighs as much as one game.

use std::f64::consts::{LN_10, PI};

use crate::rating::elo::{actual_score, expected_score};
use crate::rating::skill::{Side, Skill};
use crate::ruleset::rating::OpponentsPerRatedGame;

/// Glicko's constant q: one rating point in natural units, `ln 10 / 400`.
const GLICKO_Q: f64 = LN_10 / 400.0;

/// Glicko's g: the factor that weakens a result against an opponent with this rating variance.
pub(super) fn g_factor(variance: f64) -> f64 {
    1.0 / (1.0 + 3.0 * GLICKO_Q * GLICKO_Q * variance / (PI * PI)).sqrt()
}

/// Sums over the games of one player in a match.
#[derive(Clone, Copy, Debug, Default)]
struct GlickoEvidence {
    /// `1 / d²`: the information in the games.
    information: f64,
    /// Sum of actual less expected scores, each multiplied by `g`.
    score_above_expected: f64,
}

impl GlickoEvidence {
    /// Adds a game with the given weight: a player rated `own` against `other`.
    fn add_game(&mut self, own: f64, other: &Skill, score: f64, weight: f64) {
        let g = g_factor(other.estimate.deviation * other.estimate.deviation);
        let expected = expected_score(g * own, g * other.estimate.rating, 400.0);
        self.information += weight * GLICKO_Q * GLICKO_Q * g * g * expected * (1.0 - expected);
        self.score_above_expected += weight * g * (score - expected);
    }

    /// New rating and deviation: `r' = r + q / (1/RD² + 1/d²) * score_above_expected`, `RD' = sqrt(1 / (1/RD² +
    /// 1/d²))`.
    fn apply_to(self, before: &Skill) -> (f64, f64) {
        let deviation = before.estimate.deviation;
        // Equal to the inverse of the sum of inverses, and also valid for a deviation of 0.
        let variance = deviation * deviation / (1.0 + deviation * deviation * self.information);
        (before.estimate.rating + GLICKO_Q * variance * self.score_above_expected, variance.sqrt())
    }
}

/// Rates a match. A match does not lower a deviation below `min_deviation`, so that ratings keep moving.
pub(super) fn rate_match(sides: &[Side], min_deviation: f64, games_per: OpponentsPerRatedGame) -> Vec<Vec<Skill>> {
    let player_count: usize = sides.iter().map(|side| side.players.len()).sum();
    let rated_side = |(side_index, side): (usize, &Side)| {
        let weight = match games_per {
            OpponentsPerRatedGame::All => 1.0 / (player_count - side.players.len()) as f64,
            OpponentsPerRatedGame::Each => 1.0,
        };
        let rated_player = |skill: &Skill| {
            let mut evidence = GlickoEvidence::default();
            for (_, other) in sides.iter().enumerate().filter(|(other, _)| *other != side_index) {
                let score = actual_score(side.rank, other.rank);
                other.players.iter().for_each(|player| evidence.add_game(skill.estimate.rating, player, score, weight));
            }
            let mut after = *skill;
            let (rating, deviation) = evidence.apply_to(skill);
            after.estimate.rating = rating;
            // A deviation already below the minimum stays; playing does not raise it.
            after.estimate.deviation = deviation.max(min_deviation.min(skill.estimate.deviation));
            after
        };
        side.players.iter().map(rated_player).collect()
    };
    sides.iter().enumerate().map(rated_side).collect()
}
