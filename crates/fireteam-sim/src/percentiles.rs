//! Percentiles by nearest rank.

use serde::Serialize;

/// Percentiles by nearest rank, with mean and maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Number of values; all other fields are 0 if it is 0.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Maximum.
    pub max: f64,
}

impl Percentiles {
    /// Percentiles of `values`.
    pub fn from_values(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() {
            return Self::default();
        }
        values.sort_unstable_by(f64::total_cmp);
        let count = values.len();
        let percentile = |percent: usize| values[(count * percent).div_ceil(100).clamp(1, count) - 1];
        Self {
            count: count as u64,
            mean: values.iter().sum::<f64>() / count as f64,
            p50: percentile(50),
            p90: percentile(90),
            p99: percentile(99),
            max: values[count - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks_without_interpolation() {
        let percentiles = Percentiles::from_values((1..=10).map(f64::from));
        assert_eq!(
            (percentiles.count, percentiles.mean, percentiles.p50, percentiles.p90, percentiles.p99, percentiles.max),
            { (10, 5.5, 5.0, 9.0, 10.0, 10.0) }
        );
        assert_eq!(Percentiles::from_values([]), Percentiles::default());
    }
}
