//! What one soft filter's unit buys of another's: the designer's question about weights (S1-21 to S1-23).

use crate::measure::Measure;
use crate::ruleset::{DistanceCurve, Ruleset, SoftFilter};

/// Two amounts that weigh the same in a score.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftFilterTradeoff<'a> {
    /// So much of the first filter …
    pub base_amount: f64,
    /// … which is this one …
    pub base_filter: &'a SoftFilter,
    /// … weighs as much as so much …
    pub equivalent_amount: f64,
    /// … of this one.
    pub other_filter: &'a SoftFilter,
    /// Both curves are linear. Otherwise the ratio holds only between the two ends of the ranges.
    pub is_linear: bool,
}

/// What latency, or else the first soft filter, trades at against each of the others, in file order. Nothing when there
/// are fewer than two.
pub fn soft_filter_tradeoffs(ruleset: &Ruleset) -> Vec<SoftFilterTradeoff<'_>> {
    let of_latency = ruleset.soft_filters.iter().position(|soft| soft.measure == Measure::Latency);
    let base = of_latency.unwrap_or(0);
    let Some(of) = ruleset.soft_filters.get(base) else { return Vec::new() };
    let given = example_amount(of);
    let others = ruleset.soft_filters.iter().enumerate().filter(|(index, _)| *index != base);
    others
        .map(|(_, from)| SoftFilterTradeoff {
            base_amount: given,
            base_filter: of,
            equivalent_amount: given * score_per_unit(of) / score_per_unit(from),
            other_filter: from,
            is_linear: of.curve == DistanceCurve::Linear && from.curve == DistanceCurve::Linear,
        })
        .collect()
}

/// What one unit adds to a score, on a linear curve.
fn score_per_unit(soft: &SoftFilter) -> f64 {
    soft.weight / (soft.max - soft.min)
}

/// An amount that people can picture: 10 ms, 100 miles, a twentieth of a range.
fn example_amount(soft: &SoftFilter) -> f64 {
    match soft.measure {
        Measure::Latency => 10.0,
        Measure::Distance => 100.0,
        Measure::AttributeDifference(_) => (soft.max - soft.min) / 20.0,
    }
}
