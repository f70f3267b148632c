//! Glicko-2 (Glickman, *Example of the Glicko-2 system*, 2013), by the `skillratings` crate. Each match is a rating period; in it
//! a player has one game against each other side, which stands there as one opponent: the mean of its ratings, and of their
//! variances. For one against one that is Glicko-2 itself.

use skillratings::Outcomes;
use skillratings::glicko2::{Glicko2Config, Glicko2Rating, glicko2_rating_period};

use crate::rating::{Side, Skill};
use crate::ruleset::rating::RatedGameUnit;

/// How close the volatility is iterated to its solution; Glickman's own 1e-6 leaves an error that can be seen.
const VOLATILITY_TOLERANCE: f64 = 1e-12;

/// The largest difference of ratings that is told from a larger one: odds of ten thousand million to one. Beyond it, the chances
/// of both sides round to 0 and 1 and nothing can be divided by them.
const RATING_GAP_MAX: f64 = 4_000.0;

/// What a ruleset says of Glicko-2 that a match needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    /// The greatest deviation.
    pub(super) max_deviation: f64,
    /// What somebody has of whom no volatility is known.
    pub(super) default_volatility: f64,
    /// How much volatility may change.
    pub(super) tau: f64,
    /// Who stands as an opponent: a side, or each of its players.
    pub(super) games_per: RatedGameUnit,
}

pub(super) fn rate_match(sides: &[Side], constants: Constants) -> Vec<Vec<Skill>> {
    let config = Glicko2Config { tau: constants.tau, convergence_tolerance: VOLATILITY_TOLERANCE };
    let opponents: Vec<Vec<Glicko2Rating>> = sides
        .iter()
        .map(|side| match constants.games_per {
            RatedGameUnit::Match => vec![composite_opponent(side)],
            RatedGameUnit::Opponent => side.players.iter().map(|skill| to_glicko2_rating(skill, constants)).collect(),
        })
        .collect();
    let mut results = Vec::with_capacity(sides.len());
    let mut rated = |(number, side): (usize, &Side)| {
        let mut each = |skill: &Skill| {
            let own = skill.estimate.rating;
            let games = sides.iter().zip(&opponents).enumerate().filter(|(other, _)| *other != number);
            results.clear();
            for (_, (other, opponents)) in games {
                results.extend(opponents.iter().map(|opponent| {
                    let gap = (opponent.rating - own).clamp(-RATING_GAP_MAX, RATING_GAP_MAX);
                    (Glicko2Rating { rating: own + gap, ..*opponent }, outcome_of_ranks(side.rank, other.rank))
                }));
            }
            let after = glicko2_rating_period(&to_glicko2_rating(skill, constants), &results, &config);
            apply_if_finite(skill, after, constants)
        };
        side.players.iter().map(&mut each).collect()
    };
    sides.iter().enumerate().map(&mut rated).collect()
}

fn to_glicko2_rating(skill: &Skill, constants: Constants) -> Glicko2Rating {
    let volatility = if 0.0 < skill.volatility { skill.volatility } else { constants.default_volatility };
    Glicko2Rating { rating: skill.estimate.rating, deviation: skill.estimate.deviation, volatility }
}

/// A skill as it is after the games. Where the numbers given are so far apart that the arithmetic breaks down, they stay as they
/// were.
fn apply_if_finite(before: &Skill, after: Glicko2Rating, constants: Constants) -> Skill {
    let sound = after.rating.is_finite() && after.deviation.is_finite() && after.volatility.is_finite();
    let mut skill = *before;
    if sound {
        skill.estimate.rating = after.rating;
        skill.estimate.deviation = after.deviation.min(constants.max_deviation);
        skill.volatility = after.volatility;
    }
    skill
}

/// A side as one opponent.
fn composite_opponent(side: &Side) -> Glicko2Rating {
    let players = side.players.len() as f64;
    let mean = |of: fn(&Skill) -> f64| side.players.iter().map(of).sum::<f64>() / players;
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
