//! Soft filter tradeoffs: amounts of two soft filters that have equal weight in a score.

use crate::measure::Measure;
use crate::ruleset::{DistanceCurve, Ruleset, SoftFilter};

/// Two amounts that add the same term to a score.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftFilterTradeoff<'a> {
    /// Amount of `base_filter`.
    pub base_amount: f64,
    /// Filter to compare with; latency if present.
    pub base_filter: &'a SoftFilter,
    /// Equivalent amount of `other_filter`.
    pub equivalent_amount: f64,
    /// Compared filter.
    pub other_filter: &'a SoftFilter,
    /// Whether both curves are linear. Otherwise the ratio holds only over the whole ranges.
    pub is_linear: bool,
}

/// Tradeoffs of latency, or else of the first soft filter, against each other soft filter, in file order. Empty with
/// fewer than two filters.
pub fn tradeoffs_with_latency_or_first_filter(ruleset: &Ruleset) -> Vec<SoftFilterTradeoff<'_>> {
    let latency_index = ruleset.soft_filters.iter().position(|filter| filter.measure == Measure::Latency);
    let base_index = latency_index.unwrap_or(0);
    let Some(base_filter) = ruleset.soft_filters.get(base_index) else { return Vec::new() };
    let base_amount = example_amount(base_filter);
    let others = ruleset.soft_filters.iter().enumerate().filter(|(index, _)| *index != base_index);
    others
        .map(|(_, other_filter)| SoftFilterTradeoff {
            base_amount,
            base_filter,
            equivalent_amount: base_amount * score_per_unit(base_filter) / score_per_unit(other_filter),
            other_filter,
            is_linear: base_filter.curve == DistanceCurve::Linear && other_filter.curve == DistanceCurve::Linear,
        })
        .collect()
}

/// Score added per unit on a linear curve.
fn score_per_unit(filter: &SoftFilter) -> f64 {
    filter.weight / (filter.max - filter.min)
}

/// Example amount for people: 10 ms, 100 miles, or a twentieth of the range.
fn example_amount(filter: &SoftFilter) -> f64 {
    match filter.measure {
        Measure::Latency | Measure::DeltaPing | Measure::Jitter => 10.0,
        Measure::PacketLoss => 1.0,
        Measure::Distance => 100.0,
        Measure::AttributeDifference(_) => (filter.max - filter.min) / 20.0,
    }
}
