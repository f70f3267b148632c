//! Attacks on the round trips to regions that a player measured, as others see their effect.

use std::collections::BTreeMap;
use std::fs;

use fireteam::config::RegionPlace;
use fireteam::domain::latency::beacon_fleet::{Beacon, BeaconFleet};
use fireteam::domain::latency::beacon_vector::{MeasuredBeaconFloor, floors_of_published, published_vector};
use fireteam::domain::latency::predictor_constants::PREDICTOR_V1;
use fireteam::domain::latency::published_vector::PublishedVector;
use fireteam::domain::locality::{KM_PER_MILE, Locality};
use fireteam::domain::location_privacy::{RegionPlaces, arc_km, coarsen_region_latencies, snap_to_equal_width_grid};
use fireteam::domain::ruleset::probing::LatencyTrust;
use fireteam::domain::session::RegionLatency;
use fireteam::domain::time::UnixMs;
use fireteam_client::{Client, pb};
use pb::TicketState;
use rand::Rng;

use crate::security::trilateration::{
    DEFAULT_GRIDS, Degrees, GeoTestServer, distance_km, locality_of, quantile, random_location, random_locations,
    seeded_rng,
};
use crate::support::queue_server::{QueuedParty, SET_ID, enter_request};
use crate::support::shared_data::shared_data;
use crate::support::test_server::{advertise_request, party_session};

/// Milliseconds per kilometer along the surface of a straight network path.
const MS_PER_KM: f64 = 0.016_567;
/// Standard deviation of the noise of a floor of many packets, milliseconds.
const NOISE_MS: f64 = 1.0;
/// Width of the steps in which others know round trips, milliseconds.
const STEP_MS: f64 = 25.0;
/// Points per side of a cell at which the attacker compares.
const POINTS_PER_SIDE: u32 = 21;

/// Knowledge of the attacker about each round trip.
#[derive(Clone, Copy, PartialEq)]
enum Learned {
    /// As others may know it.
    Shared,
    /// The whole published beacon vector: more than predictions tell, which depend on it and the cell alone.
    Published,
    /// In steps, without the move to the center of the cell.
    Stepped,
    /// As measured.
    Exact,
}

/// A region with its place, and the network path to it from one cell: longer than straight, as the attacker knows.
struct Path {
    place: Locality,
    detour: f64,
}

impl Path {
    /// Floor of the round trip from `place`, without noise.
    fn floor_ms(&self, place: Locality, last_mile_ms: f64) -> f64 {
        last_mile_ms + MS_PER_KM * self.detour * arc_km(place, self.place)
    }
}

/// Round trips as learned by others from exact ones.
fn learned_ms(learned: Learned, paths: &[Path], exact_ms: &[f64], place: Locality, center: Locality) -> Vec<f64> {
    let region = |number: usize| format!("r{number:02}").into_boxed_str();
    let mut latencies: Vec<RegionLatency> = exact_ms
        .iter()
        .enumerate()
        .map(|(number, ms)| RegionLatency { region: region(number), round_trip_ms: *ms as f32 })
        .collect();
    let places = RegionPlaces::new(paths.iter().enumerate().map(|(number, path)| (region(number), path.place)));
    match learned {
        Learned::Exact => return exact_ms.to_vec(),
        Learned::Published => return published_ms(paths, exact_ms, place, center),
        Learned::Stepped => coarsen_region_latencies(&mut latencies, None, |region| places.place_of(region)),
        Learned::Shared => {
            coarsen_region_latencies(&mut latencies, Some((place, center)), |region| places.place_of(region))
        }
    }
    latencies.iter().map(|latency| f64::from(latency.round_trip_ms)).collect()
}

/// Floors of the vector that is published for these floors to beacons at the ends of the paths.
fn published_ms(paths: &[Path], exact_ms: &[f64], place: Locality, center: Locality) -> Vec<f64> {
    let beacon = |(id, path): (usize, &Path)| Beacon { id: id as u32, place: path.place };
    let beacons: Vec<Beacon> = paths.iter().enumerate().map(beacon).collect();
    let fleet = BeaconFleet::new(&beacons, &[], PREDICTOR_V1);
    let floor = |(id, floor_ms): (usize, &f64)| MeasuredBeaconFloor { beacon_id: id as u32, floor_ms: *floor_ms };
    let floors: Vec<MeasuredBeaconFloor> = exact_ms.iter().enumerate().map(floor).collect();
    let vector = published_vector(&fleet, &floors, (place, center), UnixMs(1), LatencyTrust::Proven).expect("floors");
    // As it is in the store.
    let stored = PublishedVector::decode(&vector.encode()).expect("a vector");
    floors_of_published(&stored).iter().map(|floor| floor.floor_ms).collect()
}

/// Distribution function of the noise, nearly.
fn noise_below(ms: f64) -> f64 {
    1.0 / (1.0 + (-1.702 * ms / NOISE_MS).exp())
}

/// Logarithm of the probability of one learned value, if `expected_ms` is what is measured but for noise.
fn log_likelihood(learned: Learned, learned_ms: f64, expected_ms: f64) -> f64 {
    if learned == Learned::Exact {
        return -((learned_ms - expected_ms) / NOISE_MS).powi(2) / 2.0;
    }
    let (low, high) = (learned_ms - STEP_MS / 2.0 - expected_ms, learned_ms + STEP_MS / 2.0 - expected_ms);
    (noise_below(high) - noise_below(low)).max(1e-12).ln()
}

/// Points of the cell around `center`.
fn points_of_cell(center: Degrees) -> Vec<Degrees> {
    let half = DEFAULT_GRIDS[1] / 2.0;
    let offsets =
        move || (0..POINTS_PER_SIDE).map(move |at| (f64::from(at) + 0.5) / f64::from(POINTS_PER_SIDE) * 2.0 - 1.0);
    let width = half / center.0.to_radians().cos();
    offsets().flat_map(|north| offsets().map(move |east| (center.0 + north * half, center.1 + east * width))).collect()
}

/// Error of the mean of all points of the cell, each with its probability after what the attacker learned, kilometers.
fn errors_km(learned: Learned, region_count: usize) -> Vec<f64> {
    let mut rng = seeded_rng(31);
    let mut errors: Vec<f64> = (0..250)
        .map(|_| {
            let at = random_location(&mut rng);
            let center = snap_to_equal_width_grid(at.0, at.1, DEFAULT_GRIDS[1]);
            let regions = random_locations(region_count, &mut rng);
            let path = |place: &Degrees| Path { place: locality_of(*place), detour: rng.random_range(1.0..1.6) };
            let paths: Vec<Path> = regions.iter().map(path).collect();
            let last_mile_ms = rng.random_range(2.0..20.0);
            let mut noise = || (0..12).map(|_| rng.random_range(-0.5..0.5)).sum::<f64>() * NOISE_MS;
            let exact: Vec<f64> =
                paths.iter().map(|path| (path.floor_ms(locality_of(at), last_mile_ms) + noise()).max(0.0)).collect();
            let seen = learned_ms(learned, &paths, &exact, locality_of(at), locality_of(center));
            let expected = |point: Locality, path: &Path| {
                let floor_ms = path.floor_ms(point, last_mile_ms);
                let moved_ms = MS_PER_KM * (arc_km(point, path.place) - arc_km(locality_of(center), path.place));
                if matches!(learned, Learned::Shared | Learned::Published) {
                    (floor_ms - moved_ms).max(0.0)
                } else {
                    floor_ms
                }
            };
            let weight = |point: &Degrees| -> f64 {
                let log = |(path, ms): (&Path, &f64)| log_likelihood(learned, *ms, expected(locality_of(*point), path));
                paths.iter().zip(&seen).map(log).sum()
            };
            let weighted: Vec<(Degrees, f64)> =
                points_of_cell(center).into_iter().map(|point| (point, weight(&point))).collect();
            let best = weighted.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
            let sum = weighted.iter().fold([0.0; 3], |sum, ((north, east), log)| {
                let weight = (log - best).exp();
                [sum[0] + weight, sum[1] + weight * north, sum[2] + weight * east]
            });
            let longitude = (sum[2] / sum[0] + 540.0).rem_euclid(360.0) - 180.0;
            distance_km((sum[1] / sum[0], longitude), at)
        })
        .collect();
    errors.sort_by(f64::total_cmp);
    errors
}

/// SEC-9: an attacker who knows the round trips from every place of a cell to each region and beacon learns those of a player. Those
/// that others may know miss by more than 100 km, also all floors that predictions use; in steps alone they would not.
#[test]
fn round_trips_to_regions_miss_by_100_km() {
    for region_count in [12, 24] {
        let [shared, published, stepped, exact] =
            [Learned::Shared, Learned::Published, Learned::Stepped, Learned::Exact]
                .map(|it| quantile(&errors_km(it, region_count), 0.5));
        println!(
            "{region_count} round trips: {shared:.0} km error in the median, {published:.0} by a vector, {stepped:.0} without the move to the center, \
             {exact:.0} as measured"
        );
        assert!(
            100.0 <= shared && 100.0 <= published,
            "{region_count} regions: {shared} km, by a vector {published} km"
        );
        assert!(stepped < 100.0 && exact < 50.0, "the attack is not effective: {stepped} and {exact} km");
    }
}

/// SEC-9: who is matched with whom tells whether a player's exact round trip is within its own limit of a region. An attacker
/// who learns eleven exact round trips so, and has those of 243 other hosts, takes the place of the most similar host.
#[test]
fn own_round_trips_to_regions_miss_by_100_km_with_reference_hosts() {
    let Some((places, round_trips)) = measured_hosts() else { return };
    let ids: Vec<u32> = places.keys().copied().collect();
    let regions: Vec<u32> = ids.iter().copied().step_by(ids.len() / 11).take(11).collect();
    let trips_of = |host: &u32| -> Option<Vec<f64>> {
        regions.iter().map(|region| round_trips.get(&(*host, *region)).copied()).collect()
    };
    let hosts = ids.iter().filter(|id| !regions.contains(id));
    let known: Vec<(u32, Vec<f64>)> = hosts.filter_map(|id| Some((*id, trips_of(id)?))).collect();
    let unlike = |one: &[f64], other: &[f64]| one.iter().zip(other).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let mut errors: Vec<f64> = known
        .iter()
        .map(|(id, trips)| {
            let others = known.iter().filter(|(other, _)| other != id);
            let most_similar = others.min_by(|one, other| unlike(&one.1, trips).total_cmp(&unlike(&other.1, trips)));
            places[id].chord_miles(places[&most_similar.expect("another host").0]) * KM_PER_MILE
        })
        .collect();
    errors.sort_by(f64::total_cmp);
    let half = quantile(&errors, 0.5);
    println!("eleven exact round trips against {} reference hosts: {half:.0} km error in the median", known.len() - 1);
    assert!(200 < known.len() && 100.0 <= half, "{half} km, {} hosts", known.len());
}

/// Places of hosts, and round trips between them, milliseconds.
type MeasuredHosts = (BTreeMap<u32, Locality>, BTreeMap<(u32, u32), f64>);

fn measured_hosts() -> Option<MeasuredHosts> {
    let folder = shared_data("latency-wonderproxy")?;
    let sites = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let sites = sites.filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("servers")));
    let sites = fs::read_to_string(sites.last().expect("a file of sites")).unwrap();
    let mut reader = csv::Reader::from_reader(sites.as_bytes());
    let columns = reader.headers().unwrap().clone();
    let column = |name: &str| columns.iter().position(|it| it == name).expect("a column");
    let (id, latitude, longitude) = (column("id"), column("latitude"), column("longitude"));
    let mut places = BTreeMap::new();
    for row in reader.records() {
        let row = row.unwrap();
        let place = Locality::from_degrees(row[latitude].parse().unwrap(), row[longitude].parse().unwrap()).unwrap();
        places.insert(row[id].parse().unwrap(), place);
    }
    // Its location is wrong.
    places.remove(&220);
    let mut round_trips = BTreeMap::new();
    let pings = fs::read_to_string(folder.join("pings-2020-07-19-2020-07-20-grouped.csv")).unwrap();
    for line in pings.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        round_trips.insert((fields[0].parse().unwrap(), fields[1].parse().unwrap()), fields[3].parse().unwrap());
    }
    Some((places, round_trips))
}

/// A 1v1 queue whose quality is the mean round trip to the region, as a negative number, for players of one place.
fn ruleset_by_region() -> String {
    format!(
        r#"<Ruleset Name="Region" SetId="{SET_ID}">
  <SoftFilters><SoftFilter Attribute="distance" Weight="1000"/></SoftFilters>
  <Teams Count="2" Size="1"/>
  <Queue PassIntervalMs="10"><Regions Mode="quality" Weight="600" SpanMs="600"/>
    <Quality><SoftScore MaxScore="1000"/></Quality></Queue>
</Ruleset>"#
    )
}

fn to_east(round_trip_ms: f32) -> Vec<pb::RegionLatency> {
    vec![pb::RegionLatency { region: "east".into(), round_trip_ms }]
}

async fn enter(client: &Client, name: &str, round_trips: Vec<pb::RegionLatency>) -> QueuedParty {
    let mut request = enter_request(SET_ID, &[(name, 0.0)]);
    let session = request.session_composition.as_mut().unwrap();
    session.players[0].skill = None;
    session.region_latencies = round_trips;
    QueuedParty::enter_with_client(client.clone(), request).await
}

/// SEC-9: a player's round trip to a region whose place the server knows counts for others as from the center of the cell, in
/// searches and in matches; in steps alone where the place is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn round_trip_to_a_known_region_counts_as_from_the_cell_center() {
    // 1.3 degrees east of the center of its cell: 2.4 ms nearer to a region in the east.
    let player = (1.5, 2.8);
    for (longitude, expected_ms) in [(Some(60.0), 75.0), (Some(-60.0), 50.0), (None, 50.0)] {
        let ruleset = ruleset_by_region();
        let world = GeoTestServer::start_with(&[player], &[player], DEFAULT_GRIDS, Some(&ruleset), |config| {
            let place = |longitude| RegionPlace { region: "east".into(), latitude: 1.5, longitude };
            config.region_places = longitude.map(place).into_iter().collect();
        })
        .await;
        let (player, attacker) = (&world.player_clients[0], &world.attacker_clients[0]);
        let mut advertised = advertise_request(&[("host", 0.0)], 5);
        advertised.matchmaking_set_id = Some(SET_ID);
        let session = advertised.session_composition.as_mut().unwrap();
        (session.players[0].skill, session.region_latencies) = (None, to_east(61.0));
        player.advertise(advertised).await.expect("advertise");
        let mut searching = party_session(&[("searcher", 0.0)]);
        (searching.players[0].skill, searching.region_latencies) = (None, to_east(0.0));
        let found = attacker.new_search(SET_ID, searching).search().await.expect("search");
        let [candidate] = &found.candidates[..] else { panic!("one session: {found:?}") };
        assert_eq!(candidate.round_trip_ms, Some(expected_ms), "found by a search, {longitude:?}");

        let _waiting = enter(player, "player", to_east(61.0)).await;
        let mut attacking = enter(attacker, "attacker", to_east(0.0)).await;
        let found = attacking.wait_for_state(TicketState::Matched).await.found_match.expect("a match");
        assert_eq!(found.quality, f64::from(-expected_ms / 2.0), "the mean in a match, {longitude:?}");
    }
}
