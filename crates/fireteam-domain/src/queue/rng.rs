//! Seeded random number generator: the same seed gives the same sequence.

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Copy, Debug)]
pub(super) struct SplitMix64(pub(super) u64);

impl SplitMix64 {
    /// Uniform over all 64-bit values.
    pub(super) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform in [0, 1).
    pub(super) fn next_unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Index into `weights`, with probability proportional to its weight. `None` if no weight is positive.
    pub(super) fn weighted_index(&mut self, weights: &[f64]) -> Option<usize> {
        let total: f64 = weights.iter().sum();
        let is_positive = |weight: &f64| *weight > 0.0;
        let last = weights.iter().rposition(is_positive)?;
        let mut remaining = self.next_unit_f64() * total;
        for (index, weight) in weights.iter().enumerate().filter(|(_, weight)| is_positive(weight)) {
            remaining -= weight;
            if remaining < 0.0 || index == last {
                return Some(index);
            }
        }
        None
    }
}
