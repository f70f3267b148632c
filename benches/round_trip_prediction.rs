//! Goal RP: a predicted round trip of two parties, compared with the estimate from regions that both measured.

use std::hint::black_box;

use fireteam::domain::latency::beacon_fleet::{Beacon, BeaconFleet, BeaconPairRoundTrip};
use fireteam::domain::latency::beacon_vector::{CompletedVector, MeasuredBeaconFloor};
use fireteam::domain::latency::prediction::{PairPrecision, predict};
use fireteam::domain::latency::predictor_constants::PREDICTOR_V1;
use fireteam::domain::latency::{DEFAULT_LATENCY_MODEL, LatencyEndpoint, round_trip_by_regions_or_distance};
use fireteam::domain::locality::Locality;
use fireteam::domain::session::RegionLatency;

use crate::harness::{compare, time_all};
use crate::split_mix64::SplitMix64;

/// Parties, each of which is predicted to one searcher.
const PARTIES: usize = 4_000;
/// Predictions in one round.
const PREDICTIONS: usize = 400_000;
/// Beacons that each party measures, and regions of the reference.
const FLOORS: usize = 12;
/// Limit of a prediction, microseconds.
const PREDICTION_US: f64 = 0.25;

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    if !wanted("RP1") {
        return;
    }
    for beacons in [12, 24, 32] {
        predictions(beacons);
    }
}

/// Party with the floors of the subject, and the same figures as regions for the reference.
struct Party {
    vector: CompletedVector,
    regions: Vec<RegionLatency>,
}

impl Party {
    fn endpoint(&self) -> LatencyEndpoint<'_> {
        LatencyEndpoint { locality: Some(self.vector.place()), region_latencies: &self.regions }
    }
}

fn predictions(beacons: u32) {
    let mut rng = SplitMix64(12);
    let fleet = random_fleet(beacons, &mut rng);
    let parties: Vec<Party> = (0..PARTIES).map(|_| random_party(&fleet, &mut rng)).collect();
    let searcher = &parties[0];
    let subject = || {
        time_all(PREDICTIONS, |number| {
            let other = &parties[number % PARTIES];
            let predicted = predict(&fleet, &searcher.vector, &other.vector, PairPrecision::Search);
            black_box(predicted.expect("vectors of one fleet").high_ms);
        })
    };
    let reference = || {
        time_all(PREDICTIONS, |number| {
            let other = &parties[number % PARTIES];
            black_box(round_trip_by_regions_or_distance(&DEFAULT_LATENCY_MODEL, searcher.endpoint(), other.endpoint()));
        })
    };
    let subject_name = format!("{beacons} beacons, a prediction (at most {PREDICTION_US} us)");
    compare("RP1", &subject_name, "estimate from 12 regions", subject, reference);
}

fn random_fleet(count: u32, rng: &mut SplitMix64) -> BeaconFleet {
    let beacons: Vec<Beacon> = (0..count).map(|id| Beacon { id, place: random_place(rng) }).collect();
    let pairs = (0..count).flat_map(|from| (0..from).map(move |to| (from, to)));
    let round_trips: Vec<BeaconPairRoundTrip> =
        pairs.map(|(from, to)| BeaconPairRoundTrip { from, to, round_trip_ms: rng.below(300) as f64 }).collect();
    BeaconFleet::new(&beacons, &round_trips, PREDICTOR_V1)
}

fn random_party(fleet: &BeaconFleet, rng: &mut SplitMix64) -> Party {
    let place = random_place(rng);
    let ids = fleet.nearest_ids(place, FLOORS);
    let floors: Vec<MeasuredBeaconFloor> =
        ids.into_iter().map(|beacon_id| MeasuredBeaconFloor { beacon_id, floor_ms: rng.below(200) as f64 }).collect();
    let region = |(number, floor): (usize, &MeasuredBeaconFloor)| RegionLatency {
        region: format!("region-{number:02}").into(),
        round_trip_ms: floor.floor_ms as f32,
    };
    let regions = floors.iter().enumerate().map(region).collect();
    Party { vector: CompletedVector::new(fleet, Some(place), &floors).expect("enough floors"), regions }
}

fn random_place(rng: &mut SplitMix64) -> Locality {
    let (latitude, longitude) = (rng.below(120) as f64 - 60.0, rng.below(360) as f64 - 180.0);
    Locality::from_degrees(latitude, longitude).expect("degrees in range")
}
