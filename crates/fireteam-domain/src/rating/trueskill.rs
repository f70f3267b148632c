//! TrueSkill (Herbrich, Minka and Graepel, *TrueSkill: A Bayesian skill rating system*, 2006), computed by the
//! `skillratings` crate: two sides in closed form, more by a factor graph.

use skillratings::trueskill::{TrueSkillConfig, TrueSkillRating, trueskill_multi_team, trueskill_two_teams};
use skillratings::{MultiTeamOutcome, Outcomes};

use crate::rating::skill::{Side, Skill};

/// Minimum deviation used, because the crate divides by it.
const SIGMA_MIN: f64 = 1e-6;

/// Minimum draw probability used for a drawn match. With a draw probability of 0, a draw would prove that both sides
/// are exactly equal.
const DRAW_PROBABILITY_MIN: f64 = 0.01;

/// Rates a match. `draw_probability` is in [0, 1).
pub(super) fn rate_match(sides: &[Side], beta: f64, tau: f64, draw_probability: f64) -> Vec<Vec<Skill>> {
    let is_draw =
        sides.iter().enumerate().any(|(index, side)| sides[..index].iter().any(|earlier| earlier.rank == side.rank));
    let draw_probability = if is_draw { draw_probability.max(DRAW_PROBABILITY_MIN) } else { draw_probability };
    let config = TrueSkillConfig { draw_probability, beta, dynamics_factor: tau };
    let teams: Vec<Vec<TrueSkillRating>> = sides.iter().map(to_trueskill_ratings).collect();
    let after = match (&*teams, sides) {
        ([one, other], [first, second]) => {
            let (one, other) = trueskill_two_teams(one, other, &outcome_of_ranks(first.rank, second.rank), &config);
            vec![one, other]
        }
        _ => {
            let ranked: Vec<(&[TrueSkillRating], MultiTeamOutcome)> = teams
                .iter()
                .zip(sides)
                .map(|(team, side)| (&**team, MultiTeamOutcome::new(side.rank as usize)))
                .collect();
            // Fails only for weights of the wrong shape, and none are given.
            trueskill_multi_team(&ranked, &config, None).unwrap_or_default()
        }
    };
    let after = after.into_iter().chain(std::iter::repeat(Vec::new()));
    sides.iter().zip(after).map(|(side, team)| apply_if_finite(side, &team)).collect()
}

fn to_trueskill_ratings(side: &Side) -> Vec<TrueSkillRating> {
    let to_rating = |skill: &Skill| TrueSkillRating {
        rating: skill.estimate.rating,
        uncertainty: skill.estimate.deviation.max(SIGMA_MIN),
    };
    side.players.iter().map(to_rating).collect()
}

/// Side after the match. If the result is not finite because the inputs are too far apart, the skills stay as they
/// were.
fn apply_if_finite(before: &Side, after: &[TrueSkillRating]) -> Vec<Skill> {
    let are_finite = after.iter().all(|rating| rating.rating.is_finite() && rating.uncertainty.is_finite());
    let mut skills = before.players.clone();
    if are_finite {
        for (skill, after) in skills.iter_mut().zip(after) {
            skill.estimate.rating = after.rating;
            skill.estimate.deviation = after.uncertainty;
        }
    }
    skills
}

fn outcome_of_ranks(rank: u32, other: u32) -> Outcomes {
    match rank.cmp(&other) {
        std::cmp::Ordering::Less => Outcomes::WIN,
        std::cmp::Ordering::Equal => Outcomes::DRAW,
        std::cmp::Ordering::Greater => Outcomes::LOSS,
    }
}
