//! Exact scores of rows, term by term: from columns if they suffice, else from the entry.

use crate::index::candidates::RowRoundTrip;
use crate::index::leaf::Leaf;
use crate::index::plan::{ExactColumnTerm, QueryPlan, locality_from_columns};
use crate::index::{AdvertisementIndex, SearchQuery};
use crate::ruleset::SoftFilter;
use crate::score::{for_each_soft_filter_term, term_of_normalized_distance};

/// Exact score of a row. Calls `on_term` with each term, in the order of `Ruleset::soft_filters`. Terms are
/// bit-identical to `score::soft_filter_term_of_advertisement`.
#[inline(always)]
pub(super) fn exact_score(
    index: &AdvertisementIndex,
    query: &SearchQuery<'_>,
    plan: &QueryPlan,
    leaf: &Leaf,
    row: usize,
    on_term: impl FnMut(f64),
) -> f64 {
    let round_trip = row_round_trip(index, query, plan, leaf, row);
    exact_score_with_round_trip(index, query, plan, (leaf, row), round_trip, on_term)
}

/// The same with the round trip that [`row_round_trip`] gives.
#[inline(always)]
pub(super) fn exact_score_with_round_trip(
    index: &AdvertisementIndex,
    query: &SearchQuery<'_>,
    plan: &QueryPlan,
    (leaf, row): (&Leaf, usize),
    round_trip: Option<RowRoundTrip>,
    mut on_term: impl FnMut(f64),
) -> f64 {
    if let (Some(exact_terms), Some(round_trip)) = (&plan.exact_terms, round_trip) {
        return sum_terms_from_columns(index, query, exact_terms, (leaf, row), round_trip, on_term);
    }
    let mut sum = 0.0;
    for_each_soft_filter_term(query.ruleset, &query.searcher, &index.view(leaf.slot(row)), |term| {
        on_term(term);
        sum += term;
    });
    sum
}

/// Round trip to a row; `None` if it follows only from the row's entry.
#[inline(always)]
pub(super) fn row_round_trip(
    index: &AdvertisementIndex,
    query: &SearchQuery<'_>,
    plan: &QueryPlan,
    leaf: &Leaf,
    row: usize,
) -> Option<RowRoundTrip> {
    if plan.searcher_predicts {
        return predicted_from_columns(index, query, plan, leaf, row).map(RowRoundTrip::Predicted);
    }
    let region = index.layout.best_region_ms_column().filter(|_| plan.searcher_has_regions);
    let has_region = region.is_some_and(|column| !leaf.float_value(column, row).is_nan());
    (!has_region).then_some(RowRoundTrip::ByDistance)
}

/// Predicted round trip to a row, milliseconds, if its columns say that it is predicted, and its vector was completed with the fleet of
/// the search.
#[inline]
fn predicted_from_columns(
    index: &AdvertisementIndex,
    query: &SearchQuery<'_>,
    plan: &QueryPlan,
    leaf: &Leaf,
    row: usize,
) -> Option<f64> {
    if !plan.certain_prediction.is_certain_for_row(&index.layout, leaf, row) {
        return None;
    }
    let completed = index.vector_cache.as_ref()?.get(leaf.slot(row))?;
    query.searcher.predictor.as_ref()?.predict_completed(completed)
}

/// Sum of the terms of a row with this round trip, in the order of `Ruleset::soft_filters`.
#[inline(always)]
fn sum_terms_from_columns(
    index: &AdvertisementIndex,
    query: &SearchQuery<'_>,
    exact_terms: &[ExactColumnTerm],
    (leaf, row): (&Leaf, usize),
    round_trip: RowRoundTrip,
    mut on_term: impl FnMut(f64),
) -> f64 {
    let mut sum = 0.0;
    let mut add = |term: f64| {
        on_term(term);
        sum += term;
    };
    let layout = &index.layout;
    let chord = || {
        let x = layout.location_column()?;
        let row_locality = locality_from_columns([
            leaf.float_value(x, row),
            leaf.float_value(x + 1, row),
            leaf.float_value(x + 2, row),
        ])?;
        Some(query.searcher.locality?.chord_miles(row_locality))
    };
    let round_trip_ms = || match round_trip {
        RowRoundTrip::Predicted(ms) => Some(ms),
        RowRoundTrip::ByDistance => chord().map(|miles| query.ruleset.latency_model.round_trip_ms(miles)),
    };
    let number = |column| Some(leaf.exact_number(column, row)).filter(|value| !value.is_nan());
    let normalize = |soft: &SoftFilter, value: Option<f64>| value.map(|value| soft.normalize(value));
    for (soft, exact_term) in query.ruleset.soft_filters.iter().zip(exact_terms) {
        let distance = match *exact_term {
            ExactColumnTerm::Constant(term) => {
                add(term);
                continue;
            }
            ExactColumnTerm::Difference { column, searcher_value } => {
                normalize(soft, number(column)).map(|row_value| (row_value - searcher_value).abs())
            }
            ExactColumnTerm::LowerIsBetter { column } => normalize(soft, number(column)),
            ExactColumnTerm::Distance => normalize(soft, chord()),
            ExactColumnTerm::Latency => normalize(soft, round_trip_ms()),
            ExactColumnTerm::DeltaPing { best_region_ms } => {
                normalize(soft, round_trip_ms().map(|round_trip_ms| round_trip_ms - best_region_ms))
            }
        };
        add(term_of_normalized_distance(soft, distance));
    }
    sum
}
