//! Elo (Elo, *The Rating of Chessplayers*, 1978). With several opponents, the change is the mean of the changes against
//! each one.

use std::cmp::Ordering;

use crate::rating::skill::{Side, Skill};
use crate::ruleset::rating::OpponentsPerRatedGame;

/// Expected score of `rating` against `other`, a draw counted as half a win. A difference of `scale` points means odds
/// of ten to one.
pub(super) fn expected_score(rating: f64, other: f64, scale: f64) -> f64 {
    1.0 / (1.0 + 10.0_f64.powf((other - rating) / scale))
}

/// Score of `rank` against rank `other`: 1 for a win, 0.5 for a draw, 0 for a loss.
pub(super) fn actual_score(rank: u32, other: u32) -> f64 {
    match rank.cmp(&other) {
        Ordering::Less => 1.0,
        Ordering::Equal => 0.5,
        Ordering::Greater => 0.0,
    }
}

pub(super) fn rate_match(sides: &[Side], k: f64, scale: f64, games_per: OpponentsPerRatedGame) -> Vec<Vec<Skill>> {
    let rated_side = |(side_index, side): (usize, &Side)| {
        let rated_player = |skill: &Skill| {
            let mut after = *skill;
            after.estimate.rating +=
                k * score_above_expected(sides, side_index, skill.estimate.rating, scale, games_per);
            after
        };
        side.players.iter().map(rated_player).collect()
    };
    sides.iter().enumerate().map(rated_side).collect()
}

/// Actual less expected score of a player of side `side_index`: the mean over opponents, or the sum with one game per
/// opponent.
fn score_above_expected(
    sides: &[Side],
    side_index: usize,
    rating: f64,
    scale: f64,
    games_per: OpponentsPerRatedGame,
) -> f64 {
    let (mut surplus, mut opponents) = (0.0, 0.0);
    for (_, other) in sides.iter().enumerate().filter(|(other, _)| *other != side_index) {
        let score = actual_score(sides[side_index].rank, other.rank);
        surplus += other
            .players
            .iter()
            .map(|player| score - expected_score(rating, player.estimate.rating, scale))
            .sum::<f64>();
        opponents += other.players.len() as f64;
    }
    match games_per {
        OpponentsPerRatedGame::All => surplus / opponents,
        OpponentsPerRatedGame::Each => surplus,
    }
}
