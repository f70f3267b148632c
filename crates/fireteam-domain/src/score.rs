//! Soft filters: a weighted sum of named terms, lower is better, 0 is perfect (S1-18).
//!
//! | weights 40/60, ranges -1000..1000 and 0..300      | score |
//! |----------------------------------------------------|-------|
//! | searcher 200 points, 150 ms; candidate 400, 225 ms | 0.19  |
//! | 100 points of difference alone                     | 0.02  |
//! | 10 ms of latency alone, lower is better            | 0.02  |

use crate::filter::{AdvertisementView, Searcher, SessionView, measure_between};
use crate::measure::Measure;
use crate::ruleset::{DistanceCurve, Ruleset, SoftFilter, SoftFilterMode, SoftMissingPolicy};

/// The score of `listed` for `searcher`: the terms of all soft filters, added up in file order.
pub fn score(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    listed: &AdvertisementView<'_>,
    round_trip_ms: Option<f64>,
) -> f64 {
    ruleset
        .soft_filters
        .iter()
        .fold(0.0, |sum, soft| sum + soft_filter_term(ruleset, soft, searcher, listed, round_trip_ms))
}

/// How badly two parties of a queue suit each other, whichever of them asks: the worse of both scores.
pub fn mutual_score(ruleset: &Ruleset, one: &SessionView<'_>, other: &SessionView<'_>) -> f64 {
    let of = |here, there| {
        ruleset
            .soft_filters
            .iter()
            .fold(0.0, |sum, soft| sum + soft_filter_term_between(ruleset, soft, here, there, None))
    };
    // What a side alone has counts once from each side; everything else is the same from both.
    let one_sided = |soft: &SoftFilter| {
        soft.mode == SoftFilterMode::LowerIsBetter && matches!(soft.measure, Measure::AttributeDifference(_))
    };
    let score: f64 = of(one, other);
    if ruleset.soft_filters.iter().any(one_sided) { score.max(of(other, one)) } else { score }
}

/// One soft filter's part of the score, in [0, weight]. With a measured round trip, distance costs nothing.
pub fn soft_filter_term(
    ruleset: &Ruleset,
    soft: &SoftFilter,
    searcher: &Searcher<'_>,
    listed: &AdvertisementView<'_>,
    round_trip_ms: Option<f64>,
) -> f64 {
    soft_filter_term_between(ruleset, soft, &searcher.session_view(), &listed.session_view(), round_trip_ms)
}

/// The same of any two sessions of which `here` asks.
pub fn soft_filter_term_between(
    ruleset: &Ruleset,
    soft: &SoftFilter,
    here: &SessionView<'_>,
    there: &SessionView<'_>,
    round_trip_ms: Option<f64>,
) -> f64 {
    let distance = match (soft.mode, soft.measure) {
        (SoftFilterMode::Difference, Measure::AttributeDifference(index)) => {
            let (theirs, ours) = (there.attribute_values.number(index), here.attribute_values.number(index));
            theirs.zip(ours).map(|(theirs, ours)| (soft.normalize(theirs) - soft.normalize(ours)).abs())
        }
        (SoftFilterMode::LowerIsBetter, Measure::AttributeDifference(index)) => {
            there.attribute_values.number(index).map(|it| soft.normalize(it))
        }
        // A round trip is measured: what the place stood for is known, and the place no longer counts (S1-28).
        (_, Measure::Distance) if round_trip_ms.is_some() => Some(0.0),
        (_, Measure::Latency | Measure::Distance) => {
            measure_between(ruleset, soft.measure, here, there, round_trip_ms).map(|it| soft.normalize(it))
        }
    };
    weighted_term(soft, distance)
}

/// A soft filter's term out of its normalised distance in [0, 1]; `None` when a value is missing.
pub fn weighted_term(soft: &SoftFilter, distance: Option<f64>) -> f64 {
    match distance {
        Some(distance) => soft.weight * apply_curve(soft.curve, distance),
        None => missing_value_term(soft),
    }
}

/// What a soft filter adds when it has nothing to go by.
pub fn missing_value_term(soft: &SoftFilter) -> f64 {
    match soft.missing {
        SoftMissingPolicy::Worst => soft.weight,
        SoftMissingPolicy::Neutral => soft.weight * 0.5,
    }
}

/// A distance in [0, 1] as a curve sees it; 0 stays 0 and 1 stays 1.
pub fn apply_curve(curve: DistanceCurve, distance: f64) -> f64 {
    match curve {
        DistanceCurve::Linear => distance,
        DistanceCurve::Quadratic => distance * distance,
        DistanceCurve::SquareRoot => distance.sqrt(),
    }
}
