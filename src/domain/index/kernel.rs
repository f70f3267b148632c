//! The inner loops: plain passes over short slices, compiled once for the portable instruction set and once for each
//! wider one that the machine may have. The same source and no fused operations, so all give the same bits.

use crate::domain::index::block::Block;
use crate::domain::index::layout::word;
use crate::domain::index::plan::{Check, Gauge, Plan, Source, Term};
use crate::domain::ruleset::Curve;

/// Rows or leaves in one block at most.
pub(super) const BLOCK: usize = 512;

/// What a gauge says of each row or leaf of a block.
#[derive(Debug)]
struct Reading {
    /// A lower bound where there is a value; infinite where there is none.
    least: [f32; BLOCK],
    /// 1 where the value may be missing.
    gap: [u32; BLOCK],
}

/// Buffers of one search.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Lower bound of each row's score; infinite for the refused.
    pub(super) bound: [f32; BLOCK],
    readings: Vec<Reading>,
    limit: [f32; BLOCK],
    hit: [u32; BLOCK],
}

impl Default for Scratch {
    fn default() -> Self {
        Self { bound: [0.0; BLOCK], readings: Vec::new(), limit: [0.0; BLOCK], hit: [0; BLOCK] }
    }
}

/// Which instruction set the loops use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Path {
    /// The widest that the machine has.
    #[default]
    Widest,
    /// The one that every machine has.
    Portable,
}

/// Judges a block. `scratch.bound` comes in as what each row begins with and goes out as its bound; `counts` gains
/// what each rule refuses.
pub(super) fn judge<B: Block>(
    path: Path,
    plan: &Plan,
    block: B,
    scratch: &mut Scratch,
    counts: &mut [u32],
    len: usize,
) {
    let work = Work { plan, block, scratch, counts, len };
    match path {
        Path::Widest => pulp::Arch::new().dispatch(work),
        Path::Portable => judge_portable(work),
    }
}

#[inline(never)]
fn judge_portable<B: Block>(work: Work<'_, B>) {
    pulp::NullaryFnOnce::call(work);
}

struct Work<'a, B> {
    plan: &'a Plan,
    block: B,
    scratch: &'a mut Scratch,
    counts: &'a mut [u32],
    len: usize,
}

impl<B: Block> pulp::NullaryFnOnce for Work<'_, B> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { plan, block, scratch, counts, len } = self;
        let Scratch { bound, readings, limit, hit } = scratch;
        let bound = &mut bound[..len];
        while readings.len() < plan.gauges.len() {
            readings.push(Reading { least: [0.0; BLOCK], gap: [0; BLOCK] });
        }
        for (gauge, reading) in plan.gauges.iter().zip(readings.iter_mut()) {
            read(&block, gauge, &mut reading.least[..len], &mut reading.gap[..len]);
        }
        for rule in &plan.rules {
            if check(&block, &rule.check, readings, &mut limit[..len], &mut hit[..len]) {
                counts[rule.counter] += refuse(bound, &hit[..len]);
            }
        }
        if bound.iter().fold(0, |left, &it| left | u32::from(it < f32::INFINITY)) == 0 {
            return;
        }
        for term in &plan.terms {
            add(&block, term, readings, bound, &mut limit[..len], &mut hit[..len]);
        }
    }
}

/// Marks the rows hit as refused, and counts those that were not refused before.
#[inline(always)]
fn refuse(bound: &mut [f32], hit: &[u32]) -> u32 {
    let mut count = 0;
    for (bound, &hit) in bound.iter_mut().zip(hit) {
        let newly = hit & u32::from(*bound < f32::INFINITY);
        count += newly;
        *bound = if hit != 0 { f32::INFINITY } else { *bound };
    }
    count
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
                least.iter_mut().for_each(|it| *it = line(*it));
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
fn greater(one: f32, other: f32) -> f32 {
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

/// Fills `hit` with 1 for each row that `check` refuses; `false` when it can tell nothing.
#[inline(always)]
fn check<B: Block>(block: &B, check: &Check, readings: &[Reading], limits: &mut [f32], hit: &mut [u32]) -> bool {
    match check {
        Check::Always => hit.fill(1),
        Check::Expires(tick) => below(block.fixed(word::EXPIRES), *tick, hit),
        Check::Seats(seats) => below(block.fixed(word::SEATS), *seats, hit),
        Check::Far { gauge, limit, gaps } => {
            let (reading, keep) = (&readings[*gauge], u32::from(!*gaps));
            for ((hit, &far), &gap) in hit.iter_mut().zip(&reading.least).zip(&reading.gap) {
                *hit = u32::from(*limit < far) & !(gap & keep);
            }
        }
        Check::FarForThem { gauge, share, first, steps } => {
            limits.fill(*first);
            for &(tick, value) in steps {
                for (limit, &since) in limits.iter_mut().zip(block.fixed(word::SINCE)) {
                    *limit = if since <= tick { value } else { *limit };
                }
            }
            let reading = readings[*gauge].least.iter().zip(&readings[*gauge].gap);
            for ((hit, (&far, &gap)), &limit) in hit.iter_mut().zip(reading).zip(limits.iter()) {
                *hit = u32::from(limit < far * *share) & !gap;
            }
        }
        Check::Outside { column, least, greatest, gaps } => outside(block, *column, [*least, *greatest], *gaps, hit),
        Check::Code { column, codes, wanted, gaps } => {
            let Some(words) = block.word(*column) else { return false };
            code(words, codes, *wanted, *gaps, hit);
        }
        Check::Bloom { column, bits } => {
            let (Some(low), Some(high)) = (block.word(*column), block.word(*column + 1)) else { return false };
            let (ours_low, ours_high) = (*bits as u32, (*bits >> 32) as u32);
            for ((hit, &low), &high) in hit.iter_mut().zip(low).zip(high) {
                *hit = u32::from((low & ours_low) | (high & ours_high) == 0);
            }
        }
        Check::Hash { column, hash } => {
            let Some(words) = block.word(*column) else { return false };
            hit.iter_mut().zip(words).for_each(|(hit, word)| *hit = u32::from(word != hash));
        }
    }
    true
}

#[inline(always)]
fn below(words: &[u32], least: u32, hit: &mut [u32]) {
    hit.iter_mut().zip(words).for_each(|(hit, &word)| *hit = u32::from(word < least));
}

#[inline(always)]
fn outside<B: Block>(block: &B, column: usize, [least, greatest]: [f32; 2], refused: bool, hit: &mut [u32]) {
    let bounds = block.least(column).iter().zip(block.greatest(column));
    for (hit, (&low, &high)) in hit.iter_mut().zip(bounds) {
        *hit = u32::from(high < least) | u32::from(greatest < low);
    }
    if B::ROWS && refused {
        hit.iter_mut().zip(block.least(column)).for_each(|(hit, value)| *hit |= u32::from(value.is_nan()));
    }
    if !B::ROWS && !refused {
        hit.iter_mut().zip(block.gaps(column)).for_each(|(hit, gap)| *hit &= !gap);
    }
}

#[inline(always)]
fn code(words: &[u32], codes: &[u32], wanted: bool, gaps: bool, hit: &mut [u32]) {
    use super::code::{ANY, MISSING};
    hit.fill(u32::from(wanted));
    for &code in codes {
        hit.iter_mut().zip(words).for_each(|(hit, &word)| *hit ^= u32::from(word == code));
    }
    for (hit, &word) in hit.iter_mut().zip(words) {
        let missing = if gaps { 1 } else { 0 };
        *hit = if word == MISSING { missing } else { *hit & u32::from(word != ANY) };
    }
}

/// Adds a term to each bound.
#[inline(always)]
fn add<B: Block>(
    block: &B,
    term: &Term,
    readings: &[Reading],
    bound: &mut [f32],
    distance: &mut [f32],
    gap: &mut [u32],
) {
    let (scale, shift) = (term.scale, term.shift);
    let norm = |value: f32| (value * scale + shift).clamp(0.0, 1.0);
    match term.source {
        Source::Gauge { gauge } => {
            distance.iter_mut().zip(&readings[gauge].least).for_each(|(out, &it)| *out = norm(it));
            let len = gap.len();
            gap.copy_from_slice(&readings[gauge].gap[..len]);
        }
        Source::Lower { column } => {
            distance.iter_mut().zip(block.least(column)).for_each(|(out, &it)| *out = norm(it));
            mark_gaps(block, column, gap);
        }
        Source::Difference { column, at } => {
            if B::ROWS {
                distance.iter_mut().zip(block.least(column)).for_each(|(out, &it)| *out = (norm(it) - at).abs());
            } else {
                let bounds = block.least(column).iter().zip(block.greatest(column));
                for (out, (&low, &high)) in distance.iter_mut().zip(bounds) {
                    *out = greater(greater(norm(low) - at, at - norm(high)), 0.0);
                }
            }
            mark_gaps(block, column, gap);
        }
    }
    match term.curve {
        Curve::Linear => weigh(term, bound, distance, gap, |it| it),
        Curve::Quadratic => weigh(term, bound, distance, gap, |it| it * it),
        Curve::SquareRoot => weigh(term, bound, distance, gap, f32::sqrt),
    }
}

#[inline(always)]
fn mark_gaps<B: Block>(block: &B, column: usize, gap: &mut [u32]) {
    if B::ROWS {
        gap.iter_mut().zip(block.least(column)).for_each(|(gap, value)| *gap = u32::from(value.is_nan()));
    } else {
        gap.copy_from_slice(block.gaps(column));
    }
}

#[inline(always)]
fn weigh(term: &Term, bound: &mut [f32], distance: &[f32], gap: &[u32], curve: impl Fn(f32) -> f32) {
    let Term { weight, missing, slack, .. } = *term;
    for ((bound, &distance), &gap) in bound.iter_mut().zip(distance).zip(gap) {
        let lessened = distance - slack;
        // A NaN, which only a row without the value has, becomes 1.
        let lessened = if lessened <= 1.0 { lessened } else { 1.0 };
        let added = weight * curve(if lessened < 0.0 { 0.0 } else { lessened });
        let lesser = if missing < added { missing } else { added };
        *bound += if gap != 0 { lesser } else { added };
    }
}
