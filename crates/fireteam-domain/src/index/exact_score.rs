//! Exact scores of rows, term by term: from columns if they suffice, else from the entry.

use crate::index::leaf::Leaf;
use crate::index::plan::{ExactColumnTerm, QueryPlan, locality_from_columns};
use crate::index::{AdvertisementIndex, SearchQuery};
use crate::ruleset::SoftFilter;
use crate::score::{for_each_soft_filter_term, term_of_distance};

/// Exact score of a row. Calls `on_term` with each term, in the order of `Ruleset::soft_filters`. Terms are
/// bit-identical to `score::soft_filter_term_of_advertisement`.
#[inline(always)]
pub(super) fn exact_score(
    index: &AdvertisementIndex,
    query: &SearchQuery<'_>,
    plan: &QueryPlan,
    leaf: &Leaf,
    row: usize,
    mut on_term: impl FnMut(f64),
) -> f64 {
    let mut sum = 0.0;
    let mut add = |term: f64| {
        on_term(term);
        sum += term;
    };
    let layout = &index.layout;
    let has_region = || layout.best_region_ms_column().is_some_and(|column| !leaf.float_value(column, row).is_nan());
    let Some(exact_terms) = plan.exact_terms.as_ref().filter(|_| !(plan.searcher_has_regions && has_region())) else {
        for_each_soft_filter_term(query.ruleset, &query.searcher, &index.view(leaf.slot(row)), add);
        return sum;
    };
    let chord = || {
        let x = layout.location_column()?;
        let row_locality = locality_from_columns([
            leaf.float_value(x, row),
            leaf.float_value(x + 1, row),
            leaf.float_value(x + 2, row),
        ])?;
        Some(query.searcher.locality?.chord_miles(row_locality))
    };
    let round_trip_ms = || chord().map(|miles| query.ruleset.latency_model.round_trip_ms(miles));
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
        add(term_of_distance(soft, distance));
    }
    sum
}
