//! Fallback: each condition for a prediction, on both sides of its border.

use crate::latency::beacon_fleet::BeaconFleet;
use crate::latency::beacon_vector::{CompletedVector, MeasuredBeaconFloor};
use crate::latency::prediction::tests::{FleetExample, equal_floors, floors, locality};
use crate::latency::prediction::{PairPrecision, predict};
use crate::latency::prediction_unavailable::PredictionUnavailable;
use crate::latency::predictor_constants::{PREDICTOR_V1, PredictorConstants};

fn completion(fleet: &BeaconFleet, floors: &[MeasuredBeaconFloor]) -> Result<(), PredictionUnavailable> {
    CompletedVector::new(fleet, Some(locality(0.0, 0.0)), floors).map(|_| ())
}

/// LAT-2: eleven beacons are too few.
#[test]
fn prediction_needs_twelve_beacons() {
    let fleet = |count| FleetExample::around_the_equator(count).fleet(PREDICTOR_V1);
    assert_eq!(completion(&fleet(11), &equal_floors(8, 20.0)), Err(PredictionUnavailable::TooFewBeacons));
    assert_eq!(completion(&fleet(12), &equal_floors(8, 20.0)), Ok(()));
    let empty = BeaconFleet::new(&[], &[], PREDICTOR_V1);
    assert_eq!(completion(&empty, &[]), Err(PredictionUnavailable::TooFewBeacons));
}

/// LAT-2: the round trips of 90 % of the pairs of beacons must be known, exactly.
#[test]
fn prediction_needs_nine_of_ten_round_trips_between_beacons() {
    for (count, unknown_max) in [(12, 6), (20, 19), (21, 21)] {
        let fleet = |unknown: usize| {
            let mut example = FleetExample::around_the_equator(count);
            example.pairs_ms[..unknown].fill(None);
            example.fleet(PREDICTOR_V1)
        };
        assert_eq!(completion(&fleet(unknown_max), &equal_floors(8, 20.0)), Ok(()), "{count} beacons");
        let refused = completion(&fleet(unknown_max + 1), &equal_floors(8, 20.0));
        assert_eq!(refused, Err(PredictionUnavailable::TooFewBeaconRoundTrips), "{count} beacons");
    }
}

/// LAT-2: seven floors are too few. Duplicates, floors to other beacons and values out of range do not count.
#[test]
fn prediction_needs_eight_floors_to_beacons_of_the_fleet() {
    let fleet = FleetExample::around_the_equator(12).fleet(PREDICTOR_V1);
    assert_eq!(completion(&fleet, &equal_floors(8, 20.0)), Ok(()));
    let ignored = [(6, 20.0), (99, 20.0), (7, f64::NAN), (8, -1.0), (9, f64::INFINITY), (10, 60_001.0)];
    for count in 0..ignored.len() {
        let mut seven = equal_floors(7, 20.0);
        seven.extend(floors(ignored[..count + 1].iter().copied()));
        assert_eq!(completion(&fleet, &seven), Err(PredictionUnavailable::TooFewFloors), "{:?}", ignored[count]);
    }
    let lenient = PredictorConstants { floors_min: 0, ..PREDICTOR_V1 };
    let lenient = FleetExample::around_the_equator(12).fleet(lenient);
    assert_eq!(completion(&lenient, &[]), Err(PredictionUnavailable::TooFewFloors));
    assert_eq!(completion(&lenient, &equal_floors(1, 20.0)), Ok(()));
}

/// LAT-2: a vector without a place is never used.
#[test]
fn prediction_needs_a_place() {
    let fleet = FleetExample::around_the_equator(12).fleet(PREDICTOR_V1);
    let completed = CompletedVector::new(&fleet, None, &equal_floors(12, 20.0));
    assert_eq!(completed.map(|_| ()), Err(PredictionUnavailable::NoPlace));
}

/// A vector that was completed with other beacons or another line is not used; new round trips do not matter.
#[test]
fn prediction_needs_vectors_of_the_same_fleet() {
    let fleet = FleetExample::around_the_equator(12).fleet(PREDICTOR_V1);
    let party =
        |fleet: &BeaconFleet| CompletedVector::new(fleet, Some(locality(10.0, 20.0)), &equal_floors(9, 20.0)).unwrap();
    let mut moved = FleetExample::around_the_equator(12);
    moved.places[3] = locality(1.0, 1.0);
    let larger = FleetExample::around_the_equator(13);
    let others = [
        moved.fleet(PREDICTOR_V1),
        larger.fleet(PREDICTOR_V1),
        FleetExample::around_the_equator(12).fleet(PredictorConstants { line: [14.0, 0.016567], ..PREDICTOR_V1 }),
    ];
    for other in &others {
        for (one, two) in [(party(&fleet), party(other)), (party(other), party(&fleet)), (party(other), party(other))] {
            let predicted = predict(&fleet, &one, &two, PairPrecision::Queue);
            assert_eq!(predicted, Err(PredictionUnavailable::OtherFleet));
        }
    }
    let mut slower = FleetExample::around_the_equator(12);
    slower.pairs_ms.fill(Some(30.0));
    let slower = slower.fleet(PREDICTOR_V1);
    assert!(predict(&fleet, &party(&fleet), &party(&slower), PairPrecision::Queue).is_ok());
}
