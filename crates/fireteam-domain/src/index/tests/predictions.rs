//! Searches that predict, over a population whose routes are as long as real ones.

use std::sync::Arc;
use std::time::Instant;

use crate::advertisement::AdvertisementKind;
use crate::attribute_values::AttributeValues;
use crate::filter::{AdvertsOfAvoidedPlayers, RoundTripPredictor, Searcher};
use crate::id::{AdvertisementId, SiloId, UserKey};
use crate::index::certain_prediction::CertainPrediction;
use crate::index::plan::PredictionBound;
use crate::index::prediction_bound::bound_planes;
use crate::index::route_bound::RouteBound;
use crate::index::tests::random_vectors::{self, beacon, realistic_round_trip_ms};
use crate::index::tests::random_world::{self, IndexTestRng, NOW_MS, ValueDistribution};
use crate::index::{AdvertisementIndex, IndexEntry, InstructionSet, SearchQuery, SearchResult, oracle};
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
            let predictor = predictor_of(&fleet, &own, PairPrecision::Search);
            let searcher = searcher_at(place, &values, predicts.then_some(predictor));
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

/// LAT-1: a search that predicts finds what the oracle finds where many of the best rows are refused by their entries, have a cost, or lack
/// a vector that counts, and where a limit cuts it short.
#[test]
fn predicted_search_matches_the_oracle_where_best_rows_are_refused() {
    let rng = &mut IndexTestRng(29);
    let fleet = Arc::new(realistic_fleet(rng));
    let ruleset = Arc::new(ruleset_by_latency(rng, LatencyEstimatePolicy::PredictedV1));
    let mut index = AdvertisementIndex::new(Arc::clone(&ruleset));
    index.complete_vectors(Some(&fleet), 0);
    let mut ids = Vec::new();
    for number in 0..ROWS as u64 {
        let mut entry = realistic_entry(rng, &ruleset, &fleet, number);
        if rng.one_in(10) {
            let session = &mut Arc::make_mut(&mut entry.advertisement).session;
            let center = session.locality.expect("a place");
            session.set_published_beacon_vector(random_vectors::random_published_vector(rng, center));
        }
        ids.push(entry.advertisement.id);
        index.upsert(entry);
    }
    ids.sort_unstable();
    let values = random_world::no_values(&ruleset);
    let mut result = SearchResult::default();
    for search in 0..SEARCHES as u64 {
        let place = random_place(rng);
        let own = CompletedVector::new(&fleet, Some(place), &realistic_floors(rng, &fleet, place)).unwrap();
        let cost_one_in = rng.pick(&[2, 1_000]);
        let costs: Vec<_> = ids.iter().filter(|_| rng.one_in(cost_one_in)).map(|id| (*id, 0.02)).collect();
        let own_users = rng.pick(&[1, 100, 199]);
        let users: Vec<UserKey> = (0..own_users).map(|user| UserKey::from_bytes([user; 16])).collect();
        let searcher = Searcher {
            users: &users,
            avoided: AdvertsOfAvoidedPlayers { hidden: &ids[..100], costs: &costs },
            ..searcher_at(place, &values, Some(predictor_of(&fleet, &own, PairPrecision::Search)))
        };
        let max_evaluated = rng.pick(&[100, 2_000, u32::MAX, u32::MAX]);
        let limits = SearchLimits { max_results: rng.pick(&[1, 50, 200]), max_evaluated };
        let (silo, kind, now) = (SiloId(0), AdvertisementKind::Session, UnixMs(NOW_MS));
        let query = SearchQuery { ruleset: &ruleset, searcher, silo, kind, limits, now };
        index.search(&query, &mut result);
        super::assert_matches_oracle(search, &index, &query, &result);
    }
}

fn predictor_of<'a>(
    fleet: &'a BeaconFleet,
    own: &'a CompletedVector,
    precision: PairPrecision,
) -> RoundTripPredictor<'a> {
    RoundTripPredictor { fleet, own_vector: own, now: UnixMs(NOW_MS), precision }
}

/// Searcher without users, so without advertisements.
fn searcher_at<'a>(
    place: Locality,
    attribute_values: &'a AttributeValues,
    predictor: Option<RoundTripPredictor<'a>>,
) -> Searcher<'a> {
    Searcher {
        attribute_values,
        locality: Some(place),
        region_latencies: &[],
        wishes: &[],
        seats_needed: 1,
        users: &[],
        caller: None,
        excluded_ids: &[],
        avoided: AdvertsOfAvoidedPlayers::default(),
        probes: ProbeResults::default(),
        predictor,
        waited_ms: 0,
    }
}

/// Columns of a row in [`no_bound_of_a_prediction_exceeds_it`]: three axes, then these.
const NEAR_EXCESS_COLUMN: usize = 3;
const VECTOR_COLUMN: usize = 4;

/// LAT-1: no bound of a prediction is above it: that of a row by its distance and excesses, that by the least route to the row's place, and
/// those of a leaf with the row and up to nineteen others. Routes are realistic, or anything, also faster than light.
#[test]
fn no_bound_of_a_prediction_exceeds_it() {
    let rng = &mut IndexTestRng(17);
    let (mut checked, mut least_gaps_ms) = (0, [f64::INFINITY; 2]);
    while checked < 40_000 {
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
        let predictor = predictor_of(&fleet, &own, precision);
        let route_bound = route_bound_of(&predictor, place);
        let (near_by, anywhere) = (near_place(rng, place), random_place(rng));
        let middle = rng.pick(&[place, near_by, near_by, anywhere]);
        let spread_degrees = rng.pick(&[0.0, 1.0, 10.0, 40.0]);
        let mut leaf: Vec<([f32; 8], f64)> = Vec::new();
        for _ in 0..1 + rng.below(20) {
            let center = place_around(rng, middle, spread_degrees);
            let row_floors = floors(rng, center);
            let times = (UnixMs(NOW_MS), LatencyTrust::Proven);
            let vector = published_vector(&fleet, &row_floors, (center, center), times.0, times.1).expect("floors");
            let Ok(completed) = complete_published_vector(&fleet, Some(center), &vector) else { continue };
            let predicted_ms = predict(&fleet, &own, &completed, precision).expect("one fleet").round_trip_ms;
            let LeastPathExcess { near_ms, light_ms } = vector.least_path_excess();
            let row = [center.x, center.y, center.z, near_ms, light_ms, f32::MAX, f32::MAX, 0.0];
            least_gaps_ms[0] = least_gaps_ms[0].min(assert_bounds_hold::<true>(&route_bound, row, row, predicted_ms));
            leaf.push((row, predicted_ms));
        }
        let fold = |pick: fn(f32, f32) -> f32| {
            let rows = leaf.iter().map(|(row, _)| *row);
            rows.reduce(|one, other| std::array::from_fn(|column| pick(one[column], other[column])))
        };
        let Some((lower, upper)) = fold(f32::min).zip(fold(f32::max)) else { continue };
        for (_, predicted_ms) in &leaf {
            let gap_ms = assert_bounds_hold::<false>(&route_bound, lower, upper, *predicted_ms);
            least_gaps_ms[1] = least_gaps_ms[1].min(gap_ms);
            checked += 1;
        }
    }
    assert!(
        least_gaps_ms.iter().all(|gap_ms| *gap_ms < 0.25),
        "bounds by routes are never close: {least_gaps_ms:?} ms"
    );
}

/// LAT-1: the bound of a leaf by its nearest and farthest chords is not above that of a row between them, also where the far model is below
/// the near one.
#[test]
fn bound_of_a_leaf_holds_at_each_distance() {
    let rng = &mut IndexTestRng(41);
    let mut lower_at_the_far_end = 0;
    for _ in 0..200 {
        let fleet = random_vectors::random_fleet(rng);
        let place = random_place(rng);
        let own_floors = random_vectors::random_floors(rng, place);
        let Ok(own) = CompletedVector::new(&fleet, Some(place), &own_floors) else { continue };
        let planes =
            bound_planes(&predictor_of(&fleet, &own, PairPrecision::Search)).expect("constants that allow bounds");
        for _ in 0..200 {
            let mut ms = |span: f64| (span * rng.unit_f64()) as f32;
            let (upper_ms, near_ms, light_ms) = (ms(300.0), ms(200.0) - 50.0, ms(200.0) - 50.0);
            let nearest = ms(2_500.0);
            let farthest = nearest + ms(2_500.0);
            let of_row = |chord| planes.least_prediction_with_upper_ms(chord, upper_ms, near_ms, light_ms);
            let chords = [nearest, farthest];
            let of_leaf = planes.least_prediction_of_leaf_with_upper_ms(chords, upper_ms, near_ms, light_ms);
            let least =
                (0..=20).map(|step| of_row(nearest + (farthest - nearest) * step as f32 / 20.0)).reduce(f32::min);
            // Rows subtract the error of the blend, which differs by distance.
            assert!(least.is_some_and(|least| of_leaf <= least + 0.2), "{of_leaf} above {least:?} at {chords:?}");
            lower_at_the_far_end += u32::from(of_row(farthest) + 1.0 < of_row(nearest));
        }
    }
    assert!(lower_at_the_far_end > 100, "the far model is hardly ever below the near one: {lower_at_the_far_end}");
}

/// Bound of a searcher at `place`, in an index with the columns of [`no_bound_of_a_prediction_exceeds_it`].
fn route_bound_of(predictor: &RoundTripPredictor<'_>, place: Locality) -> RouteBound {
    let prediction = PredictionBound {
        near_excess_column: NEAR_EXCESS_COLUMN,
        vector_column: VECTOR_COLUMN,
        certain: CertainPrediction { now_tick: 0.0, floor_count_min: 0.0 },
        is_certain_for_all: false,
        planes: bound_planes(predictor).expect("constants that allow bounds"),
    };
    RouteBound::new(predictor, [place.x, place.y, place.z], 0, prediction, 0)
}

/// Checks the bounds of a row, or of the rows of a leaf, on each instruction set. Returns by how much the one by routes is less than the
/// prediction, milliseconds.
fn assert_bounds_hold<const IS_ROWS: bool>(
    bound: &RouteBound,
    lower: [f32; 8],
    upper: [f32; 8],
    predicted_ms: f64,
) -> f64 {
    let on = |set| bound.least_predictions_ms::<IS_ROWS>(set, &lower, &upper);
    let [by_planes_ms, by_routes_ms] = on(InstructionSet::Widest);
    assert_eq!(on(InstructionSet::Portable), [by_planes_ms, by_routes_ms], "the instruction sets disagree");
    for (name, bound_ms) in [("planes", by_planes_ms), ("routes", by_routes_ms)] {
        assert!(f64::from(bound_ms) <= predicted_ms, "{name}, row {IS_ROWS}: {bound_ms} above {predicted_ms}");
    }
    predicted_ms - f64::from(by_routes_ms)
}

/// Place in the square around `middle` with sides of this size.
fn place_around(rng: &mut IndexTestRng, middle: Locality, degrees: f64) -> Locality {
    let (latitude, longitude) = middle.to_degrees();
    let latitude = (latitude + degrees * (rng.unit_f64() - 0.5)).clamp(-89.0, 89.0);
    let longitude = (longitude + degrees * (rng.unit_f64() - 0.5)).clamp(-180.0, 180.0);
    Locality::from_degrees(latitude, longitude).expect("degrees in range")
}

/// Place at most 4,000 km away: where the far model replaces the near one.
fn near_place(rng: &mut IndexTestRng, place: Locality) -> Locality {
    let (latitude, longitude) = place.to_degrees();
    let latitude = (latitude + 40.0 * (rng.unit_f64() - 0.5)).clamp(-89.0, 89.0);
    let longitude = (longitude + 60.0 * (rng.unit_f64() - 0.5)).clamp(-180.0, 180.0);
    Locality::from_degrees(latitude, longitude).expect("degrees in range")
}
