//! Win probability of each team and draw probability of a match, by the rating system of the set. The formulas are in
//! `rating`.

use crate::queue::quality::input::PartyQualityInput;
use crate::rating::{self, TeamStrength, relative_draw_probability};
use crate::ruleset::rating::{RatingSpec, RatingSystem};

/// Rating system for rulesets without one.
const DEFAULT_RATING_SPEC: RatingSpec =
    RatingSpec::with_defaults(RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 });

/// Win probability of each team that has players, in team order. They sum to 1.
pub fn win_probabilities(spec: Option<&RatingSpec>, members: &[PartyQualityInput<'_>]) -> Vec<f64> {
    rating::win_probabilities(spec.unwrap_or(&DEFAULT_RATING_SPEC), &team_strengths(members))
}

/// Draw probability relative to its maximum, 0 to 1. 0 if the rating system has no `beta`.
pub fn relative_draw_probability_of_match(spec: Option<&RatingSpec>, members: &[PartyQualityInput<'_>]) -> f64 {
    spec.and_then(|spec| spec.system.beta())
        .map_or(0.0, |beta| relative_draw_probability(beta, &team_strengths(members)))
}

/// Strengths of the teams that have players, in team order.
fn team_strengths(members: &[PartyQualityInput<'_>]) -> Vec<TeamStrength> {
    let count = members.iter().map(|it| usize::from(it.team) + 1).max().unwrap_or(0);
    let mut teams = vec![TeamStrength::default(); count];
    for member in members {
        let team = &mut teams[usize::from(member.team)];
        member
            .player_ratings
            .iter()
            .filter(|it| it.rating.is_finite())
            .for_each(|player_rating| team.add_player(*player_rating));
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
        let attribute_values = AttributeValues::of_no_attributes();
        let player_ratings: Vec<[PlayerRating; 1]> =
            players.iter().map(|&(_, rating, deviation)| [PlayerRating { rating, deviation }]).collect();
        let session = SessionView {
            attribute_values: &attribute_values,
            locality: None,
            region_latencies: &[],
            wishes: &[],
            prediction_end: None,
        };
        let input_of = |(index, &(team, _, _)): (usize, &(u16, f64, f64))| PartyQualityInput {
            session,
            matching_ratings: &[],
            player_ratings: &player_ratings[index],
            leaderboard_position: None,
            waited_ms: 0,
            team,
        };
        let inputs: Vec<PartyQualityInput<'_>> = players.iter().enumerate().map(input_of).collect();
        win_probabilities(Some(&RatingSpec::with_defaults(system)), &inputs)
    }

    fn assert_close(found: &[f64], expected: &[f64]) {
        assert!(
            found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9),
            "{found:?} {expected:?}"
        );
    }

    const ELO: RatingSystem = RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 };
    const PLACKETT_LUCE: RatingSystem =
        RatingSystem::PlackettLuce { mu: 25.0, sigma: 8.0, beta: 25.0 / 6.0, kappa: 1e-4, tau: 0.0 };

    /// S1-61: 400 points are odds of 10 to 1, and teams count by their mean.
    #[test]
    fn elo_win_probability_depends_on_the_difference_of_team_means() {
        assert_close(&probabilities_of(ELO, &[(0, 1900.0, 0.0), (1, 1500.0, 0.0)]), &[10.0 / 11.0, 1.0 / 11.0]);
        assert_close(&probabilities_of(ELO, &[(0, 2000.0, 0.0), (0, 1000.0, 0.0), (1, 1500.0, 0.0)]), &[0.5, 0.5]);
        assert_close(&probabilities_of(ELO, &[(0, 5.0, 0.0), (1, 5.0, 0.0), (2, 5.0, 0.0)]), &[1.0 / 3.0; 3]);
    }

    /// S1-62: Glickman's example, rating 1400 and deviation 80 against 1500 and 150, gives 0.376.
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
        // sqrt(2 * 9 + 16 + 2) = 6: the difference is one standard deviation.
        let found = probabilities_of(system, &[(0, 31.0, 4.0), (1, 25.0, 2.0_f64.sqrt())]);
        assert_close(&found, &[0.841_344_746_068_542_9, 0.158_655_253_931_457_1]);
        let beta = (25.0_f64 / 6.0).powi(2);
        let c = (2.0 * (64.0 + beta)).sqrt();
        let expected = 1.0 / (1.0 + (-4.0 / c).exp());
        assert_close(&probabilities_of(PLACKETT_LUCE, &[(0, 29.0, 8.0), (1, 25.0, 8.0)]), &[expected, 1.0 - expected]);
    }
}
