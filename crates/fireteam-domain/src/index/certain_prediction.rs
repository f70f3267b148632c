//! Rows to which a search certainly predicts the round trip, by their columns.
//!
//! A row's round trip is predicted if its vector has not expired, is trusted, and has enough floors to live beacons. Otherwise it is
//! estimated, which may give less than any bound of the prediction. The index cannot know the fleet of later searches, so a row
//! keeps its number of floors, and a search subtracts the number of beacons that are not in its fleet.

use crate::index::layout::{ColumnLayout, TickScale};
use crate::index::leaf::Leaf;
use crate::index::query::SearchQuery;
use crate::index::vector_cache::VectorCache;
use crate::index::vector_columns::{COUNTS_UNTIL, FLOOR_COUNT, LIGHT_EXCESS};
use crate::ruleset::probing::LatencyTrust;

/// Columns of one row.
#[derive(Clone, Copy, Debug)]
pub(super) struct VectorColumns {
    pub(super) place: [f32; 3],
    pub(super) near_ms: f32,
    pub(super) light_ms: f32,
    pub(super) counts_until: f32,
    pub(super) floor_count: f32,
}

impl VectorColumns {
    /// `None` if the index has no such columns.
    #[inline]
    pub(super) fn of_row(layout: &ColumnLayout, leaf: &Leaf, row: usize) -> Option<Self> {
        let x = layout.location_column()?;
        let (near, vector) = (layout.near_excess_column()?, layout.beacon_vector_column()?);
        let value = |column: usize| leaf.float_value(column, row);
        Some(Self {
            place: [value(x), value(x + 1), value(x + 2)],
            near_ms: value(near),
            light_ms: value(vector + LIGHT_EXCESS),
            counts_until: value(vector + COUNTS_UNTIL),
            floor_count: value(vector + FLOOR_COUNT),
        })
    }
}

/// Limits that a row's columns exceed, where a search certainly predicts the round trip to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct CertainPrediction {
    /// `COUNTS_UNTIL` is more than this.
    pub(super) now_tick: f32,
    /// `FLOOR_COUNT` is at least this.
    pub(super) floor_count_min: f32,
}

impl CertainPrediction {
    /// No row.
    pub(super) const NEVER: Self = Self { now_tick: f32::INFINITY, floor_count_min: f32::INFINITY };

    /// Whether the round trip to a row, or to each row of a leaf, is certainly predicted, by its columns.
    #[inline(always)]
    pub(super) fn is_certain(&self, counts_until: f32, floor_count: f32) -> bool {
        (self.now_tick < counts_until) & (self.floor_count_min <= floor_count)
    }

    /// Limits for the searches of `query`, in an index whose rows trust floors of `trust` and have the beacons of `cache`.
    pub(super) fn of_query(
        query: &SearchQuery<'_>,
        trust: LatencyTrust,
        tick_scale: &TickScale,
        cache: Option<&VectorCache>,
    ) -> Self {
        let (Some(predictor), Some(cache)) = (&query.searcher.predictor, cache) else { return Self::NEVER };
        let fleet = predictor.fleet;
        let is_able = fleet.check_can_predict().is_ok() && predictor.own_vector.was_completed_with_beacons_of(fleet);
        if !is_able || query.ruleset.probing.region_latency_trust != trust {
            return Self::NEVER;
        }
        let floors_min = fleet.constants().floors_min.max(1) + cache.beacon_count_outside(fleet);
        Self { now_tick: round_up(tick_scale.tick_of(predictor.now)), floor_count_min: floors_min as f32 }
    }
}

/// Least f32 that is not below a tick.
fn round_up(tick: u32) -> f32 {
    let rounded = tick as f32;
    if f64::from(rounded) < f64::from(tick) { rounded.next_up() } else { rounded }
}
