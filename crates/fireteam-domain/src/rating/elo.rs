//! Elo (Elo, *The Rating of Chessplayers*, 1978; S1-61). Several opponents: the mean of what each alone would change (S4-14).

use crate::rating::{Side, Skill, actual_score};
use crate::ruleset::rating::RatedGameUnit;

/// The chance that somebody with `rating` beats somebody with `other`, a draw counted as half a win: ten to one for a
/// difference of `scale`.
pub(super) fn expected_score(rating: f64, other: f64, scale: f64) -> f64 {
    1.0 / (1.0 + 10.0_f64.powf((other - rating) / scale))
}

pub(super) fn rate_match(sides: &[Side], k: f64, scale: f64, game_per: RatedGameUnit) -> Vec<Vec<Skill>> {
    let rated = |(number, side): (usize, &Side)| {
        let each = |skill: &Skill| {
            let mut after = *skill;
            after.estimate.rating += k * score_above_expected(sides, number, skill.estimate.rating, scale, game_per);
            after
        };
        side.players.iter().map(each).collect()
    };
    sides.iter().enumerate().map(rated).collect()
}

/// What a player of side `number` scored against opponents, less what was to be expected: on average, or all together.
fn score_above_expected(sides: &[Side], number: usize, rating: f64, scale: f64, game_per: RatedGameUnit) -> f64 {
    let (mut sum, mut opponents) = (0.0, 0.0);
    for (_, other) in sides.iter().enumerate().filter(|(other, _)| *other != number) {
        let scored = actual_score(sides[number].rank, other.rank);
        sum += other.players.iter().map(|it| scored - expected_score(rating, it.estimate.rating, scale)).sum::<f64>();
        opponents += other.players.len() as f64;
    }
    match game_per {
        RatedGameUnit::Match => sum / opponents,
        RatedGameUnit::Opponent => sum,
    }
}
