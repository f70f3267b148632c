//! The inner loops: plain passes over short slices, compiled once for the portable instruction set and once for each
//! wider one that the machine may have. The same source and no fused operations, so all give the same bits.

use crate::domain::filter::Refusal;
use crate::domain::index::block::Block;
use crate::domain::index::code::{ANY, MISSING};
use crate::domain::index::gauge::{Reading, greater};
use crate::domain::index::guard::{Owner, SEATS_BITS};
use crate::domain::index::layout::word;
use crate::domain::index::plan::{Check, Plan, Source, Term};
use crate::domain::ruleset::Curve;

/// Rows or leaves in one block at most.
pub(super) const BLOCK: usize = 512;
/// When no more than one row in so many passes the rules, terms are left out: scoring those few exactly costs less
/// than a pass over all.
const SPARSE: usize = 32;

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
/// what each rule refuses. Returns how many are not refused.
pub(super) fn judge<B: Block>(
    path: Path,
    plan: &Plan,
    block: B,
    scratch: &mut Scratch,
    counts: &mut [u32],
    len: usize,
) -> u32 {
    let work = Work { plan, block, scratch, counts, len };
    match path {
        Path::Widest => pulp::Arch::new().dispatch(work),
        Path::Portable => judge_portable(work),
    }
}

#[inline(never)]
fn judge_portable<B: Block>(work: Work<'_, B>) -> u32 {
    pulp::NullaryFnOnce::call(work)
}

struct Work<'a, B> {
    plan: &'a Plan,
    block: B,
    scratch: &'a mut Scratch,
    counts: &'a mut [u32],
    len: usize,
}

impl<B: Block> pulp::NullaryFnOnce for Work<'_, B> {
    type Output = u32;

    /// Rules in order, then terms; stops where nobody is left.
    #[inline(always)]
    fn call(self) -> u32 {
        let Self { plan, block, scratch, counts, len } = self;
        let Scratch { bound, readings, limit, hit } = scratch;
        let bound = &mut bound[..len];
        Reading::begin(readings, plan.gauges.len());
        let [expired, full, waiting] = stale(&block, plan, bound);
        counts[Refusal::Expired.counter()] += expired;
        counts[Refusal::Full.counter()] += full;
        let mut left = waiting - expired - full;
        if B::ROWS && plan.own {
            for owner in &plan.owners {
                let refused = own(&block, owner, bound, &mut hit[..len]);
                counts[Refusal::Own.counter()] += refused;
                left -= refused;
            }
        }
        for rule in &plan.rules {
            if left == 0 {
                return 0;
            }
            let refused = check(&block, plan, &rule.check, readings, bound, &mut limit[..len], &mut hit[..len]);
            counts[rule.counter] += refused;
            left -= refused;
        }
        let mut number = 0;
        while let Some((attribute, least, greatest)) = block.ranges(number) {
            let [low, high] = plan.values[attribute];
            let outside = least.iter().zip(greatest).map(|(&least, &greatest)| (high < least) | (greatest < low));
            let refused = refuse(bound, outside);
            counts[plan.ranges] += refused;
            left -= refused;
            number += 1;
        }
        let sparse = B::ROWS && plan.cheap && left as usize * SPARSE <= len;
        if left != 0 && !sparse {
            // A loop and no `for_each`: whatever is not inlined here is compiled for the portable instruction set.
            for term in &plan.terms {
                add(&block, plan, term, readings, bound);
            }
        }
        left
    }
}

/// Refuses the expired and then the full, in one pass because every search makes it; how many, and how many rows were
/// not refused before.
#[inline(always)]
fn stale<B: Block>(block: &B, plan: &Plan, bound: &mut [f32]) -> [u32; 3] {
    let (mut expired, mut full, mut waiting) = (0, 0, 0);
    let rows = block.fixed(word::EXPIRES).iter().zip(block.fixed(word::SEATS));
    for (bound, (&expires, &seats)) in bound.iter_mut().zip(rows) {
        let here = *bound < f32::INFINITY;
        // The portable instruction set compares signed numbers only.
        let late = (expires as i32) < plan.tick as i32;
        let few = ((seats & SEATS_BITS) as i32) < i32::from(plan.seats);
        waiting += u32::from(here);
        expired += u32::from(here & late);
        full += u32::from(here & few & !late);
        *bound = if late | few { f32::INFINITY } else { *bound };
    }
    [expired, full, waiting]
}

/// Refuses the rows of `owner`; how many. Marks come first, because they were read already and most rows are others'.
#[inline(always)]
fn own<B: Block>(block: &B, owner: &Owner, bound: &mut [f32], hits: &mut [u32]) -> u32 {
    let mut near = 0;
    for (hit, &seats) in hits.iter_mut().zip(block.fixed(word::SEATS)) {
        *hit = u32::from(seats >> 16 == owner.mark);
        near += *hit;
    }
    if near == 0 {
        return 0;
    }
    let [low, high] = owner.key;
    for (hit, key) in hits.iter_mut().zip(block.owners()) {
        // In 32 bits: the portable instruction set compares no wider numbers.
        let differ = (key[0] ^ low) | (key[1] ^ high);
        *hit &= u32::from(differ as u32 | (differ >> 32) as u32 == 0);
    }
    refuse(bound, hits.iter().map(|&hit| hit != 0))
}

/// Marks the rows hit as refused, and counts those that were not refused before.
#[inline(always)]
fn refuse(bound: &mut [f32], hits: impl Iterator<Item = bool>) -> u32 {
    let mut count = 0;
    for (bound, hit) in bound.iter_mut().zip(hits) {
        count += u32::from(hit & (*bound < f32::INFINITY));
        *bound = if hit { f32::INFINITY } else { *bound };
    }
    count
}

/// Refuses what `check` refuses; how many.
#[inline(always)]
fn check<B: Block>(
    block: &B,
    plan: &Plan,
    check: &Check,
    readings: &mut [Reading],
    bound: &mut [f32],
    limits: &mut [f32],
    hits: &mut [u32],
) -> u32 {
    let len = bound.len();
    match check {
        Check::Always => refuse(bound, std::iter::repeat_n(true, len)),
        Check::Far { gauge, limit, gaps } => {
            let reading = readings[*gauge].of(block, &plan.gauges[*gauge], len);
            let reading = reading.least[..len].iter().zip(&reading.gap[..len]);
            refuse(bound, reading.map(|(&far, &gap)| (*limit < far) & (*gaps | (gap == 0))))
        }
        Check::FarForThem { gauge, share, first, steps } => {
            limits.fill(*first);
            for &(tick, value) in steps {
                for (limit, &since) in limits.iter_mut().zip(block.fixed(word::SINCE)) {
                    *limit = if since as i32 <= tick as i32 { value } else { *limit };
                }
            }
            let reading = readings[*gauge].of(block, &plan.gauges[*gauge], len);
            let reading = reading.least[..len].iter().zip(&reading.gap[..len]);
            refuse(bound, reading.zip(&*limits).map(|((&far, &gap), &limit)| (limit < far * *share) & (gap == 0)))
        }
        Check::Outside { column, least, greatest, gaps } => outside(block, *column, [*least, *greatest], *gaps, bound),
        Check::Code { column, codes, wanted, gaps, set } => {
            let words = block.word(*column);
            if B::ROWS {
                code(words, codes, *wanted, *gaps, bound, hits)
            } else {
                refuse(bound, words.iter().map(|it| it & set == 0))
            }
        }
        Check::Bloom { column, bits } => {
            let (ours_low, ours_high) = (*bits as u32, (*bits >> 32) as u32);
            let words = block.word(*column).iter().zip(block.word(*column + 1));
            refuse(bound, words.map(|(&low, &high)| (low & ours_low) | (high & ours_high) == 0))
        }
        Check::Hash { column, hash } if B::ROWS => refuse(bound, block.word(*column).iter().map(|it| it != hash)),
        Check::Hash { .. } => 0,
    }
}

/// Leaves are refused when they lie wholly outside; rows without the value when gaps are.
#[inline(always)]
fn outside<B: Block>(block: &B, column: usize, [least, greatest]: [f32; 2], gaps: bool, bound: &mut [f32]) -> u32 {
    let bounds = block.least(column).iter().zip(block.greatest(column));
    let outside = bounds.map(|(&low, &high)| (high < least) | (greatest < low));
    if B::ROWS {
        return refuse(bound, outside.zip(block.least(column)).map(|(hit, value)| hit | (gaps & value.is_nan())));
    }
    refuse(bound, outside.zip(block.gaps(column)).map(|(hit, &gap)| hit & (gaps | (gap == 0))))
}

#[inline(always)]
fn code(words: &[u32], codes: &[u32], wanted: bool, gaps: bool, bound: &mut [f32], hits: &mut [u32]) -> u32 {
    let passes = |word: u32, hit: bool| if word == MISSING { gaps } else { hit & (word != ANY) };
    if let [] | [_] = codes {
        // No row holds `ANY` and is refused for it.
        let only = codes.first().copied().unwrap_or(ANY);
        return refuse(bound, words.iter().map(|&word| passes(word, wanted ^ (word == only))));
    }
    hits.fill(u32::from(wanted));
    for &code in codes {
        for (hit, &word) in hits.iter_mut().zip(words) {
            *hit ^= u32::from(word == code);
        }
    }
    refuse(bound, words.iter().zip(&*hits).map(|(&word, &hit)| passes(word, hit != 0)))
}

/// Adds a term to each bound.
#[inline(always)]
fn add<B: Block>(block: &B, plan: &Plan, term: &Term, readings: &mut [Reading], bound: &mut [f32]) {
    let (scale, shift, len) = (term.scale, term.shift, bound.len());
    let norm = |value: f32| (value * scale + shift).clamp(0.0, 1.0);
    match term.source {
        Source::Gauge { gauge } => {
            let reading = readings[gauge].of(block, &plan.gauges[gauge], len);
            let reading = reading.least[..len].iter().zip(&reading.gap[..len]);
            weigh(term, bound, reading.map(|(&far, &gap)| (norm(far), gap != 0)));
        }
        Source::Lower { column } if B::ROWS => {
            weigh(term, bound, block.least(column).iter().map(|&it| (norm(it), it.is_nan())));
        }
        Source::Lower { column } => {
            let bounds = block.least(column).iter().zip(block.gaps(column));
            weigh(term, bound, bounds.map(|(&it, &gap)| (norm(it), gap != 0)));
        }
        Source::Difference { column, at } if B::ROWS => {
            weigh(term, bound, block.least(column).iter().map(|&it| ((norm(it) - at).abs(), it.is_nan())));
        }
        Source::Difference { column, at } => {
            let bounds = block.least(column).iter().zip(block.greatest(column)).zip(block.gaps(column));
            let distance = |low: f32, high: f32| greater(greater(norm(low) - at, at - norm(high)), 0.0);
            weigh(term, bound, bounds.map(|((&low, &high), &gap)| (distance(low, high), gap != 0)));
        }
    }
}

#[inline(always)]
fn weigh(term: &Term, bound: &mut [f32], distances: impl Iterator<Item = (f32, bool)>) {
    match term.curve {
        Curve::Linear => pour(term, bound, distances, |it| it),
        Curve::Quadratic => pour(term, bound, distances, |it| it * it),
        Curve::SquareRoot => pour(term, bound, distances, f32::sqrt),
    }
}

#[inline(always)]
fn pour(term: &Term, bound: &mut [f32], distances: impl Iterator<Item = (f32, bool)>, curve: impl Fn(f32) -> f32) {
    let Term { weight, missing, slack, .. } = *term;
    for (bound, (distance, gap)) in bound.iter_mut().zip(distances) {
        let lessened = distance - slack;
        // A NaN, which only a row without the value has, becomes 1.
        let lessened = if lessened <= 1.0 { lessened } else { 1.0 };
        let added = weight * curve(if lessened < 0.0 { 0.0 } else { lessened });
        let lesser = if missing < added { missing } else { added };
        *bound += if gap { lesser } else { added };
    }
}
