//! Round trips that beacons prove, from their packets to the search: beacons as processes, a server, and the search loop of the Rust client.

use std::net::IpAddr;
use std::time::Duration;

use fireteam::auth::identity::Role;
use fireteam_client::matching_run::RunEnd;
use fireteam_client::pb;
use tokio::net::UdpSocket;
use tokio::time::timeout;

use crate::cluster::{Cluster, client};
use crate::identities::Identities;
use crate::measured_latency::beacon_processes::{BeaconPlan, BeaconProcess};
use crate::measured_latency::hosts::{Host, HostPlan, SET, located_session};
use crate::measured_latency::recorded_calls::CallRecorder;
use crate::measured_latency::{Game, SEARCHER, ruleset};
use crate::report::TestReport;
use crate::support::delay_line::Path;
use crate::support::server_process::TEST_TIMEOUT;

/// Least round trips to the beacons, milliseconds.
const NEAR_MS: u64 = 20;
const FAR_MS: u64 = 120;
/// Most packets to one beacon: six hellos and six proofs. Three to one that does not answer.
const CONVERSATIONS_MAX: usize = 6;
const UNANSWERED_MAX: usize = 3;

fn path(round_trip_ms: u64) -> Path {
    Path::of_round_trip(Duration::from_millis(round_trip_ms), Duration::from_millis(1))
}

/// Beacons of the scenario. The last one is killed before the client measures.
async fn start_beacons(
    report: &TestReport,
    server: std::net::SocketAddr,
    identities: &Identities,
    folder: &std::path::Path,
) -> Vec<BeaconProcess> {
    let plans = [("frankfurt", NEAR_MS), ("tokyo", FAR_MS), ("sydney", NEAR_MS)];
    let mut beacons = Vec::new();
    for (id, (region, round_trip_ms)) in (1_u8..).zip(plans) {
        let place = (IpAddr::from([127, 0, 0, 20 + id]), report.seed() ^ u64::from(id));
        let plan = BeaconPlan { id: id.into(), region, path: path(round_trip_ms) };
        beacons.push(BeaconProcess::start(plan, place, (server, identities, folder)).await);
    }
    beacons.last_mut().expect("three").kill();
    beacons
}

/// The report proves each living beacon's round trip, none shorter than its path, and leaves the dead one out.
fn check_report(measured: &pb::ReportTripsResponse) {
    let proven = i32::from(pb::ReceiptVerdict::Proven);
    assert!(8 <= measured.verdicts.len() && measured.verdicts.iter().all(|it| *it == proven), "{measured:?}");
    let regions: Vec<(&str, bool)> = measured.regions.iter().map(|it| (&*it.region, it.claimed)).collect();
    assert_eq!(regions, [("frankfurt", false), ("tokyo", false)], "the dead beacon is left out");
    for (region, least_ms) in measured.regions.iter().zip([NEAR_MS, FAR_MS]) {
        assert!(least_ms as f32 <= region.round_trip_ms, "{region:?}");
    }
}

fn check_packets(report: &mut TestReport, beacons: &[BeaconProcess]) {
    for (at, beacon) in beacons.iter().enumerate() {
        let (hellos, proofs) = beacon.longest_run();
        report.record(beacon.plan.region, format!("{hellos} + {proofs} packets"));
        assert!(proofs <= hellos && hellos <= CONVERSATIONS_MAX, "{hellos} + {proofs}");
        if at == 2 {
            assert_eq!((hellos, proofs), (UNANSWERED_MAX, 0), "the dead one");
        }
    }
}

/// LAT-5, SEC-8: a search loop measures three beacons, of which one is dead. Its first search carries a token by which the server
/// knows the way to a session that states its own round trip to a region; without the token it does not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn search_loop_proves_its_round_trips_by_beacons() {
    let mut report = TestReport::start("proven round trips, SQLite").await;
    let (identities, folder) = (Identities::create(), tempfile::tempdir().expect("a folder"));
    let fleet_key = folder.path().join("fleet-key").display().to_string();
    let mut arguments = identities.arguments();
    arguments.extend(["--beacon-fleet-key-file".to_owned(), fleet_key]);
    let arguments: Vec<&str> = arguments.iter().map(|argument| &**argument).collect();
    let cluster = Cluster::start_with_ruleset_and("sqlite:fireteam.db", 1, &ruleset(""), &arguments);
    let server = cluster.address(0).expect("a server");
    let beacons = start_beacons(&report, server, &identities, folder.path()).await;
    let plan = HostPlan { name: "host", path: path(NEAR_MS), stated_ms: 50.0 };
    let place = (IpAddr::from([127, 0, 0, 11]), report.seed());
    let host = Host::start(plan, place, (server, &identities, Role::GameServer)).await;

    let recorder = CallRecorder::start(server).await;
    let searcher = identities.client_of(&client(&recorder.address.to_string()), SEARCHER);
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    let mut party = located_session(SEARCHER, 0.0);
    party.region_latencies.clear();
    let mut matching = searcher.matching_run(SET, party.clone()).with_beacon_measurement();
    let game = Game::default();
    let end = timeout(TEST_TIMEOUT, matching.run(&socket, &game)).await.expect("the loop ends in time");
    assert_eq!(end, RunEnd::Joined);
    check_packets(&mut report, &beacons);

    let searches: Vec<pb::MatchmakingSearchRequest> = recorder.requests("Search");
    let token = searches[0].session_composition.as_ref().expect("a party").latency_token.clone();
    assert!(!token.is_empty(), "the first search has a token");
    let round_trip = async |token: &[u8]| {
        let party = pb::SessionCompositionData { latency_token: token.to_vec(), ..party.clone() };
        let found = searcher.new_search(SET, party).search().await.expect("a search");
        assert_eq!(found.ignored_fields, [""; 0]);
        let candidate = found.candidates.iter().find(|it| it.advertisement_id == host.advertisement_id);
        candidate.and_then(|it| it.round_trip_ms.map(|ms| (it.round_trip_source(), ms)))
    };
    let (source, round_trip_ms) = round_trip(&token).await.expect("an estimate by the proven round trips");
    assert_eq!(source, pb::RoundTripSource::Region);
    assert!(NEAR_MS as f32 <= round_trip_ms, "{round_trip_ms} ms");
    assert_eq!(round_trip(&[]).await, None, "without a token nothing is known of the searcher");
    report.record("estimate ms", round_trip_ms);

    let own = UdpSocket::bind("127.0.0.1:0").await.expect("a free port");
    let measured = timeout(TEST_TIMEOUT, searcher.measure_beacons(&own)).await.expect("in time").expect("a report");
    check_report(&measured);
    let [frankfurt, tokyo] = &*measured.regions else { panic!("{measured:?}") };
    report.record("proven ms", format!("{:.1}, {:.1}", frankfurt.round_trip_ms, tokyo.round_trip_ms));
    report.finish();
}
