//! Random beacons, beacon vectors and predictors. A beacon's place follows from its id, as in a real fleet.

use crate::index::tests::random_world::{IndexTestRng, NOW_MS};
use crate::latency::beacon_fleet::{Beacon, BeaconFleet, BeaconPairRoundTrip, FIBER_ROUND_TRIP_MS_PER_KM};
use crate::latency::beacon_vector::{MeasuredBeaconFloor, published_vector};
use crate::latency::predictor_constants::PREDICTOR_V1;
use crate::latency::published_vector::PublishedVector;
use crate::locality::Locality;
use crate::location_privacy::arc_km;
use crate::ruleset::probing::LatencyTrust;
use crate::time::UnixMs;

/// Ids of all beacons that ever were.
const IDS: std::ops::RangeInclusive<u32> = 1..=30;

pub(super) fn beacon(id: u32) -> Beacon {
    let rng = &mut IndexTestRng(u64::from(id));
    let place = Locality::from_degrees(rng.unit_f64() * 180.0 - 90.0, rng.unit_f64() * 360.0 - 180.0).unwrap();
    Beacon { id, place }
}

/// Round trip over a path: realistic, or rarely anything, also faster than light.
fn random_round_trip_ms(rng: &mut IndexTestRng, one: Locality, other: Locality) -> f64 {
    if rng.one_in(20) {
        return rng.pick(&[0.0, 5.0, 700.0, 60_000.0]);
    }
    arc_km(one, other) * FIBER_ROUND_TRIP_MS_PER_KM * (1.0 + 1.5 * rng.unit_f64()) + 40.0 * rng.unit_f64()
}

/// Round trip over a path with a detour of at most 80 %, and this last mile.
pub(super) fn realistic_round_trip_ms(
    rng: &mut IndexTestRng,
    one: Locality,
    other: Locality,
    last_mile_ms: f64,
) -> f64 {
    arc_km(one, other) * FIBER_ROUND_TRIP_MS_PER_KM * (1.2 + 0.6 * rng.unit_f64()) + last_mile_ms
}

/// Fleet of about half of all beacons, or of too few.
pub(super) fn random_fleet(rng: &mut IndexTestRng) -> BeaconFleet {
    let skip_one_in = rng.pick(&[2, 3, 20]);
    let beacons: Vec<Beacon> = IDS.filter(|_| !rng.one_in(skip_one_in)).map(beacon).collect();
    let unknown_one_in = rng.pick(&[30, 1_000]);
    let mut round_trips = Vec::new();
    for one in &beacons {
        for other in beacons.iter().filter(|other| one.id < other.id) {
            let round_trip_ms = random_round_trip_ms(rng, one.place, other.place);
            if !rng.one_in(unknown_one_in) {
                round_trips.push(BeaconPairRoundTrip { from: one.id, to: other.id, round_trip_ms });
            }
        }
    }
    BeaconFleet::new(&beacons, &round_trips, PREDICTOR_V1)
}

/// Floors from a place to most beacons, the party's own.
pub(super) fn random_floors(rng: &mut IndexTestRng, place: Locality) -> Vec<MeasuredBeaconFloor> {
    let skip_one_in = rng.pick(&[2, 5]);
    let floor = |rng: &mut IndexTestRng, id| MeasuredBeaconFloor {
        beacon_id: id,
        floor_ms: random_round_trip_ms(rng, place, beacon(id).place),
    };
    let ids: Vec<u32> = IDS.filter(|_| !rng.one_in(skip_one_in)).collect();
    ids.into_iter().map(|id| floor(rng, id)).collect()
}

/// Published vector of a party in the cell around `center`: fresh or old, of any source, or none.
pub(super) fn random_published_vector(rng: &mut IndexTestRng, center: Locality) -> Option<PublishedVector> {
    if rng.one_in(5) {
        return None;
    }
    let fleet = BeaconFleet::new(&IDS.map(beacon).collect::<Vec<_>>(), &[], PREDICTOR_V1);
    let floors = random_floors(rng, center);
    let measured_at = UnixMs(NOW_MS - rng.pick(&[0, 100_000, 570_000, 600_000]));
    let source = rng.pick(&[LatencyTrust::Proven, LatencyTrust::Proven, LatencyTrust::Claimed]);
    published_vector(&fleet, &floors, (center, center), measured_at, source)
}
