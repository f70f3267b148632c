//! Rows to which a search certainly predicts the round trip, by their columns.
//!
//! A row's round trip is predicted if its vector has not expired, is trusted, and has enough floors to live beacons. Otherwise it is
//! estimated, which may give less than any bound of the prediction. The index cannot know the fleet of later searches, so a row
//! keeps its number of floors, and a search subtracts the number of beacons that are not in its fleet.

use crate::index::layout::{ColumnLayout, TickScale};
use crate::index::leaf::Leaf;
use crate::index::query::SearchQuery;
use crate::index::vector_cache::VectorCache;
use crate::index::vector_columns::{COUNTS_UNTIL, FLOOR_COUNT};
use crate::ruleset::probing::LatencyTrust;

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

    /// Whether the round trip to a row of a leaf is certainly predicted; `false` if the index has no columns of vectors.
    #[inline]
    pub(super) fn is_certain_for_row(&self, layout: &ColumnLayout, leaf: &Leaf, row: usize) -> bool {
        layout.beacon_vector_column().is_some_and(|vector| {
            self.is_certain(leaf.float_value(vector + COUNTS_UNTIL, row), leaf.float_value(vector + FLOOR_COUNT, row))
        })
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
