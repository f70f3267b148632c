//! Servers that share a Postgres, each a process: a change on one is visible on the others (R5, R9).

use std::path::Path;
use std::time::Duration;

use fireteam_client::{Code, HostEvents, pb};
use tokio::time::Instant;

use crate::support::certs::write_private_file;
use crate::support::database::{TestDatabase, create_test_database};
use crate::support::server_process::{ServerProcess, TEST_TIMEOUT};
use crate::support::test_server::{advertise_request, party_session};

/// Servers on one database, with the same keys.
pub(crate) struct Replicas {
    pub(crate) servers: Vec<ServerProcess>,
    folder: tempfile::TempDir,
}

impl Replicas {
    /// Starts `count` servers at once, with these additional arguments.
    pub(crate) fn start(database: &TestDatabase, count: usize, arguments: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Servers of one database name users alike, also those that a test starts with other token keys.
        write_private_file(&folder.path().join("token-key.user-key"), &"5e".repeat(32));
        let servers = std::thread::scope(|scope| {
            let start = || start_server(folder.path(), database, arguments);
            let threads: Vec<_> = (0..count).map(|_| scope.spawn(start)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        Self { servers, folder }
    }

    /// Starts another server beside the others.
    pub(crate) fn start_another(&self, database: &TestDatabase, arguments: &[&str]) -> ServerProcess {
        start_server(self.folder.path(), database, arguments)
    }
}

/// Starts a server with the keys of a folder.
fn start_server(folder: &Path, database: &TestDatabase, arguments: &[&str]) -> ServerProcess {
    let key = folder.join("token-key").display().to_string();
    let match_key = folder.join("match-key.pem").display().to_string();
    let keys = ["--token-key-file", &key, "--match-key-file", &match_key];
    let store = ["--store", &database.url, "--trusted-proxies", "127.0.0.0/8"];
    ServerProcess::start(folder, &[&store, &keys[..], arguments].concat())
}

/// Polls until the condition holds; returns the time that it took.
pub(crate) async fn until(what: &str, mut is_done: impl AsyncFnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !is_done().await {
        assert!(started.elapsed() < TEST_TIMEOUT, "timed out waiting for: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    started.elapsed()
}

/// Search results of a party on a server: ids and open seats.
pub(crate) async fn found(server: &ServerProcess, name: &str) -> Vec<(String, u32)> {
    let mut searching = server.client().await.new_search(1, party_session(&[(name, 0.0)]));
    let answer = searching.search().await.expect("search");
    let seen = |it: pb::Candidate| (it.advertisement_id, it.open_seats);
    answer.candidates.into_iter().map(seen).collect()
}

async fn next(events: &mut HostEvents) -> pb::ReservationEvent {
    tokio::time::timeout(TEST_TIMEOUT, events.next_reservation_event()).await.expect("in time").expect("an event")
}

/// R5, R9: an advertisement on one server is found, reserved, extended and deleted on the other; the host receives the
/// events.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advertisement_on_one_server_is_served_by_the_other() {
    let Some(database) = create_test_database("advertisement_on_one_server_is_served_by_the_other").await else {
        return;
    };
    let replicas = Replicas::start(&database, 2, &[]);
    let [here, there] = &replicas.servers[..] else { unreachable!() };
    let (connection, mut events) = here.client().await.open_stream().await.expect("open");
    let mut advertised = connection.advertise(advertise_request(&[("host", 0.0)], 3)).await.expect("advertise");
    let id = advertised.id().to_owned();
    let expected = vec![(id.clone(), 3)];
    assert_eq!(found(here, "guest").await, expected, "the first server finds its own advertisement at once");
    until("found on the other server", async || found(there, "guest").await == expected).await;

    let mut searching = there.client().await.new_search(1, party_session(&[("guest", 0.0), ("friend", 0.0)]));
    searching.search().await.expect("search");
    let reserved = searching.reserve(advertised.id()).await.expect("reserve");
    assert_eq!(reserved.connect_data, b"host:7777");
    let event = next(&mut events).await;
    assert_eq!(event.state(), pb::ReservationState::Held);
    assert_eq!(event.reservation.as_ref().unwrap().seats, 2);
    until("reserved on the first server", async || found(here, "other").await == [(id.clone(), 1)]).await;

    reserved.release().await.expect("release");
    assert_eq!(next(&mut events).await.state(), pb::ReservationState::Released);

    // The host's next heartbeats reach the other server, as behind a load balancer.
    let stub = there.client().await;
    let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: advertised.id().into(),
        advertisement_token: advertised.token().to_vec(),
        time_to_live_ms: Some(600_000),
        ..Default::default()
    };
    let answer = stub.update_advertisement(heartbeat).await.expect("heartbeat");
    assert!(500_000 < answer.expires_in_ms, "{}", answer.expires_in_ms);
    advertised.heartbeat().await.expect("heartbeat on the first server again");

    let delete = pb::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: advertised.id().into(),
        advertisement_token: advertised.token().to_vec(),
    };
    stub.delete_advertisement(delete).await.expect("delete");
    until("deleted on the first server", async || found(here, "guest").await.is_empty()).await;
    let late = advertised.heartbeat().await.expect_err("deleted on one server, it is deleted on the other");
    assert_eq!(late.code(), Some(Code::FailedPrecondition), "{late}");
}

/// R8, R9: a server that starts later, or again, has all advertisements.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restarted_server_has_all_advertisements() {
    let Some(database) = create_test_database("restarted_server_has_all_advertisements").await else { return };
    let mut replicas = Replicas::start(&database, 2, &[]);
    let client = replicas.servers[0].client().await;
    for n in 0..50 {
        client.advertise(advertise_request(&[(&format!("host {n}"), 0.0)], 3)).await.expect("advertise");
    }
    replicas.servers.swap_remove(0).kill();
    until("all on the second server", async || found(&replicas.servers[0], "guest").await.len() == 50).await;
    let later = Replicas::start(&database, 1, &[]);
    assert_eq!(found(&later.servers[0], "guest").await.len(), 50, "loaded before the server reports that it is ready");
}

/// A server that is limited to some silos refuses others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_with_silos_refuses_other_silos() {
    let Some(database) = create_test_database("server_with_silos_refuses_other_silos").await else { return };
    let all = Replicas::start(&database, 1, &[]);
    let some = Replicas::start(&database, 1, &["--silos", "7,8"]);
    let advertise = async |server: &ServerProcess, silo: u64| {
        let mut request = advertise_request(&[("host", 0.0)], 3);
        request.session_composition.as_mut().unwrap().silo_id = Some(silo);
        server.client().await.advertise(request).await.map(drop)
    };
    advertise(&all.servers[0], 7).await.expect("a server without a list serves all silos");
    advertise(&some.servers[0], 8).await.expect("a silo of its list");
    let refused = advertise(&some.servers[0], 9).await.expect_err("a silo that is not in the list");
    assert_eq!(refused.code(), Some(Code::InvalidArgument));
    assert_eq!(refused.fields()[0].field, "session_composition.silo_id");
}

/// R5, R9: a party that waits at one server fills a session that is advertised at the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_on_one_server_is_filled_from_the_queue_of_the_other() {
    let Some(database) = create_test_database("session_on_one_server_is_filled_from_the_queue_of_the_other").await
    else {
        return;
    };
    let rules = tempfile::tempdir().unwrap();
    let ruleset = r#"<Ruleset Name="Backfill" SetId="1"><Teams Count="2" Size="2"/><Queue Backfill="true"/></Ruleset>"#;
    std::fs::write(rules.path().join("rules.xml"), ruleset).unwrap();
    let replicas = Replicas::start(&database, 2, &["--rulesets", &rules.path().display().to_string()]);
    let [here, there] = &replicas.servers[..] else { unreachable!() };
    for (number, [waits_at, advertised_at]) in [[here, there], [there, here]].into_iter().enumerate() {
        let (client, guest) = (waits_at.client().await, format!("guest {number}"));
        let request = pb::QueueEnterRequest {
            matchmaking_set_id: Some(1),
            session_composition: Some(party_session(&[(&guest, 0.0)])),
            ..Default::default()
        };
        let ticket = client.enter_queue(request).await.expect("enter").reference();
        let is_placed = async || {
            let heartbeat = pb::QueueHeartbeatRequest { tickets: vec![ticket.clone()], ..Default::default() };
            let status = client.heartbeat_tickets(heartbeat).await.expect("heartbeat").statuses.remove(0);
            status.state() == pb::TicketState::Placing
        };
        assert!(!is_placed().await, "no session has a seat");
        let (connection, _events) = advertised_at.client().await.open_stream().await.expect("open");
        let names = ["a", "b", "c"].map(|name| format!("{name} {number}"));
        let players: Vec<(&str, f64)> = names.iter().map(|name| (&**name, 0.0)).collect();
        let _session = connection.advertise(advertise_request(&players, 1)).await.expect("advertise");
        until("the session's seat is taken for the party", is_placed).await;
    }
}
