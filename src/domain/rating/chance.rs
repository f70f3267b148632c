//! How likely each side is to win, by the rating system of the set.
//!
//! | system       | one team beats another                                             | source |
//! |--------------|--------------------------------------------------------------------|--------|
//! | Elo          | `1 / (1 + 10^(-d / scale))`, d between the teams' means             | Elo 1978 |
//! | Glicko, -2   | the same over 400, d times `g` of both deviations                   | Glickman 1999, 2013: expected outcome |
//! | TrueSkill    | `Φ(d / sqrt(n beta² + sum of sigma²))`, d between sums, n players   | Herbrich, Minka and Graepel 2006 |
//! | Plackett-Luce| `exp(sum / c)` in proportion, `c² = sum over players of sigma² + beta²` | Weng and Lin 2011, section 4 |
//!
//! Of more than two teams a team's chance is its share of all pairs that it is expected to win, except by Plackett-Luce, which
//! says it outright. Its c counts the luck of every player; by the luck of every team, as when ratings change, it is far too sure of
//! large teams, and so is the normal curve in place of the logistic one (docs/RATINGS.md has both measured).

use crate::domain::queue::ticket::Rated;
use crate::domain::rating::elo::expected;
use crate::domain::rating::glicko::g;
use crate::domain::ruleset::rating::RatingSystem;

/// A side's players, added up. One without players is no side.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::domain) struct Team {
    players: f64,
    rating: f64,
    variance: f64,
}

impl Team {
    /// One more player.
    pub(in crate::domain) fn add(&mut self, rated: Rated) {
        self.players += 1.0;
        self.rating += rated.rating;
        self.variance += rated.deviation * rated.deviation;
    }

    /// Nobody is in it.
    pub(in crate::domain) fn is_empty(&self) -> bool {
        self.players == 0.0
    }

    fn mean(&self) -> f64 {
        self.rating / self.players.max(1.0)
    }

    fn mean_variance(&self) -> f64 {
        self.variance / self.players.max(1.0)
    }
}

impl FromIterator<Rated> for Team {
    fn from_iter<T: IntoIterator<Item = Rated>>(players: T) -> Self {
        let mut team = Self::default();
        players.into_iter().for_each(|rated| team.add(rated));
        team
    }
}

/// The chance of every side to win, in the order given; they add up to 1.
pub(in crate::domain) fn chances(system: &RatingSystem, teams: &[Team]) -> Vec<f64> {
    match *system {
        RatingSystem::PlackettLuce { beta, .. } => plackett_luce(teams, beta),
        RatingSystem::Glicko { .. } | RatingSystem::Glicko2 { .. } => pairwise(teams, glicko),
        RatingSystem::TrueSkill { beta, .. } => pairwise(teams, |one, other| true_skill(one, other, beta)),
        RatingSystem::Elo { scale, .. } => pairwise(teams, |one, other| expected(one.mean(), other.mean(), scale)),
    }
}

fn pairwise(teams: &[Team], beats: impl Fn(&Team, &Team) -> f64) -> Vec<f64> {
    let pairs = (teams.len() * teams.len().saturating_sub(1)) as f64 / 2.0;
    let wins = |place: usize| {
        let others = teams.iter().enumerate().filter(|(other, _)| *other != place);
        others.map(|(_, other)| beats(&teams[place], other)).sum::<f64>() / pairs.max(1.0)
    };
    (0..teams.len()).map(wins).collect()
}

fn glicko(one: &Team, other: &Team) -> f64 {
    let variance = one.mean_variance() + other.mean_variance();
    expected(g(variance) * (one.mean() - other.mean()), 0.0, 400.0)
}

fn true_skill(one: &Team, other: &Team, beta: f64) -> f64 {
    let variance = (one.players + other.players) * beta * beta + one.variance + other.variance;
    if variance <= 0.0 {
        return if one.rating == other.rating { 0.5 } else { f64::from(other.rating < one.rating) };
    }
    normal_below((one.rating - other.rating) / variance.sqrt())
}

fn plackett_luce(teams: &[Team], beta: f64) -> Vec<f64> {
    let variance: f64 = teams.iter().map(|team| team.variance + team.players * beta * beta).sum();
    let c = variance.sqrt().max(f64::MIN_POSITIVE);
    // The greatest is taken away first, so that no power overflows.
    let greatest = teams.iter().map(|team| team.rating).fold(f64::NEG_INFINITY, f64::max);
    let strengths: Vec<f64> = teams.iter().map(|team| ((team.rating - greatest) / c).exp()).collect();
    let total: f64 = strengths.iter().sum();
    strengths.iter().map(|strength| strength / total).collect()
}

/// The share of a normal distribution that lies below `x` deviations: by the series of the error function near the middle,
/// by its continued fraction in the tails (Abramowitz and Stegun 26.2.11 and 26.2.14); right to 1e-12.
fn normal_below(x: f64) -> f64 {
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
    use super::*;

    #[test]
    fn the_normal_curve_is_right_to_twelve_digits() {
        for (x, wanted) in [(0.0, 0.5), (-2.0, 0.022_750_131_948_179_2), (3.5, 0.999_767_370_920_964_5), (-40.0, 0.0)] {
            assert!((normal_below(x) - wanted).abs() < 1e-12, "{x}: {}", normal_below(x));
        }
    }
}
