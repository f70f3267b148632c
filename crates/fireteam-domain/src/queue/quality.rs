//! How good a match is, and whether that is good enough: soft score, leaderboard distance, similarity or chances to win,
//! plus what waiting adds, minus what regions and grudges take.

mod similarity;
mod win_probability;

pub use similarity::{average_similarity, category_of, category_similarity};
pub use win_probability::{draw_probability, win_probabilities};

use crate::filter::SessionView;
use crate::queue::ticket::PlayerRating;
use crate::ruleset::Ruleset;
use crate::ruleset::queue::{QualitySpec, WaitBonus};
use crate::score::mutual_score;

/// One party of a match, as far as quality goes.
#[derive(Clone, Copy, Debug)]
pub struct QualityInput<'a> {
    /// As soft filters see it.
    pub session: SessionView<'a>,
    /// Its players' ratings; those that are no numbers have been made 0.
    pub finite_ratings: &'a [f64],
    /// The same with their deviations.
    pub player_ratings: &'a [PlayerRating],
    /// Its place on the leaderboard, if known.
    pub leaderboard_position: Option<f64>,
    /// How long it has waited, milliseconds.
    pub waited_ms: u64,
    /// Its team: a place in `TeamsSpec::sizes`.
    pub team: u16,
}

/// How good a match is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatchQuality {
    /// By the ruleset's quality, bonus and costs included; higher is better.
    pub quality: f64,
    /// It is good enough.
    pub passes: bool,
    /// How much of quality is missing; 0 when it passes. What no bonus can make good is infinite.
    pub shortfall: f64,
}

/// What a quality must reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QualityThreshold {
    /// The least that passes.
    pub minimum: f64,
    /// Even that does not; only more does.
    pub exclusive: bool,
}

/// `scale * exp(-d² / (2 sigma²))` over a distance in leaderboard positions (S2-9).
pub fn gaussian_quality(sigma: f64, scale: f64, distance: f64) -> f64 {
    scale * (-distance * distance / (2.0 * sigma * sigma)).exp()
}

/// What waiting adds: `max(0, combined minutes - free minutes) * per_minute`, unbounded (S2-11).
pub fn bonus_for_waiting(rule: &WaitBonus, combined_ms: u64) -> f64 {
    (combined_ms as f64 / 60_000.0 - rule.free_minutes).max(0.0) * rule.per_minute
}

/// What a quality must reach; `None` for `Any`, and for `WinProbability`, whose band is no matter of more or less.
pub fn quality_threshold(quality: &QualitySpec) -> Option<QualityThreshold> {
    match *quality {
        QualitySpec::Any | QualitySpec::WinProbability { .. } => None,
        QualitySpec::SoftScore { max_score } => Some(QualityThreshold { minimum: -max_score, exclusive: false }),
        QualitySpec::LeaderboardGauss { threshold, .. } | QualitySpec::DrawProbability { threshold } => {
            Some(QualityThreshold { minimum: threshold, exclusive: false })
        }
        QualitySpec::AverageSimilarity { required_percent, .. }
        | QualitySpec::CategorySimilarity { required_percent, .. } => {
            Some(QualityThreshold { minimum: required_percent / 100.0, exclusive: true })
        }
    }
}

/// The quality of a match before bonus and costs; higher is better.
pub fn base_quality<'m>(ruleset: &Ruleset, quality: &QualitySpec, members: &[QualityInput<'m>]) -> f64 {
    match *quality {
        QualitySpec::Any => 0.0,
        QualitySpec::SoftScore { .. } => -worst_pair_score(ruleset, members),
        QualitySpec::LeaderboardGauss { sigma, scale, .. } => {
            leaderboard_quality(sigma, scale, members.iter().map(|it| it.leaderboard_position))
        }
        QualitySpec::AverageSimilarity { rating_span, .. } => average_similarity(rating_span, all_ratings(members)),
        QualitySpec::CategorySimilarity { categories, category_width, divisor, curve, .. } => {
            let category = |rating| category_of(categories, category_width, rating);
            category_similarity(divisor, curve, all_ratings(members).map(category))
        }
        QualitySpec::DrawProbability { .. } => draw_probability(ruleset.rating.as_ref(), members),
        QualitySpec::WinProbability { .. } => {
            let (least, greatest) = min_and_max(&win_probabilities(ruleset.rating.as_ref(), members));
            1.0 - (greatest - least)
        }
    }
}

/// Judges a match whose costs, of regions and grudges, are known.
pub fn evaluate_quality(
    ruleset: &Ruleset,
    quality: &QualitySpec,
    wait_bonus: Option<&WaitBonus>,
    members: &[QualityInput<'_>],
    costs: f64,
) -> MatchQuality {
    let combined_ms = members.iter().fold(0_u64, |sum, it| sum.saturating_add(it.waited_ms));
    if let QualitySpec::WinProbability { min_percent, max_percent } = *quality {
        let added = wait_bonus.map_or(0.0, |rule| bonus_for_waiting(rule, combined_ms)) - costs;
        let (least, greatest) = min_and_max(&win_probabilities(ruleset.rating.as_ref(), members));
        let passes = min_percent / 100.0 <= least && greatest <= max_percent / 100.0;
        let short_by = if passes { 0.0 } else { f64::INFINITY };
        return MatchQuality { quality: 1.0 - (greatest - least) + added, passes, shortfall: short_by };
    }
    apply_bonus_and_costs(quality, wait_bonus, base_quality(ruleset, quality, members), combined_ms, costs)
}

/// Judges a match whose `base` is known too. Not for `WinProbability`, whose band its base does not tell.
pub fn apply_bonus_and_costs(
    quality: &QualitySpec,
    wait_bonus: Option<&WaitBonus>,
    base: f64,
    combined_ms: u64,
    costs: f64,
) -> MatchQuality {
    let quality_reached = base + (wait_bonus.map_or(0.0, |rule| bonus_for_waiting(rule, combined_ms)) - costs);
    let Some(bar) = quality_threshold(quality) else {
        return MatchQuality { quality: quality_reached, passes: true, shortfall: 0.0 };
    };
    let passes = if bar.exclusive { bar.minimum < quality_reached } else { bar.minimum <= quality_reached };
    MatchQuality {
        quality: quality_reached,
        passes,
        shortfall: if passes { 0.0 } else { bar.minimum - quality_reached },
    }
}

/// What a quality counts when matches compete: never negative, so that a match that may be made is always worth making.
/// Soft scores count by how far they stay below the greatest that passes.
pub fn selection_weight(quality: &QualitySpec, reached: f64) -> f64 {
    match *quality {
        QualitySpec::SoftScore { max_score } => (max_score + reached).max(0.0),
        _ => reached.max(0.0),
    }
}

fn worst_pair_score(ruleset: &Ruleset, members: &[QualityInput<'_>]) -> f64 {
    let mut worst: f64 = 0.0;
    for (place, one) in members.iter().enumerate() {
        for other in &members[place + 1..] {
            worst = worst.max(mutual_score(ruleset, &one.session, &other.session));
        }
    }
    worst
}

/// By the best and the worst place of a match (S2-9). Whoever has no place is infinitely far from everybody: nothing but
/// waiting brings him in.
pub fn leaderboard_quality(sigma: f64, scale: f64, places: impl IntoIterator<Item = Option<f64>>) -> f64 {
    let (mut best, mut worst) = (f64::INFINITY, f64::NEG_INFINITY);
    for place in places {
        let Some(place) = place else { return 0.0 };
        (best, worst) = (best.min(place), worst.max(place));
    }
    gaussian_quality(sigma, scale, (worst - best).max(0.0))
}

fn all_ratings<'m>(members: &[QualityInput<'m>]) -> impl Iterator<Item = f64> + Clone {
    members.iter().flat_map(|it| it.finite_ratings.iter().copied())
}

fn min_and_max(chances: &[f64]) -> (f64, f64) {
    let least = chances.iter().copied().fold(f64::INFINITY, f64::min);
    (least, chances.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}
