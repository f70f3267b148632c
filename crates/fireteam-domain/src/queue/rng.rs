//! Dice that are an argument: the same seed throws the same numbers.

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Copy, Debug)]
pub(super) struct SplitMix64(pub(super) u64);

impl SplitMix64 {
    /// Any of the 2^64 numbers.
    pub(super) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        it ^ (it >> 31)
    }

    /// In [0, 1).
    pub(super) fn next_unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A place in `weights`, each as likely as it weighs; `None` when they weigh nothing together.
    pub(super) fn weighted_index(&mut self, weights: &[f64]) -> Option<usize> {
        let total: f64 = weights.iter().sum();
        let heavy = |weight: &f64| 0.0 < *weight;
        let last = weights.iter().rposition(heavy)?;
        let mut left = self.next_unit_f64() * total;
        for (place, weight) in weights.iter().enumerate().filter(|(_, weight)| heavy(weight)) {
            left -= weight;
            if left < 0.0 || place == last {
                return Some(place);
            }
        }
        None
    }
}
