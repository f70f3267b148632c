//! Beacon vectors: floors of one party to beacons, the form in which others may be matched by them, and their completion to
//! all beacons of a fleet.

use crate::latency::beacon_fleet::{BeaconFleet, FIBER_ROUND_TRIP_MS_PER_KM, is_valid_round_trip};
use crate::latency::prediction_unavailable::PredictionUnavailable;
use crate::latency::published_vector::{LeastPathExcess, PUBLISHED_FLOORS_MAX, PublishedFloor, PublishedVector};
use crate::locality::Locality;
use crate::location_privacy::{ROUND_TRIP_ROUNDING_MS, arc_km, coarsened_round_trip_ms};
use crate::ruleset::probing::LatencyTrust;
use crate::time::UnixMs;

/// Least round trip that a party measured to one beacon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredBeaconFloor {
    /// Beacon id.
    pub beacon_id: u32,
    /// Milliseconds, in [0, `limit::ROUND_TRIP_MS_MAX`].
    pub floor_ms: f64,
}

/// Floors as others may be matched by them: as if measured from `center`, the center of the party's grid cell of
/// [`DEFAULT_SESSION_GRID_DEGREES`](crate::location_privacy::DEFAULT_SESSION_GRID_DEGREES), and rounded to steps of
/// [`ROUND_TRIP_ROUNDING_MS`](crate::location_privacy::ROUND_TRIP_ROUNDING_MS). In the order of beacon ids, of each beacon
/// the least. Without the move, steps of a dozen floors reveal a place within the cell. Floors to beacons that are not in
/// the fleet are left out, because they cannot be moved.
pub fn published_floors(
    fleet: &BeaconFleet,
    floors: &[MeasuredBeaconFloor],
    place: Locality,
    center: Locality,
) -> Vec<MeasuredBeaconFloor> {
    let published = |(index, floor_ms): (usize, f64)| {
        let beacon = fleet.beacons()[index];
        let floor_ms = coarsened_round_trip_ms(floor_ms, Some((place, center)), Some(beacon.place));
        MeasuredBeaconFloor { beacon_id: beacon.id, floor_ms }
    };
    floors_by_index(fleet, floors).into_iter().map(published).collect()
}

/// Vector by which others may be matched with a party ([`published_floors`]), measured at `measured_at` or later, whose weakest
/// source is `source`. `None` without a floor to a beacon of the fleet.
pub fn published_vector(
    fleet: &BeaconFleet,
    floors: &[MeasuredBeaconFloor],
    (place, center): (Locality, Locality),
    measured_at: UnixMs,
    source: LatencyTrust,
) -> Option<PublishedVector> {
    let steps = |floor: MeasuredBeaconFloor| PublishedFloor {
        beacon_id: floor.beacon_id,
        // At most 60,000 ms.
        steps: (floor.floor_ms / ROUND_TRIP_ROUNDING_MS).round() as u16,
    };
    let mut published = published_floors(fleet, floors, place, center);
    published.truncate(PUBLISHED_FLOORS_MAX);
    let [_, near_ms_per_km] = fleet.constants().line;
    let excess = LeastPathExcess {
        near_ms: (least_excess_ms(fleet, center, &published, near_ms_per_km) as f32).next_down(),
        light_ms: (least_excess_ms(fleet, center, &published, FIBER_ROUND_TRIP_MS_PER_KM) as f32).next_down(),
    };
    PublishedVector::new(published.into_iter().map(steps).collect(), measured_at, source, excess)
}

/// Least excess of floors to beacons of the fleet over straight paths from `place`, milliseconds.
fn least_excess_ms(fleet: &BeaconFleet, place: Locality, floors: &[MeasuredBeaconFloor], ms_per_km: f64) -> f64 {
    let excess = |floor: &MeasuredBeaconFloor| {
        let beacon = fleet.beacons()[fleet.index_of(floor.beacon_id)?];
        Some(floor.floor_ms - ms_per_km * arc_km(place, beacon.place))
    };
    floors.iter().filter_map(excess).fold(f64::INFINITY, f64::min)
}

/// Completes the floors of a published vector of a party whose cell has its center at `center`.
///
/// # Errors
///
/// As [`CompletedVector::new`].
pub fn complete_published_vector(
    fleet: &BeaconFleet,
    center: Option<Locality>,
    vector: &PublishedVector,
) -> Result<CompletedVector, PredictionUnavailable> {
    CompletedVector::new(fleet, center, &floors_of_published(vector))
}

/// Floors of a published vector, milliseconds.
pub fn floors_of_published(vector: &PublishedVector) -> Vec<MeasuredBeaconFloor> {
    let floor = |floor: &PublishedFloor| MeasuredBeaconFloor {
        beacon_id: floor.beacon_id,
        floor_ms: f64::from(floor.steps) * ROUND_TRIP_ROUNDING_MS,
    };
    vector.floors().iter().map(floor).collect()
}

/// Valid floors to beacons of the fleet by their position in it, of each beacon the least.
fn floors_by_index(fleet: &BeaconFleet, floors: &[MeasuredBeaconFloor]) -> Vec<(usize, f64)> {
    let valid = floors.iter().filter(|floor| is_valid_round_trip(floor.floor_ms));
    let mut by_index: Vec<(usize, f64)> =
        valid.filter_map(|floor| Some((fleet.index_of(floor.beacon_id)?, floor.floor_ms))).collect();
    by_index.sort_by(|one, other| one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)));
    by_index.dedup_by_key(|(index, _)| *index);
    by_index
}

/// Beacons per block. The loops over a block have no branches, so that the compiler makes vector instructions of them.
const LANES: usize = 4;

/// Values of one party at four beacons. Beacons beyond the end of the fleet have no floor, and weight and residual 0.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PartyBeaconBlock {
    /// Floors, milliseconds; NaN where none was measured, so that every comparison with it fails.
    floors_ms: [f64; LANES],
    /// Floors completed through other beacons, milliseconds.
    completed_ms: [f64; LANES],
    /// Weights of the beacons around the party's place; their sum over the fleet is 1.
    weights: [f64; LANES],
    /// Completed floors less the line over the distance, milliseconds.
    residuals_ms: [f64; LANES],
}

const EMPTY_BLOCK: PartyBeaconBlock = PartyBeaconBlock {
    floors_ms: [f64::NAN; LANES],
    completed_ms: [f64::INFINITY; LANES],
    weights: [0.0; LANES],
    residuals_ms: [0.0; LANES],
};

/// Distance over which the weight of a beacon falls to 1/e, kilometers.
const WEIGHT_RANGE_KM: f64 = 800.0;
/// Weight of a beacon at any distance, so that the weights of a remote place are defined.
const WEIGHT_MIN: f64 = 1e-6;

/// Floors of one party, completed to all beacons of a fleet. Made once per party; a prediction takes two of them.
#[derive(Clone, Debug)]
pub struct CompletedVector {
    place: Locality,
    /// Fingerprint of the fleet.
    fleet_fingerprint_without_round_trips: u64,
    /// Revision of the fleet.
    fleet_fingerprint_with_round_trips: u64,
    /// Least excess of a floor over what light takes, milliseconds.
    light_excess_ms: f64,
    /// Least excess of a floor over the straight path, milliseconds; negative where a floor is rounded.
    access_ms: f64,
    blocks: Box<[PartyBeaconBlock]>,
}

/// Relation of two completed vectors. Equal, to the bit, for the two orders of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct VectorPairBounds {
    /// Least round trip through beacons, milliseconds.
    pub(crate) best_route_ms: f64,
    /// Largest difference of two floors to one beacon, milliseconds; 0 without a common beacon.
    pub(crate) max_floor_difference_ms: f64,
    /// Mean residual of each side at the beacons around the other, milliseconds.
    pub(crate) mean_residual_ms: f64,
}

impl CompletedVector {
    /// Completes the floors of a party at `place`: to each beacon, the least sum of a floor and the round trip between the
    /// two beacons. Of several floors to one beacon the least counts. Floors out of range and of beacons that are not in
    /// the fleet are ignored.
    ///
    /// # Errors
    ///
    /// The fleet is not good enough ([`BeaconFleet::check_can_predict`]), the party has no place, or it has floors to too few beacons.
    pub fn new(
        fleet: &BeaconFleet,
        place: Option<Locality>,
        floors: &[MeasuredBeaconFloor],
    ) -> Result<Self, PredictionUnavailable> {
        fleet.check_can_predict()?;
        let place = place.ok_or(PredictionUnavailable::NoPlace)?;
        let floors = floors_by_index(fleet, floors);
        if floors.len() < fleet.constants().floors_min.max(1) {
            return Err(PredictionUnavailable::TooFewFloors);
        }
        let [intercept_ms, ms_per_km] = fleet.constants().line;
        let arcs_km: Vec<f64> = fleet.beacons().iter().map(|beacon| arc_km(place, beacon.place)).collect();
        let weights = arcs_km.iter().map(|km| (-km / WEIGHT_RANGE_KM).exp() + WEIGHT_MIN);
        let weight_sum: f64 = weights.clone().sum();
        let mut blocks = vec![EMPTY_BLOCK; arcs_km.len().div_ceil(LANES)];
        for (index, (km, weight)) in arcs_km.iter().zip(weights).enumerate() {
            let (block, lane) = (&mut blocks[index / LANES], index % LANES);
            let through = floors.iter().map(|(via, floor_ms)| floor_ms + fleet.round_trips_from_beacon_ms(*via)[index]);
            block.completed_ms[lane] = through.fold(f64::INFINITY, f64::min);
            block.weights[lane] = weight / weight_sum;
            block.residuals_ms[lane] = block.completed_ms[lane] - (intercept_ms + ms_per_km * km);
        }
        let (mut access_ms, mut light_excess_ms) = (f64::INFINITY, f64::INFINITY);
        for (index, floor_ms) in floors {
            blocks[index / LANES].floors_ms[index % LANES] = floor_ms;
            access_ms = access_ms.min(floor_ms - ms_per_km * arcs_km[index]);
            light_excess_ms = light_excess_ms.min(floor_ms - FIBER_ROUND_TRIP_MS_PER_KM * arcs_km[index]);
        }
        let (identity, revision) = (fleet.fingerprint_without_round_trips(), fleet.fingerprint_with_round_trips());
        Ok(Self {
            place,
            fleet_fingerprint_without_round_trips: identity,
            fleet_fingerprint_with_round_trips: revision,
            light_excess_ms,
            access_ms,
            blocks: blocks.into(),
        })
    }

    /// Place of the party.
    pub fn place(&self) -> Locality {
        self.place
    }

    /// Least excess of a floor over the straight path, milliseconds: roughly the delay of the access network. Private to
    /// the party, as the floors are.
    pub(crate) fn access_ms(&self) -> f64 {
        self.access_ms
    }

    /// Least excess of a floor over what light takes in fiber, milliseconds.
    pub(crate) fn light_excess_ms(&self) -> f64 {
        self.light_excess_ms
    }

    /// Least residual, and the mean distance to the beacons around the party's place, kilometers: what the middle residual of a
    /// pair is bounded by.
    pub(crate) fn least_residual_and_mean_beacon_km(&self, fleet: &BeaconFleet) -> (f64, f64) {
        let (mut least_residual_ms, mut mean_km) = (f64::INFINITY, 0.0);
        for (index, beacon) in fleet.beacons().iter().enumerate() {
            let (block, lane) = (&self.blocks[index / LANES], index % LANES);
            least_residual_ms = least_residual_ms.min(block.residuals_ms[lane]);
            mean_km += block.weights[lane] * arc_km(self.place, beacon.place);
        }
        (least_residual_ms, mean_km)
    }

    /// Floors completed through other beacons, milliseconds, in the order of [`BeaconFleet::beacons`].
    pub(crate) fn completed_floors_ms(&self, fleet: &BeaconFleet) -> impl Iterator<Item = f64> {
        let beacon_count = fleet.beacons().len();
        self.blocks.iter().flat_map(|block| block.completed_ms).take(beacon_count)
    }

    /// Reads one number from each cache line, so that later reads find them in the cache.
    pub(crate) fn touch(&self) -> f64 {
        self.blocks.iter().map(|block| block.floors_ms[0] + block.weights[0]).sum()
    }

    /// Whether completing the floors with `fleet` gives this vector, to the bit.
    pub(crate) fn was_completed_with_round_trips_of(&self, fleet: &BeaconFleet) -> bool {
        self.fleet_fingerprint_with_round_trips == fleet.fingerprint_with_round_trips()
    }

    /// Whether the vector was completed with the beacons and the line of `fleet`.
    pub(crate) fn was_completed_with_beacons_of(&self, fleet: &BeaconFleet) -> bool {
        self.fleet_fingerprint_without_round_trips == fleet.fingerprint_without_round_trips()
    }

    /// Relation to another vector of the same fleet.
    #[inline]
    pub(crate) fn bounds_with(&self, other: &Self) -> VectorPairBounds {
        let mut uppers_ms = [f64::INFINITY; LANES];
        let mut lowers_ms = [0.0; LANES];
        let (mut ours_ms, mut theirs_ms) = ([0.0; LANES], [0.0; LANES]);
        for (one, two) in self.blocks.iter().zip(&other.blocks) {
            for lane in 0..LANES {
                // Both directions: their sums may differ in the last bit.
                uppers_ms[lane] = branchless_min(one.completed_ms[lane] + two.floors_ms[lane], uppers_ms[lane]);
                uppers_ms[lane] = branchless_min(two.completed_ms[lane] + one.floors_ms[lane], uppers_ms[lane]);
                lowers_ms[lane] = branchless_max((one.floors_ms[lane] - two.floors_ms[lane]).abs(), lowers_ms[lane]);
                ours_ms[lane] += two.weights[lane] * one.residuals_ms[lane];
                theirs_ms[lane] += one.weights[lane] * two.residuals_ms[lane];
            }
        }
        VectorPairBounds {
            best_route_ms: uppers_ms.into_iter().fold(f64::INFINITY, branchless_min),
            max_floor_difference_ms: lowers_ms.into_iter().fold(0.0, branchless_max),
            mean_residual_ms: (sum_lanes(ours_ms) + sum_lanes(theirs_ms)) / 2.0,
        }
    }
}

/// `value` if it is less than `known`; otherwise, and where `value` is NaN, `known`. One instruction, unlike `f64::min`.
#[inline]
fn branchless_min(value: f64, known: f64) -> f64 {
    if value < known { value } else { known }
}

/// `value` if it is more than `known`; otherwise, and where `value` is NaN, `known`.
#[inline]
fn branchless_max(value: f64, known: f64) -> f64 {
    if known < value { value } else { known }
}

#[inline]
fn sum_lanes(lanes: [f64; LANES]) -> f64 {
    (lanes[0] + lanes[1]) + (lanes[2] + lanes[3])
}
