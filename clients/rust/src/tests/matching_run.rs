//! Search loop on a runtime: the scripted server over TCP, and hosts that answer over UDP on the loopback interface.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::UdpSocket;

use crate::matching::{ConnectTarget, EndReason, HostedSession, MatchingOptions, MatchingState, Outcome};
use crate::matching_run::{MatchingGame, RunEnd};
use crate::pb;
use crate::probe::{HostProber, ProbeKey, ProbeTarget, Responder, Verdict};

use super::scripted_server::ServerScript;

/// Longest time of a test.
const TEST_TIME: Duration = Duration::from_secs(30);

/// Game that connects, and keeps what it hears.
#[derive(Debug, Default)]
struct Game {
    targets: Mutex<Vec<ConnectTarget>>,
    news: Mutex<Vec<Outcome>>,
    received: Mutex<Vec<Vec<u8>>>,
    /// Never connects.
    hangs: bool,
}

impl MatchingGame for Game {
    async fn connect(&self, target: ConnectTarget) -> bool {
        self.targets.lock().unwrap().push(target);
        if self.hangs {
            std::future::pending::<()>().await;
        }
        true
    }

    fn notify(&self, outcome: &Outcome) {
        self.news.lock().unwrap().push(outcome.clone());
    }

    fn receive_datagram(&self, packet: &[u8], _: SocketAddr) {
        self.received.lock().unwrap().push(packet.to_vec());
    }
}

fn party() -> pb::SessionCompositionData {
    pb::SessionCompositionData { party_size_composition: vec![1], ..Default::default() }
}

async fn socket() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").await.unwrap()
}

/// Candidate whose host answers on a socket of its own. `None` as a verdict: the host is silent.
async fn candidate(id: &str, verdict: Option<Verdict>) -> pb::Candidate {
    let socket = socket().await;
    let responder = Responder::new().with_prober_data_judge(move |data, answer| {
        answer.extend(b"map");
        if data == b"build 7" { verdict.unwrap_or(Verdict::Fits) } else { Verdict::Incompatible }
    });
    assert!(responder.set_advertisement(id) && !responder.set_advertisement("no id"));
    let probe = pb::ProbeEndpoint {
        address: vec![127, 0, 0, 1],
        hosted: true,
        ..responder.probe_endpoint(socket.local_addr().unwrap().port())
    };
    tokio::spawn(async move {
        match verdict {
            Some(_) => drop(responder.run(&socket).await),
            None => std::future::pending().await,
        }
    });
    pb::Candidate { advertisement_id: id.into(), probe: Some(probe), round_trip_ms: Some(25.0), ..Default::default() }
}

/// The whole loop over real sockets: the silent host and the incompatible one are left out, and the party joins the third. Cancelled in
/// the session, the loop releases the seats.
#[tokio::test]
async fn matching_run_probes_real_hosts_and_joins_one() {
    let ids = [1, 2, 3].map(|number: u128| format!("{:032x}", number << 64));
    let candidates = vec![
        candidate(&ids[0], None).await,
        candidate(&ids[1], Some(Verdict::Incompatible)).await,
        candidate(&ids[2], Some(Verdict::Fits)).await,
    ];
    let plan = pb::LatencyPlan { quick: 8, involved: 3, probe_players: 1, quick_timeout_ms: 3_000 };
    let found = pb::MatchmakingSearchResponse { candidates, latency_plan: Some(plan), ..Default::default() };
    let (script, client) = ServerScript { found: Mutex::new(Some(found)), ..Default::default() }.start().await;
    let options = MatchingOptions { game_data: b"build 7".to_vec(), ..MatchingOptions::new(7, party()) };
    let (socket, game, mut run) = (socket().await, Game::default(), client.matching_run_with_options(options));
    let own = socket.local_addr().unwrap();
    socket.send_to(b"a packet of the game", own).await.unwrap();

    let end = tokio::time::timeout(TEST_TIME, run.run(&socket, &game)).await.unwrap();
    assert_eq!((end, run.state()), (RunEnd::Joined, MatchingState::Joined));
    let target = game.targets.lock().unwrap()[0].clone();
    assert_eq!((target.advertisement_id.as_str(), target.connect_data.as_slice()), (&*ids[2], &b"host:1"[..]));
    assert_eq!(*game.received.lock().unwrap(), [b"a packet of the game"]);
    let reports = script.reports.lock().unwrap().clone();
    use pb::ProbeOutcome::{Answered, Incompatible, Silent};
    let outcome = |report: usize, id: &str| {
        let measurements = reports[report].measurements.iter();
        measurements.clone().find(|measurement| measurement.advertisement_id == id).map(pb::LatencyMeasurement::outcome)
    };
    assert_eq!(ids.clone().map(|id| outcome(0, &id)), [Some(Silent), Some(Answered), Some(Answered)]);
    assert_eq!(ids.clone().map(|id| outcome(1, &id)), [None, Some(Incompatible), Some(Answered)]);
    let statistics = reports[1].measurements.iter().find_map(|measurement| measurement.statistics).unwrap();
    assert!(statistics.floor_ms().is_finite() && statistics.floor_ms() < 1_000.0);
    assert_eq!(script.reserves.lock().unwrap()[0].search_token, b"+!!");

    let handle = run.handle();
    handle.cancel().await;
    let end = tokio::time::timeout(TEST_TIME, run.run(&socket, &game)).await.unwrap();
    assert_eq!(end, RunEnd::Ended(EndReason::Cancelled));
    let releases = script.releases.lock().unwrap();
    assert_eq!((releases.len(), releases[0].reservation_id.as_str()), (1, "seat"));
}

/// A player cancels while the game connects: the connect is dropped and the seats are released.
#[tokio::test]
async fn matching_run_that_is_cancelled_drops_the_connect() {
    let (script, client) = ServerScript::default().start().await;
    let (socket, game, mut run) =
        (socket().await, Game { hangs: true, ..Default::default() }, client.matching_run(7, party()));
    let handle = run.handle();
    let cancel = async {
        while game.targets.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        handle.cancel().await;
    };
    let (end, ()) =
        tokio::time::timeout(TEST_TIME, async { tokio::join!(run.run(&socket, &game), cancel) }).await.unwrap();
    assert_eq!(end, RunEnd::Ended(EndReason::Cancelled));
    assert_eq!(script.releases.lock().unwrap().len(), 1);
    assert_eq!(*game.news.lock().unwrap(), [Outcome::Ended(EndReason::Cancelled)]);
}

/// A host is probed on its own socket while it advertises, and deletes its advertisement when it is cancelled.
#[tokio::test]
async fn matching_run_of_a_host_answers_probes_and_deletes_its_advertisement() {
    let id = "0102030405060708090a0b0c0d0e0f10".to_owned();
    let script = ServerScript { advertisement_id: Mutex::new(Some(id)), ..Default::default() };
    let (script, client) = script.start().await;
    script.advertises.store(true, Ordering::SeqCst);
    let (socket, game) = (socket().await, Arc::new(Game::default()));
    let session = pb::SessionCompositionData { max_allowed_join_reservation_count: Some(3), ..party() };
    let port = socket.local_addr().unwrap().port();
    let hosting = HostedSession { session, probe_port: Some(port), ..Default::default() };
    let options = MatchingOptions { hosting: Some(hosting), ..MatchingOptions::new(7, party()) };
    let mut run = client.matching_run_with_options(options);
    let handle = run.handle();
    let hosted = game.clone();
    let host = tokio::spawn(async move { run.run(&socket, &*hosted).await });
    while !game.news.lock().unwrap().iter().any(|outcome| matches!(outcome, Outcome::Advertised(_))) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let probe = script.updates.lock().unwrap()[0].probe.clone().unwrap();
    assert_eq!(probe.port, u32::from(port));
    let (key, endpoint) = (ProbeKey::new(&probe.probe_key).unwrap(), SocketAddr::from(([127, 0, 0, 1], port)));
    let target = ProbeTarget { endpoint, key, advertisement_id_prefix: [1, 2, 3, 4, 5, 6, 7, 8] };
    let (mut prober, searcher) = (HostProber::new(target, [7; 8], 25.0), self::socket().await);
    searcher.send_to(&prober.next_packet(0).unwrap(), endpoint).await.unwrap();
    let mut answer = [0; 64];
    let (length, from) = tokio::time::timeout(TEST_TIME, searcher.recv_from(&mut answer)).await.unwrap().unwrap();
    assert!(prober.handle(&answer[..length], from, 1_000), "the host answers");
    handle.cancel().await;
    let end = tokio::time::timeout(TEST_TIME, host).await.unwrap().unwrap();
    assert_eq!(end, RunEnd::Ended(EndReason::Cancelled));
    assert_eq!(script.deletes.lock().unwrap()[0].advertisement_token, b"mine");
}
