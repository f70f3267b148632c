//! Tests of the round trip predictor: examples of fleets and parties for the files beside it.

mod completion;
mod fleet;
mod properties;
mod publication;
mod unavailable;

use proptest::prelude::*;

use crate::latency::beacon_fleet::{Beacon, BeaconFleet, BeaconPairRoundTrip};
use crate::latency::beacon_vector::{CompletedVector, MeasuredBeaconFloor};
use crate::latency::prediction::PairPrecision;
use crate::latency::predictor_constants::PredictorConstants;
use crate::locality::Locality;

const PRECISIONS: [PairPrecision; 3] = [PairPrecision::Exact, PairPrecision::Search, PairPrecision::Queue];

/// Plain values of a fleet: beacon ids are the positions.
#[derive(Clone, Debug)]
struct FleetExample {
    places: Vec<Locality>,
    /// By two positions, the greater first; `None` if unknown.
    pairs_ms: Vec<Option<f64>>,
}

/// Plain values of a party.
#[derive(Clone, Debug)]
struct PartyExample {
    place: Locality,
    floors: Vec<MeasuredBeaconFloor>,
}

fn locality(latitude: f64, longitude: f64) -> Locality {
    Locality::from_degrees(latitude, longitude).unwrap()
}

/// Position of an unordered pair in `FleetExample::pairs_ms`.
fn pair_position(one: usize, other: usize) -> usize {
    let (greater, smaller) = (one.max(other), one.min(other));
    greater * (greater - 1) / 2 + smaller
}

impl FleetExample {
    /// Fleet of `count` beacons around the equator, 10 ms from each other.
    fn around_the_equator(count: usize) -> Self {
        let places = (0..count).map(|number| locality(0.0, number as f64 * 10.0 - 170.0)).collect();
        Self { places, pairs_ms: vec![Some(10.0); count * (count - 1) / 2] }
    }

    fn fleet(&self, constants: PredictorConstants) -> BeaconFleet {
        let beacons: Vec<Beacon> =
            self.places.iter().enumerate().map(|(id, place)| Beacon { id: id as u32, place: *place }).collect();
        let pairs = (1..beacons.len()).flat_map(|one| (0..one).map(move |other| (one, other)));
        let round_trips: Vec<BeaconPairRoundTrip> = pairs
            .filter_map(|(one, other)| {
                let round_trip_ms = self.pairs_ms[pair_position(one, other)]?;
                Some(BeaconPairRoundTrip { from: one as u32, to: other as u32, round_trip_ms })
            })
            .collect();
        BeaconFleet::new(&beacons, &round_trips, constants)
    }

    /// Round trip between two beacons by definition.
    fn round_trip_ms(&self, one: usize, other: usize) -> f64 {
        if one == other { 0.0 } else { self.pairs_ms[pair_position(one, other)].unwrap_or(10_000.0) }
    }
}

impl PartyExample {
    fn completed(&self, fleet: &BeaconFleet) -> CompletedVector {
        CompletedVector::new(fleet, Some(self.place), &self.floors).unwrap()
    }
}

fn floors(of_beacons: impl IntoIterator<Item = (u32, f64)>) -> Vec<MeasuredBeaconFloor> {
    of_beacons.into_iter().map(|(beacon_id, floor_ms)| MeasuredBeaconFloor { beacon_id, floor_ms }).collect()
}

/// Floors of `floor_ms` to the first `count` beacons.
fn equal_floors(count: u32, floor_ms: f64) -> Vec<MeasuredBeaconFloor> {
    floors((0..count).map(|beacon_id| (beacon_id, floor_ms)))
}

fn any_place() -> impl Strategy<Value = Locality> {
    (-85.0..=85.0f64, -180.0..=180.0f64).prop_map(|(latitude, longitude)| locality(latitude, longitude))
}

fn any_party(beacon_count: usize) -> impl Strategy<Value = PartyExample> {
    let ids = proptest::sample::subsequence((0..beacon_count as u32).collect::<Vec<u32>>(), 8..=12);
    let floor_ms = prop_oneof![1 => Just(0.0), 9 => 0.0..400.0f64];
    (any_place(), ids, prop::collection::vec(floor_ms, 12))
        .prop_map(|(place, ids, values)| PartyExample { place, floors: floors(ids.into_iter().zip(values)) })
}

/// Fleet of 12 to 21 beacons, up to 10 % of its pairs unknown, and two parties.
fn any_pair() -> impl Strategy<Value = (FleetExample, PartyExample, PartyExample)> {
    (12..=21usize).prop_flat_map(|count| {
        let pair_count = count * (count - 1) / 2;
        let fleet = (
            prop::collection::vec(any_place(), count),
            prop::collection::vec(0.0..400.0f64, pair_count),
            prop::collection::vec(0..pair_count, 0..=pair_count / 10),
        )
            .prop_map(|(places, values, unknown)| {
                let mut pairs_ms: Vec<Option<f64>> = values.into_iter().map(Some).collect();
                unknown.into_iter().for_each(|position| pairs_ms[position] = None);
                FleetExample { places, pairs_ms }
            });
        (fleet, any_party(count), any_party(count))
    })
}
