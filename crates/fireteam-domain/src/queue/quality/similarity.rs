//! Similarity of the players of a match, by rating or by rating category: that of the least similar player.

use crate::ruleset::DistanceCurve;
use crate::score::apply_curve;

/// Minimum over players of `1 - |rating - mean| / span`; 1 without players.
pub fn min_similarity_to_mean(rating_span: f64, ratings: impl Iterator<Item = f64> + Clone) -> f64 {
    let (sum, count) = ratings.clone().fold((0.0, 0.0), |(sum, count), rating| (sum + rating, count + 1.0));
    let mean = sum / count;
    ratings.map(|rating| 1.0 - (rating - mean).abs() / rating_span).fold(1.0, f64::min)
}

/// Minimum over players of the mean of `1 - curve(distance in categories / divisor)` to all players; 1 without players.
pub fn min_player_category_similarity(
    divisor: u16,
    curve: DistanceCurve,
    categories: impl Iterator<Item = u16> + Clone,
) -> f64 {
    let count = categories.clone().count() as f64;
    let similar = |one: u16, other: u16| {
        let distance = f64::from(one.abs_diff(other)) / f64::from(divisor.max(1));
        1.0 - apply_curve(curve, distance.min(1.0))
    };
    let of = |one: u16| categories.clone().map(|other| similar(one, other)).sum::<f64>() / count;
    categories.clone().map(of).fold(1.0, f64::min)
}
