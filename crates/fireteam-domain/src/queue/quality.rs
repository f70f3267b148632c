//! Match quality and its threshold: soft score, leaderboard distance, similarity, win or draw probability.
//!
//! Waiting adds a bonus; regions and avoidance rules subtract costs.

mod input;
mod similarity;
mod win_probability;

use crate::ruleset::Ruleset;
use crate::ruleset::queue::{QualitySpec, WaitBonus};
use crate::ruleset::rating::EqualWidthRatingCategories;
use crate::score::worse_of_both_scores;

pub use crate::queue::quality::input::PartyQualityInput;
pub use crate::queue::quality::similarity::{min_player_category_similarity, min_similarity_to_mean};
pub use crate::queue::quality::win_probability::{relative_draw_probability_of_match, win_probabilities};

/// Quality of a match, and whether it suffices.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QualityVerdict {
    /// Quality by the ruleset, with bonus and costs; higher is better.
    pub quality: f64,
    /// The quality reaches the threshold.
    pub passes: bool,
    /// Missing quality; 0 if it passes, infinite if no bonus can make up for it.
    pub shortfall: f64,
}

/// Threshold of a quality.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MinimumQuality {
    /// Minimum quality.
    pub minimum: f64,
    /// The quality must be greater than `minimum`, not equal.
    pub exclusive: bool,
}

/// `scale * exp(-d² / (2 sigma²))` for a distance `d` in leaderboard positions.
pub fn leaderboard_distance_quality(sigma: f64, scale: f64, distance: f64) -> f64 {
    scale * (-distance * distance / (2.0 * sigma * sigma)).exp()
}

/// Bonus for waiting: `max(0, combined minutes - free minutes) * per_minute`, unbounded.
pub fn bonus_for_waiting(rule: &WaitBonus, combined_ms: u64) -> f64 {
    (combined_ms as f64 / 60_000.0 - rule.free_combined_minutes).max(0.0) * rule.per_combined_minute
}

/// Threshold of a quality. `None` for `Any`, and for `WinProbability`, which has a minimum and a maximum.
pub fn minimum_quality(quality: &QualitySpec) -> Option<MinimumQuality> {
    match *quality {
        QualitySpec::Any | QualitySpec::WinProbability { .. } => None,
        QualitySpec::SoftScore { max_score } => Some(MinimumQuality { minimum: -max_score, exclusive: false }),
        QualitySpec::LeaderboardGauss { threshold, .. } | QualitySpec::DrawProbability { threshold } => {
            Some(MinimumQuality { minimum: threshold, exclusive: false })
        }
        QualitySpec::AverageSimilarity { required_percent, .. }
        | QualitySpec::CategorySimilarity { required_percent, .. } => {
            Some(MinimumQuality { minimum: required_percent / 100.0, exclusive: true })
        }
    }
}

/// Quality of a match without bonus and costs; higher is better.
pub fn base_quality<'m>(ruleset: &Ruleset, quality: &QualitySpec, members: &[PartyQualityInput<'m>]) -> f64 {
    match *quality {
        QualitySpec::Any => 0.0,
        QualitySpec::SoftScore { .. } => -worst_pair_score(ruleset, members),
        QualitySpec::LeaderboardGauss { sigma, scale, .. } => {
            leaderboard_spread_quality(sigma, scale, members.iter().map(|it| it.leaderboard_position))
        }
        QualitySpec::AverageSimilarity { rating_span, .. } => min_similarity_to_mean(rating_span, all_ratings(members)),
        QualitySpec::CategorySimilarity { categories, category_width, divisor, curve, .. } => {
            let of_queue = EqualWidthRatingCategories { count: categories, width: category_width, from: 0.0 };
            min_player_category_similarity(
                divisor,
                curve,
                all_ratings(members).map(|rating| of_queue.category_index_of_rating(rating)),
            )
        }
        QualitySpec::DrawProbability { .. } => relative_draw_probability_of_match(ruleset.rating.as_ref(), members),
        QualitySpec::WinProbability { .. } => {
            let (least, greatest) = min_and_max(&win_probabilities(ruleset.rating.as_ref(), members));
            1.0 - (greatest - least)
        }
    }
}

/// Evaluates a match. `costs` are those of regions and avoidance rules.
pub fn evaluate_quality(
    ruleset: &Ruleset,
    quality: &QualitySpec,
    wait_bonus: Option<&WaitBonus>,
    members: &[PartyQualityInput<'_>],
    costs: f64,
) -> QualityVerdict {
    let combined_ms = members.iter().fold(0_u64, |sum, it| sum.saturating_add(it.waited_ms));
    if let QualitySpec::WinProbability { min_percent, max_percent } = *quality {
        let bonus_less_costs = wait_bonus.map_or(0.0, |rule| bonus_for_waiting(rule, combined_ms)) - costs;
        let (least, greatest) = min_and_max(&win_probabilities(ruleset.rating.as_ref(), members));
        let passes = least >= min_percent / 100.0 && greatest <= max_percent / 100.0;
        let shortfall = if passes { 0.0 } else { f64::INFINITY };
        return QualityVerdict { quality: 1.0 - (greatest - least) + bonus_less_costs, passes, shortfall };
    }
    evaluate_from_base_quality(quality, wait_bonus, base_quality(ruleset, quality, members), combined_ms, costs)
}

/// Evaluates a match with known base quality. Not for `WinProbability`, whose limits do not depend on the base quality.
pub fn evaluate_from_base_quality(
    quality: &QualitySpec,
    wait_bonus: Option<&WaitBonus>,
    base: f64,
    combined_ms: u64,
    costs: f64,
) -> QualityVerdict {
    let reached = base + (wait_bonus.map_or(0.0, |rule| bonus_for_waiting(rule, combined_ms)) - costs);
    let Some(threshold) = minimum_quality(quality) else {
        return QualityVerdict { quality: reached, passes: true, shortfall: 0.0 };
    };
    let passes = if threshold.exclusive { threshold.minimum < reached } else { threshold.minimum <= reached };
    QualityVerdict { quality: reached, passes, shortfall: if passes { 0.0 } else { threshold.minimum - reached } }
}

/// Weight of a match in the selection, never negative. Soft scores count by their distance below `max_score`.
pub fn selection_weight(quality: &QualitySpec, reached: f64) -> f64 {
    match *quality {
        QualitySpec::SoftScore { max_score } => (max_score + reached).max(0.0),
        _ => reached.max(0.0),
    }
}

fn worst_pair_score(ruleset: &Ruleset, members: &[PartyQualityInput<'_>]) -> f64 {
    let mut worst: f64 = 0.0;
    for (index, one) in members.iter().enumerate() {
        for other in &members[index + 1..] {
            worst = worst.max(worse_of_both_scores(ruleset, &one.session, &other.session));
        }
    }
    worst
}

/// Quality by the best and the worst leaderboard position of a match. A ticket without a position gives 0, so it
/// matches only by its wait bonus.
pub fn leaderboard_spread_quality(sigma: f64, scale: f64, positions: impl IntoIterator<Item = Option<f64>>) -> f64 {
    let (mut best, mut worst) = (f64::INFINITY, f64::NEG_INFINITY);
    for position in positions {
        let Some(position) = position else { return 0.0 };
        (best, worst) = (best.min(position), worst.max(position));
    }
    leaderboard_distance_quality(sigma, scale, (worst - best).max(0.0))
}

fn all_ratings<'m>(members: &[PartyQualityInput<'m>]) -> impl Iterator<Item = f64> + Clone {
    members.iter().flat_map(|it| it.matching_ratings.iter().copied())
}

fn min_and_max(probabilities: &[f64]) -> (f64, f64) {
    let least = probabilities.iter().copied().fold(f64::INFINITY, f64::min);
    (least, probabilities.iter().copied().fold(f64::NEG_INFINITY, f64::max))
}
