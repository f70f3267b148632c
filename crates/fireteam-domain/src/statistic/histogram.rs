//! Histogram with fixed buckets: counts, sum and quantiles. Histograms of one kind can be added.

use crate::statistic::StatisticKind;

/// Counts of a quantity by bucket, and the sum of its values.
#[derive(Clone, Debug, PartialEq)]
pub struct BucketCounts {
    /// Quantity; it decides the bounds.
    pub kind: StatisticKind,
    /// Count of each bucket, one more than `kind.bounds()`.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: f64,
}

impl BucketCounts {
    /// No values.
    pub fn new(kind: StatisticKind) -> Self {
        Self { kind, counts: vec![0; kind.bounds().len() + 1], sum: 0.0 }
    }

    /// Adds `count` values of a bucket with their sum. A bucket that the kind does not have counts as the last one.
    pub fn add_to_bucket(&mut self, bucket: usize, count: u64, sum: f64) {
        let bucket = bucket.min(self.counts.len() - 1);
        self.counts[bucket] = self.counts[bucket].saturating_add(count);
        self.sum += sum;
    }

    /// Adds all values of another histogram of the same kind.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count = count.saturating_add(*more);
        }
        self.sum += other.sum;
    }

    /// Number of values.
    pub fn value_count(&self) -> u64 {
        self.counts.iter().fold(0, |total, count| total.saturating_add(*count))
    }

    /// Estimate of the value below which the share `share` of all values lies, in [0, 1], by interpolation within its bucket. In
    /// the first bucket it is at least 0, or its bound if that is negative; above the last bound, it is that bound. `None`
    /// without values or bounds.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        let (bounds, total) = (self.kind.bounds(), self.value_count());
        let last = *bounds.last()?;
        if total == 0 {
            return None;
        }
        let rank = share.clamp(0.0, 1.0) * total as f64;
        let mut below = 0.0;
        for (index, bound) in bounds.iter().enumerate() {
            let count = self.counts[index] as f64;
            if count > 0.0 && rank <= below + count {
                let lower = if index == 0 { bound.min(0.0) } else { bounds[index - 1] };
                return Some(lower + (bound - lower) * (rank - below) / count);
            }
            below += count;
        }
        Some(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histogram(values: &[f64]) -> BucketCounts {
        let mut counts = BucketCounts::new(StatisticKind::SeatRoundTrip);
        values.iter().for_each(|value| counts.add_to_bucket(counts.kind.bucket(*value), 1, *value));
        counts
    }

    #[test]
    fn quantiles_interpolate_within_a_bucket() {
        assert_eq!(histogram(&[]).quantile(0.5), None);
        assert_eq!(BucketCounts::new(StatisticKind::Results).quantile(0.5), None);
        let counts = histogram(&[5.0, 15.0, 15.0, 15.0]);
        assert_eq!((counts.quantile(0.25), counts.quantile(1.0)), (Some(10.0), Some(20.0)));
        assert_eq!(counts.quantile(0.5), Some(10.0 + 10.0 / 3.0));
        assert_eq!(histogram(&[9_000.0]).quantile(0.5), Some(500.0), "above the last bound");
    }

    /// The quantile of buckets lies in the bucket of the exact quantile of the values, and adding histograms is the histogram of
    /// all values.
    #[test]
    fn quantiles_lie_in_the_bucket_of_the_exact_quantile() {
        let mut state = 0x9e37_79b9_u64;
        for round in 0..200 {
            let mut values: Vec<f64> = (0..1 + round % 40)
                .map(|_| {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state >> 33) as f64 % 600.0
                })
                .collect();
            let (mut first, second) = (histogram(&values[..values.len() / 2]), histogram(&values[values.len() / 2..]));
            first.merge(&second);
            let all = histogram(&values);
            assert_eq!(first.counts, all.counts);
            assert_eq!((first.sum, first.value_count()), (values.iter().sum(), values.len() as u64));
            values.sort_by(f64::total_cmp);
            for percent in [1, 50, 90, 99, 100] {
                let exact = values[(values.len() * percent).div_ceil(100).max(1) - 1];
                let estimate = all.quantile(percent as f64 / 100.0).unwrap();
                let bounds = all.kind.bounds();
                let bucket = all.kind.bucket(exact).min(bounds.len() - 1);
                let lower = if bucket == 0 { 0.0 } else { bounds[bucket - 1] };
                assert!(
                    (lower..=bounds[bucket]).contains(&estimate),
                    "{values:?}: {percent} % is {exact}, not {estimate}"
                );
            }
        }
    }
}
