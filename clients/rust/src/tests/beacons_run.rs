//! Measurement of beacons on a runtime: a real responder over UDP, and the loops that send the token.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::UdpSocket;

use crate::matching::{ConnectTarget, EndReason, HostedSession, MatchingOptions, Outcome};
use crate::matching_run::{MatchingGame, MatchingHandle, RunEnd};
use crate::pb;

use super::scripted_beacon::{LATENCY_TOKEN, ScriptedBeacon};
use super::scripted_server::ServerScript;

/// Longest time of a test.
const TEST_TIME: Duration = Duration::from_secs(30);

/// Game that connects, and cancels when its session is open to others.
#[derive(Debug, Default)]
struct Game {
    cancels: Option<MatchingHandle>,
}

impl MatchingGame for Game {
    async fn connect(&self, _: ConnectTarget) -> bool {
        true
    }

    fn notify(&self, outcome: &Outcome) {
        if let (Outcome::Advertised(_), Some(handle)) = (outcome, self.cancels.clone()) {
            tokio::spawn(async move { handle.cancel().await });
        }
    }
}

fn party() -> pb::SessionCompositionData {
    pb::SessionCompositionData { party_size_composition: vec![1], ..Default::default() }
}

async fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.unwrap()
}

async fn in_time<Output>(future: impl Future<Output = Output>) -> Output {
    tokio::time::timeout(TEST_TIME, future).await.expect("in time")
}

/// One measurement for a client without a loop. The beacon's round trips are real ones.
#[tokio::test]
async fn beacons_run_measures_once() {
    let beacon = ScriptedBeacon::start(false).await;
    let (_, client) = ServerScript::default().start_with(Some(beacon.clone())).await;
    let report = in_time(client.measure_beacons(&socket().await)).await.expect("a report");
    assert_eq!(report.latency_token, LATENCY_TOKEN);
    let reports = beacon.reports.lock().unwrap();
    let [receipts] = &**reports else { panic!("{} reports", reports.len()) };
    assert!((4..=6).contains(&receipts.len()), "{}", receipts.len());
}

/// The first search of a loop, its reservation and its report have the token.
#[tokio::test]
async fn beacons_run_gives_its_token_to_a_search_loop() {
    let beacon = ScriptedBeacon::start(false).await;
    let (script, client) = ServerScript::default().start_with(Some(beacon)).await;
    let mut run = client.matching_run(7, party()).with_beacon_measurement();
    assert_eq!(in_time(run.run(&socket().await, &Game::default())).await, RunEnd::Joined);
    let searches = script.searches.lock().unwrap();
    let tokens: Vec<_> = searches.iter().map(|it| &*it.session_composition.as_ref().unwrap().latency_token).collect();
    assert_eq!(tokens, [LATENCY_TOKEN]);
    let reserves = script.reserves.lock().unwrap();
    assert_eq!(reserves[0].session_composition.as_ref().unwrap().latency_token, LATENCY_TOKEN);
}

/// A host's advertisement has the token.
#[tokio::test]
async fn beacons_run_gives_its_token_to_an_advertisement() {
    let beacon = ScriptedBeacon::start(false).await;
    let (script, client) = ServerScript::default().start_with(Some(beacon)).await;
    script.advertises.store(true, Ordering::SeqCst);
    let session = pb::SessionCompositionData { max_allowed_join_reservation_count: Some(3), ..party() };
    let hosting = Some(HostedSession { session, ..Default::default() });
    let mut run = client
        .matching_run_with_options(MatchingOptions { hosting, ..MatchingOptions::new(7, party()) })
        .with_beacon_measurement();
    let game = Game { cancels: Some(run.handle()) };
    assert_eq!(in_time(run.run(&socket().await, &game)).await, RunEnd::Ended(EndReason::Cancelled));
    let updates = script.updates.lock().unwrap();
    assert_eq!(updates[0].session_composition.as_ref().unwrap().latency_token, LATENCY_TOKEN);
}

/// Without the service, and with a silent beacon, a loop goes on without a token.
#[tokio::test]
async fn beacons_run_holds_no_loop_up() {
    let silent = ScriptedBeacon::start(true).await;
    for beacon in [None, Some(silent)] {
        let (script, client) = ServerScript::default().start_with(beacon).await;
        let mut run = client.matching_run(7, party()).with_beacon_measurement();
        assert_eq!(in_time(run.run(&socket().await, &Game::default())).await, RunEnd::Joined);
        let searches = script.searches.lock().unwrap();
        assert_eq!(searches[0].session_composition.as_ref().unwrap().latency_token, b"");
    }
}

/// A player who cancels while beacons are measured leaves without a search.
#[tokio::test]
async fn beacons_run_can_be_cancelled_before_the_first_search() {
    let silent = ScriptedBeacon::start(true).await;
    let (script, client) = ServerScript::default().start_with(Some(silent)).await;
    let mut run = client.matching_run(7, party()).with_beacon_measurement();
    run.handle().cancel().await;
    assert_eq!(in_time(run.run(&socket().await, &Game::default())).await, RunEnd::Ended(EndReason::Cancelled));
    assert_eq!(script.searches.lock().unwrap().len(), 0);
}
