//! How far each row or leaf of a block is from the searcher: gauges, read once and only when a rule or a term asks.

use crate::index::column_block::ColumnBlock;
use crate::index::kernel::BLOCK_LEN_MAX;
use crate::index::plan::DistanceBound;

/// What a gauge says of each row or leaf of a block.
#[derive(Debug)]
pub(super) struct BoundValues {
    /// A lower bound where there is a value; infinite where there is none.
    pub(super) lower: [f32; BLOCK_LEN_MAX],
    /// 1 where the value may be missing.
    pub(super) may_be_missing: [u32; BLOCK_LEN_MAX],
    is_computed: bool,
}

impl BoundValues {
    /// The gauges' readings of the block before are forgotten.
    pub(super) fn reset_all(readings: &mut Vec<Self>, gauges: usize) {
        while readings.len() < gauges {
            readings.push(Self { lower: [0.0; BLOCK_LEN_MAX], may_be_missing: [0; BLOCK_LEN_MAX], is_computed: false });
        }
        readings.iter_mut().for_each(|reading| reading.is_computed = false);
    }

    /// Reads the gauge, unless that has been done.
    #[inline(always)]
    pub(super) fn get_or_compute<B: ColumnBlock>(&mut self, block: &B, gauge: &DistanceBound, len: usize) -> &Self {
        if !self.is_computed {
            compute_bounds(block, gauge, &mut self.lower[..len], &mut self.may_be_missing[..len]);
            self.is_computed = true;
        }
        self
    }
}

#[inline(always)]
fn compute_bounds<B: ColumnBlock>(block: &B, gauge: &DistanceBound, least: &mut [f32], gap: &mut [u32]) {
    match *gauge {
        DistanceBound::NumberDifference { column, searcher_value: at, rounding_error: slack } => {
            interval_distance(block, column, at, least, gap);
            for it in least {
                let lessened = *it - slack;
                *it = if lessened < 0.0 { 0.0 } else { lessened };
            }
        }
        DistanceBound::Chord { x_column: x, searcher_position: at } => chord_distance(block, x, at, least, gap),
        DistanceBound::RoundTrip {
            x_column: x,
            searcher_position: at,
            intercept_ms: intercept,
            ms_per_mile: slope,
            best_region_column: region,
            searcher_best_region_ms: best,
        } => {
            if at[0].is_nan() {
                least.fill(f32::INFINITY);
                gap.fill(1);
            } else {
                chord_distance(block, x, at, least, gap);
                // Infinity stays, even by a slope of 0.
                let line = |far: f32| if far < f32::INFINITY { intercept + slope * far } else { far };
                for it in &mut *least {
                    *it = line(*it);
                }
            }
            if !best.is_nan() {
                apply_best_region_bound(block, region, best, least);
            }
        }
    }
}

/// Where both sides have regions, the slower end of a region that both name is not below either side's best. They may
/// name none in common; then the line, or nothing, counts.
#[inline(always)]
fn apply_best_region_bound<B: ColumnBlock>(block: &B, region: usize, best: f32, least: &mut [f32]) {
    for (it, &theirs) in least.iter_mut().zip(block.lower_values(region)) {
        // NaN for a row without regions, infinite for a leaf without.
        let slower = if theirs < best { best } else { theirs };
        *it = if slower < *it { slower } else { *it };
    }
}

/// One machine instruction, which `f32::max` with its care for NaN is not.
#[inline(always)]
pub(super) fn fast_max(one: f32, other: f32) -> f32 {
    if other < one { one } else { other }
}

/// How far `at` is from the column's value or bounds.
#[inline(always)]
fn interval_distance<B: ColumnBlock>(block: &B, column: usize, at: f32, least: &mut [f32], gap: &mut [u32]) {
    if B::IS_ROWS {
        for ((out, gap), &value) in least.iter_mut().zip(gap).zip(block.lower_values(column)) {
            let missing = value.is_nan();
            *out = if missing { f32::INFINITY } else { (value - at).abs() };
            *gap = u32::from(missing);
        }
    } else {
        let bounds = block.lower_values(column).iter().zip(block.upper_values(column));
        for (out, (&low, &high)) in least.iter_mut().zip(bounds) {
            *out = fast_max(fast_max(low - at, at - high), 0.0);
        }
        gap.copy_from_slice(block.may_be_missing(column));
    }
}

/// The chord from `at`, miles.
#[inline(always)]
fn chord_distance<B: ColumnBlock>(block: &B, x: usize, at: [f32; 3], least: &mut [f32], gap: &mut [u32]) {
    let len = least.len();
    let (xs, ys, zs) =
        (&block.lower_values(x)[..len], &block.lower_values(x + 1)[..len], &block.lower_values(x + 2)[..len]);
    if B::IS_ROWS {
        let gap = &mut gap[..len];
        for i in 0..len {
            let (dx, dy, dz) = (xs[i] - at[0], ys[i] - at[1], zs[i] - at[2]);
            let chord = (dx * dx + dy * dy + dz * dz).sqrt();
            let missing = chord.is_nan();
            least[i] = if missing { f32::INFINITY } else { chord };
            gap[i] = u32::from(missing);
        }
        return;
    }
    let (xt, yt, zt) =
        (&block.upper_values(x)[..len], &block.upper_values(x + 1)[..len], &block.upper_values(x + 2)[..len]);
    let outside = |low: f32, high: f32, at: f32| fast_max(fast_max(low - at, at - high), 0.0);
    for i in 0..len {
        let (dx, dy, dz) = (outside(xs[i], xt[i], at[0]), outside(ys[i], yt[i], at[1]), outside(zs[i], zt[i], at[2]));
        least[i] = (dx * dx + dy * dy + dz * dz).sqrt();
    }
    gap.copy_from_slice(block.may_be_missing(x));
}
