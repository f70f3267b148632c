//! Sort keys: order of floating-point numbers as integers.

/// Maps a number to bits that sort like `f64::total_cmp`.
pub(crate) fn ordered_bits(number: f64) -> u64 {
    // Adding 0.0 turns -0.0 into 0.0, so equal ratings have equal bits.
    let bits = (number + 0.0).to_bits();
    if bits >> 63 == 1 { !bits } else { bits | 1 << 63 }
}
