//! What one soft filter's unit buys of another's: the designer's question about weights (S1-21 to S1-23).

use crate::domain::measure::Measure;
use crate::domain::ruleset::{Curve, Ruleset, SoftFilter};

/// Two amounts that weigh the same in a score.
#[derive(Clone, Debug, PartialEq)]
pub struct Tradeoff<'a> {
    /// So much of the first filter …
    pub given: f64,
    /// … which is this one …
    pub of: &'a SoftFilter,
    /// … weighs as much as so much …
    pub bought: f64,
    /// … of this one.
    pub from: &'a SoftFilter,
    /// Both curves are linear. Otherwise the ratio holds only between the two ends of the ranges.
    pub is_linear: bool,
}

/// What latency, or else the first soft filter, trades at against each of the others, in file order. Nothing when there
/// are fewer than two.
pub fn tradeoffs(ruleset: &Ruleset) -> Vec<Tradeoff<'_>> {
    let of_latency = ruleset.soft.iter().position(|soft| soft.measure == Measure::Latency);
    let base = of_latency.unwrap_or(0);
    let Some(of) = ruleset.soft.get(base) else { return Vec::new() };
    let given = handy_amount(of);
    let others = ruleset.soft.iter().enumerate().filter(|(index, _)| *index != base);
    others
        .map(|(_, from)| Tradeoff {
            given,
            of,
            bought: given * cost_of_one(of) / cost_of_one(from),
            from,
            is_linear: of.curve == Curve::Linear && from.curve == Curve::Linear,
        })
        .collect()
}

/// What one unit adds to a score, on a linear curve.
fn cost_of_one(soft: &SoftFilter) -> f64 {
    soft.weight / (soft.max - soft.min)
}

/// An amount that people can picture: 10 ms, 100 miles, a twentieth of a range.
fn handy_amount(soft: &SoftFilter) -> f64 {
    match soft.measure {
        Measure::Latency => 10.0,
        Measure::Distance => 100.0,
        Measure::Attribute(_) => (soft.max - soft.min) / 20.0,
    }
}
