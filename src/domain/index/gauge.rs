//! How far each row or leaf of a block is from the searcher: gauges, read once and only when a rule or a term asks.

use crate::domain::index::block::Block;
use crate::domain::index::kernel::BLOCK;
use crate::domain::index::plan::Gauge;

/// What a gauge says of each row or leaf of a block.
#[derive(Debug)]
pub(super) struct Reading {
    /// A lower bound where there is a value; infinite where there is none.
    pub(super) least: [f32; BLOCK],
    /// 1 where the value may be missing.
    pub(super) gap: [u32; BLOCK],
    ready: bool,
}

impl Reading {
    /// The gauges' readings of the block before are forgotten.
    pub(super) fn begin(readings: &mut Vec<Self>, gauges: usize) {
        while readings.len() < gauges {
            readings.push(Self { least: [0.0; BLOCK], gap: [0; BLOCK], ready: false });
        }
        readings.iter_mut().for_each(|reading| reading.ready = false);
    }

    /// Reads the gauge, unless that has been done.
    #[inline(always)]
    pub(super) fn of<B: Block>(&mut self, block: &B, gauge: &Gauge, len: usize) -> &Self {
        if !self.ready {
            read(block, gauge, &mut self.least[..len], &mut self.gap[..len]);
            self.ready = true;
        }
        self
    }
}

#[inline(always)]
fn read<B: Block>(block: &B, gauge: &Gauge, least: &mut [f32], gap: &mut [u32]) {
    match *gauge {
        Gauge::Number { column, at, slack } => {
            interval(block, column, at, least, gap);
            for it in least {
                let lessened = *it - slack;
                *it = if lessened < 0.0 { 0.0 } else { lessened };
            }
        }
        Gauge::Place { x, at } => chord(block, x, at, least, gap),
        Gauge::Latency { x, at, intercept, slope, region, best } => {
            if at[0].is_nan() {
                least.fill(f32::INFINITY);
                gap.fill(1);
            } else {
                chord(block, x, at, least, gap);
                // Infinity stays, even by a slope of 0.
                let line = |far: f32| if far < f32::INFINITY { intercept + slope * far } else { far };
                for it in &mut *least {
                    *it = line(*it);
                }
            }
            if !best.is_nan() {
                regions(block, region, best, least);
            }
        }
    }
}

/// Where both sides have regions, the slower end of a region that both name is not below either side's best. They may
/// name none in common; then the line, or nothing, counts.
#[inline(always)]
fn regions<B: Block>(block: &B, region: usize, best: f32, least: &mut [f32]) {
    for (it, &theirs) in least.iter_mut().zip(block.least(region)) {
        // NaN for a row without regions, infinite for a leaf without.
        let slower = if theirs < best { best } else { theirs };
        *it = if slower < *it { slower } else { *it };
    }
}

/// One machine instruction, which `f32::max` with its care for NaN is not.
#[inline(always)]
pub(super) fn greater(one: f32, other: f32) -> f32 {
    if other < one { one } else { other }
}

/// How far `at` is from the column's value or bounds.
#[inline(always)]
fn interval<B: Block>(block: &B, column: usize, at: f32, least: &mut [f32], gap: &mut [u32]) {
    if B::ROWS {
        for ((out, gap), &value) in least.iter_mut().zip(gap).zip(block.least(column)) {
            let missing = value.is_nan();
            *out = if missing { f32::INFINITY } else { (value - at).abs() };
            *gap = u32::from(missing);
        }
    } else {
        let bounds = block.least(column).iter().zip(block.greatest(column));
        for (out, (&low, &high)) in least.iter_mut().zip(bounds) {
            *out = greater(greater(low - at, at - high), 0.0);
        }
        gap.copy_from_slice(block.gaps(column));
    }
}

/// The chord from `at`, miles.
#[inline(always)]
fn chord<B: Block>(block: &B, x: usize, at: [f32; 3], least: &mut [f32], gap: &mut [u32]) {
    let len = least.len();
    let (xs, ys, zs) = (&block.least(x)[..len], &block.least(x + 1)[..len], &block.least(x + 2)[..len]);
    if B::ROWS {
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
    let (xt, yt, zt) = (&block.greatest(x)[..len], &block.greatest(x + 1)[..len], &block.greatest(x + 2)[..len]);
    let outside = |low: f32, high: f32, at: f32| greater(greater(low - at, at - high), 0.0);
    for i in 0..len {
        let (dx, dy, dz) = (outside(xs[i], xt[i], at[0]), outside(ys[i], yt[i], at[1]), outside(zs[i], zt[i], at[2]));
        least[i] = (dx * dx + dy * dy + dz * dz).sqrt();
    }
    gap.copy_from_slice(block.gaps(x));
}
