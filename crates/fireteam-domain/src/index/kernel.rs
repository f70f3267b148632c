//! Search kernel: inner loops over short slices, compiled for the portable instruction set and for each wider one
//! (SIMD).
//!
//! All versions share one source without fused operations, so their results are bit-identical.

use crate::filter::Refusal;
use crate::index::column_block::{BLOCK_LEN_MAX, ColumnBlock};
use crate::index::distance_bounds::{BlockDistanceBounds, fast_max};
use crate::index::interner::{MISSING_CODE, OVERFLOW_CODE};
use crate::index::plan::{ColumnRefusalCheck, ColumnTerm, QueryPlan, TermSource};
use crate::index::row_rules::{RowOwnerKey, SEATS_MASK};
use crate::index::word_column;
use crate::ruleset::DistanceCurve;

/// If at most one row in this many passes the rules, terms are skipped: scoring the few rows exactly is cheaper than a
/// loop over all.
const SPARSE_RATIO: usize = 32;

/// Kernel buffers of one search.
#[derive(Debug)]
pub(super) struct KernelBuffers {
    /// Lower bound of each row's score; infinite for refused rows.
    pub(super) score_bounds: [f32; BLOCK_LEN_MAX],
    bound_values: Vec<BlockDistanceBounds>,
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

/// Instruction set of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InstructionSet {
    /// Widest set that the CPU supports.
    #[default]
    Widest,
    /// Baseline set that each CPU of the target supports.
    Portable,
}

/// Evaluates a block. On entry `buffers.score_bounds` holds each row's initial bound, on return its final bound. Adds
/// the number of refusals per rule to `refusal_counts`. Returns the number of rows that are not refused.
pub(super) fn evaluate_block<B: ColumnBlock>(
    instruction_set: InstructionSet,
    plan: &QueryPlan,
    block: B,
    buffers: &mut KernelBuffers,
    refusal_counts: &mut [u32],
    len: usize,
) -> u32 {
    let evaluation = EvaluateBlock { plan, block, buffers, refusal_counts, len };
    match instruction_set {
        InstructionSet::Widest => pulp::Arch::new().dispatch(evaluation),
        InstructionSet::Portable => evaluate_block_portable(evaluation),
    }
}

#[inline(never)]
fn evaluate_block_portable<B: ColumnBlock>(evaluation: EvaluateBlock<'_, B>) -> u32 {
    pulp::NullaryFnOnce::call(evaluation)
}

struct EvaluateBlock<'a, B> {
    plan: &'a QueryPlan,
    block: B,
    buffers: &'a mut KernelBuffers,
    refusal_counts: &'a mut [u32],
    len: usize,
}

impl<B: ColumnBlock> pulp::NullaryFnOnce for EvaluateBlock<'_, B> {
    type Output = u32;

    /// Applies the rules in order, then the terms; stops when no row is left.
    #[inline(always)]
    fn call(self) -> u32 {
        let Self { plan, block, buffers, refusal_counts: counts, len } = self;
        let KernelBuffers { score_bounds, bound_values, row_limits, row_matches } = buffers;
        let score_bounds = &mut score_bounds[..len];
        BlockDistanceBounds::reset_for_next_block(bound_values, plan.distance_bounds.len());
        let [expired, full, present] = refuse_expired_and_full(&block, plan, score_bounds);
        counts[Refusal::Expired.counter_index()] += expired;
        counts[Refusal::NotEnoughSeats.counter_index()] += full;
        let mut remaining = present - expired - full;
        if B::IS_ROWS && plan.check_owner_column {
            for owner in &plan.own_keys {
                let refused = refuse_own_rows(&block, owner, score_bounds, &mut row_matches[..len]);
                counts[Refusal::OwnSession.counter_index()] += refused;
                remaining -= refused;
            }
        }
        for rule in &plan.column_rules {
            if remaining == 0 {
                return 0;
            }
            let (limits, matches) = (&mut row_limits[..len], &mut row_matches[..len]);
            let refused = apply_check(&block, plan, &rule.check, bound_values, score_bounds, limits, matches);
            counts[rule.counter_index] += refused;
            remaining -= refused;
        }
        let mut nth = 0;
        while let Some((attribute_index, lower, upper)) = block.published_range_bounds(nth) {
            let [low, high] = plan.searcher_intervals[attribute_index];
            let outside = lower.iter().zip(upper).map(|(&lower, &upper)| (high < lower) | (upper < low));
            let refused = mark_refused(score_bounds, outside);
            counts[plan.allowed_range_counter] += refused;
            remaining -= refused;
            nth += 1;
        }
        let is_sparse = B::IS_ROWS && plan.exact_from_columns && remaining as usize * SPARSE_RATIO <= len;
        if remaining != 0 && !is_sparse {
            // A loop instead of `for_each`: code that is not inlined here is compiled for the portable instruction set.
            for term in &plan.column_terms {
                add_term(&block, plan, term, bound_values, score_bounds);
            }
        }
        remaining
    }
}

/// Refuses expired rows, then rows without enough seats, in one loop. Returns both counts and the number of rows that
/// were not refused before.
#[inline(always)]
fn refuse_expired_and_full<B: ColumnBlock>(block: &B, plan: &QueryPlan, score_bounds: &mut [f32]) -> [u32; 3] {
    let (mut expired, mut full, mut present) = (0, 0, 0);
    let rows = block.fixed_words(word_column::EXPIRES_AT).iter().zip(block.fixed_words(word_column::SEATS_AND_OWNER));
    for (bound, (&expires, &seats)) in score_bounds.iter_mut().zip(rows) {
        let is_present = *bound < f32::INFINITY;
        // The portable instruction set compares signed numbers only.
        let is_expired = (expires as i32) < plan.now_tick as i32;
        let is_full = ((seats & SEATS_MASK) as i32) < i32::from(plan.seats_needed);
        present += u32::from(is_present);
        expired += u32::from(is_present & is_expired);
        full += u32::from(is_present & is_full & !is_expired);
        *bound = if is_expired | is_full { f32::INFINITY } else { *bound };
    }
    [expired, full, present]
}

/// Refuses the rows of `owner` and returns their number. Compares tags first: they are already in the cache, and most
/// rows belong to other owners.
#[inline(always)]
fn refuse_own_rows<B: ColumnBlock>(
    block: &B,
    owner: &RowOwnerKey,
    score_bounds: &mut [f32],
    matches: &mut [u32],
) -> u32 {
    let mut tag_matches = 0;
    for (hit, &seats) in matches.iter_mut().zip(block.fixed_words(word_column::SEATS_AND_OWNER)) {
        *hit = u32::from(seats >> 16 == owner.tag);
        tag_matches += *hit;
    }
    if tag_matches == 0 {
        return 0;
    }
    let [low, high] = owner.key;
    for (hit, key) in matches.iter_mut().zip(block.owner_keys()) {
        // In 32 bits: the portable instruction set compares no wider numbers.
        let difference = (key[0] ^ low) | (key[1] ^ high);
        *hit &= u32::from(difference as u32 | (difference >> 32) as u32 == 0);
    }
    mark_refused(score_bounds, matches.iter().map(|&hit| hit != 0))
}

/// Marks the matching rows as refused. Returns the number of rows that were not refused before.
#[inline(always)]
fn mark_refused(score_bounds: &mut [f32], matches: impl Iterator<Item = bool>) -> u32 {
    let mut count = 0;
    for (bound, hit) in score_bounds.iter_mut().zip(matches) {
        count += u32::from(hit & (*bound < f32::INFINITY));
        *bound = if hit { f32::INFINITY } else { *bound };
    }
    count
}

/// Applies `check` and returns the number of newly refused rows.
#[inline(always)]
fn apply_check<B: ColumnBlock>(
    block: &B,
    plan: &QueryPlan,
    check: &ColumnRefusalCheck,
    bound_values: &mut [BlockDistanceBounds],
    score_bounds: &mut [f32],
    limits: &mut [f32],
    matches: &mut [u32],
) -> u32 {
    let len = score_bounds.len();
    match check {
        ColumnRefusalCheck::RefuseAll => mark_refused(score_bounds, std::iter::repeat_n(true, len)),
        ColumnRefusalCheck::BeyondSearcherLimit { bound_index, limit, refuse_missing } => {
            let values = bound_values[*bound_index].get_or_compute(block, &plan.distance_bounds[*bound_index], len);
            let values = values.lower[..len].iter().zip(&values.may_be_missing[..len]);
            mark_refused(
                score_bounds,
                values.map(|(&distance, &missing)| (*limit < distance) & (*refuse_missing | (missing == 0))),
            )
        }
        ColumnRefusalCheck::BeyondAdvertiserLimit { bound_index, reciprocal_share, first_limit, later_limits } => {
            limits.fill(*first_limit);
            for &(tick, value) in later_limits {
                for (limit, &since) in limits.iter_mut().zip(block.fixed_words(word_column::ADVERTISED_SINCE)) {
                    *limit = if since as i32 <= tick as i32 { value } else { *limit };
                }
            }
            let values = bound_values[*bound_index].get_or_compute(block, &plan.distance_bounds[*bound_index], len);
            let values = values.lower[..len].iter().zip(&values.may_be_missing[..len]);
            let is_beyond = |((&distance, &missing), &limit): ((&f32, &u32), &f32)| {
                (limit < distance * *reciprocal_share) & (missing == 0)
            };
            mark_refused(score_bounds, values.zip(&*limits).map(is_beyond))
        }
        ColumnRefusalCheck::OutsideRange { column, lower, upper, refuse_missing } => {
            refuse_outside_range(block, *column, [*lower, *upper], *refuse_missing, score_bounds)
        }
        ColumnRefusalCheck::InternedCode { column, codes, must_match, refuse_missing, leaf_bits } => {
            let words = block.attribute_words(*column);
            if B::IS_ROWS {
                refuse_by_code(words, codes, *must_match, *refuse_missing, score_bounds, matches)
            } else {
                mark_refused(score_bounds, words.iter().map(|word| word & leaf_bits == 0))
            }
        }
        ColumnRefusalCheck::NoSharedBloomBit { column, bits } => {
            let (ours_low, ours_high) = (*bits as u32, (*bits >> 32) as u32);
            let words = block.attribute_words(*column).iter().zip(block.attribute_words(*column + 1));
            mark_refused(score_bounds, words.map(|(&low, &high)| (low & ours_low) | (high & ours_high) == 0))
        }
        ColumnRefusalCheck::OtherRulesetHash { column, hash } if B::IS_ROWS => {
            mark_refused(score_bounds, block.attribute_words(*column).iter().map(|word| word != hash))
        }
        ColumnRefusalCheck::OtherRulesetHash { .. } => 0,
    }
}

/// Refuses rows outside the range, and leaves that lie completely outside it. Rows without the value are refused if
/// `refuse_missing` is set.
#[inline(always)]
fn refuse_outside_range<B: ColumnBlock>(
    block: &B,
    column: usize,
    [lower, upper]: [f32; 2],
    refuse_missing: bool,
    score_bounds: &mut [f32],
) -> u32 {
    let bounds = block.lower_values(column).iter().zip(block.upper_values(column));
    let outside = bounds.map(|(&low, &high)| (high < lower) | (upper < low));
    if B::IS_ROWS {
        return mark_refused(
            score_bounds,
            outside.zip(block.lower_values(column)).map(|(hit, value)| hit | (refuse_missing & value.is_nan())),
        );
    }
    mark_refused(
        score_bounds,
        outside.zip(block.may_be_missing(column)).map(|(hit, &missing)| hit & (refuse_missing | (missing == 0))),
    )
}

/// Refuses rows with one of `codes`, or with none of them if `must_match` is set.
#[inline(always)]
fn refuse_by_code(
    words: &[u32],
    codes: &[u32],
    must_match: bool,
    refuse_missing: bool,
    score_bounds: &mut [f32],
    matches: &mut [u32],
) -> u32 {
    let is_refused =
        |word: u32, hit: bool| if word == MISSING_CODE { refuse_missing } else { hit & (word != OVERFLOW_CODE) };
    if let [] | [_] = codes {
        // `is_refused` is false for `OVERFLOW_CODE`, so it can stand for "no code" here.
        let only = codes.first().copied().unwrap_or(OVERFLOW_CODE);
        return mark_refused(score_bounds, words.iter().map(|&word| is_refused(word, must_match ^ (word == only))));
    }
    matches.fill(u32::from(must_match));
    for &code in codes {
        for (hit, &word) in matches.iter_mut().zip(words) {
            *hit ^= u32::from(word == code);
        }
    }
    mark_refused(score_bounds, words.iter().zip(&*matches).map(|(&word, &hit)| is_refused(word, hit != 0)))
}

/// Adds a term to each row's bound.
#[inline(always)]
fn add_term<B: ColumnBlock>(
    block: &B,
    plan: &QueryPlan,
    term: &ColumnTerm,
    bound_values: &mut [BlockDistanceBounds],
    score_bounds: &mut [f32],
) {
    let len = score_bounds.len();
    let normalize = |value: f32| term.normalized(value);
    match term.source {
        TermSource::DistanceBound { bound_index } => {
            let values = bound_values[bound_index].get_or_compute(block, &plan.distance_bounds[bound_index], len);
            let values = values.lower[..len].iter().zip(&values.may_be_missing[..len]);
            add_term_of_distances(
                term,
                score_bounds,
                values.map(|(&distance, &missing)| (normalize(distance), missing != 0)),
            );
        }
        TermSource::LowerIsBetter { column } if B::IS_ROWS => {
            add_term_of_distances(
                term,
                score_bounds,
                block.lower_values(column).iter().map(|&value| (normalize(value), value.is_nan())),
            );
        }
        TermSource::LowerIsBetter { column } => {
            let bounds = block.lower_values(column).iter().zip(block.may_be_missing(column));
            add_term_of_distances(
                term,
                score_bounds,
                bounds.map(|(&value, &missing)| (normalize(value), missing != 0)),
            );
        }
        TermSource::Difference { column, searcher_value } if B::IS_ROWS => {
            add_term_of_distances(
                term,
                score_bounds,
                block
                    .lower_values(column)
                    .iter()
                    .map(|&value| ((normalize(value) - searcher_value).abs(), value.is_nan())),
            );
        }
        TermSource::Difference { column, searcher_value } => {
            let bounds =
                block.lower_values(column).iter().zip(block.upper_values(column)).zip(block.may_be_missing(column));
            let distance = |low: f32, high: f32| {
                fast_max(fast_max(normalize(low) - searcher_value, searcher_value - normalize(high)), 0.0)
            };
            add_term_of_distances(
                term,
                score_bounds,
                bounds.map(|((&low, &high), &missing)| (distance(low, high), missing != 0)),
            );
        }
    }
}

#[inline(always)]
fn add_term_of_distances(term: &ColumnTerm, score_bounds: &mut [f32], distances: impl Iterator<Item = (f32, bool)>) {
    match term.curve {
        DistanceCurve::Linear => add_weighted_distances(term, score_bounds, distances, |distance| distance),
        DistanceCurve::Quadratic => {
            add_weighted_distances(term, score_bounds, distances, |distance| distance * distance)
        }
        DistanceCurve::SquareRoot => add_weighted_distances(term, score_bounds, distances, f32::sqrt),
    }
}

#[inline(always)]
fn add_weighted_distances(
    term: &ColumnTerm,
    score_bounds: &mut [f32],
    distances: impl Iterator<Item = (f32, bool)>,
    curve: impl Fn(f32) -> f32,
) {
    let missing_value_term = term.missing_value_term;
    for (bound, (distance, missing)) in score_bounds.iter_mut().zip(distances) {
        let term = term.of_distance(distance, &curve);
        let smaller = if missing_value_term < term { missing_value_term } else { term };
        *bound += if missing { smaller } else { term };
    }
}
