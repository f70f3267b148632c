//! Predictions computed by an independent implementation: tests/vectors/latency_prediction.json.

use std::collections::BTreeMap;

use fireteam::domain::latency::beacon_fleet::{
    Beacon, BeaconFleet, BeaconPairRoundTrip, UNKNOWN_BEACON_PAIR_ROUND_TRIP_MS,
};
use fireteam::domain::latency::beacon_vector::{CompletedVector, MeasuredBeaconFloor};
use fireteam::domain::latency::prediction::{PairPrecision, Prediction, predict};
use fireteam::domain::latency::prediction_unavailable::PredictionUnavailable;
use fireteam::domain::latency::predictor_constants::{IntervalConstants, PREDICTOR_V1, PredictorConstants};
use fireteam::domain::locality::Locality;
use serde::Deserialize;

#[derive(Deserialize)]
struct PredictionVectors {
    constants_v1: ConstantsV1,
    layouts: BTreeMap<usize, Layout>,
    predictions: Vec<PredictionCase>,
}

#[derive(Deserialize)]
struct ConstantsV1 {
    g: [f64; 2],
    far: [f64; 4],
    near: [f64; 3],
    interval: BTreeMap<String, IntervalV1>,
}

#[derive(Deserialize)]
struct IntervalV1 {
    scale: [f64; 3],
    quantiles: [f64; 2],
}

#[derive(Deserialize)]
struct Layout {
    places: Vec<[f64; 2]>,
    round_trips: Vec<Vec<f64>>,
}

#[derive(Deserialize)]
struct PredictionCase {
    layout: usize,
    condition: String,
    one: Party,
    other: Party,
    expected: Expected,
}

#[derive(Deserialize)]
struct Party {
    place: [f64; 2],
    trips: BTreeMap<u32, f64>,
}

#[derive(Deserialize)]
struct Expected {
    arc_km: f64,
    upper: f64,
    lower: f64,
    middle: f64,
    access: [f64; 2],
    far: f64,
    near: f64,
    blend: f64,
    round_trip_ms: f64,
    low_ms: f64,
    high_ms: f64,
}

impl PredictionVectors {
    fn read() -> Self {
        serde_json::from_str(include_str!("../../../vectors/latency_prediction.json")).unwrap()
    }
}

fn locality([latitude, longitude]: [f64; 2]) -> Locality {
    Locality::from_degrees(latitude, longitude).unwrap()
}

impl Layout {
    /// Beacon ids are the positions in the layout.
    fn fleet(&self, constants: PredictorConstants) -> BeaconFleet {
        let ids = 0..self.places.len() as u32;
        let with_ids = ids.clone().zip(&self.places);
        let beacons: Vec<Beacon> = with_ids.map(|(id, degrees)| Beacon { id, place: locality(*degrees) }).collect();
        let mut round_trips = Vec::new();
        for (from, row) in ids.clone().zip(&self.round_trips) {
            let known = ids.clone().zip(row).filter(|(_, ms)| **ms < UNKNOWN_BEACON_PAIR_ROUND_TRIP_MS);
            round_trips.extend(known.map(|(to, ms)| BeaconPairRoundTrip { from, to, round_trip_ms: *ms }));
        }
        BeaconFleet::new(&beacons, &round_trips, constants)
    }
}

impl Party {
    fn completed(&self, fleet: &BeaconFleet) -> Result<CompletedVector, PredictionUnavailable> {
        let floor =
            |(beacon_id, floor_ms): (&u32, &f64)| MeasuredBeaconFloor { beacon_id: *beacon_id, floor_ms: *floor_ms };
        let floors: Vec<MeasuredBeaconFloor> = self.trips.iter().map(floor).collect();
        CompletedVector::new(fleet, Some(locality(self.place)), &floors)
    }
}

fn precision_of(name: &str) -> PairPrecision {
    match name {
        "exact" => PairPrecision::Exact,
        "search" => PairPrecision::Search,
        "queue" => PairPrecision::Queue,
        _ => panic!("condition {name}"),
    }
}

/// Each name with the value and the expected value.
fn compared(found: &Prediction, expected: &Expected) -> [(&'static str, f64, f64); 12] {
    let parts = &found.intermediates;
    [
        ("arc_km", parts.arc_km, expected.arc_km),
        ("upper", parts.best_route_ms, expected.upper),
        ("lower", parts.max_floor_difference_ms, expected.lower),
        ("middle", parts.mean_residual_ms, expected.middle),
        ("access of one", parts.access_ms[0], expected.access[0]),
        ("access of other", parts.access_ms[1], expected.access[1]),
        ("far", parts.far_model_ms, expected.far),
        ("near", parts.near_model_ms, expected.near),
        ("blend", parts.far_share, expected.blend),
        ("round_trip_ms", found.round_trip_ms, expected.round_trip_ms),
        ("low_ms", found.low_ms, expected.low_ms),
        ("high_ms", found.high_ms, expected.high_ms),
    ]
}

/// Places are stored as `f32`, to about 0.3 m: 0.000 01 ms by any of the models, and as much for the bounds.
const PLACE_ERROR_MS: f64 = 1e-5;
const PLACE_ERROR_KM: f64 = 1e-3;

/// LAT-1: all predictions, with each of their parts, equal those of an independent implementation.
#[test]
fn prediction_equals_the_vectors() {
    let vectors = PredictionVectors::read();
    assert_eq!(vectors.predictions.len(), 108);
    // One party has seven floors.
    let constants = PredictorConstants { floors_min: 1, ..PREDICTOR_V1 };
    let fleets: BTreeMap<usize, BeaconFleet> =
        vectors.layouts.iter().map(|(count, layout)| (*count, layout.fleet(constants))).collect();
    for (number, case) in vectors.predictions.iter().enumerate() {
        let fleet = &fleets[&case.layout];
        let (one, other) = (case.one.completed(fleet).unwrap(), case.other.completed(fleet).unwrap());
        let found = predict(fleet, &one, &other, precision_of(&case.condition)).unwrap();
        for (name, found, expected) in compared(&found, &case.expected) {
            let place_error = if name == "arc_km" { PLACE_ERROR_KM } else { PLACE_ERROR_MS };
            let error = (found - expected).abs();
            assert!(error <= 1e-6 * expected.abs() + place_error, "case {number}, {name}: {found}, not {expected}");
        }
        let error = (found.round_trip_ms / case.expected.round_trip_ms - 1.0).abs();
        assert!(error <= 1e-6, "case {number}: relative error {error}");
    }
}

/// A prediction from completed vectors allocates nothing.
#[test]
fn prediction_does_not_allocate() {
    let vectors = PredictionVectors::read();
    let fleet = vectors.layouts[&24].fleet(PREDICTOR_V1);
    let case = vectors.predictions.iter().find(|case| case.layout == 24).expect("a case");
    let (one, other) = (case.one.completed(&fleet).unwrap(), case.other.completed(&fleet).unwrap());
    let mut predicted = None;
    let counted = allocation_counter::measure(|| {
        predicted = predict(&fleet, &one, &other, PairPrecision::Exact).ok();
    });
    assert!(predicted.is_some());
    assert_eq!(counted.count_total, 0);
}

/// LAT-2: a party with seven floors is not predicted.
#[test]
fn prediction_of_the_vectors_needs_eight_floors() {
    let vectors = PredictionVectors::read();
    let fleet = vectors.layouts[&12].fleet(PREDICTOR_V1);
    let parties = vectors.predictions.iter().filter(|case| case.layout == 12).flat_map(|case| [&case.one, &case.other]);
    let mut refused = 0;
    for party in parties {
        let completed = party.completed(&fleet).map(|_| ());
        if party.trips.len() < 8 {
            assert_eq!(completed, Err(PredictionUnavailable::TooFewFloors));
            refused += 1;
        } else {
            assert_eq!(completed, Ok(()));
        }
    }
    assert_eq!(refused, 1);
}

/// The constants of version 1 never change.
#[test]
fn prediction_constants_equal_the_vectors() {
    let expected = PredictionVectors::read().constants_v1;
    let PredictorConstants { line, far, near, .. } = PREDICTOR_V1;
    assert_eq!((line, far, near), (expected.g, expected.far, expected.near));
    let intervals = [
        ("exact", PREDICTOR_V1.exact, 0.0),
        ("search", PREDICTOR_V1.search, 12.5),
        ("queue", PREDICTOR_V1.queue, 25.0),
    ];
    for (name, found, slack_ms) in intervals {
        let IntervalV1 { scale, quantiles } = expected.interval[name];
        assert_eq!(found, IntervalConstants { slack_ms, error_scale: scale, quantiles }, "{name}");
    }
    let PredictorConstants { beacons_min, known_pairs_percent_min, floors_min, .. } = PREDICTOR_V1;
    assert_eq!((beacons_min, known_pairs_percent_min, floors_min), (12, 90, 8));
}
