//! Second lower bound of predicted round trips, for the rows that the planes leave: closer, and computed for each place.
//!
//! The upper estimate of a pair is the least sum of the searcher's completed floor and the row's floor to one beacon. The row's floor
//! is at least the straight path from its place to the beacon, plus the row's least excess over such paths. So the upper estimate is
//! at least the least route from the searcher through a beacon to the place, plus that excess. All rows of a cell have one place.

use crate::filter::RoundTripPredictor;
use crate::index::prediction_bound::{BoundPlanes, arc_km_at_least};
use crate::latency::beacon_fleet::FIBER_ROUND_TRIP_MS_PER_KM;

/// Beacons per block. The loop over a block has no branches, so that the compiler makes vector instructions of it.
const LANES: usize = 8;

/// Places of beacons, and the searcher's floors to them. Lanes beyond the end of the fleet have infinite floors.
#[derive(Clone, Copy, Debug)]
struct PartyBeaconBlock {
    position: [[f32; LANES]; 3],
    floors_ms: [f32; LANES],
}

const EMPTY_BLOCK: PartyBeaconBlock =
    PartyBeaconBlock { position: [[0.0; LANES]; 3], floors_ms: [f32::INFINITY; LANES] };

/// Least round trips from the searcher through a beacon to a place, milliseconds.
#[derive(Clone, Copy, Debug)]
struct LeastRoutes {
    place: [f32; 3],
    chord_miles: f32,
    /// By the line that predictions use for near parties.
    near_ms: f32,
    /// At the speed of light in fiber.
    light_ms: f32,
}

/// Bound of the predictions of one search.
#[derive(Debug)]
pub(super) struct RouteBound {
    position: [f32; 3],
    planes: BoundPlanes,
    near_ms_per_km: f32,
    blocks: Vec<PartyBeaconBlock>,
    /// Routes to the last place: rows of one leaf often have it in common.
    last: Option<LeastRoutes>,
}

impl RouteBound {
    /// Bound for a searcher at `position`.
    pub(super) fn new(predictor: &RoundTripPredictor<'_>, position: [f32; 3], planes: BoundPlanes) -> Self {
        let fleet = predictor.fleet;
        let mut blocks = vec![EMPTY_BLOCK; fleet.beacons().len().div_ceil(LANES)];
        let floors_ms = predictor.own_vector.completed_floors_ms(fleet);
        for (index, (beacon, floor_ms)) in fleet.beacons().iter().zip(floors_ms).enumerate() {
            let (block, lane) = (&mut blocks[index / LANES], index % LANES);
            let place = beacon.place;
            for (axis, value) in block.position.iter_mut().zip([place.x, place.y, place.z]) {
                axis[lane] = value;
            }
            block.floors_ms[lane] = floor_ms as f32;
        }
        let [_, near_ms_per_km] = fleet.constants().line;
        Self { position, planes, near_ms_per_km: near_ms_per_km as f32, blocks, last: None }
    }

    /// Lower bound of the prediction to a row at `place` with these excesses.
    pub(super) fn least_prediction_ms(&mut self, place: [f32; 3], near_ms: f32, light_ms: f32) -> f32 {
        let routes = match self.last {
            Some(routes) if routes.place == place => routes,
            _ => self.least_routes_to(place),
        };
        self.last = Some(routes);
        let upper_ms = (routes.light_ms + light_ms).max(routes.near_ms + near_ms);
        self.planes.least_prediction_with_upper_ms(routes.chord_miles, upper_ms, near_ms, light_ms)
    }

    fn least_routes_to(&self, place: [f32; 3]) -> LeastRoutes {
        let (mut near, mut light) = ([f32::INFINITY; LANES], [f32::INFINITY; LANES]);
        for PartyBeaconBlock { position: [xs, ys, zs], floors_ms } in &self.blocks {
            for lane in 0..LANES {
                let arc_km = arc_km_at_least(chord_miles([xs[lane], ys[lane], zs[lane]], place));
                let near_ms = floors_ms[lane] + self.near_ms_per_km * arc_km;
                let light_ms = floors_ms[lane] + FIBER_ROUND_TRIP_MS_PER_KM as f32 * arc_km;
                near[lane] = if near_ms < near[lane] { near_ms } else { near[lane] };
                light[lane] = if light_ms < light[lane] { light_ms } else { light[lane] };
            }
        }
        let least = |lanes: [f32; LANES]| lanes.into_iter().fold(f32::INFINITY, f32::min);
        let chord_miles = chord_miles(self.position, place);
        LeastRoutes { place, chord_miles, near_ms: least(near), light_ms: least(light) }
    }
}

#[inline(always)]
fn chord_miles(one: [f32; 3], other: [f32; 3]) -> f32 {
    let (dx, dy, dz) = (one[0] - other[0], one[1] - other[1], one[2] - other[2]);
    (dx * dx + dy * dy + dz * dz).sqrt()
}
