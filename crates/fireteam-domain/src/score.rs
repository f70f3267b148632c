//! Soft filter score: a weighted sum of terms. Lower is better; 0 is a perfect match.
//!
//! | weights 40/60, ranges -1000..1000 and 0..300      | score |
//! |----------------------------------------------------|-------|
//! | searcher 200 points, 150 ms; candidate 400, 225 ms | 0.19  |
//! | 100 points of difference alone                     | 0.02  |
//! | 10 ms of latency alone, lower is better            | 0.02  |

use crate::filter::{AdvertisementView, Searcher, SessionView, measure_between, measured_or_predicted_round_trip};
use crate::measure::Measure;
use crate::probe_result::MeasuredOrPredictedRoundTrip;
use crate::ruleset::{DistanceCurve, Ruleset, SoftFilter, SoftFilterObjective, SoftMissingPolicy};

/// Score of an advertisement for `searcher`: the sum of all soft filter terms, added in file order, and the cost of avoided
/// players.
pub fn score(ruleset: &Ruleset, searcher: &Searcher<'_>, candidate: &AdvertisementView<'_>) -> f64 {
    let mut terms = 0.0;
    for_each_soft_filter_term(ruleset, searcher, candidate, |term| terms += term);
    terms + searcher.avoided.cost(candidate.advertisement.id)
}

/// Score of two queue parties for each other: the higher (worse) of the scores in both directions.
pub fn worse_of_both_scores(ruleset: &Ruleset, one: &SessionView<'_>, other: &SessionView<'_>) -> f64 {
    let directed_score = |searcher, candidate| {
        ruleset
            .soft_filters
            .iter()
            .fold(0.0, |sum, soft| sum + soft_filter_term_of_sessions(ruleset, soft, searcher, candidate, None))
    };
    // Only terms that read one side's value differ between the directions.
    let is_one_sided = |soft: &SoftFilter| {
        soft.mode == SoftFilterObjective::LowerIsBetter
            && matches!(soft.measure, Measure::AttributeDifference(_) | Measure::DeltaPing)
    };
    let score: f64 = directed_score(one, other);
    if ruleset.soft_filters.iter().any(is_one_sided) { score.max(directed_score(other, one)) } else { score }
}

/// Calls `on_term` with the term of each soft filter, in file order.
pub(crate) fn for_each_soft_filter_term(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    candidate: &AdvertisementView<'_>,
    mut on_term: impl FnMut(f64),
) {
    // Costs more than all terms if it is predicted.
    let counted = measured_or_predicted_round_trip(ruleset, searcher, candidate);
    let (searcher, candidate) = (searcher.session_view(), candidate.session_view());
    for soft in &ruleset.soft_filters {
        on_term(soft_filter_term_of_sessions(ruleset, soft, &searcher, &candidate, counted));
    }
}

/// Term of one soft filter, in [0, weight]. What the searcher has measured replaces the estimate; then the distance term is 0.
pub fn soft_filter_term_of_advertisement(
    ruleset: &Ruleset,
    soft: &SoftFilter,
    searcher: &Searcher<'_>,
    candidate: &AdvertisementView<'_>,
) -> f64 {
    let counted = measured_or_predicted_round_trip(ruleset, searcher, candidate);
    soft_filter_term_of_sessions(ruleset, soft, &searcher.session_view(), &candidate.session_view(), counted)
}

/// Term of one soft filter between two sessions, from the searcher's side.
pub fn soft_filter_term_of_sessions(
    ruleset: &Ruleset,
    soft: &SoftFilter,
    searcher: &SessionView<'_>,
    candidate: &SessionView<'_>,
    counted: Option<MeasuredOrPredictedRoundTrip>,
) -> f64 {
    let distance = match (soft.mode, soft.measure) {
        (SoftFilterObjective::Difference, Measure::AttributeDifference(index)) => {
            let (theirs, ours) = (candidate.attribute_values.number(index), searcher.attribute_values.number(index));
            theirs.zip(ours).map(|(theirs, ours)| (soft.normalize(theirs) - soft.normalize(ours)).abs())
        }
        (SoftFilterObjective::LowerIsBetter, Measure::AttributeDifference(index)) => {
            candidate.attribute_values.number(index).map(|value| soft.normalize(value))
        }
        // Distance only estimates latency; a measured round trip replaces it.
        (_, Measure::Distance) if matches!(counted, Some(MeasuredOrPredictedRoundTrip::Measured { .. })) => Some(0.0),
        (_, Measure::Latency | Measure::DeltaPing | Measure::Distance | Measure::PacketLoss | Measure::Jitter) => {
            measure_between(ruleset, soft.measure, searcher, candidate, counted).map(|value| soft.normalize(value))
        }
    };
    term_of_normalized_distance(soft, distance)
}

/// Term for a normalized distance in [0, 1]; a `distance` of `None` means that a value is missing.
pub fn term_of_normalized_distance(soft: &SoftFilter, distance: Option<f64>) -> f64 {
    match distance {
        Some(distance) => soft.weight * apply_curve(soft.curve, distance),
        None => missing_value_term(soft),
    }
}

/// Term of a soft filter when a value is missing: the weight, or half of it.
pub fn missing_value_term(soft: &SoftFilter) -> f64 {
    match soft.missing {
        SoftMissingPolicy::Worst => soft.weight,
        SoftMissingPolicy::Neutral => soft.weight * 0.5,
    }
}

/// Applies the curve to a normalized distance in [0, 1]. All curves map 0 to 0 and 1 to 1.
pub fn apply_curve(curve: DistanceCurve, distance: f64) -> f64 {
    match curve {
        DistanceCurve::Linear => distance,
        DistanceCurve::Quadratic => distance * distance,
        DistanceCurve::SquareRoot => distance.sqrt(),
    }
}
