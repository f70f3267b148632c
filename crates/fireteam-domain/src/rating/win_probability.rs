//! How likely each side is to win, by the rating system of the set.
//!
//! | system       | one team beats another                                             | source |
//! |--------------|--------------------------------------------------------------------|--------|
//! | Elo          | `1 / (1 + 10^(-d / scale))`, d between the teams' means             | Elo 1978 |
//! | Glicko, -2   | the same over 400, d times `g` of both deviations                   | Glickman 1999, 2013: expected outcome |
//! | TrueSkill    | `Φ(d / sqrt(n beta² + sum of sigma²))`, d between sums, n players   | Herbrich, Minka and Graepel 2006 |
//! | Plackett-Luce| `exp(sum / c)` in proportion, `c² = sum over players of sigma² + beta²` | Weng and Lin 2011, section 4 |
//!
//! How likely a draw is, [`draw_quality`] says, for systems that say how much luck there is in a game.
//!
//! Of more than two teams a team's chance is its share of all pairs that it is expected to win, except by Plackett-Luce, which
//! says it outright. Its c counts the luck of every player; by the luck of every team, as when ratings change, it would be as sure of
//! large teams as if there were no more luck in them than in a duel (docs/RATINGS.md).

use crate::queue::ticket::PlayerRating;
use crate::rating::elo::expected_score;
use crate::rating::glicko::g_factor;
use crate::ruleset::rating::RatingSystem;

/// A side's players, added up. One without players is no side.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TeamStrength {
    player_count: f64,
    rating_sum: f64,
    variance_sum: f64,
}

impl TeamStrength {
    /// One more player.
    pub(crate) fn add_player(&mut self, rated: PlayerRating) {
        self.player_count += 1.0;
        self.rating_sum += rated.rating;
        self.variance_sum += rated.deviation * rated.deviation;
    }

    /// Nobody is in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.player_count == 0.0
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
        players.into_iter().for_each(|rated| team.add_player(rated));
        team
    }
}

/// The chance of every side to win, in the order given; they add up to 1.
pub(crate) fn win_probabilities(system: &RatingSystem, teams: &[TeamStrength]) -> Vec<f64> {
    match *system {
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

/// How likely teams are to draw, as a share of what they are whose ratings are known for certain and add up to the same: TrueSkill's
/// match quality (Herbrich, Minka and Graepel 2006, "Matchmaking"), which has a closed form for two. Of more, the pair that is
/// least likely to; 1 for one alone.
///
/// `sqrt(n beta² / v) * exp(-d² / 2v)`, `v = n beta² + sum of sigma²`, d between the sums, n players.
pub(crate) fn relative_draw_probability(beta: f64, teams: &[TeamStrength]) -> f64 {
    let pairs = teams.iter().enumerate().flat_map(|(place, one)| teams[place + 1..].iter().map(move |it| (one, it)));
    pairs.map(|(one, other)| pair_draw_probability(one, other, beta)).fold(1.0, f64::min)
}

fn pair_draw_probability(one: &TeamStrength, other: &TeamStrength, beta: f64) -> f64 {
    let luck = (one.player_count + other.player_count) * beta * beta;
    // Added up so that it is the same to the last digit whichever of the two comes first.
    let variance = luck + (one.variance_sum + other.variance_sum);
    let apart = one.rating_sum - other.rating_sum;
    if variance <= 0.0 {
        return f64::from(apart == 0.0);
    }
    (luck / variance).sqrt() * (-apart * apart / (2.0 * variance)).exp()
}

fn pairwise_win_probabilities(teams: &[TeamStrength], beats: impl Fn(&TeamStrength, &TeamStrength) -> f64) -> Vec<f64> {
    let pairs = (teams.len() * teams.len().saturating_sub(1)) as f64 / 2.0;
    let wins = |place: usize| {
        let others = teams.iter().enumerate().filter(|(other, _)| *other != place);
        others.map(|(_, other)| beats(&teams[place], other)).sum::<f64>() / pairs.max(1.0)
    };
    (0..teams.len()).map(wins).collect()
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
    // The greatest is taken away first, so that no power overflows.
    let greatest = teams.iter().map(|team| team.rating_sum).fold(f64::NEG_INFINITY, f64::max);
    let strengths: Vec<f64> = teams.iter().map(|team| ((team.rating_sum - greatest) / c).exp()).collect();
    let total: f64 = strengths.iter().sum();
    strengths.iter().map(|strength| strength / total).collect()
}

/// The share of a normal distribution that lies below `x` deviations: by the series of the error function near the middle,
/// by its continued fraction in the tails (Abramowitz and Stegun 26.2.11 and 26.2.14); right to 1e-12.
fn normal_cdf(x: f64) -> f64 {
    if x.is_nan() {
        return 0.5;
    }
    let z = x.abs();
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let upper = if z < 3.0 {
        let (mut term, mut sum) = (z, z);
        for odd in (3..200).step_by(2) {
            term *= z * z / f64::from(odd);
            sum += term;
        }
        0.5 - density * sum
    } else if z < 38.0 {
        let fraction = (1..=60).rev().fold(z, |below, step| z + f64::from(step) / below);
        density / fraction
    } else {
        0.0
    };
    if x < 0.0 { upper } else { 1.0 - upper }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn team(players: &[(f64, f64)]) -> TeamStrength {
        players.iter().map(|&(rating, deviation)| PlayerRating { rating, deviation }).collect()
    }

    /// S2-4: duels and teams as trueskill.py 0.4.5 has them, beta 25/6; two newcomers are 1 / sqrt 5.
    #[test]
    fn draw_probability_equals_the_trueskill_reference() {
        let new = (25.0, 25.0 / 3.0);
        let mixed = [
            [(25.0, 8.333), (30.0, 4.0), (22.0, 6.5), (27.0, 3.0), (18.0, 7.0)],
            [(29.0, 5.0), (24.0, 8.0), (26.0, 2.0), (21.0, 4.5), (28.0, 6.0)],
        ];
        for (teams, wanted) in [
            ([team(&[new]), team(&[new])], 0.2_f64.sqrt()),
            ([team(&[new; 2]), team(&[new; 2])], 0.447_213_595_499_957_9),
            ([team(&[(20.0, 3.0)]), team(&[(32.0, 2.5)])], 0.197_336_645_847_339_3),
            (mixed.map(|players| team(&players)), 0.563_962_444_606_122_4),
        ] {
            let found = relative_draw_probability(25.0 / 6.0, &teams);
            assert!((found - wanted).abs() < 1e-12, "{found} {wanted}");
        }
        let three = [team(&[new]), team(&[new]), team(&[(5.0, 3.0)])];
        let least = relative_draw_probability(25.0 / 6.0, &[three[0], three[2]]);
        assert_eq!(
            (relative_draw_probability(25.0 / 6.0, &three), relative_draw_probability(25.0 / 6.0, &three[..1])),
            (least, 1.0)
        );
        assert_eq!(relative_draw_probability(0.0, &[team(&[(5.0, 0.0)]), team(&[(5.0, 0.0)])]), 1.0);
        assert_eq!(relative_draw_probability(0.0, &[team(&[(5.0, 0.0)]), team(&[(5.1, 0.0)])]), 0.0);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// S2-4, from what it means: two performances end within a hair of each other so many times as often as those of equals who
        /// are known for certain. Who changes places changes nothing; who is less sure, or further away, draws more seldom.
        #[test]
        fn a_draw_is_two_performances_that_are_level(
            one in proptest::collection::vec((-3.0..3.0, 0.0..3.0), 1..5),
            other in proptest::collection::vec((-3.0..3.0, 0.0..3.0), 1..5),
            beta in 0.5..5.0,
        ) {
            let (one, other) = (team(&one), team(&other));
            let found = relative_draw_probability(beta, &[one, other]);
            let hair = 1e-4;
            let level = |apart: f64, variance: f64| {
                let deviation = variance.sqrt();
                normal_cdf((hair - apart) / deviation) - normal_cdf((-hair - apart) / deviation)
            };
            let luck = (one.player_count + other.player_count) * beta * beta;
            let wanted = level(one.rating_sum - other.rating_sum, luck + one.variance_sum + other.variance_sum) / level(0.0, luck);
            prop_assert!((found - wanted).abs() < 1e-6, "{} {}", found, wanted);
            prop_assert_eq!(found, relative_draw_probability(beta, &[other, one]));
            let less_sure = TeamStrength { variance_sum: one.variance_sum + 1.0, ..with_rating_of(&one, &other) };
            prop_assert!(relative_draw_probability(beta, &[less_sure, other]) < relative_draw_probability(beta, &[with_rating_of(&one, &other), other]));
            let further = TeamStrength { rating_sum: one.rating_sum + (one.rating_sum - other.rating_sum).signum(), ..one };
            prop_assert!(relative_draw_probability(beta, &[further, other]) < found);
        }
    }

    /// A team as sure as `one`, that is rated as `other` is.
    fn with_rating_of(one: &TeamStrength, other: &TeamStrength) -> TeamStrength {
        TeamStrength { rating_sum: other.rating_sum, ..*one }
    }

    #[test]
    fn normal_cdf_is_right_to_twelve_digits() {
        for (x, wanted) in [(0.0, 0.5), (-2.0, 0.022_750_131_948_179_2), (3.5, 0.999_767_370_920_964_5), (-40.0, 0.0)] {
            assert!((normal_cdf(x) - wanted).abs() < 1e-12, "{x}: {}", normal_cdf(x));
        }
    }
}
