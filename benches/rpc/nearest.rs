//! Goal GEO: the 50 nearest of a million places over gRPC, against `GEOSEARCH` of Redis behind the same call.

use std::sync::Arc;

use bytes::Bytes;
use fireteam::domain::locality::Locality;
use fireteam_client::pb;
use prost::Message as _;

use crate::harness::{ROUNDS, clock, median, quantile_of, report};
use crate::rpc::load::{call, channel};
use crate::rpc::messages::{SEARCH, composition};
use crate::rpc::redis_search;
use crate::rpc::redis_server::{MeasuredServers, RedisPersistence, RedisServer};
use crate::rpc::server_process::{DISTANCE_SET, ServerProcess};
use crate::split_mix64::SplitMix64;

/// Name of the server with the places and without location grids: the grids would move them.
pub(crate) const PLACES_SERVER: &str = "fireteam-places";

const PLACES: u64 = 1_000_000;
/// Highest latitude, degrees. GEOADD accepts none above 85.05.
const LATITUDE_MAX: f64 = 85.0;
/// Results of a search: MaxResults of the ruleset.
const RESULTS: usize = 50;
/// Different searches.
const SEARCHES: usize = 512;
/// Searches whose results are compared.
const CHECKED: usize = 200;
/// Difference of two distances that counts as none, miles (16 m). Coordinates are rounded to 0.4 m in fireteam, 0.6 m in Redis.
const ROUNDING_MILES: f64 = 0.01;
/// Radii with which the reference may begin, km. The one with the shortest median counts.
const RADII_KM: [u64; 6] = [75, 100, 125, 150, 200, 400];
/// Radius of an operator who does not know how dense the places are.
const WIDE_RADIUS_KM: u64 = 1_000;
/// Calls one by one of a round that chooses the radius.
const TRIAL_CALLS: usize = 500;
/// Calls of a round one by one, and of one with callers at once.
const CALLS: (usize, usize) = (2_000, 16_000);
/// The same with the wide radius.
const WIDE_CALLS: (usize, usize) = (100, 160);
/// Calls at once.
const CALLERS: usize = 16;
/// The goals: median of a search, and processor time of all servers for a search, microseconds.
const P50_MAX_US: f64 = 100.0;
const CPU_MAX_US: f64 = 40.0;

/// Places spread evenly over the sphere, but for the poles: latitude and longitude.
pub(crate) fn places() -> impl Iterator<Item = (f64, f64)> {
    places_of(SplitMix64(29))
}

fn places_of(mut rng: SplitMix64) -> impl Iterator<Item = (f64, f64)> {
    std::iter::repeat_with(move || (rng.unit().mul_add(2.0, -1.0).asin().to_degrees(), rng.unit() * 360.0 - 180.0))
        .filter(|(latitude, _)| latitude.abs() <= LATITUDE_MAX)
}

fn locality((latitude, longitude): (f64, f64)) -> Locality {
    Locality::from_degrees(latitude, longitude).expect("degrees")
}

/// Searches from other places.
fn searches() -> (Vec<Locality>, Arc<[Bytes]>) {
    let mut rng = SplitMix64(31);
    let from: Vec<Locality> = places_of(SplitMix64(37)).take(SEARCHES).map(locality).collect();
    let encoded = from.iter().map(|from| {
        let (x, y, z) = (Some(from.x), Some(from.y), Some(from.z));
        let place = pb::LocalityData { locality_x: x, locality_y: y, locality_z: z, ..Default::default() };
        let party = pb::SessionCompositionData {
            locality_info: Some(place),
            attributes: Default::default(),
            ..composition(&mut rng)
        };
        let search = pb::MatchmakingSearchRequest {
            matchmaking_set_id: Some(DISTANCE_SET),
            session_composition: Some(party),
            ..Default::default()
        };
        search.encode_to_vec().into()
    });
    let encoded = encoded.collect();
    (from, encoded)
}

/// Figures of one round, microseconds.
#[derive(Clone, Copy, Debug)]
struct RoundFigures {
    p50_us: f64,
    p99_us: f64,
    server_cpu_us: f64,
    redis_cpu_us: f64,
}

/// One figure of a round.
type PickFigure = fn(&RoundFigures) -> f64;

impl RoundFigures {
    fn cpu_us(&self) -> f64 {
        self.server_cpu_us + self.redis_cpu_us
    }
}

/// Calls one by one over one connection.
async fn one_by_one(measured: MeasuredServers<'_>, searches: &[Bytes], calls: usize) -> RoundFigures {
    let channel = channel(measured.server.address).await;
    let (cpu, mut times) = (measured.cpu_us(), Vec::with_capacity(calls));
    for number in 0..calls {
        let begin = clock();
        call(&channel, SEARCH, searches[number % searches.len()].clone()).await.expect("results");
        times.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    let (after, calls) = (measured.cpu_us(), calls as f64);
    RoundFigures {
        p50_us: quantile_of(&mut times, 0.5),
        p99_us: quantile_of(&mut times, 0.99),
        server_cpu_us: (after.0 - cpu.0) / calls,
        redis_cpu_us: (after.1 - cpu.1) / calls,
    }
}

/// Calls per second of callers at once, each with a connection of its own, and the processor time of all servers for a call.
async fn at_once(measured: MeasuredServers<'_>, searches: &Arc<[Bytes]>, calls: usize) -> (f64, f64) {
    let mut channels = Vec::new();
    for _ in 0..CALLERS {
        channels.push(channel(measured.server.address).await);
    }
    let (begin, cpu) = (clock(), measured.cpu_us());
    let mut callers = tokio::task::JoinSet::new();
    for (caller, channel) in channels.into_iter().enumerate() {
        let searches = Arc::clone(searches);
        callers.spawn(async move {
            for number in 0..calls / CALLERS {
                let search = searches[(caller + number * CALLERS) % searches.len()].clone();
                call(&channel, SEARCH, search).await.expect("results");
            }
        });
    }
    callers.join_all().await;
    let (after, calls) = (measured.cpu_us(), (calls / CALLERS * CALLERS) as f64);
    (calls / begin.elapsed().as_secs_f64(), (after.0 + after.1 - cpu.0 - cpu.1) / calls)
}

/// Ids of the results of a search.
async fn results(server: &ServerProcess, search: &Bytes) -> Vec<String> {
    let answer = call(&channel(server.address).await, SEARCH, search.clone()).await.expect("results");
    let answer = pb::MatchmakingSearchResponse::decode(answer).expect("a response");
    answer.candidates.into_iter().map(|it| it.advertisement_id).collect()
}

/// Compares both with each other: at each rank, both have found a place at the same distance.
async fn check(fireteam: &ServerProcess, reference: &ServerProcess, ids: &str) {
    let known: Vec<Locality> = places().take(PLACES as usize).map(locality).collect();
    let numbers: std::collections::HashMap<&str, usize> =
        ids.lines().enumerate().map(|(number, id)| (id, number)).collect();
    let (from, searches) = searches();
    let mut same = 0;
    for (from, search) in from.iter().zip(searches.iter()).take(CHECKED) {
        let distance = |number: usize| {
            let to = &known[number];
            let square = |one: f32, other: f32| (f64::from(one) - f64::from(other)).powi(2);
            (square(from.x, to.x) + square(from.y, to.y) + square(from.z, to.z)).sqrt()
        };
        let found: Vec<usize> = results(fireteam, search).await.iter().map(|id| numbers[id.as_str()]).collect();
        let expected = results(reference, search).await;
        let expected: Vec<usize> = expected.iter().map(|id| id.parse().expect("a number")).collect();
        assert_eq!((found.len(), expected.len()), (RESULTS, RESULTS), "a search finds {RESULTS}");
        for (one, other) in found.iter().zip(&expected) {
            let (one, other) = (distance(*one), distance(*other));
            assert!((one - other).abs() < ROUNDING_MILES, "places at {one} and {other} miles have the same rank");
        }
        same += usize::from(found.iter().all(|number| expected.contains(number)));
    }
    println!("# {CHECKED} searches: the same distances at each rank; the same {RESULTS} places in {same}");
}

fn start_reference(redis: &RedisServer, radius_km: u64) -> ServerProcess {
    ServerProcess::start_with("redis-search", 0, &[&redis.address.to_string(), &radius_km.to_string()])
}

/// Finds the radius with the shortest median.
async fn best_radius_km(redis: &RedisServer, searches: &[Bytes]) -> u64 {
    let mut best = (f64::INFINITY, 0);
    for radius_km in RADII_KM {
        let server = start_reference(redis, radius_km);
        let p50_us =
            one_by_one(MeasuredServers { server: &server, redis: Some(redis) }, searches, TRIAL_CALLS).await.p50_us;
        println!("# Redis, first radius {radius_km} km: p50 {p50_us:.0} us");
        if p50_us < best.0 {
            best = (p50_us, radius_km);
        }
    }
    best.1
}

/// Prints the figures of both sides, and rows of their rounds.
fn report_rounds(reference_name: &str, rounds: &[(RoundFigures, RoundFigures)]) {
    let of = |side: fn(&(RoundFigures, RoundFigures)) -> RoundFigures, pick: PickFigure| {
        median(rounds.iter().map(|round| pick(&side(round))).collect())
    };
    let (server_us, redis_us) = (of(|it| it.1, |it| it.server_cpu_us), of(|it| it.1, |it| it.redis_cpu_us));
    println!("# {reference_name}: server {server_us:.0} us and Redis {redis_us:.0} us a search");
    let rows: [(&str, PickFigure); 3] = [
        ("us of a search, one by one, p50", |it| it.p50_us),
        ("us of a search, one by one, p99", |it| it.p99_us),
        ("us of all servers for a search, one by one", |it| it.cpu_us()),
    ];
    for (figure, pick) in rows {
        let values: Vec<(f64, f64)> = rounds.iter().map(|(subject, it)| (pick(subject), pick(it))).collect();
        report("GEO <= 1", &format!("{figure}, {RESULTS} nearest of {PLACES}"), reference_name, &values, 0.0);
    }
}

/// Rows of fireteam against its own goals.
fn report_limits(rounds: &[(RoundFigures, RoundFigures)]) {
    let rows: [(&str, PickFigure, f64); 2] = [
        ("us of a search, one by one, p50", |it| it.p50_us, P50_MAX_US),
        ("us of the server for a search, one by one", |it| it.server_cpu_us, CPU_MAX_US),
    ];
    for (figure, pick, limit) in rows {
        let values: Vec<(f64, f64)> = rounds.iter().map(|(subject, _)| (pick(subject), limit)).collect();
        report("GEO <= 1", &format!("{figure}, {RESULTS} nearest of {PLACES}"), "limit", &values, 0.0);
    }
}

/// Rows of callers at once.
async fn measure_at_once(
    fireteam: MeasuredServers<'_>,
    reference: MeasuredServers<'_>,
    reference_name: &str,
    (searches, calls): (&Arc<[Bytes]>, usize),
) {
    let (mut rates, mut cpu) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let other = at_once(reference, searches, calls).await;
        let subject = at_once(fireteam, searches, calls).await;
        rates.push((subject.0, other.0));
        cpu.push((subject.1, other.1));
    }
    let named = |figure: &str| format!("{figure}, {RESULTS} nearest of {PLACES}, {CALLERS} callers");
    report("GEO >= 1", &named("searches per second"), reference_name, &rates, 0.0);
    report("GEO <= 1", &named("us of all servers for a search"), reference_name, &cpu, 0.0);
}

/// Rows against the reference. Returns the rounds of calls one by one.
async fn compare(
    fireteam: MeasuredServers<'_>,
    reference: MeasuredServers<'_>,
    reference_name: &str,
    (searches, calls): (&Arc<[Bytes]>, (usize, usize)),
) -> Vec<(RoundFigures, RoundFigures)> {
    let mut rounds = Vec::new();
    for _ in 0..ROUNDS {
        let other = one_by_one(reference, searches, calls.0).await;
        rounds.push((one_by_one(fireteam, searches, calls.0).await, other));
    }
    report_rounds(reference_name, &rounds);
    measure_at_once(fireteam, reference, reference_name, (searches, calls.1)).await;
    rounds
}

pub(crate) async fn run() {
    let Some(redis) = RedisServer::start(RedisPersistence::Off) else {
        println!("SKIPPED: GEO: redis-server is not installed");
        return;
    };
    println!("# Redis {}", redis.version().await);
    redis_search::fill(redis.address, places().take(PLACES as usize)).await;
    let ids = tempfile::NamedTempFile::new().expect("a file");
    let ids_path = ids.path().to_str().expect("a path");
    let fireteam = ServerProcess::start_with(PLACES_SERVER, PLACES, &[ids_path]);
    let ids = std::fs::read_to_string(ids_path).expect("the ids");
    let (_, searches) = searches();

    let subject = MeasuredServers::alone(&fireteam);
    let radius_km = best_radius_km(&redis, &searches).await;
    let server = start_reference(&redis, radius_km);
    check(&fireteam, &server, &ids).await;
    let reference = MeasuredServers { server: &server, redis: Some(&redis) };
    let name = format!("GEOSEARCH of Redis, first radius {radius_km} km");
    let rounds = compare(subject, reference, &name, (&searches, CALLS)).await;
    report_limits(&rounds);

    let server = start_reference(&redis, WIDE_RADIUS_KM);
    let reference = MeasuredServers { server: &server, redis: Some(&redis) };
    let name = format!("GEOSEARCH of Redis, radius {WIDE_RADIUS_KM} km");
    compare(subject, reference, &name, (&searches, WIDE_CALLS)).await;
}
