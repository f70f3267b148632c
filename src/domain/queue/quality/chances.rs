//! How likely each team is to win, by the rating system of the set.
//!
//! | system       | one team beats another                                             | source |
//! |--------------|--------------------------------------------------------------------|--------|
//! | Elo          | `1 / (1 + 10^(-d / scale))`, d between the teams' means             | Elo 1978 |
//! | Glicko, -2   | the same over 400, d times `g` of both deviations                   | Glickman 1999, 2013: expected outcome |
//! | TrueSkill    | `Φ(d / sqrt(n beta² + sum of sigma²))`, d between sums, n players   | Herbrich, Minka and Graepel 2006 |
//! | Plackett-Luce| `exp(sum / c)` in proportion, `c² = sum over teams of sigma² + beta²` | Weng and Lin 2011, section 4 |
//!
//! Of more than two teams a team's chance is its share of all pairs that it is expected to win, except by Plackett-Luce, which
//! says it outright.

use crate::domain::queue::quality::Member;
use crate::domain::queue::ticket::Rated;
use crate::domain::ruleset::rating::{RatingSpec, RatingSystem};

/// What Elo's odds are counted in where a ruleset names no rating system.
const DEFAULT_SCALE: f64 = 400.0;

/// A team's players, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Team {
    players: f64,
    rating: f64,
    variance: f64,
}

impl Team {
    fn mean(&self) -> f64 {
        self.rating / self.players.max(1.0)
    }

    fn mean_variance(&self) -> f64 {
        self.variance / self.players.max(1.0)
    }
}

/// The chance of every team that has players to win, in the order of the teams; they add up to 1.
pub fn chances_to_win(spec: Option<&RatingSpec>, members: &[Member<'_>]) -> Vec<f64> {
    let count = members.iter().map(|it| usize::from(it.team) + 1).max().unwrap_or(0);
    let mut teams = vec![Team::default(); count];
    for member in members {
        let team = &mut teams[usize::from(member.team)];
        for Rated { rating, deviation } in member.rated.iter().filter(|it| it.rating.is_finite()) {
            team.players += 1.0;
            team.rating += rating;
            team.variance += deviation * deviation;
        }
    }
    teams.retain(|team| 0.0 < team.players);
    let system = spec.map(|spec| spec.system);
    match system {
        Some(RatingSystem::PlackettLuce { beta, .. }) => plackett_luce(&teams, beta),
        Some(RatingSystem::Glicko { .. } | RatingSystem::Glicko2 { .. }) => pairwise(&teams, glicko),
        Some(RatingSystem::TrueSkill { beta, .. }) => pairwise(&teams, |one, other| true_skill(one, other, beta)),
        Some(RatingSystem::Elo { scale, .. }) => pairwise(&teams, |one, other| odds(one.mean() - other.mean(), scale)),
        None => pairwise(&teams, |one, other| odds(one.mean() - other.mean(), DEFAULT_SCALE)),
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

/// The logistic curve of base ten.
fn odds(difference: f64, scale: f64) -> f64 {
    1.0 / (1.0 + 10.0_f64.powf(-difference / scale))
}

fn glicko(one: &Team, other: &Team) -> f64 {
    let q = std::f64::consts::LN_10 / 400.0;
    let variance = one.mean_variance() + other.mean_variance();
    let g = 1.0 / (1.0 + 3.0 * q * q * variance / (std::f64::consts::PI * std::f64::consts::PI)).sqrt();
    odds(g * (one.mean() - other.mean()), 400.0)
}

fn true_skill(one: &Team, other: &Team, beta: f64) -> f64 {
    let variance = (one.players + other.players) * beta * beta + one.variance + other.variance;
    if variance <= 0.0 {
        return if one.rating == other.rating { 0.5 } else { f64::from(other.rating < one.rating) };
    }
    normal_below((one.rating - other.rating) / variance.sqrt())
}

fn plackett_luce(teams: &[Team], beta: f64) -> Vec<f64> {
    let variance: f64 = teams.iter().map(|team| team.variance + beta * beta).sum();
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
    use crate::domain::facts::Facts;
    use crate::domain::filter::Seen;

    fn chances(system: RatingSystem, players: &[(u16, f64, f64)]) -> Vec<f64> {
        let facts = Facts::none();
        let rated: Vec<[Rated; 1]> =
            players.iter().map(|&(_, rating, deviation)| [Rated { rating, deviation }]).collect();
        let seen = Seen { facts: &facts, locality: None, regions: &[] };
        let member = |(place, &(team, _, _)): (usize, &(u16, f64, f64))| Member {
            seen,
            ratings: &[],
            rated: &rated[place],
            place: None,
            waited_ms: 0,
            team,
        };
        let members: Vec<Member<'_>> = players.iter().enumerate().map(member).collect();
        chances_to_win(Some(&RatingSpec { system, z: 0.0, decay: None }), &members)
    }

    fn close(found: &[f64], wanted: &[f64]) {
        assert!(
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9),
            "{found:?} {wanted:?}"
        );
    }

    const ELO: RatingSystem = RatingSystem::Elo { initial: 1500.0, k: 16.0, scale: 400.0 };
    const PLACKETT: RatingSystem =
        RatingSystem::PlackettLuce { mu: 25.0, sigma: 8.0, beta: 25.0 / 6.0, kappa: 1e-4, tau: 0.0 };

    /// S1-61: 400 points are ten to one, and teams count by their mean.
    #[test]
    fn elo_goes_by_the_difference_of_means() {
        close(&chances(ELO, &[(0, 1900.0, 0.0), (1, 1500.0, 0.0)]), &[10.0 / 11.0, 1.0 / 11.0]);
        close(&chances(ELO, &[(0, 2000.0, 0.0), (0, 1000.0, 0.0), (1, 1500.0, 0.0)]), &[0.5, 0.5]);
        close(&chances(ELO, &[(0, 5.0, 0.0), (1, 5.0, 0.0), (2, 5.0, 0.0)]), &[1.0 / 3.0; 3]);
    }

    /// S1-62: Glickman's own figure, 1400/80 against 1500/150: 0.376.
    #[test]
    fn glicko_trusts_uncertain_ratings_less() {
        let system =
            RatingSystem::Glicko { initial: 1500.0, deviation: 350.0, min_deviation: 30.0, c: 63.2, period_ms: 1 };
        let found = chances(system, &[(0, 1400.0, 80.0), (1, 1500.0, 150.0)]);
        assert!((found[0] - 0.376).abs() < 5e-4, "{found:?}");
    }

    #[test]
    fn true_skill_goes_by_the_normal_curve() {
        let system = RatingSystem::TrueSkill { mu: 25.0, sigma: 8.0, beta: 3.0, tau: 0.0, draw_percent: 0.0 };
        // sqrt(2 * 9 + 16 + 2) = 6: one deviation apart.
        let found = chances(system, &[(0, 31.0, 4.0), (1, 25.0, 2.0_f64.sqrt())]);
        close(&found, &[0.841_344_746_068_542_9, 0.158_655_253_931_457_1]);
        for (x, wanted) in [(0.0, 0.5), (-2.0, 0.022_750_131_948_179_2), (3.5, 0.999_767_370_920_964_5), (-40.0, 0.0)] {
            assert!((normal_below(x) - wanted).abs() < 1e-12, "{x}: {}", normal_below(x));
        }
        let beta = (25.0_f64 / 6.0).powi(2);
        let c = (2.0 * (64.0 + beta)).sqrt();
        let wanted = 1.0 / (1.0 + (-4.0 / c).exp());
        close(&chances(PLACKETT, &[(0, 29.0, 8.0), (1, 25.0, 8.0)]), &[wanted, 1.0 - wanted]);
    }
}
