//! The inner loops: plain passes over short slices, compiled once for the portable instruction set and once for each
//! wider one that the machine may have. The same source and no fused operations, so all give the same bits.

use crate::filter::Refusal;
use crate::index::column_block::ColumnBlock;
use crate::index::distance_bounds::{BoundValues, fast_max};
use crate::index::interner::{MISSING_CODE, OVERFLOW_CODE};
use crate::index::layout::word_column;
use crate::index::plan::{ColumnCheck, ColumnTerm, QueryPlan, TermSource};
use crate::index::row_rules::{RowOwner, SEATS_MASK};
use crate::ruleset::DistanceCurve;

/// Rows or leaves in one block at most.
pub(super) const BLOCK_LEN_MAX: usize = 512;
/// When no more than one row in so many passes the rules, terms are left out: scoring those few exactly costs less
/// than a pass over all.
const SPARSE_RATIO: usize = 32;

/// Buffers of one search.
#[derive(Debug)]
pub(super) struct KernelBuffers {
    /// Lower bound of each row's score; infinite for the refused.
    pub(super) score_bounds: [f32; BLOCK_LEN_MAX],
    bound_values: Vec<BoundValues>,
    row_limits: [f32; BLOCK_LEN_MAX],
    row_matches: [u32; BLOCK_LEN_MAX],
}

impl Default for KernelBuffers {
    fn default() -> Self {
        Self {
            score_bounds: [0.0; BLOCK_LEN_MAX],
            bound_values: Vec::new(),
            row_limits: [0.0; BLOCK_LEN_MAX],
            row_matches: [0; BLOCK_LEN_MAX],
        }
    }
}

/// Which instruction set the loops use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstructionSet {
    /// The widest that the machine has.
    #[default]
    Widest,
    /// The one that every machine has.
    Portable,
}

/// Judges a block. `scratch.bound` comes in as what each row begins with and goes out as its bound; `counts` gains
/// what each rule refuses. Returns how many are not refused.
pub(super) fn evaluate_block<B: ColumnBlock>(
    path: InstructionSet,
    plan: &QueryPlan,
    block: B,
    scratch: &mut KernelBuffers,
    counts: &mut [u32],
    len: usize,
) -> u32 {
    let work = BlockEvaluation { plan, block, scratch, refusal_counts: counts, len };
    match path {
        InstructionSet::Widest => pulp::Arch::new().dispatch(work),
        InstructionSet::Portable => evaluate_block_portable(work),
    }
}

#[inline(never)]
fn evaluate_block_portable<B: ColumnBlock>(work: BlockEvaluation<'_, B>) -> u32 {
    pulp::NullaryFnOnce::call(work)
}

struct BlockEvaluation<'a, B> {
    plan: &'a QueryPlan,
    block: B,
    scratch: &'a mut KernelBuffers,
    refusal_counts: &'a mut [u32],
    len: usize,
}

impl<B: ColumnBlock> pulp::NullaryFnOnce for BlockEvaluation<'_, B> {
    type Output = u32;

    /// Rules in order, then terms; stops where nobody is left.
    #[inline(always)]
    fn call(self) -> u32 {
        let Self { plan, block, scratch, refusal_counts: counts, len } = self;
        let KernelBuffers { score_bounds: bound, bound_values: readings, row_limits: limit, row_matches: hit } =
            scratch;
        let bound = &mut bound[..len];
        BoundValues::reset_all(readings, plan.distance_bounds.len());
        let [expired, full, waiting] = refuse_expired_and_full(&block, plan, bound);
        counts[Refusal::Expired.counter_index()] += expired;
        counts[Refusal::NotEnoughSeats.counter_index()] += full;
        let mut left = waiting - expired - full;
        if B::IS_ROWS && plan.check_owner_column {
            for owner in &plan.own_keys {
                let refused = refuse_own_rows(&block, owner, bound, &mut hit[..len]);
                counts[Refusal::OwnSession.counter_index()] += refused;
                left -= refused;
            }
        }
        for rule in &plan.column_rules {
            if left == 0 {
                return 0;
            }
            let refused = apply_check(&block, plan, &rule.check, readings, bound, &mut limit[..len], &mut hit[..len]);
            counts[rule.counter_index] += refused;
            left -= refused;
        }
        let mut number = 0;
        while let Some((attribute, least, greatest)) = block.published_range_bounds(number) {
            let [low, high] = plan.searcher_intervals[attribute];
            let outside = least.iter().zip(greatest).map(|(&least, &greatest)| (high < least) | (greatest < low));
            let refused = mark_refused(bound, outside);
            counts[plan.allowed_range_counter] += refused;
            left -= refused;
            number += 1;
        }
        let sparse = B::IS_ROWS && plan.exact_from_columns && left as usize * SPARSE_RATIO <= len;
        if left != 0 && !sparse {
            // A loop and no `for_each`: whatever is not inlined here is compiled for the portable instruction set.
            for term in &plan.column_terms {
                add_term(&block, plan, term, readings, bound);
            }
        }
        left
    }
}

/// Refuses the expired and then the full, in one pass because every search makes it; how many, and how many rows were
/// not refused before.
#[inline(always)]
fn refuse_expired_and_full<B: ColumnBlock>(block: &B, plan: &QueryPlan, bound: &mut [f32]) -> [u32; 3] {
    let (mut expired, mut full, mut waiting) = (0, 0, 0);
    let rows = block.fixed_words(word_column::EXPIRES_AT).iter().zip(block.fixed_words(word_column::SEATS_AND_OWNER));
    for (bound, (&expires, &seats)) in bound.iter_mut().zip(rows) {
        let here = *bound < f32::INFINITY;
        // The portable instruction set compares signed numbers only.
        let late = (expires as i32) < plan.now_tick as i32;
        let few = ((seats & SEATS_MASK) as i32) < i32::from(plan.seats_needed);
        waiting += u32::from(here);
        expired += u32::from(here & late);
        full += u32::from(here & few & !late);
        *bound = if late | few { f32::INFINITY } else { *bound };
    }
    [expired, full, waiting]
}

/// Refuses the rows of `owner`; how many. Marks come first, because they were read already and most rows are others'.
#[inline(always)]
fn refuse_own_rows<B: ColumnBlock>(block: &B, owner: &RowOwner, bound: &mut [f32], hits: &mut [u32]) -> u32 {
    let mut near = 0;
    for (hit, &seats) in hits.iter_mut().zip(block.fixed_words(word_column::SEATS_AND_OWNER)) {
        *hit = u32::from(seats >> 16 == owner.tag);
        near += *hit;
    }
    if near == 0 {
        return 0;
    }
    let [low, high] = owner.key;
    for (hit, key) in hits.iter_mut().zip(block.owner_keys()) {
        // In 32 bits: the portable instruction set compares no wider numbers.
        let differ = (key[0] ^ low) | (key[1] ^ high);
        *hit &= u32::from(differ as u32 | (differ >> 32) as u32 == 0);
    }
    mark_refused(bound, hits.iter().map(|&hit| hit != 0))
}

/// Marks the rows hit as refused, and counts those that were not refused before.
#[inline(always)]
fn mark_refused(bound: &mut [f32], hits: impl Iterator<Item = bool>) -> u32 {
    let mut count = 0;
    for (bound, hit) in bound.iter_mut().zip(hits) {
        count += u32::from(hit & (*bound < f32::INFINITY));
        *bound = if hit { f32::INFINITY } else { *bound };
    }
    count
}

/// Refuses what `check` refuses; how many.
#[inline(always)]
fn apply_check<B: ColumnBlock>(
    block: &B,
    plan: &QueryPlan,
    check: &ColumnCheck,
    readings: &mut [BoundValues],
    bound: &mut [f32],
    limits: &mut [f32],
    hits: &mut [u32],
) -> u32 {
    let len = bound.len();
    match check {
        ColumnCheck::RefuseAll => mark_refused(bound, std::iter::repeat_n(true, len)),
        ColumnCheck::BeyondSearcherLimit { bound_index: gauge, limit, refuse_missing: gaps } => {
            let reading = readings[*gauge].get_or_compute(block, &plan.distance_bounds[*gauge], len);
            let reading = reading.lower[..len].iter().zip(&reading.may_be_missing[..len]);
            mark_refused(bound, reading.map(|(&far, &gap)| (*limit < far) & (*gaps | (gap == 0))))
        }
        ColumnCheck::BeyondAdvertiserLimit {
            bound_index: gauge,
            reciprocal_share: share,
            first_limit: first,
            later_limits: steps,
        } => {
            limits.fill(*first);
            for &(tick, value) in steps {
                for (limit, &since) in limits.iter_mut().zip(block.fixed_words(word_column::ADVERTISED_SINCE)) {
                    *limit = if since as i32 <= tick as i32 { value } else { *limit };
                }
            }
            let reading = readings[*gauge].get_or_compute(block, &plan.distance_bounds[*gauge], len);
            let reading = reading.lower[..len].iter().zip(&reading.may_be_missing[..len]);
            mark_refused(bound, reading.zip(&*limits).map(|((&far, &gap), &limit)| (limit < far * *share) & (gap == 0)))
        }
        ColumnCheck::OutsideRange { column, lower: least, upper: greatest, refuse_missing: gaps } => {
            refuse_outside_range(block, *column, [*least, *greatest], *gaps, bound)
        }
        ColumnCheck::InternedCode { column, codes, must_match: wanted, refuse_missing: gaps, leaf_bits: set } => {
            let words = block.attribute_words(*column);
            if B::IS_ROWS {
                refuse_by_code(words, codes, *wanted, *gaps, bound, hits)
            } else {
                mark_refused(bound, words.iter().map(|it| it & set == 0))
            }
        }
        ColumnCheck::NoSharedBloomBit { column, bits } => {
            let (ours_low, ours_high) = (*bits as u32, (*bits >> 32) as u32);
            let words = block.attribute_words(*column).iter().zip(block.attribute_words(*column + 1));
            mark_refused(bound, words.map(|(&low, &high)| (low & ours_low) | (high & ours_high) == 0))
        }
        ColumnCheck::OtherRulesetHash { column, hash } if B::IS_ROWS => {
            mark_refused(bound, block.attribute_words(*column).iter().map(|it| it != hash))
        }
        ColumnCheck::OtherRulesetHash { .. } => 0,
    }
}

/// Leaves are refused when they lie wholly outside; rows without the value when gaps are.
#[inline(always)]
fn refuse_outside_range<B: ColumnBlock>(
    block: &B,
    column: usize,
    [least, greatest]: [f32; 2],
    gaps: bool,
    bound: &mut [f32],
) -> u32 {
    let bounds = block.lower_values(column).iter().zip(block.upper_values(column));
    let outside = bounds.map(|(&low, &high)| (high < least) | (greatest < low));
    if B::IS_ROWS {
        return mark_refused(
            bound,
            outside.zip(block.lower_values(column)).map(|(hit, value)| hit | (gaps & value.is_nan())),
        );
    }
    mark_refused(bound, outside.zip(block.may_be_missing(column)).map(|(hit, &gap)| hit & (gaps | (gap == 0))))
}

#[inline(always)]
fn refuse_by_code(words: &[u32], codes: &[u32], wanted: bool, gaps: bool, bound: &mut [f32], hits: &mut [u32]) -> u32 {
    let passes = |word: u32, hit: bool| if word == MISSING_CODE { gaps } else { hit & (word != OVERFLOW_CODE) };
    if let [] | [_] = codes {
        // No row holds `ANY` and is refused for it.
        let only = codes.first().copied().unwrap_or(OVERFLOW_CODE);
        return mark_refused(bound, words.iter().map(|&word| passes(word, wanted ^ (word == only))));
    }
    hits.fill(u32::from(wanted));
    for &code in codes {
        for (hit, &word) in hits.iter_mut().zip(words) {
            *hit ^= u32::from(word == code);
        }
    }
    mark_refused(bound, words.iter().zip(&*hits).map(|(&word, &hit)| passes(word, hit != 0)))
}

/// Adds a term to each bound.
#[inline(always)]
fn add_term<B: ColumnBlock>(
    block: &B,
    plan: &QueryPlan,
    term: &ColumnTerm,
    readings: &mut [BoundValues],
    bound: &mut [f32],
) {
    let (scale, shift, len) = (term.scale, term.shift, bound.len());
    let norm = |value: f32| (value * scale + shift).clamp(0.0, 1.0);
    match term.source {
        TermSource::DistanceBound { bound_index: gauge } => {
            let reading = readings[gauge].get_or_compute(block, &plan.distance_bounds[gauge], len);
            let reading = reading.lower[..len].iter().zip(&reading.may_be_missing[..len]);
            add_curved_term(term, bound, reading.map(|(&far, &gap)| (norm(far), gap != 0)));
        }
        TermSource::LowerIsBetter { column } if B::IS_ROWS => {
            add_curved_term(term, bound, block.lower_values(column).iter().map(|&it| (norm(it), it.is_nan())));
        }
        TermSource::LowerIsBetter { column } => {
            let bounds = block.lower_values(column).iter().zip(block.may_be_missing(column));
            add_curved_term(term, bound, bounds.map(|(&it, &gap)| (norm(it), gap != 0)));
        }
        TermSource::Difference { column, searcher_value: at } if B::IS_ROWS => {
            add_curved_term(
                term,
                bound,
                block.lower_values(column).iter().map(|&it| ((norm(it) - at).abs(), it.is_nan())),
            );
        }
        TermSource::Difference { column, searcher_value: at } => {
            let bounds =
                block.lower_values(column).iter().zip(block.upper_values(column)).zip(block.may_be_missing(column));
            let distance = |low: f32, high: f32| fast_max(fast_max(norm(low) - at, at - norm(high)), 0.0);
            add_curved_term(term, bound, bounds.map(|((&low, &high), &gap)| (distance(low, high), gap != 0)));
        }
    }
}

#[inline(always)]
fn add_curved_term(term: &ColumnTerm, bound: &mut [f32], distances: impl Iterator<Item = (f32, bool)>) {
    match term.curve {
        DistanceCurve::Linear => add_weighted_distances(term, bound, distances, |it| it),
        DistanceCurve::Quadratic => add_weighted_distances(term, bound, distances, |it| it * it),
        DistanceCurve::SquareRoot => add_weighted_distances(term, bound, distances, f32::sqrt),
    }
}

#[inline(always)]
fn add_weighted_distances(
    term: &ColumnTerm,
    bound: &mut [f32],
    distances: impl Iterator<Item = (f32, bool)>,
    curve: impl Fn(f32) -> f32,
) {
    let ColumnTerm { weight, missing_value_term: missing, rounding_error: slack, .. } = *term;
    for (bound, (distance, gap)) in bound.iter_mut().zip(distances) {
        let lessened = distance - slack;
        // A NaN, which only a row without the value has, becomes 1.
        let lessened = if lessened <= 1.0 { lessened } else { 1.0 };
        let added = weight * curve(if lessened < 0.0 { 0.0 } else { lessened });
        let lesser = if missing < added { missing } else { added };
        *bound += if gap { lesser } else { added };
    }
}
