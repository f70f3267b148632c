//! Distance bounds: lower bounds of the distance from the searcher to each row or leaf of a block. Computed at most
//! once per block, and only if a rule or a term needs them.

use crate::index::certain_prediction::CertainPrediction;
use crate::index::column_block::{BLOCK_LEN_MAX, ColumnBlock};
use crate::index::plan::{DistanceBound, PredictionBound};
use crate::index::vector_columns;

/// Lower bounds of one distance, for each row or leaf of a block.
#[derive(Debug)]
pub(super) struct BlockDistanceBounds {
    /// Lower bound; infinite if there is no value.
    pub(super) lower: [f32; BLOCK_LEN_MAX],
    /// 1 if the value may be missing.
    pub(super) may_be_missing: [u32; BLOCK_LEN_MAX],
    is_computed: bool,
}

impl BlockDistanceBounds {
    /// Invalidates the values of the previous block and provides `count` buffers.
    pub(super) fn reset_for_next_block(all_values: &mut Vec<Self>, count: usize) {
        while all_values.len() < count {
            all_values.push(Self {
                lower: [0.0; BLOCK_LEN_MAX],
                may_be_missing: [0; BLOCK_LEN_MAX],
                is_computed: false,
            });
        }
        all_values.iter_mut().for_each(|values| values.is_computed = false);
    }

    /// Returns the values for `block`; computes them on the first call.
    #[inline(always)]
    pub(super) fn get_or_compute<B: ColumnBlock>(
        &mut self,
        block: &B,
        distance_bound: &DistanceBound,
        len: usize,
    ) -> &Self {
        if !self.is_computed {
            compute_bounds(block, distance_bound, &mut self.lower[..len], &mut self.may_be_missing[..len]);
            self.is_computed = true;
        }
        self
    }
}

#[inline(always)]
fn compute_bounds<B: ColumnBlock>(
    block: &B,
    distance_bound: &DistanceBound,
    lower: &mut [f32],
    may_be_missing: &mut [u32],
) {
    match *distance_bound {
        DistanceBound::NumberDifference { column, searcher_value, rounding_error } => {
            compute_number_difference_bounds(block, column, searcher_value, lower, may_be_missing);
            for bound in lower {
                let reduced = *bound - rounding_error;
                *bound = if reduced < 0.0 { 0.0 } else { reduced };
            }
        }
        DistanceBound::Chord { x_column, searcher_position } => {
            compute_chord_bounds(block, x_column, searcher_position, lower, may_be_missing)
        }
        DistanceBound::RoundTrip {
            x_column,
            searcher_position,
            intercept_ms,
            ms_per_mile,
            best_region_ms_column,
            searcher_best_region_ms,
            prediction,
        } => {
            if searcher_position[0].is_nan() {
                lower.fill(f32::INFINITY);
                may_be_missing.fill(1);
            } else {
                compute_chord_bounds(block, x_column, searcher_position, lower, may_be_missing);
                // Infinity must stay infinite, even with a slope of 0.
                let round_trip =
                    |miles: f32| if miles < f32::INFINITY { intercept_ms + ms_per_mile * miles } else { miles };
                if let Some(bound) = prediction {
                    apply_prediction_bound(block, &bound, lower, round_trip);
                } else {
                    for bound in &mut *lower {
                        *bound = round_trip(*bound);
                    }
                }
            }
            if !searcher_best_region_ms.is_nan() {
                let certain = prediction.map(|prediction| (prediction.vector_column, prediction.certain));
                apply_best_region_bound(block, best_region_ms_column, searcher_best_region_ms, certain, lower);
            }
        }
    }
}

/// Replaces chords by lower bounds of the round trip: of the prediction where it is certain, else of the prediction and of the
/// estimate by distance.
#[inline(always)]
fn apply_prediction_bound<B: ColumnBlock>(
    block: &B,
    prediction: &PredictionBound,
    lower: &mut [f32],
    round_trip: impl Fn(f32) -> f32,
) {
    let PredictionBound { near_excess_column, vector_column, certain, is_certain_for_all, planes } = prediction;
    let len = lower.len();
    let column = |offset: usize| &block.lower_values(vector_column + offset)[..len];
    let near_ms = &block.lower_values(*near_excess_column)[..len];
    let light_ms = column(vector_columns::LIGHT_EXCESS);
    if B::IS_ROWS && *is_certain_for_all {
        for i in 0..len {
            lower[i] = planes.least_prediction_ms(true, lower[i], near_ms[i], light_ms[i]);
        }
        return;
    }
    let (until, floor_counts) = (column(vector_columns::COUNTS_UNTIL), column(vector_columns::FLOOR_COUNT));
    for i in 0..len {
        let estimated = round_trip(lower[i]);
        let predicted = planes.least_prediction_ms(B::IS_ROWS, lower[i], near_ms[i], light_ms[i]);
        let is_certain = certain.is_certain(until[i], floor_counts[i]);
        // `predicted` is NaN for a row without a vector, and infinite or NaN for a leaf without any.
        lower[i] = if is_certain | (predicted < estimated) { predicted } else { estimated };
    }
}

/// Applies the bound from region round trips: in a common region, the slower side's round trip is at least the higher
/// of both sides' best region round trips. The sides may have no common region, so the bound is the lower of this value
/// and the bound from the distance. Where the prediction is certain, regions do not count; `certain` has the first column of vectors.
#[inline(always)]
fn apply_best_region_bound<B: ColumnBlock>(
    block: &B,
    region_column: usize,
    searcher_best_ms: f32,
    certain: Option<(usize, CertainPrediction)>,
    lower: &mut [f32],
) {
    // `best_ms` is NaN for a row without regions and infinite for a leaf without any.
    let with_region = |bound: f32, best_ms: f32| {
        let slower_ms = if best_ms < searcher_best_ms { searcher_best_ms } else { best_ms };
        if slower_ms < bound { slower_ms } else { bound }
    };
    let regions = block.lower_values(region_column);
    let Some((vector_column, certain)) = certain else {
        for (bound, &best_ms) in lower.iter_mut().zip(regions) {
            *bound = with_region(*bound, best_ms);
        }
        return;
    };
    let until = block.lower_values(vector_column + vector_columns::COUNTS_UNTIL);
    let floor_counts = block.lower_values(vector_column + vector_columns::FLOOR_COUNT);
    for (((bound, &best_ms), &until), &floors) in lower.iter_mut().zip(regions).zip(until).zip(floor_counts) {
        *bound = if certain.is_certain(until, floors) { *bound } else { with_region(*bound, best_ms) };
    }
}

/// Maximum that compiles to one machine instruction, unlike `f32::max`, which handles NaN.
#[inline(always)]
pub(super) fn fast_max(one: f32, other: f32) -> f32 {
    if other < one { one } else { other }
}

/// Distance of `searcher_value` from the column's value or bounds.
#[inline(always)]
fn compute_number_difference_bounds<B: ColumnBlock>(
    block: &B,
    column: usize,
    searcher_value: f32,
    lower: &mut [f32],
    may_be_missing: &mut [u32],
) {
    if B::IS_ROWS {
        for ((bound, may_be_missing), &value) in lower.iter_mut().zip(may_be_missing).zip(block.lower_values(column)) {
            let missing = value.is_nan();
            *bound = if missing { f32::INFINITY } else { (value - searcher_value).abs() };
            *may_be_missing = u32::from(missing);
        }
    } else {
        let bounds = block.lower_values(column).iter().zip(block.upper_values(column));
        for (bound, (&low, &high)) in lower.iter_mut().zip(bounds) {
            *bound = fast_max(fast_max(low - searcher_value, searcher_value - high), 0.0);
        }
        may_be_missing.copy_from_slice(block.may_be_missing(column));
    }
}

/// Chord from position `at` to each row or leaf, miles.
#[inline(always)]
fn compute_chord_bounds<B: ColumnBlock>(
    block: &B,
    x_column: usize,
    at: [f32; 3],
    lower: &mut [f32],
    may_be_missing: &mut [u32],
) {
    let len = lower.len();
    let (xs, ys, zs) = (
        &block.lower_values(x_column)[..len],
        &block.lower_values(x_column + 1)[..len],
        &block.lower_values(x_column + 2)[..len],
    );
    if B::IS_ROWS {
        let may_be_missing = &mut may_be_missing[..len];
        for i in 0..len {
            let (dx, dy, dz) = (xs[i] - at[0], ys[i] - at[1], zs[i] - at[2]);
            let chord = (dx * dx + dy * dy + dz * dz).sqrt();
            let missing = chord.is_nan();
            lower[i] = if missing { f32::INFINITY } else { chord };
            may_be_missing[i] = u32::from(missing);
        }
        return;
    }
    let (x_upper, y_upper, z_upper) = (
        &block.upper_values(x_column)[..len],
        &block.upper_values(x_column + 1)[..len],
        &block.upper_values(x_column + 2)[..len],
    );
    let axis_distance = |low: f32, high: f32, at: f32| fast_max(fast_max(low - at, at - high), 0.0);
    for i in 0..len {
        let (dx, dy, dz) = (
            axis_distance(xs[i], x_upper[i], at[0]),
            axis_distance(ys[i], y_upper[i], at[1]),
            axis_distance(zs[i], z_upper[i], at[2]),
        );
        lower[i] = (dx * dx + dy * dy + dz * dz).sqrt();
    }
    may_be_missing.copy_from_slice(block.may_be_missing(x_column));
}
