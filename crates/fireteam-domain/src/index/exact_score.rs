//! Exact scores, term by term: from columns where they say it all, else from the entry.

use crate::index::leaf::Leaf;
use crate::index::plan::{ExactTerm, QueryPlan, locality_from_columns};
use crate::index::{AdvertisementIndex, SearchQuery};
use crate::ruleset::SoftFilter;
use crate::score::{soft_filter_term, weighted_term};

/// The score of a row; `each` hears of its terms, in the order of `Ruleset::soft`, to the bit as `score::term` has them.
#[inline(always)]
pub(super) fn exact_score(
    index: &AdvertisementIndex,
    query: &SearchQuery<'_>,
    plan: &QueryPlan,
    leaf: &Leaf,
    row: usize,
    mut each: impl FnMut(f64),
) -> f64 {
    let mut sum = 0.0;
    let mut add = |term: f64| {
        each(term);
        sum += term;
    };
    let layout = &index.layout;
    let has_region = || layout.best_region_column().is_some_and(|column| !leaf.float_value(column, row).is_nan());
    let Some(exact) = plan.exact_terms.as_ref().filter(|_| !(plan.searcher_has_regions && has_region())) else {
        let listed = index.entry(leaf.slot(row)).view();
        query
            .ruleset
            .soft_filters
            .iter()
            .for_each(|soft| add(soft_filter_term(query.ruleset, soft, &query.searcher, &listed, None)));
        return sum;
    };
    let chord = || {
        let x = layout.location_column()?;
        let there = locality_from_columns([
            leaf.float_value(x, row),
            leaf.float_value(x + 1, row),
            leaf.float_value(x + 2, row),
        ])?;
        Some(query.searcher.locality?.chord_miles(there))
    };
    let number = |column| Some(leaf.exact_number(column, row)).filter(|it| !it.is_nan());
    let norm = |soft: &SoftFilter, value: Option<f64>| value.map(|it| soft.normalize(it));
    for (soft, exact) in query.ruleset.soft_filters.iter().zip(exact) {
        let distance = match *exact {
            ExactTerm::Constant(term) => {
                add(term);
                continue;
            }
            ExactTerm::Difference { column, searcher_value: at } => {
                norm(soft, number(column)).map(|theirs| (theirs - at).abs())
            }
            ExactTerm::LowerIsBetter { column } => norm(soft, number(column)),
            ExactTerm::Distance => norm(soft, chord()),
            ExactTerm::Latency => norm(soft, chord().map(|it| query.ruleset.latency_model.round_trip_ms(it))),
        };
        add(weighted_term(soft, distance));
    }
    sum
}
