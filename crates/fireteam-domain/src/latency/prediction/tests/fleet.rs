//! Beacon fleets: values that count, and the beacons that a party measures first.

use crate::latency::beacon_fleet::{Beacon, BeaconFleet, BeaconPairRoundTrip, FLEET_BEACONS_MAX};
use crate::latency::prediction::tests::locality;
use crate::latency::predictor_constants::PREDICTOR_V1;

fn beacon(id: u32, longitude: f64) -> Beacon {
    Beacon { id, place: locality(0.0, longitude) }
}

#[test]
fn beacon_round_trip_is_the_mean_of_both_directions() {
    let beacons = [beacon(70, 0.0), beacon(7, 1.0), beacon(u32::MAX, 2.0)];
    let trip = |from, to, round_trip_ms| BeaconPairRoundTrip { from, to, round_trip_ms };
    let trips = [
        trip(7, 70, 12.0),
        trip(7, 70, 10.0),
        trip(70, 7, 14.0),
        trip(u32::MAX, 7, 30.0),
        trip(7, u32::MAX, f64::NAN),
        trip(7, u32::MAX, -1.0),
        trip(70, 70, 5.0),
        trip(70, 8, 5.0),
    ];
    let fleet = BeaconFleet::new(&beacons, &trips, PREDICTOR_V1);
    assert_eq!(fleet.beacons().iter().map(|beacon| beacon.id).collect::<Vec<_>>(), [7, 70, u32::MAX]);
    assert_eq!((fleet.index_of(70), fleet.index_of(8)), (Some(1), None));
    assert_eq!(fleet.round_trips_from_beacon_ms(0), [0.0, 12.0, 30.0]);
    assert_eq!(fleet.round_trips_from_beacon_ms(1), [12.0, 0.0, 10_000.0]);
    assert_eq!(fleet.round_trips_from_beacon_ms(2), [30.0, 10_000.0, 0.0]);
}

#[test]
fn beacon_ids_count_once_and_fleets_are_limited() {
    let fleet = BeaconFleet::new(&[beacon(3, 0.0), beacon(3, 1.0), beacon(1, 2.0)], &[], PREDICTOR_V1);
    assert_eq!(fleet.beacons(), [beacon(1, 2.0), beacon(3, 0.0)]);
    let many: Vec<Beacon> = (0..300).rev().map(|id| beacon(id, 0.0)).collect();
    let fleet = BeaconFleet::new(&many, &[], PREDICTOR_V1);
    assert_eq!(fleet.beacons().len(), FLEET_BEACONS_MAX);
    assert_eq!((fleet.index_of(255), fleet.index_of(256)), (Some(255), None));
}

#[test]
fn nearest_beacons_are_measured_first() {
    let fleet = BeaconFleet::new(
        &[beacon(1, 90.0), beacon(2, -10.0), beacon(3, 10.0), beacon(4, 179.0), beacon(5, -120.0)],
        &[],
        PREDICTOR_V1,
    );
    assert_eq!(fleet.nearest_ids(locality(0.0, 1.0), 3), [3, 2, 1]);
    assert_eq!(fleet.nearest_ids(locality(0.0, 0.0), 2), [2, 3], "ties by id");
    assert_eq!(fleet.nearest_ids(locality(0.0, -170.0), 9), [4, 5, 1, 2, 3], "across the date line");
}
