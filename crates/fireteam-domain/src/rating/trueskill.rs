//! TrueSkill (Herbrich, Minka and Graepel, *TrueSkill: A Bayesian skill rating system*, 2006), by the `skillratings` crate: two
//! sides in closed form, more by its factor graph.

use skillratings::trueskill::{TrueSkillConfig, TrueSkillRating, trueskill_multi_team, trueskill_two_teams};
use skillratings::{MultiTeamOutcome, Outcomes};

use crate::rating::{Side, Skill};

/// The least deviation that is reckoned with: the crate divides by it.
const SIGMA_MIN: f64 = 1e-6;

/// The least share of draws that a drawn match is judged by. Where draws are said never to happen, one that does would say that
/// both are equal beyond doubt.
const DRAW_PROBABILITY_MIN: f64 = 0.01;

/// `beta`, `tau` and the share of draws in [0, 1).
pub(super) fn rate_match(sides: &[Side], beta: f64, tau: f64, draws: f64) -> Vec<Vec<Skill>> {
    let tie = sides.iter().enumerate().any(|(place, side)| sides[..place].iter().any(|it| it.rank == side.rank));
    let draw_probability = if tie { draws.max(DRAW_PROBABILITY_MIN) } else { draws };
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
            // It fails only where weights are given that do not fit.
            trueskill_multi_team(&ranked, &config, None).unwrap_or_default()
        }
    };
    let after = after.into_iter().chain(std::iter::repeat(Vec::new()));
    sides.iter().zip(after).map(|(side, team)| apply_if_finite(side, &team)).collect()
}

fn to_trueskill_ratings(side: &Side) -> Vec<TrueSkillRating> {
    let of = |skill: &Skill| TrueSkillRating {
        rating: skill.estimate.rating,
        uncertainty: skill.estimate.deviation.max(SIGMA_MIN),
    };
    side.players.iter().map(of).collect()
}

/// A side after the match. Where the numbers given are so far apart that the arithmetic breaks down, they stay as they were.
fn apply_if_finite(before: &Side, after: &[TrueSkillRating]) -> Vec<Skill> {
    let sound = after.iter().all(|it| it.rating.is_finite() && it.uncertainty.is_finite());
    let mut skills = before.players.clone();
    if sound {
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
