//! Published floors: moved to the center of the cell, then rounded.

use proptest::prelude::*;

use crate::latency::beacon_fleet::BeaconFleet;
use crate::latency::beacon_vector::published_floors;
use crate::latency::prediction::tests::{FleetExample, floors, locality};
use crate::latency::predictor_constants::PREDICTOR_V1;
use crate::locality::Locality;
use crate::location_privacy::{DEFAULT_SESSION_GRID_DEGREES, arc_km, snap_to_equal_width_grid};

const MS_PER_KM: f64 = 0.016567;
const STEP_MS: f64 = 25.0;

fn fleet() -> BeaconFleet {
    FleetExample::around_the_equator(12).fleet(PREDICTOR_V1)
}

fn center_of(latitude: f64, longitude: f64) -> Locality {
    let (latitude, longitude) = snap_to_equal_width_grid(latitude, longitude, DEFAULT_SESSION_GRID_DEGREES);
    locality(latitude, longitude)
}

#[test]
fn published_floors_are_moved_and_rounded() {
    // The place is 155.7 km nearer to beacon 10, at longitude -70, than the center: 2.58 ms.
    let (place, center) = (locality(0.0, -31.4), locality(0.0, -30.0));
    let exact = floors([(11, 61.0), (10, 61.0), (11, 20.0), (0, 11.0), (1, f64::NAN), (99, 30.0)]);
    let fleet = fleet();
    assert_eq!(fleet.beacons()[10].place, locality(0.0, -70.0));
    // So it is to beacons 0 and 11, at longitudes -170 and -60.
    assert_eq!(published_floors(&fleet, &exact, place, center), floors([(0, 25.0), (10, 75.0), (11, 25.0)]));
    assert_eq!(published_floors(&fleet, &exact, place, place), floors([(0, 0.0), (10, 50.0), (11, 25.0)]));
    assert_eq!(published_floors(&fleet, &floors([(10, 0.0)]), center, place), floors([(10, 0.0)]), "never below 0");
    assert_eq!(published_floors(&fleet, &floors([(10, 12.5)]), place, place), floors([(10, 25.0)]), "halves up");
}

proptest! {
    /// SEC-9: a published floor is the floor as from the center, within half a step, and a multiple of the step.
    #[test]
    fn published_floor_is_within_half_a_step_of_the_moved_floor(
        latitude in -85.0..=85.0f64, longitude in -180.0..=180.0f64, beacon_id in 0..12u32, floor_ms in 0.0..400.0f64,
    ) {
        let (fleet, place, center) = (fleet(), locality(latitude, longitude), center_of(latitude, longitude));
        let published = published_floors(&fleet, &floors([(beacon_id, floor_ms)]), place, center);
        prop_assert_eq!(published.len(), 1);
        let beacon = fleet.beacons()[beacon_id as usize].place;
        let moved_ms = (floor_ms - MS_PER_KM * (arc_km(place, beacon) - arc_km(center, beacon))).max(0.0);
        let found_ms = published[0].floor_ms;
        prop_assert_eq!(found_ms % STEP_MS, 0.0);
        prop_assert!((found_ms - moved_ms).abs() <= STEP_MS / 2.0 + 1e-9, "{found_ms} of {moved_ms}");
    }

    /// SEC-9: parties of one cell whose floors follow the line have the same published floors.
    #[test]
    fn published_floors_hide_the_place_within_a_cell(
        latitude in -80.0..=80.0f64, longitude in -180.0..=180.0f64, last_mile_ms in 3.0..80.0f64,
    ) {
        let (fleet, place, center) = (fleet(), locality(latitude, longitude), center_of(latitude, longitude));
        let floor_ms = |from, beacon| last_mile_ms + MS_PER_KM * arc_km(from, beacon);
        let floors_from = |from| {
            floors(fleet.beacons().iter().map(|beacon| (beacon.id, floor_ms(from, beacon.place))))
        };
        let from_place = published_floors(&fleet, &floors_from(place), place, center);
        let from_center = published_floors(&fleet, &floors_from(center), center, center);
        for (index, beacon) in fleet.beacons().iter().enumerate() {
            // At the edge of a step, rounding errors may choose either side.
            let to_edge = (floor_ms(center, beacon.place) / STEP_MS).fract() - 0.5;
            prop_assert!(from_place[index] == from_center[index] || to_edge.abs() < 1e-6);
        }
    }
}
