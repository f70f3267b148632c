//! Win and draw probabilities of the sides of a match, by the rating system of the set.
//!
//! | system       | one team beats another                                             | source |
//! |--------------|--------------------------------------------------------------------|--------|
//! | Elo          | `1 / (1 + 10^(-d / scale))`, d between the teams' means             | Elo 1978 |
//! | Glicko, -2   | the same over 400, d times `g` of both deviations                   | Glickman 1999, 2013: expected outcome |
//! | TrueSkill    | `Φ(d / sqrt(n beta² + sum of sigma²))`, d between sums, n players   | Herbrich, Minka and Graepel 2006 |
//! | Plackett-Luce| `exp(sum / c)` in proportion, `c² = sum over players of sigma² + beta²` | Weng and Lin 2011, section 4 |
//! | the same, probit | `Φ(d / c)`, d between sums                                      | Weng and Lin 2011, section 3 (Thurstone-Mosteller) |
//!
//! [`relative_draw_probability`] needs a system with a performance deviation (beta).
//!
//! With more than two teams, a team's probability is its share of all expected pairwise wins. Plackett-Luce defines it
//! directly; in its probit form it is the chance of the best performance (`first_place.rs`). Its c sums the variance of
//! each player's performance. The update sums it per team; with that c, predictions for large teams would be as certain
//! as for a duel (docs/RATINGS.md).

use crate::queue::ticket::PlayerRating;
use crate::rating::elo::expected_score;
use crate::rating::first_place::{NormalPerformance, first_place_probabilities, normal_cdf};
use crate::rating::glicko::g_factor;
use crate::ruleset::rating::{PerformanceDistribution, RatingSpec, RatingSystem};

/// Sums over the players of one side. A side without players is invalid.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TeamStrength {
    player_count: f64,
    rating_sum: f64,
    variance_sum: f64,
}

impl TeamStrength {
    /// Adds one player.
    pub(crate) fn add_player(&mut self, estimate: PlayerRating) {
        self.player_count += 1.0;
        self.rating_sum += estimate.rating;
        self.variance_sum += estimate.deviation * estimate.deviation;
    }

    /// True without players.
    pub(crate) fn is_empty(&self) -> bool {
        self.player_count == 0.0
    }

    /// Normal distribution of the side's performance.
    fn performance(&self, beta: f64) -> NormalPerformance {
        let variance = self.variance_sum + self.player_count * beta * beta;
        NormalPerformance { mean: self.rating_sum, deviation: variance.sqrt() }
    }

    fn mean_rating(&self) -> f64 {
        self.rating_sum / self.player_count.max(1.0)
    }

    fn mean_variance(&self) -> f64 {
        self.variance_sum / self.player_count.max(1.0)
    }
}

impl FromIterator<PlayerRating> for TeamStrength {
    fn from_iter<T: IntoIterator<Item = PlayerRating>>(players: T) -> Self {
        let mut team = Self::default();
        players.into_iter().for_each(|estimate| team.add_player(estimate));
        team
    }
}

/// Win probability of each side, in the order given; the sum is 1.
pub(crate) fn win_probabilities(spec: &RatingSpec, teams: &[TeamStrength]) -> Vec<f64> {
    match spec.system {
        RatingSystem::PlackettLuce { beta, .. } if spec.prediction == PerformanceDistribution::Probit => match teams {
            [one, other] => {
                let first = trueskill_win_probability(one, other, beta);
                vec![first, 1.0 - first]
            }
            _ => first_place_probabilities(&teams.iter().map(|team| team.performance(beta)).collect::<Vec<_>>()),
        },
        RatingSystem::PlackettLuce { beta, .. } => plackett_luce_win_probabilities(teams, beta),
        RatingSystem::Glicko { .. } | RatingSystem::Glicko2 { .. } => {
            pairwise_win_probabilities(teams, glicko_win_probability)
        }
        RatingSystem::TrueSkill { beta, .. } => {
            pairwise_win_probabilities(teams, |one, other| trueskill_win_probability(one, other, beta))
        }
        RatingSystem::Elo { scale, .. } => pairwise_win_probabilities(teams, |one, other| {
            expected_score(one.mean_rating(), other.mean_rating(), scale)
        }),
    }
}

/// Probability of a draw, relative to two teams with certain ratings and equal sums. This is TrueSkill's match quality
/// (Herbrich, Minka and Graepel 2006, "Matchmaking"), which has a closed form for two teams. With more teams, the
/// lowest value over all pairs; 1 for one team.
///
/// `sqrt(n beta² / v) * exp(-d² / 2v)`, where `v = n beta² + sum of sigma²`, d is the difference of the sums and n the
/// number of players.
pub(crate) fn relative_draw_probability(beta: f64, teams: &[TeamStrength]) -> f64 {
    let pairs =
        teams.iter().enumerate().flat_map(|(index, one)| teams[index + 1..].iter().map(move |other| (one, other)));
    pairs.map(|(one, other)| pair_relative_draw_probability(one, other, beta)).fold(1.0, f64::min)
}

fn pair_relative_draw_probability(one: &TeamStrength, other: &TeamStrength, beta: f64) -> f64 {
    let performance_variance = (one.player_count + other.player_count) * beta * beta;
    // This order of additions gives the same bits if the teams are swapped.
    let variance = performance_variance + (one.variance_sum + other.variance_sum);
    let difference = one.rating_sum - other.rating_sum;
    if variance <= 0.0 {
        return f64::from(difference == 0.0);
    }
    (performance_variance / variance).sqrt() * (-difference * difference / (2.0 * variance)).exp()
}

fn pairwise_win_probabilities(
    teams: &[TeamStrength],
    win_probability: impl Fn(&TeamStrength, &TeamStrength) -> f64,
) -> Vec<f64> {
    let pair_count = (teams.len() * teams.len().saturating_sub(1)) as f64 / 2.0;
    let share_of_wins = |index: usize| {
        let others = teams.iter().enumerate().filter(|(other, _)| *other != index);
        others.map(|(_, other)| win_probability(&teams[index], other)).sum::<f64>() / pair_count.max(1.0)
    };
    (0..teams.len()).map(share_of_wins).collect()
}

fn glicko_win_probability(one: &TeamStrength, other: &TeamStrength) -> f64 {
    let variance = one.mean_variance() + other.mean_variance();
    expected_score(g_factor(variance) * (one.mean_rating() - other.mean_rating()), 0.0, 400.0)
}

fn trueskill_win_probability(one: &TeamStrength, other: &TeamStrength, beta: f64) -> f64 {
    let variance = (one.player_count + other.player_count) * beta * beta + one.variance_sum + other.variance_sum;
    if variance <= 0.0 {
        return if one.rating_sum == other.rating_sum { 0.5 } else { f64::from(other.rating_sum < one.rating_sum) };
    }
    normal_cdf((one.rating_sum - other.rating_sum) / variance.sqrt())
}

fn plackett_luce_win_probabilities(teams: &[TeamStrength], beta: f64) -> Vec<f64> {
    let variance: f64 = teams.iter().map(|team| team.variance_sum + team.player_count * beta * beta).sum();
    let c = variance.sqrt().max(f64::MIN_POSITIVE);
    // Subtracts the maximum first, so that no exponential overflows.
    let max_rating_sum = teams.iter().map(|team| team.rating_sum).fold(f64::NEG_INFINITY, f64::max);
    let strengths: Vec<f64> = teams.iter().map(|team| ((team.rating_sum - max_rating_sum) / c).exp()).collect();
    let total: f64 = strengths.iter().sum();
    strengths.iter().map(|strength| strength / total).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn team(players: &[(f64, f64)]) -> TeamStrength {
        players.iter().map(|&(rating, deviation)| PlayerRating { rating, deviation }).collect()
    }

    /// S2-4: values of trueskill.py 0.4.5 for duels and teams, with beta 25/6. Two newcomers give 1 / sqrt 5.
    #[test]
    fn draw_probability_equals_the_trueskill_reference() {
        let new = (25.0, 25.0 / 3.0);
        let mixed = [
            [(25.0, 8.333), (30.0, 4.0), (22.0, 6.5), (27.0, 3.0), (18.0, 7.0)],
            [(29.0, 5.0), (24.0, 8.0), (26.0, 2.0), (21.0, 4.5), (28.0, 6.0)],
        ];
        for (teams, expected) in [
            ([team(&[new]), team(&[new])], 0.2_f64.sqrt()),
            ([team(&[new; 2]), team(&[new; 2])], 0.447_213_595_499_957_9),
            ([team(&[(20.0, 3.0)]), team(&[(32.0, 2.5)])], 0.197_336_645_847_339_3),
            (mixed.map(|players| team(&players)), 0.563_962_444_606_122_4),
        ] {
            let found = relative_draw_probability(25.0 / 6.0, &teams);
            assert!((found - expected).abs() < 1e-12, "{found} {expected}");
        }
        let three = [team(&[new]), team(&[new]), team(&[(5.0, 3.0)])];
        let lowest = relative_draw_probability(25.0 / 6.0, &[three[0], three[2]]);
        assert_eq!(
            (relative_draw_probability(25.0 / 6.0, &three), relative_draw_probability(25.0 / 6.0, &three[..1])),
            (lowest, 1.0)
        );
        assert_eq!(relative_draw_probability(0.0, &[team(&[(5.0, 0.0)]), team(&[(5.0, 0.0)])]), 1.0);
        assert_eq!(relative_draw_probability(0.0, &[team(&[(5.0, 0.0)]), team(&[(5.1, 0.0)])]), 0.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// S2-4: draw probability by its definition. It is the chance that two performances end within 1e-4, relative
        /// to equal teams with certain ratings. Swapping the teams changes nothing; a larger deviation or a larger
        /// difference lowers it.
        #[test]
        fn draw_probability_equals_the_chance_of_equal_performances(
            one in proptest::collection::vec((-3.0..3.0, 0.0..3.0), 1..5),
            other in proptest::collection::vec((-3.0..3.0, 0.0..3.0), 1..5),
            beta in 0.5..5.0,
        ) {
            let (one, other) = (team(&one), team(&other));
            let found = relative_draw_probability(beta, &[one, other]);
            let margin = 1e-4;
            let level = |apart: f64, variance: f64| {
                let deviation = variance.sqrt();
                normal_cdf((margin - apart) / deviation) - normal_cdf((-margin - apart) / deviation)
            };
            let performance_variance = (one.player_count + other.player_count) * beta * beta;
            let expected = level(one.rating_sum - other.rating_sum, performance_variance + one.variance_sum + other.variance_sum) / level(0.0, performance_variance);
            prop_assert!((found - expected).abs() < 1e-6, "{} {}", found, expected);
            prop_assert_eq!(found, relative_draw_probability(beta, &[other, one]));
            let less_certain = TeamStrength { variance_sum: one.variance_sum + 1.0, ..with_rating_of(&one, &other) };
            prop_assert!(relative_draw_probability(beta, &[less_certain, other]) < relative_draw_probability(beta, &[with_rating_of(&one, &other), other]));
            let further = TeamStrength { rating_sum: one.rating_sum + (one.rating_sum - other.rating_sum).signum(), ..one };
            prop_assert!(relative_draw_probability(beta, &[further, other]) < found);
        }
    }

    /// Team with the deviations of `one` and the ratings of `other`.
    fn with_rating_of(one: &TeamStrength, other: &TeamStrength) -> TeamStrength {
        TeamStrength { rating_sum: other.rating_sum, ..*one }
    }
}
