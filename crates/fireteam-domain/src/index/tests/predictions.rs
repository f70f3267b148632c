//! Searches that predict, over a population whose routes are as long as real ones.

use std::sync::Arc;
use std::time::Instant;

use crate::advertisement::AdvertisementKind;
use crate::filter::{AdvertsOfAvoidedPlayers, RoundTripPredictor, Searcher};
use crate::id::{AdvertisementId, SiloId, UserKey};
use crate::index::prediction_bound::bound_planes;
use crate::index::route_bound::RouteBound;
use crate::index::tests::random_vectors::{self, beacon, realistic_round_trip_ms};
use crate::index::tests::random_world::{self, IndexTestRng, NOW_MS, ValueDistribution};
use crate::index::{AdvertisementIndex, IndexEntry, SearchQuery, SearchResult, oracle};
use crate::latency::DEFAULT_LATENCY_MODEL;
use crate::latency::beacon_fleet::{Beacon, BeaconFleet, BeaconPairRoundTrip};
use crate::latency::beacon_vector::{
    CompletedVector, MeasuredBeaconFloor, complete_published_vector, published_vector,
};
use crate::latency::prediction::{PairPrecision, predict};
use crate::latency::predictor_constants::PREDICTOR_V1;
use crate::latency::published_vector::LeastPathExcess;
use crate::locality::Locality;
use crate::measure::Measure;
use crate::probe_result::ProbeResults;
use crate::ruleset::probing::{DEFAULT_PROBING, LatencyEstimatePolicy, LatencyTrust, ProbingSpec};
use crate::ruleset::{DistanceCurve, Ruleset, SearchLimits, SoftFilter, SoftFilterObjective, SoftMissingPolicy};
use crate::time::UnixMs;

const BEACONS: u32 = 24;
const ROWS: usize = 20_000;
const SEARCHES: usize = 40;

fn realistic_fleet(rng: &mut IndexTestRng) -> BeaconFleet {
    let beacons: Vec<Beacon> = (1..=BEACONS).map(beacon).collect();
    let mut round_trips = Vec::new();
    for one in &beacons {
        for other in beacons.iter().filter(|other| one.id < other.id) {
            let round_trip_ms = realistic_round_trip_ms(rng, one.place, other.place, 2.0);
            round_trips.push(BeaconPairRoundTrip { from: one.id, to: other.id, round_trip_ms });
        }
    }
    BeaconFleet::new(&beacons, &round_trips, PREDICTOR_V1)
}

/// Floors to the twelve nearest beacons, with one last mile.
fn realistic_floors(rng: &mut IndexTestRng, fleet: &BeaconFleet, place: Locality) -> Vec<MeasuredBeaconFloor> {
    let last_mile_ms = 2.0 + 20.0 * rng.unit_f64();
    let floor = |id| MeasuredBeaconFloor {
        beacon_id: id,
        floor_ms: realistic_round_trip_ms(rng, place, beacon(id).place, last_mile_ms),
    };
    fleet.nearest_ids(place, 12).into_iter().map(floor).collect()
}

fn random_place(rng: &mut IndexTestRng) -> Locality {
    Locality::from_degrees(rng.unit_f64() * 140.0 - 70.0, rng.unit_f64() * 360.0 - 180.0).unwrap()
}

/// Rules with nothing but the round trip.
fn ruleset_by_latency(rng: &mut IndexTestRng, source: LatencyEstimatePolicy) -> Ruleset {
    let by_latency = SoftFilter {
        name: "latency".into(),
        measure: Measure::Latency,
        weight: 1.0,
        mode: SoftFilterObjective::LowerIsBetter,
        curve: DistanceCurve::Linear,
        missing: SoftMissingPolicy::Worst,
        min: 0.0,
        max: 1_000.0,
    };
    let mut ruleset = random_world::random_ruleset(rng);
    (ruleset.hard_filters, ruleset.soft_filters, ruleset.frustrated_player_limits) =
        (Box::default(), [by_latency].into(), None);
    ruleset.probing =
        ProbingSpec { latency_estimate_policy: source, region_latency_trust: LatencyTrust::Proven, ..DEFAULT_PROBING };
    ruleset.latency_model = DEFAULT_LATENCY_MODEL;
    ruleset
}

fn realistic_entry(rng: &mut IndexTestRng, ruleset: &Ruleset, fleet: &BeaconFleet, number: u64) -> IndexEntry {
    let mut id = [0; 16];
    id[..8].copy_from_slice(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    let values = ValueDistribution { common_one_in: 1_000, missing_one_in: 1_000_000, user_count: 200 };
    let mut entry = random_world::random_entry(rng, ruleset, AdvertisementId::from_bytes(id), values);
    let center = random_place(rng);
    let floors = realistic_floors(rng, fleet, center);
    let advertisement = Arc::make_mut(&mut entry.advertisement);
    (advertisement.kind, advertisement.publisher) = (AdvertisementKind::Session, None);
    advertisement.allowed_ranges = Box::default();
    let session = &mut advertisement.session;
    (session.silo, session.details, session.locality) = (SiloId(0), None, Some(center));
    session.region_latencies = Box::default();
    let source = LatencyTrust::Proven;
    session.set_published_beacon_vector(published_vector(fleet, &floors, (center, center), UnixMs(NOW_MS), source));
    (entry.expires_at, entry.open_seats) = (UnixMs(u64::MAX), 4);
    entry
}

/// The bound of predictions is worth its columns: a search judges the minority of the rows that may be near enough, and finds what the
/// oracle finds.
#[test]
#[expect(clippy::disallowed_methods, reason = "only prints the time")]
fn predicted_search_skips_rows_that_are_too_far() {
    let rng = &mut IndexTestRng(5);
    let fleet = Arc::new(realistic_fleet(rng));
    let mut judged = Vec::new();
    for source in [LatencyEstimatePolicy::Distance, LatencyEstimatePolicy::PredictedV1] {
        let ruleset = Arc::new(ruleset_by_latency(rng, source));
        let mut index = AdvertisementIndex::new(Arc::clone(&ruleset));
        index.complete_vectors(Some(&fleet), 0);
        for number in 0..ROWS as u64 {
            index.upsert(realistic_entry(rng, &ruleset, &fleet, number));
        }
        let (mut result, mut evaluated, mut elapsed) = (SearchResult::default(), 0, 0);
        for search in 0..SEARCHES {
            let place = random_place(rng);
            let own = CompletedVector::new(&fleet, Some(place), &realistic_floors(rng, &fleet, place)).unwrap();
            let values = random_world::no_values(&ruleset);
            let predicts = source == LatencyEstimatePolicy::PredictedV1;
            let searcher = Searcher {
                attribute_values: &values,
                locality: Some(place),
                region_latencies: &[],
                wishes: &[],
                seats_needed: 1,
                users: &[UserKey::from_bytes([255; 16])],
                caller: None,
                excluded_ids: &[],
                avoided: AdvertsOfAvoidedPlayers::default(),
                probes: ProbeResults::default(),
                predictor: predicts.then_some(RoundTripPredictor {
                    fleet: &fleet,
                    own_vector: &own,
                    now: UnixMs(NOW_MS),
                    precision: PairPrecision::Search,
                }),
                waited_ms: 0,
            };
            let limits = SearchLimits { max_results: 50, max_evaluated: u32::MAX };
            let (silo, kind, now) = (SiloId(0), AdvertisementKind::Session, UnixMs(NOW_MS));
            let query = SearchQuery { ruleset: &ruleset, searcher, silo, kind, limits, now };
            let started = Instant::now();
            index.search(&query, &mut result);
            elapsed += started.elapsed().as_micros();
            evaluated += result.evaluated_rows as usize;
            if search < 3 {
                let found: Vec<_> =
                    result.hits.iter().map(|hit| (index.entry(hit.slot).advertisement.id, hit.score)).collect();
                assert_eq!(found, oracle::search(&index, &query));
            }
        }
        println!("{source:?}: {} of {ROWS} rows, {} us", evaluated / SEARCHES, elapsed / SEARCHES as u128);
        judged.push(evaluated / SEARCHES);
    }
    assert!(judged[1] * 4 < ROWS, "{judged:?} of {ROWS} rows");
}

/// LAT-1: no bound of a prediction is above it: that of a row by its distance and excesses, that of a leaf at any distance up to the row's,
/// and that by the least route to the row's place. Routes are realistic, or anything, also faster than light.
#[test]
fn no_bound_of_a_prediction_exceeds_it() {
    let rng = &mut IndexTestRng(17);
    let (mut checked, mut least_gap_ms) = (0, f64::INFINITY);
    while checked < 20_000 {
        let is_realistic = rng.one_in(2);
        let fleet = if is_realistic { realistic_fleet(rng) } else { random_vectors::random_fleet(rng) };
        let floors = |rng: &mut IndexTestRng, place| match is_realistic {
            true => realistic_floors(rng, &fleet, place),
            false => random_vectors::random_floors(rng, place),
        };
        let place = random_place(rng);
        let own_floors = floors(rng, place);
        let Ok(own) = CompletedVector::new(&fleet, Some(place), &own_floors) else { continue };
        let precision = rng.pick(&[PairPrecision::Exact, PairPrecision::Search, PairPrecision::Queue]);
        let predictor = RoundTripPredictor { fleet: &fleet, own_vector: &own, now: UnixMs(NOW_MS), precision };
        let planes = bound_planes(&predictor).expect("constants that allow bounds");
        let mut route_bound = RouteBound::new(&predictor, [place.x, place.y, place.z], planes);
        for _ in 0..20 {
            let (near_by, anywhere) = (near_place(rng, place), random_place(rng));
            let center = rng.pick(&[place, near_by, anywhere]);
            let row_floors = floors(rng, center);
            let times = (UnixMs(NOW_MS), LatencyTrust::Proven);
            let vector = published_vector(&fleet, &row_floors, (center, center), times.0, times.1).expect("floors");
            let Ok(completed) = complete_published_vector(&fleet, Some(center), &vector) else { continue };
            let predicted_ms = predict(&fleet, &own, &completed, precision).expect("one fleet").round_trip_ms;
            let LeastPathExcess { near_ms, light_ms } = vector.least_path_excess();
            let miles = place.chord_miles(center) as f32;
            let of_row = planes.least_prediction_ms(true, miles, near_ms, light_ms);
            let of_leaf = planes.least_prediction_ms(false, miles * rng.unit_f64() as f32, near_ms, light_ms);
            let of_route = route_bound.least_prediction_ms([center.x, center.y, center.z], near_ms, light_ms);
            for (name, bound_ms) in [("row", of_row), ("leaf", of_leaf), ("route", of_route)] {
                assert!(f64::from(bound_ms) <= predicted_ms, "{name}: {bound_ms} above {predicted_ms}");
            }
            least_gap_ms = least_gap_ms.min(predicted_ms - f64::from(of_route));
            checked += 1;
        }
    }
    assert!(least_gap_ms < 0.2, "the bound by routes is never close: {least_gap_ms} ms");
}

/// Place at most 4,000 km away: where the far model replaces the near one.
fn near_place(rng: &mut IndexTestRng, place: Locality) -> Locality {
    let (latitude, longitude) = place.to_degrees();
    let latitude = (latitude + 40.0 * (rng.unit_f64() - 0.5)).clamp(-89.0, 89.0);
    let longitude = (longitude + 60.0 * (rng.unit_f64() - 0.5)).clamp(-180.0, 180.0);
    Locality::from_degrees(latitude, longitude).expect("degrees in range")
}
