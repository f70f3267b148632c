//! Exact scores, term by term: from columns where they say it all, else from the entry.

use crate::domain::index::leaf::Leaf;
use crate::domain::index::plan::{Exact, Plan, place};
use crate::domain::index::{Index, Query};
use crate::domain::ruleset::SoftFilter;
use crate::domain::score::{term, weighed};

/// The score of a row; `each` hears of its terms, in the order of `Ruleset::soft`, to the bit as `score::term` has them.
#[inline(always)]
pub(super) fn weigh(
    index: &Index,
    query: &Query<'_>,
    plan: &Plan,
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
    let has_region = || layout.region().is_some_and(|column| !leaf.float(column, row).is_nan());
    let Some(exact) = plan.exact.as_ref().filter(|_| !(plan.regions && has_region())) else {
        let listed = index.entry(leaf.slot(row)).listed();
        query.ruleset.soft.iter().for_each(|soft| add(term(query.ruleset, soft, &query.searcher, &listed, None)));
        return sum;
    };
    let chord = || {
        let x = layout.x()?;
        let there = place([leaf.float(x, row), leaf.float(x + 1, row), leaf.float(x + 2, row)])?;
        Some(query.searcher.locality?.chord_miles(there))
    };
    let number = |column| Some(leaf.exact(column, row)).filter(|it| !it.is_nan());
    let norm = |soft: &SoftFilter, value: Option<f64>| value.map(|it| soft.norm(it));
    for (soft, exact) in query.ruleset.soft.iter().zip(exact) {
        let distance = match *exact {
            Exact::Constant(term) => {
                add(term);
                continue;
            }
            Exact::Difference { column, at } => norm(soft, number(column)).map(|theirs| (theirs - at).abs()),
            Exact::Lower { column } => norm(soft, number(column)),
            Exact::Distance => norm(soft, chord()),
            Exact::Latency => norm(soft, chord().map(|it| query.ruleset.line.round_trip_ms(it))),
        };
        add(weighed(soft, distance));
    }
    sum
}
