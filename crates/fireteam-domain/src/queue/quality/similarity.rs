//! How alike the players of a match are: by rating (S4-6) or by category (S4-7, S4-8). A match is as good as its least
//! similar player (S4-9).

use crate::ruleset::DistanceCurve;
use crate::score::apply_curve;

/// `1 - |rating - mean| / span` of the player for whom it is least; 1 for nobody.
pub fn average_similarity(rating_span: f64, ratings: impl Iterator<Item = f64> + Clone) -> f64 {
    let (sum, count) = ratings.clone().fold((0.0, 0.0), |(sum, count), rating| (sum + rating, count + 1.0));
    let mean = sum / count;
    ratings.map(|rating| 1.0 - (rating - mean).abs() / rating_span).fold(1.0, f64::min)
}

/// The category of a rating, from 0: so many widths above 0, held to the categories that there are.
pub fn category_of(categories: u16, category_width: f64, rating: f64) -> u16 {
    let last = categories.saturating_sub(1);
    (rating / category_width).floor().clamp(0.0, f64::from(last)) as u16
}

/// The mean over all players of `1 - curve(distance in categories / divisor)`, of the player for whom it is least; 1 for
/// nobody (B-21, B-22).
pub fn category_similarity(divisor: u16, curve: DistanceCurve, categories: impl Iterator<Item = u16> + Clone) -> f64 {
    let count = categories.clone().count() as f64;
    let similar = |one: u16, other: u16| {
        let distance = f64::from(one.abs_diff(other)) / f64::from(divisor.max(1));
        1.0 - apply_curve(curve, distance.min(1.0))
    };
    let of = |one: u16| categories.clone().map(|other| similar(one, other)).sum::<f64>() / count;
    categories.clone().map(of).fold(1.0, f64::min)
}
