//! Soft filter: weight, measure, curve and range of one term of a score.

use crate::measure::Measure;

/// Soft filter: adds the term `weight * curve(distance)` to a score. Lower is better.
#[derive(Clone, Debug, PartialEq)]
pub struct SoftFilter {
    /// Name of its term in answers.
    pub name: Box<str>,
    /// Weight; positive and finite.
    pub weight: f64,
    /// Measured quantity.
    pub measure: Measure,
    /// Distance to compute. `Difference` only with `Measure::Attribute`.
    pub mode: SoftFilterObjective,
    /// Curve applied to the normalized distance.
    pub curve: DistanceCurve,
    /// Term if a value is missing.
    pub missing: SoftMissingPolicy,
    /// Value that normalizes to 0; less than `max`.
    pub min: f64,
    /// Value that normalizes to 1.
    pub max: f64,
}

impl SoftFilter {
    /// `(value - min) / (max - min)`, clamped to [0, 1].
    pub fn normalize(&self, value: f64) -> f64 {
        ((value - self.min) / (self.max - self.min)).clamp(0.0, 1.0)
    }
}

/// Distance that a soft filter computes from the two sides' values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoftFilterObjective {
    /// `|advertiser - searcher|`; for example, skill.
    Difference,
    /// The advertiser's value, or the measure of the pair, above the minimum of its range; for example, latency.
    LowerIsBetter,
}

/// Curve applied to a normalized distance d in [0, 1].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DistanceCurve {
    /// d.
    #[default]
    Linear,
    /// d²: reduces the weight of small differences.
    Quadratic,
    /// √d: increases the weight of small differences.
    SquareRoot,
}

/// Term of a soft filter if a value is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SoftMissingPolicy {
    /// The whole weight, as for the worst value.
    #[default]
    Worst,
    /// Half the weight.
    Neutral,
}
