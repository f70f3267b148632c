//! Trilateration attacks: an attacker with fifty addresses tries to locate a player (SEC-9). The attacker can find the
//! player's grid cell, and nothing within it. This file attacks searches, `queue_answers` the answers of queues,
//! `decisions` what queues decide, `round_trips` the round trips to regions. `output_table` has each output.

mod decisions;
mod output_table;
mod queue_answers;
mod round_trips;

use std::path::PathBuf;

use fireteam::config::{Config, RulesetSource};
use fireteam::domain::locality::{self, KM_PER_MILE, Locality, snap_to_degree_grid};
use fireteam::domain::location_privacy::{self, snap_to_equal_width_grid};
use fireteam_client::{Client, SearchSession, pb};
use mmdb_writer::{IpVersion, Value, Writer};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::support::test_server::{TestServer, advertise_request, party_session};

/// Number of addresses of the attacker.
const ATTACKER_COUNT: usize = 50;
/// Searches per address and player: 1,000 per player.
const SEARCH_ROUNDS: usize = 20;
/// Time between two rounds: the rounds cover all of Control's expansions.
const ROUND_MS: u64 = 2_000;
/// Default grid sizes in degrees: for searchers, and for sessions.
const DEFAULT_GRIDS: [f64; 2] =
    [locality::DEFAULT_LOCATION_GRID_DEGREES, location_privacy::DEFAULT_SESSION_GRID_DEGREES];
/// Exact locations.
const NO_GRIDS: [f64; 2] = [0.0, 0.0];

/// Latitude and longitude, degrees.
type Degrees = (f64, f64);

fn locality_of((latitude, longitude): Degrees) -> Locality {
    Locality::from_degrees(latitude, longitude).expect("valid coordinates")
}

fn distance_km(one: Degrees, other: Degrees) -> f64 {
    locality_of(one).chord_miles(locality_of(other)) * KM_PER_MILE
}

/// Random location near one of the shipped cities.
fn random_location(rng: &mut Pcg64Mcg) -> Degrees {
    let cities = include_str!("../../../scenarios/cities.csv").lines().filter(|line| !line.starts_with('#')).skip(1);
    let cities: Vec<&str> = cities.collect();
    let fields: Vec<&str> = cities[rng.random_range(0..cities.len())].split(',').collect();
    let (latitude, longitude): Degrees = (fields[2].parse().unwrap(), fields[3].parse().unwrap());
    let offset = |rng: &mut Pcg64Mcg| rng.random_range(-1.5..1.5);
    let (north, east) = (offset(rng), offset(rng) / latitude.to_radians().cos());
    ((latitude + north).clamp(-89.0, 89.0), (longitude + east).clamp(-180.0, 180.0))
}

fn random_locations(count: usize, rng: &mut Pcg64Mcg) -> Vec<Degrees> {
    (0..count).map(|_| random_location(rng)).collect()
}

fn seeded_rng(seed: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed)
}

/// Location by which others judge a session or a party.
fn judged_location((latitude, longitude): Degrees, [grid, session_grid]: [f64; 2]) -> Locality {
    locality_of(if session_grid <= grid {
        snap_to_degree_grid(latitude, longitude, grid)
    } else {
        snap_to_equal_width_grid(latitude, longitude, session_grid)
    })
}

/// Another random location in the session cell of `one`.
fn same_cell_location(one: Degrees, rng: &mut Pcg64Mcg) -> Degrees {
    let cell = |(latitude, longitude): Degrees| snap_to_equal_width_grid(latitude, longitude, DEFAULT_GRIDS[1]);
    loop {
        let (north, east) = (rng.random_range(-3.0..3.0), rng.random_range(-6.0..6.0));
        let other = (one.0 + north, one.1 + east);
        if other.0.abs() < 90.0 && other.1.abs() < 180.0 && cell(other) == cell(one) {
            return other;
        }
    }
}

/// A server whose GeoIP database has the locations of all test addresses.
struct GeoTestServer {
    server: TestServer,
    player_clients: Vec<Client>,
    attacker_clients: Vec<Client>,
}

fn test_address(kind: usize, number: usize) -> String {
    format!("20.{kind}.{}.{}", number / 256, number % 256)
}

impl GeoTestServer {
    async fn start(players: &[Degrees], attackers: &[Degrees], location_grid_degrees: [f64; 2]) -> Self {
        Self::start_with_ruleset(players, attackers, location_grid_degrees, None).await
    }

    /// Server with this ruleset alone, or the bundled ones.
    async fn start_with_ruleset(
        players: &[Degrees],
        attackers: &[Degrees],
        location_grid_degrees: [f64; 2],
        ruleset: Option<&str>,
    ) -> Self {
        Self::start_with(players, attackers, location_grid_degrees, ruleset, |_| {}).await
    }

    async fn start_with(
        players: &[Degrees],
        attackers: &[Degrees],
        location_grid_degrees: [f64; 2],
        ruleset: Option<&str>,
        change: impl FnOnce(&mut Config),
    ) -> Self {
        let mut writer = Writer::builder("Test-City").ip_version(IpVersion::V4).build();
        for (kind, locations) in [players, attackers].into_iter().enumerate() {
            for (number, &(latitude, longitude)) in locations.iter().enumerate() {
                let at = [("latitude", Value::Double(latitude)), ("longitude", Value::Double(longitude))];
                let network = format!("{}/32", test_address(kind, number)).parse::<ipnet::IpNet>().unwrap();
                writer.insert_value(network, Value::map([("location", Value::map(at))])).unwrap();
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let file: PathBuf = folder.path().join("places.mmdb");
        std::fs::write(&file, writer.to_bytes().unwrap()).unwrap();
        let rules_path = folder.path().join("rules");
        std::fs::create_dir(&rules_path).unwrap();
        if let Some(xml) = ruleset {
            std::fs::write(rules_path.join("near.xml"), xml).unwrap();
        }
        let server = TestServer::start_with_config(|config| {
            config.geoip_db_files = vec![file];
            [config.location_grid_degrees, config.session_location_grid_degrees] = location_grid_degrees;
            config.max_silos_per_user = 1_024;
            if ruleset.is_some() {
                config.rulesets = RulesetSource::Directory(rules_path);
            }
            change(config);
        });
        let mut server = server.await;
        server.keep_folder(folder);
        let client = server.client().await;
        let clients = |kind, count: usize| {
            let from = |number| client.clone().with_metadata("x-forwarded-for", &test_address(kind, number)).unwrap();
            (0..count).map(from).collect()
        };
        Self { player_clients: clients(0, players.len()), attacker_clients: clients(1, attackers.len()), server }
    }

    /// Advertises a player in a silo of its own.
    async fn advertise(&self, person: usize, silo: u64, name: &str, skill: f64, regions: &[pb::RegionLatency]) {
        let mut advertised = advertise_request(&[(name, skill)], 5);
        advertised.connect_data = name.as_bytes().to_vec();
        let session = advertised.session_composition.as_mut().unwrap();
        session.silo_id = Some(silo);
        session.region_latencies = regions.to_vec();
        self.player_clients[person].advertise(advertised).await.expect("advertise");
    }

    fn search(&self, attacker: usize, silo: u64, skill: f64) -> SearchSession {
        let session = pb::SessionCompositionData { silo_id: Some(silo), ..party_session(&[("attacker", skill)]) };
        self.attacker_clients[attacker].new_search(1, session)
    }
}

/// Distance estimates for one player: from where, and how many miles.
type DistanceEstimates = Vec<(Locality, f64)>;

/// Distance to a candidate of Control, computed from its score as exactly as possible. The score is rounded, but the
/// skill term is exact and varies between searches, so the mean of many scores is more precise.
fn miles_from_score(candidate: &pb::Candidate) -> f64 {
    let [by_skill, _] = &*candidate.terms else { panic!("two terms: {candidate:?}") };
    let ms = (candidate.score - by_skill.value) / 0.6 * 300.0;
    (ms - 20.0) / 16.0 * 1_000.0 / KM_PER_MILE
}

/// Location with the least squared error over all estimates.
fn best_fit_location(distances: &DistanceEstimates) -> Degrees {
    location_with_least(|here| distances.iter().map(|(from, miles)| (from.chord_miles(here) - miles).powi(2)).sum())
}

/// Location with the least `error`, which has one minimum.
fn location_with_least(error: impl Fn(Locality) -> f64) -> Degrees {
    let with_error = |at: Degrees| (error(locality_of(at)), at);
    let least = |one: &(f64, Degrees), other: &(f64, Degrees)| one.0.total_cmp(&other.0);
    let grid = (-29..=29).flat_map(|north| (-60..60).map(move |east| (f64::from(north) * 3.0, f64::from(east) * 3.0)));
    let (mut least_error, mut best) = grid.map(with_error).min_by(least).unwrap();
    let mut step = 3.0;
    while step > 1e-4 {
        let around = [(step, 0.0), (-step, 0.0), (0.0, step), (0.0, -step)];
        let next = around.map(|(north, east)| {
            with_error(((best.0 + north).clamp(-90.0, 90.0), (best.1 + east + 180.0).rem_euclid(360.0) - 180.0))
        });
        let next = next.into_iter().min_by(least).unwrap();
        if next.0 < least_error {
            (least_error, best) = next;
        } else {
            step /= 2.0;
        }
    }
    best
}

/// Value at this share of ascending values.
fn quantile(ascending: &[f64], share: f64) -> f64 {
    ascending[(ascending.len() as f64 * share) as usize]
}

/// Asserts that an attack misses half of the players by at least 100 km with grids, and none by much without. `errors_km`
/// are in ascending order.
fn assert_missed(attack: &str, coarse_errors_km: &[f64], exact_errors_km: &[f64], exact_km_max: f64) {
    let [tenth, half] = [0.1, 0.5].map(|share| quantile(coarse_errors_km, share));
    let exact = quantile(exact_errors_km, 0.5);
    println!("{attack}: {half:.0} km error in the median, {tenth:.0} in the worst tenth; without grids {exact:.1} km");
    assert!(100.0 <= half, "{attack}: {coarse_errors_km:?}");
    assert!(exact < exact_km_max, "{attack} is not effective: {exact_errors_km:?}");
}

/// Error of the attacker's result per player, kilometers, in ascending order.
async fn location_errors_km(count: usize, location_grid_degrees: [f64; 2]) -> Vec<f64> {
    let mut rng = seeded_rng(9);
    let (players, attackers) = (random_locations(count, &mut rng), random_locations(ATTACKER_COUNT, &mut rng));
    let world = GeoTestServer::start(&players, &attackers, location_grid_degrees).await;
    let mut searches = Vec::new();
    for person in 0..count {
        let silo = person as u64 + 1;
        world.advertise(person, silo, "target", 0.0, &[]).await;
        searches.extend((0..ATTACKER_COUNT).map(|attacker| (person, attacker, world.search(attacker, silo, 0.0))));
    }
    let mut estimates = vec![vec![Vec::new(); ATTACKER_COUNT]; count];
    for _ in 0..SEARCH_ROUNDS {
        for (person, attacker, search) in &mut searches {
            let skill = rng.random_range(-100.0..100.0);
            search.request_mut().session_composition.as_mut().unwrap().players[0].skill = Some(skill);
            let found = search.search().await.expect("search");
            estimates[*person][*attacker].extend(found.candidates.iter().map(miles_from_score));
        }
        world.server.clock.advance_ms(ROUND_MS);
    }
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let error = |(estimates, person): (&Vec<Vec<f64>>, &Degrees)| {
        let distances = estimates.iter().zip(&attackers).filter(|(estimates, _)| !estimates.is_empty());
        // Searches use the center of a cell; the attacker knows the grid.
        let from = |from: &Degrees| locality_of(snap_to_degree_grid(from.0, from.1, location_grid_degrees[0]));
        let distances: DistanceEstimates =
            distances.map(|(estimates, attacker)| (from(attacker), mean(estimates))).collect();
        assert_eq!(distances.len(), ATTACKER_COUNT, "every address finds the session");
        distance_km(best_fit_location(&distances), *person)
    };
    let mut errors: Vec<f64> = estimates.iter().zip(&players).map(error).collect();
    errors.sort_by(f64::total_cmp);
    errors
}

/// SEC-9: a thousand searches from fifty addresses miss half of the players by more than 100 km. Without grids the
/// error is a few kilometers: the attack works.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trilateration_from_fifty_addresses_misses_by_100_km() {
    let coarse = location_errors_km(32, DEFAULT_GRIDS).await;
    let exact = location_errors_km(6, NO_GRIDS).await;
    assert_missed("1,000 searches from fifty addresses", &coarse, &exact, 5.0);
}

/// All answers about the candidates, without the advertisement ids.
async fn visible_answers(world: &GeoTestServer, attacker: usize, silo: u64) -> Vec<String> {
    let texts = |candidates: Vec<pb::Candidate>| {
        let without_ids =
            candidates.into_iter().map(|candidate| pb::Candidate { advertisement_id: String::new(), ..candidate });
        without_ids.map(|candidate| format!("{candidate:?}"))
    };
    let mut search = world.search(attacker, silo, 10.0);
    let near_region = pb::RegionLatency { region: "eu".to_owned(), round_trip_ms: 1.0 };
    let session = search.request_mut().session_composition.as_mut().unwrap();
    session.region_latencies.extend(attacker.is_multiple_of(2).then_some(near_region));
    let found = search.search().await.expect("search");
    let claims: Vec<(String, Option<f32>)> =
        found.candidates.iter().map(|candidate| (candidate.advertisement_id.clone(), Some(0.0))).collect();
    let mut answers = vec![format!("{:?}", found.refusals)];
    answers.extend(texts(found.candidates));
    let report = search.report_latency(pb::LatencyPhase::Quick, claims).await.expect("report");
    answers.push(format!("{:?}", report.ignored_fields));
    answers.extend(texts(report.candidates));
    answers
}

/// Number of `cells` in which searches among other sessions can distinguish two players of the same cell.
async fn distinguishable_cells(cells: usize, location_grid_degrees: [f64; 2]) -> usize {
    let mut rng = seeded_rng(99);
    let (mut players, attackers) = (Vec::new(), random_locations(8, &mut rng));
    for _ in 0..cells {
        let one = random_location(&mut rng);
        let other = same_cell_location(one, &mut rng);
        players.extend([one, other, random_location(&mut rng), random_location(&mut rng), random_location(&mut rng)]);
    }
    let world = GeoTestServer::start(&players, &attackers, location_grid_degrees).await;
    let trip = |round_trip_ms| [pb::RegionLatency { region: "eu".to_owned(), round_trip_ms }];
    let mut apart = 0;
    for at in 0..cells {
        let mut both = Vec::new();
        for (twin, ms) in [(0, 40.0), (1, 60.0)] {
            let silo = (at * 2 + twin) as u64 + 1;
            world.advertise(at * 5 + twin, silo, "target", 0.0, &trip(ms)).await;
            for other in 2..5 {
                world.advertise(at * 5 + other, silo, &format!("decoy {other}"), other as f64, &trip(10.0)).await;
            }
            let mut all = Vec::new();
            for attacker in 0..attackers.len() {
                all.extend(visible_answers(&world, attacker, silo).await);
            }
            both.push(all);
        }
        assert!(both[0].iter().any(|answer| answer.contains("score")), "candidates were found");
        apart += usize::from(both[0] != both[1]);
    }
    apart
}

/// SEC-9: two players in one cell get identical answers for all searches, claims and other sessions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn players_in_one_grid_cell_get_identical_answers() {
    assert_eq!(distinguishable_cells(24, DEFAULT_GRIDS).await, 0);
    assert_eq!(distinguishable_cells(4, NO_GRIDS).await, 4, "without grids the players differ");
}
