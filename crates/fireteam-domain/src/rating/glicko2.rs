//! Glicko-2 (Glickman, *Example of the Glicko-2 system*, 2013), computed by the `skillratings` crate. Each match is a
//! rating period. A player plays one game against each other side. A side is one opponent with the mean of its ratings
//! and of their variances. For 1v1 this is Glicko-2 itself.

use skillratings::Outcomes;
use skillratings::glicko2::{Glicko2Config, Glicko2Rating, glicko2_rating_period};

use crate::rating::skill::{Side, Skill};
use crate::ruleset::rating::OpponentsPerRatedGame;

/// Convergence tolerance of the volatility iteration. Glickman's value of 1e-6 leaves a visible error.
const VOLATILITY_TOLERANCE: f64 = 1e-12;

/// Maximum rating difference used, odds of 10^10 to one. Beyond it, expected scores round to 0 and 1, and the algorithm
/// divides by zero.
const RATING_GAP_MAX: f64 = 4_000.0;

/// Glicko-2 parameters of a ruleset.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    /// Maximum deviation.
    pub(super) max_deviation: f64,
    /// Volatility of a player without a stored one.
    pub(super) default_volatility: f64,
    /// System constant tau, which limits changes of the volatility.
    pub(super) tau: f64,
    /// Opponent of a rated game: a side, or each of its players.
    pub(super) opponents_per_game: OpponentsPerRatedGame,
}

pub(super) fn rate_match(sides: &[Side], constants: Constants) -> Vec<Vec<Skill>> {
    let config = Glicko2Config { tau: constants.tau, convergence_tolerance: VOLATILITY_TOLERANCE };
    let opponents: Vec<Vec<Glicko2Rating>> = sides
        .iter()
        .map(|side| match constants.opponents_per_game {
            OpponentsPerRatedGame::All => vec![composite_opponent(side)],
            OpponentsPerRatedGame::Each => {
                side.players.iter().map(|skill| to_glicko2_rating(skill, constants)).collect()
            }
        })
        .collect();
    let mut results = Vec::with_capacity(sides.len());
    let mut rated_side = |(side_index, side): (usize, &Side)| {
        let mut rated_player = |skill: &Skill| {
            let own_rating = skill.estimate.rating;
            let games = sides.iter().zip(&opponents).enumerate().filter(|(other, _)| *other != side_index);
            results.clear();
            for (_, (other, opponents)) in games {
                results.extend(opponents.iter().map(|opponent| {
                    let gap = (opponent.rating - own_rating).clamp(-RATING_GAP_MAX, RATING_GAP_MAX);
                    (Glicko2Rating { rating: own_rating + gap, ..*opponent }, outcome_of_ranks(side.rank, other.rank))
                }));
            }
            let after = glicko2_rating_period(&to_glicko2_rating(skill, constants), &results, &config);
            apply_if_finite(skill, after, constants)
        };
        side.players.iter().map(&mut rated_player).collect()
    };
    sides.iter().enumerate().map(&mut rated_side).collect()
}

fn to_glicko2_rating(skill: &Skill, constants: Constants) -> Glicko2Rating {
    let volatility = if skill.volatility > 0.0 { skill.volatility } else { constants.default_volatility };
    Glicko2Rating { rating: skill.estimate.rating, deviation: skill.estimate.deviation, volatility }
}

/// Skill after the games. If the result is not finite because the inputs are too far apart, the skill stays as it was.
fn apply_if_finite(before: &Skill, after: Glicko2Rating, constants: Constants) -> Skill {
    let is_finite = after.rating.is_finite() && after.deviation.is_finite() && after.volatility.is_finite();
    let mut skill = *before;
    if is_finite {
        skill.estimate.rating = after.rating;
        skill.estimate.deviation = after.deviation.min(constants.max_deviation);
        skill.volatility = after.volatility;
    }
    skill
}

/// A side as one opponent.
fn composite_opponent(side: &Side) -> Glicko2Rating {
    let player_count = side.players.len() as f64;
    let mean = |value_of: fn(&Skill) -> f64| side.players.iter().map(value_of).sum::<f64>() / player_count;
    Glicko2Rating {
        rating: mean(|skill| skill.estimate.rating),
        deviation: mean(|skill| skill.estimate.deviation * skill.estimate.deviation).sqrt(),
        volatility: 0.0,
    }
}

fn outcome_of_ranks(rank: u32, other: u32) -> Outcomes {
    match rank.cmp(&other) {
        std::cmp::Ordering::Less => Outcomes::WIN,
        std::cmp::Ordering::Equal => Outcomes::DRAW,
        std::cmp::Ordering::Greater => Outcomes::LOSS,
    }
}
