//! Second lower bound of predicted round trips, for the leaves and rows that the planes leave: closer, and computed for each place.
//!
//! The upper estimate of a pair is the least sum of the searcher's completed floor and the row's floor to one beacon. The row's floor
//! is at least the straight path from its place to the beacon, plus the row's least excess over such paths. So the upper estimate is
//! at least the least route from the searcher through a beacon to the place, with that excess. For the rows of a leaf, the least route
//! to the box around their places counts.

use crate::filter::RoundTripPredictor;
use crate::index::certain_prediction::CertainPrediction;
use crate::index::distance_bounds::fast_max;
use crate::index::kernel::InstructionSet;
use crate::index::layout::AXIS_COUNT;
use crate::index::leaf::Leaf;
use crate::index::leaf_bounds::LeafBounds;
use crate::index::plan::{DistanceBound, PredictionBound, QueryPlan};
use crate::index::prediction_bound::arc_km_at_least;
use crate::index::query::SearchQuery;
use crate::index::vector_columns::{COUNTS_UNTIL, FLOOR_COUNT, LIGHT_EXCESS};
use crate::latency::beacon_fleet::FIBER_ROUND_TRIP_MS_PER_KM;

/// Rows or leaves per block. The loops over a block have no branches, so that the compiler makes vector instructions of them.
const LANES: usize = 16;

/// Values of each lane of a block.
type Lanes = [f32; LANES];

/// Places and excesses of a few rows, or the bounds of those of a few leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct RouteBlock {
    /// Lowest coordinates of a leaf, or those of a row.
    lower: [Lanes; AXIS_COUNT],
    /// Highest coordinates of a leaf; unused for rows.
    upper: [Lanes; AXIS_COUNT],
    /// `LeastPathExcess::near_ms`.
    near_ms: Lanes,
    /// `LeastPathExcess::light_ms`.
    light_ms: Lanes,
    /// Whether the round trip is certainly predicted.
    is_certain: [bool; LANES],
}

const EMPTY_BLOCK: RouteBlock = RouteBlock {
    lower: [[0.0; LANES]; AXIS_COUNT],
    upper: [[0.0; LANES]; AXIS_COUNT],
    near_ms: [0.0; LANES],
    light_ms: [0.0; LANES],
    is_certain: [false; LANES],
};

/// Lower bounds of the predictions to the lanes of a block, milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeastPredictions {
    /// By the planes: what the kernel computes from the same columns.
    by_planes_ms: Lanes,
    /// By the least routes; at times lower than by the planes.
    by_routes_ms: Lanes,
}

/// Place of a beacon, and the searcher's completed floor to it.
#[derive(Clone, Copy, Debug)]
struct BeaconFloor {
    position: [f32; AXIS_COUNT],
    floor_ms: f32,
}

/// Bound of the predictions of one search.
#[derive(Debug)]
pub(super) struct RouteBound {
    position: [f32; AXIS_COUNT],
    x_column: usize,
    prediction: PredictionBound,
    /// Position of the prediction in `QueryPlan::distance_bounds`.
    bound_index: usize,
    near_ms_per_km: f32,
    beacons: Vec<BeaconFloor>,
}

impl RouteBound {
    /// Bound of the searches of `query`, if a distance bound of `plan` is of predictions.
    pub(super) fn of_plan(plan: &QueryPlan, query: &SearchQuery<'_>) -> Option<Self> {
        let predictor = query.searcher.predictor.as_ref()?;
        plan.distance_bounds.iter().enumerate().find_map(|(index, bound)| match *bound {
            DistanceBound::RoundTrip { prediction: Some(bound), searcher_position, x_column, .. } => {
                let is_possible = bound.certain != CertainPrediction::NEVER && !searcher_position[0].is_nan();
                is_possible.then(|| Self::new(predictor, searcher_position, x_column, bound, index))
            }
            _ => None,
        })
    }

    /// Bound for a searcher at `position`, in an index with the columns of `prediction`.
    pub(super) fn new(
        predictor: &RoundTripPredictor<'_>,
        position: [f32; AXIS_COUNT],
        x_column: usize,
        prediction: PredictionBound,
        bound_index: usize,
    ) -> Self {
        let fleet = predictor.fleet;
        let floors_ms = predictor.own_vector.completed_floors_ms(fleet);
        let beacons = fleet.beacons().iter().zip(floors_ms).map(|(beacon, floor_ms)| BeaconFloor {
            position: [beacon.place.x, beacon.place.y, beacon.place.z],
            floor_ms: floor_ms as f32,
        });
        let [_, near_ms_per_km] = fleet.constants().line;
        let near_ms_per_km = near_ms_per_km as f32;
        Self { position, x_column, prediction, bound_index, near_ms_per_km, beacons: beacons.collect() }
    }

    /// Raises the score bounds of rows of a leaf, as the kernel computed them, to those by the least routes.
    pub(super) fn raise_row_bounds(
        &self,
        instruction_set: InstructionSet,
        plan: &QueryPlan,
        leaf: &Leaf,
        rows: &mut [(f32, u32)],
    ) {
        let value = |column: usize, row: u32| leaf.float_value(column, row as usize);
        for chunk in rows.chunks_mut(LANES) {
            let mut block = EMPTY_BLOCK;
            for (lane, &(_, row)) in chunk.iter().enumerate() {
                self.set_lane(&mut block, lane, |column| value(column, row));
            }
            let least = self.least_predictions::<true>(instruction_set, &block);
            self.raise_bounds(plan, &block, &least, chunk.iter_mut().map(|(bound, _)| bound));
        }
    }

    /// The same for the score bounds of leaves. `bounds_of` gives the bounds of the leaves of a tree, and the leaf's position among them.
    pub(super) fn raise_leaf_bounds<'a>(
        &self,
        instruction_set: InstructionSet,
        plan: &QueryPlan,
        bounds_of: impl Fn(u32) -> (&'a LeafBounds, usize),
        leaves: &mut [(f32, u32)],
    ) {
        for chunk in leaves.chunks_mut(LANES) {
            let mut block = EMPTY_BLOCK;
            for (lane, &(_, position)) in chunk.iter().enumerate() {
                let (bounds, leaf) = bounds_of(position);
                self.set_lane(&mut block, lane, |column| bounds.lower[column][leaf]);
                for (axis, values) in block.upper.iter_mut().enumerate() {
                    values[lane] = bounds.upper[self.x_column + axis][leaf];
                }
            }
            let least = self.least_predictions::<false>(instruction_set, &block);
            self.raise_bounds(plan, &block, &least, chunk.iter_mut().map(|(bound, _)| bound));
        }
    }

    /// Lower bounds of the predictions by planes and by routes: to a row, or to the rows of a leaf, by the lowest and highest values of its
    /// columns.
    #[cfg(test)]
    pub(super) fn least_predictions_ms<const IS_ROWS: bool>(
        &self,
        instruction_set: InstructionSet,
        lower: &[f32],
        upper: &[f32],
    ) -> [f32; 2] {
        let mut block = EMPTY_BLOCK;
        self.set_lane(&mut block, 0, |column| lower[column]);
        (0..AXIS_COUNT).for_each(|axis| block.upper[axis][0] = upper[self.x_column + axis]);
        let least = self.least_predictions::<IS_ROWS>(instruction_set, &block);
        [least.by_planes_ms[0], least.by_routes_ms[0]]
    }

    #[inline(always)]
    fn set_lane(&self, block: &mut RouteBlock, lane: usize, value: impl Fn(usize) -> f32) {
        let PredictionBound { near_excess_column, vector_column, certain, .. } = self.prediction;
        for (axis, values) in block.lower.iter_mut().enumerate() {
            values[lane] = value(self.x_column + axis);
        }
        block.near_ms[lane] = value(near_excess_column);
        block.light_ms[lane] = value(vector_column + LIGHT_EXCESS);
        block.is_certain[lane] =
            certain.is_certain(value(vector_column + COUNTS_UNTIL), value(vector_column + FLOOR_COUNT));
    }

    /// Whether the round trip to each row of a leaf is certainly predicted.
    pub(super) fn is_certain_for_leaf(&self, bounds: &LeafBounds, leaf: usize) -> bool {
        let PredictionBound { vector_column, certain, .. } = self.prediction;
        let least = |offset: usize| bounds.lower[vector_column + offset][leaf];
        bounds.row_counts[leaf] > 0 && certain.is_certain(least(COUNTS_UNTIL), least(FLOOR_COUNT))
    }

    fn raise_bounds<'a>(
        &self,
        plan: &QueryPlan,
        block: &RouteBlock,
        least: &LeastPredictions,
        score_bounds: impl Iterator<Item = &'a mut f32>,
    ) {
        let LeastPredictions { by_planes_ms, by_routes_ms } = least;
        let lanes = by_planes_ms.iter().zip(by_routes_ms).zip(block.is_certain);
        for (bound, ((&by_planes_ms, &by_routes_ms), is_certain)) in score_bounds.zip(lanes) {
            if is_certain && by_planes_ms < by_routes_ms {
                *bound = plan.raised_bound(*bound, self.bound_index, [by_planes_ms, by_routes_ms]);
            }
        }
    }

    fn least_predictions<const IS_ROWS: bool>(
        &self,
        instruction_set: InstructionSet,
        block: &RouteBlock,
    ) -> LeastPredictions {
        let call = BoundBlock::<IS_ROWS> { bound: self, block };
        match instruction_set {
            InstructionSet::Widest => pulp::Arch::new().dispatch(call),
            InstructionSet::Portable => bound_block_portable(call),
        }
    }
}

#[inline(never)]
fn bound_block_portable<const IS_ROWS: bool>(call: BoundBlock<'_, IS_ROWS>) -> LeastPredictions {
    pulp::NullaryFnOnce::call(call)
}

struct BoundBlock<'a, const IS_ROWS: bool> {
    bound: &'a RouteBound,
    block: &'a RouteBlock,
}

impl<const IS_ROWS: bool> pulp::NullaryFnOnce for BoundBlock<'_, IS_ROWS> {
    type Output = LeastPredictions;

    #[inline(always)]
    fn call(self) -> LeastPredictions {
        let RouteBound { position, prediction, near_ms_per_km, beacons, .. } = self.bound;
        let RouteBlock { near_ms, light_ms, .. } = self.block;
        let planes = &prediction.planes;
        let mut uppers_ms = [f32::INFINITY; LANES];
        for BeaconFloor { position, floor_ms } in beacons {
            for lane in 0..LANES {
                let arc_km = arc_km_at_least(self.least_chord_miles(*position, lane));
                let by_near_ms = near_ms_per_km * arc_km + near_ms[lane];
                let by_light_ms = FIBER_ROUND_TRIP_MS_PER_KM as f32 * arc_km + light_ms[lane];
                let upper_ms = floor_ms + fast_max(by_near_ms, by_light_ms);
                uppers_ms[lane] = if upper_ms < uppers_ms[lane] { upper_ms } else { uppers_ms[lane] };
            }
        }
        let mut least = LeastPredictions { by_planes_ms: [0.0; LANES], by_routes_ms: [0.0; LANES] };
        for lane in 0..LANES {
            let (near_ms, light_ms) = (near_ms[lane], light_ms[lane]);
            let chord_miles = self.least_chord_miles(*position, lane);
            let upper_ms = uppers_ms[lane];
            least.by_planes_ms[lane] = planes.least_prediction_ms(IS_ROWS, chord_miles, near_ms, light_ms);
            least.by_routes_ms[lane] = match IS_ROWS {
                true => planes.least_prediction_with_upper_ms(chord_miles, upper_ms, near_ms, light_ms),
                false => {
                    let chords_miles = [chord_miles, self.greatest_chord_miles(*position, lane)];
                    planes.least_prediction_of_leaf_with_upper_ms(chords_miles, upper_ms, near_ms, light_ms)
                }
            };
        }
        least
    }
}

impl<const IS_ROWS: bool> BoundBlock<'_, IS_ROWS> {
    /// Chord from a position to a row, or to the nearest point of a leaf's box, miles.
    #[inline(always)]
    fn least_chord_miles(&self, at: [f32; AXIS_COUNT], lane: usize) -> f32 {
        let RouteBlock { lower, upper, .. } = self.block;
        let difference = |axis: usize| match IS_ROWS {
            true => lower[axis][lane] - at[axis],
            false => fast_max(fast_max(lower[axis][lane] - at[axis], at[axis] - upper[axis][lane]), 0.0),
        };
        length(difference(0), difference(1), difference(2))
    }

    /// Chord from a position to the farthest point of a leaf's box, miles.
    #[inline(always)]
    fn greatest_chord_miles(&self, at: [f32; AXIS_COUNT], lane: usize) -> f32 {
        let RouteBlock { lower, upper, .. } = self.block;
        let difference = |axis: usize| fast_max(at[axis] - lower[axis][lane], upper[axis][lane] - at[axis]);
        length(difference(0), difference(1), difference(2))
    }
}

#[inline(always)]
fn length(dx: f32, dy: f32, dz: f32) -> f32 {
    (dx * dx + dy * dy + dz * dz).sqrt()
}
