//! Goal PS7: searches of a million advertisements by predicted round trips, against the same searches by distance.

use std::hint::black_box;
use std::sync::Arc;

use fireteam::domain::advertisement::AdvertisementKind;
use fireteam::domain::attribute_values::AttributeValues;
use fireteam::domain::filter::{RoundTripPredictor, Searcher};
use fireteam::domain::id::SiloId;
use fireteam::domain::index::{AdvertisementIndex, SearchQuery, SearchResult, oracle};
use fireteam::domain::latency::beacon_fleet::{Beacon, BeaconFleet, BeaconPairRoundTrip};
use fireteam::domain::latency::beacon_vector::{CompletedVector, MeasuredBeaconFloor, published_vector};
use fireteam::domain::latency::prediction::PairPrecision;
use fireteam::domain::latency::predictor_constants::PREDICTOR_V1;
use fireteam::domain::locality::{DEFAULT_LOCATION_GRID_DEGREES, Locality};
use fireteam::domain::location_privacy::{DEFAULT_SESSION_GRID_DEGREES, arc_km, snap_to_equal_width_grid};
use fireteam::domain::measure::Measure;
use fireteam::domain::ruleset::probing::{LatencyEstimatePolicy, LatencyTrust};
use fireteam::domain::ruleset::{Ruleset, SearchLimits};
use fireteam::domain::session::Session;
use fireteam::domain::time::UnixMs;

use crate::harness::{Timing, compare, quantile};
use crate::index::world::{ROWS, SEARCHES};
use crate::population::{NOW, PopulationKind, RuleOptions, entry, ruleset, session};
use crate::split_mix64::SplitMix64;

/// Beacons of the fleet, and beacons that each party measures.
const BEACONS: u32 = 24;
const FLOORS: usize = 12;
/// Range of the term of the round trip, milliseconds.
const ROUND_TRIP_RANGE_MS: (f64, f64) = (0.0, 300.0);

pub(super) fn run() {
    let mut rng = SplitMix64(7);
    let fleet = Arc::new(random_fleet(&mut rng));
    let rules = RuleOptions { skill: 0.6, distance: 0.4, ..RuleOptions::default() };
    let [predicted, by_distance] = [LatencyEstimatePolicy::PredictedV1, LatencyEstimatePolicy::Distance]
        .map(|source| Arc::new(ruleset_by_round_trip(rules, source)));
    let mut indexes = [&predicted, &by_distance].map(|ruleset| AdvertisementIndex::new(Arc::clone(ruleset)));
    indexes[0].complete_vectors(Some(&fleet), 0);
    for number in 0..ROWS {
        let mut entry = entry(&mut rng, &predicted, number, PopulationKind::Uniform);
        publish_vector(&mut rng, &fleet, &mut Arc::make_mut(&mut entry.advertisement).session);
        for index in &mut indexes {
            index.upsert(entry.clone());
        }
    }
    let searchers: Vec<SearchingParty> =
        (0..SEARCHES).map(|_| SearchingParty::random(&mut rng, &fleet, &predicted)).collect();
    let [subject, reference] = &indexes;
    for (name, skill, distance) in [("skill and round trip", 0.6, 0.4), ("round trip only", 0.0, 1.0)] {
        let rules = RuleOptions { skill, distance, ..RuleOptions::default() };
        let subject_ruleset = ruleset_by_round_trip(rules, LatencyEstimatePolicy::PredictedV1);
        let subject = Searches { index: subject, ruleset: &subject_ruleset, fleet: Some(&fleet), of: &searchers };
        let reference_ruleset = ruleset_by_round_trip(rules, LatencyEstimatePolicy::Distance);
        let reference = Searches { index: reference, ruleset: &reference_ruleset, fleet: None, of: &searchers };
        subject.check_against_oracle();
        reference.check_against_oracle();
        eprintln!("{name}: evaluated {} and {} rows", subject.evaluated_rows(), reference.evaluated_rows());
        for (quantile_name, at) in [("p50", 0.5), ("p99", 0.99)] {
            let subject_name = format!("1M, {name}, {quantile_name}");
            compare("PS7", &subject_name, "by distance", || subject.time(at), || reference.time(at));
        }
    }
}

/// Rules with a term of the round trip in place of that of the distance.
fn ruleset_by_round_trip(rules: RuleOptions, source: LatencyEstimatePolicy) -> Ruleset {
    let mut ruleset = ruleset(rules);
    for soft in ruleset.soft_filters.iter_mut().filter(|soft| soft.measure == Measure::Distance) {
        (soft.measure, (soft.min, soft.max)) = (Measure::Latency, ROUND_TRIP_RANGE_MS);
    }
    (ruleset.probing.latency_estimate_policy, ruleset.probing.region_latency_trust) = (source, LatencyTrust::Proven);
    ruleset
}

/// Party that searches, with its own exact round trips to beacons.
struct SearchingParty {
    session: Session,
    attribute_values: AttributeValues,
    vector: CompletedVector,
}

impl SearchingParty {
    fn random(rng: &mut SplitMix64, fleet: &BeaconFleet, ruleset: &Ruleset) -> Self {
        let mut session = session(rng, PopulationKind::Uniform);
        let floors = random_floors(rng, fleet, place_of(&session));
        session.locality = Some(cell_center(place_of(&session), DEFAULT_LOCATION_GRID_DEGREES));
        let vector = CompletedVector::new(fleet, session.locality, &floors).expect("enough floors");
        let attribute_values = AttributeValues::from_session_without_standings(ruleset, &session);
        Self { session, attribute_values, vector }
    }
}

/// Searches of one index.
struct Searches<'a> {
    index: &'a AdvertisementIndex,
    ruleset: &'a Ruleset,
    /// Fleet with which they predict.
    fleet: Option<&'a BeaconFleet>,
    of: &'a [SearchingParty],
}

impl<'a> Searches<'a> {
    fn query(&self, number: usize) -> SearchQuery<'a> {
        let SearchingParty { session, attribute_values, vector } = &self.of[number % self.of.len()];
        let predictor = self.fleet.map(|fleet| RoundTripPredictor {
            fleet,
            own_vector: vector,
            now: UnixMs(NOW),
            precision: PairPrecision::Search,
        });
        let searcher = Searcher {
            attribute_values,
            locality: session.locality,
            region_latencies: &[],
            wishes: &[],
            seats_needed: 1,
            users: &[],
            caller: None,
            excluded_ids: &[],
            avoided: Default::default(),
            probes: Default::default(),
            predictor,
            waited_ms: 0,
        };
        let limits = SearchLimits { max_results: 50, max_evaluated: u32::MAX };
        let (silo, kind, now) = (SiloId(1), AdvertisementKind::Session, UnixMs(NOW));
        SearchQuery { ruleset: self.ruleset, searcher, silo, kind, limits, now }
    }

    /// Times a round of searches, at the quantile `at`.
    fn time(&self, at: f64) -> Timing {
        let mut found = SearchResult::default();
        quantile(SEARCHES, at, |number| {
            self.index.search(&self.query(number), &mut found);
            black_box(&found);
        })
    }

    /// Compares results with the oracle, so that only correct searches are timed.
    fn check_against_oracle(&self) {
        let mut found = SearchResult::default();
        for number in 0..3 {
            let query = self.query(number);
            self.index.search(&query, &mut found);
            let hits = found.hits.iter().map(|hit| (self.index.entry(hit.slot).advertisement.id, hit.score));
            assert!(hits.eq(oracle::search(self.index, &query)), "the index and the oracle disagree");
        }
    }

    /// Rows in the visited leaves, mean of all searches.
    fn evaluated_rows(&self) -> usize {
        let mut found = SearchResult::default();
        let rows = (0..SEARCHES).map(|number| {
            self.index.search(&self.query(number), &mut found);
            found.evaluated_rows as usize
        });
        rows.sum::<usize>() / SEARCHES
    }
}

/// Moves a session to the center of its cell, and publishes its round trips to beacons.
fn publish_vector(rng: &mut SplitMix64, fleet: &BeaconFleet, session: &mut Session) {
    let place = place_of(session);
    let center = cell_center(place, DEFAULT_SESSION_GRID_DEGREES);
    let floors = random_floors(rng, fleet, place);
    session.locality = Some(center);
    session.set_published_beacon_vector(published_vector(
        fleet,
        &floors,
        (place, center),
        UnixMs(NOW),
        LatencyTrust::Proven,
    ));
}

fn place_of(session: &Session) -> Locality {
    session.locality.expect("a session of the population has a place")
}

fn cell_center(place: Locality, grid_degrees: f64) -> Locality {
    let (latitude, longitude) = place.to_degrees();
    let (latitude, longitude) = snap_to_equal_width_grid(latitude, longitude, grid_degrees);
    Locality::from_degrees(latitude, longitude).expect("degrees in range")
}

fn random_fleet(rng: &mut SplitMix64) -> BeaconFleet {
    let place = |rng: &mut SplitMix64| place_of(&session(rng, PopulationKind::Uniform));
    let beacons: Vec<Beacon> = (1..=BEACONS).map(|id| Beacon { id, place: place(rng) }).collect();
    let mut round_trips = Vec::new();
    for one in &beacons {
        for other in beacons.iter().filter(|other| one.id < other.id) {
            let round_trip_ms = random_round_trip_ms(rng, one.place, other.place, 2.0);
            round_trips.push(BeaconPairRoundTrip { from: one.id, to: other.id, round_trip_ms });
        }
    }
    BeaconFleet::new(&beacons, &round_trips, PREDICTOR_V1)
}

/// Round trips to the nearest beacons, all with one last mile.
fn random_floors(rng: &mut SplitMix64, fleet: &BeaconFleet, place: Locality) -> Vec<MeasuredBeaconFloor> {
    let last_mile_ms = 2.0 + 20.0 * rng.unit();
    let floor = |beacon_id| {
        let beacon = fleet.beacons()[fleet.index_of(beacon_id).expect("a beacon of the fleet")];
        MeasuredBeaconFloor { beacon_id, floor_ms: random_round_trip_ms(rng, place, beacon.place, last_mile_ms) }
    };
    fleet.nearest_ids(place, FLOORS).into_iter().map(floor).collect()
}

/// Round trip over a path that is 40 to 90 % longer than the straight one, at 200 km per millisecond, and the last mile: as
/// long in the mean as the predictor expects.
fn random_round_trip_ms(rng: &mut SplitMix64, one: Locality, other: Locality, last_mile_ms: f64) -> f64 {
    arc_km(one, other) / 100.0 * (1.4 + 0.5 * rng.unit()) + last_mile_ms
}
