//! How likely each team of a match is to win, and all of them to draw, by the rating system of the set; the formulas are
//! `domain::rating`'s.

use crate::queue::quality::QualityInput;
use crate::rating::{self, TeamStrength, relative_draw_probability};
use crate::ruleset::rating::{RatingSpec, RatingSystem};

/// What is gone by where a ruleset names no rating system.
const DEFAULT_RATING_SYSTEM: RatingSystem = RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 };

/// The chance of every team that has players to win, in the order of the teams; they add up to 1.
pub fn win_probabilities(spec: Option<&RatingSpec>, members: &[QualityInput<'_>]) -> Vec<f64> {
    rating::win_probabilities(spec.map_or(&DEFAULT_RATING_SYSTEM, |spec| &spec.system), &team_strengths(members))
}

/// How likely the teams are to draw, 0 to 1 (S2-4); 0 where the rating system does not say how much luck there is in a game.
pub fn draw_probability(spec: Option<&RatingSpec>, members: &[QualityInput<'_>]) -> f64 {
    spec.and_then(|spec| spec.system.beta())
        .map_or(0.0, |beta| relative_draw_probability(beta, &team_strengths(members)))
}

/// The teams that have players, in their order.
fn team_strengths(members: &[QualityInput<'_>]) -> Vec<TeamStrength> {
    let count = members.iter().map(|it| usize::from(it.team) + 1).max().unwrap_or(0);
    let mut teams = vec![TeamStrength::default(); count];
    for member in members {
        let team = &mut teams[usize::from(member.team)];
        member.player_ratings.iter().filter(|it| it.rating.is_finite()).for_each(|rated| team.add_player(*rated));
    }
    teams.retain(|team| !team.is_empty());
    teams
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribute_values::AttributeValues;
    use crate::filter::SessionView;
    use crate::queue::ticket::PlayerRating;

    fn probabilities_of(system: RatingSystem, players: &[(u16, f64, f64)]) -> Vec<f64> {
        let facts = AttributeValues::empty();
        let rated: Vec<[PlayerRating; 1]> =
            players.iter().map(|&(_, rating, deviation)| [PlayerRating { rating, deviation }]).collect();
        let seen = SessionView { attribute_values: &facts, locality: None, region_latencies: &[] };
        let member = |(place, &(team, _, _)): (usize, &(u16, f64, f64))| QualityInput {
            session: seen,
            finite_ratings: &[],
            player_ratings: &rated[place],
            leaderboard_position: None,
            waited_ms: 0,
            team,
        };
        let members: Vec<QualityInput<'_>> = players.iter().enumerate().map(member).collect();
        win_probabilities(Some(&RatingSpec::with_defaults(system)), &members)
    }

    fn assert_close(found: &[f64], wanted: &[f64]) {
        assert!(
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9),
            "{found:?} {wanted:?}"
        );
    }

    const ELO: RatingSystem = RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 };
    const PLACKETT_LUCE: RatingSystem =
        RatingSystem::PlackettLuce { mu: 25.0, sigma: 8.0, beta: 25.0 / 6.0, kappa: 1e-4, tau: 0.0 };

    /// S1-61: 400 points are ten to one, and teams count by their mean.
    #[test]
    fn elo_win_probability_depends_on_the_difference_of_team_means() {
        assert_close(&probabilities_of(ELO, &[(0, 1900.0, 0.0), (1, 1500.0, 0.0)]), &[10.0 / 11.0, 1.0 / 11.0]);
        assert_close(&probabilities_of(ELO, &[(0, 2000.0, 0.0), (0, 1000.0, 0.0), (1, 1500.0, 0.0)]), &[0.5, 0.5]);
        assert_close(&probabilities_of(ELO, &[(0, 5.0, 0.0), (1, 5.0, 0.0), (2, 5.0, 0.0)]), &[1.0 / 3.0; 3]);
    }

    /// S1-62: Glickman's own figure, 1400/80 against 1500/150: 0.376.
    #[test]
    fn glicko_win_probability_discounts_uncertain_ratings() {
        let system =
            RatingSystem::Glicko { initial: 1500.0, deviation: 350.0, min_deviation: 30.0, c: 63.2, period_ms: 1 };
        let found = probabilities_of(system, &[(0, 1400.0, 80.0), (1, 1500.0, 150.0)]);
        assert!((found[0] - 0.376).abs() < 5e-4, "{found:?}");
    }

    #[test]
    fn true_skill_win_probability_follows_the_normal_distribution() {
        let system = RatingSystem::TrueSkill { mu: 25.0, sigma: 8.0, beta: 3.0, tau: 0.0, draw_percent: 0.0 };
        // sqrt(2 * 9 + 16 + 2) = 6: one deviation apart.
        let found = probabilities_of(system, &[(0, 31.0, 4.0), (1, 25.0, 2.0_f64.sqrt())]);
        assert_close(&found, &[0.841_344_746_068_542_9, 0.158_655_253_931_457_1]);
        let beta = (25.0_f64 / 6.0).powi(2);
        let c = (2.0 * (64.0 + beta)).sqrt();
        let wanted = 1.0 / (1.0 + (-4.0 / c).exp());
        assert_close(&probabilities_of(PLACKETT_LUCE, &[(0, 29.0, 8.0), (1, 25.0, 8.0)]), &[wanted, 1.0 - wanted]);
    }
}
