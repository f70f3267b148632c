//! An operator asks whether a server believes what its store says, and is told the truth (R9).

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fireteam::config::StoreTarget;
use fireteam_client::{Client, RetryPolicy};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};
use tonic::Code;
use tonic::transport::Endpoint;

use crate::support::database::{TestDatabase, create_test_database};
use crate::support::test_server::{TestServer, advertise_request, party_session};
use crate::support::generated_client::ConsistencyDifferenceKind as Kind;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::generated_client::{CheckConsistencyRequest, CheckConsistencyResponse};
use crate::store::replicas::{Replicas, until};

/// Audits of a server that is written to all the time.
const CHECK_ROUNDS: usize = 10;

async fn check_consistency(operator: SocketAddr) -> CheckConsistencyResponse {
    let channel = Endpoint::from_shared(format!("http://{operator}")).unwrap().connect().await.expect("connect");
    let request = CheckConsistencyRequest { max_differences: Some(1_000) };
    OperatorServiceClient::new(channel).check_consistency(request).await.expect("an audit").into_inner()
}

/// The one advertisement that differs, and in what.
async fn single_difference(operator: SocketAddr) -> (String, Vec<Kind>) {
    let told = check_consistency(operator).await;
    assert_eq!((told.difference_count, told.differences.len()), (1, 1), "{told:?}");
    (told.differences[0].advertisement_id.clone(), told.differences[0].kinds().collect())
}

/// Everything that can happen to sessions. What is left is 7 advertisements with 2 reservations.
async fn run_all_operations(client: &Client) -> Vec<String> {
    let mut all = Vec::new();
    for n in 0..8 {
        all.push(client.advertise(advertise_request(&[(&format!("host {n}"), 0.0)], 4)).await.expect("advertise"));
    }
    let mut taken = Vec::new();
    for (n, hosted) in all.iter().enumerate().take(4) {
        let mut searching = client.search_session(1, party_session(&[(&format!("guest {n}"), 0.0)]));
        searching.search().await.expect("search");
        taken.push(searching.reserve(hosted.id()).await.expect("reserve"));
    }
    all[0].confirm(vec![taken[0].id.clone()]).await.expect("confirm");
    all[4].update(advertise_request(&[("host 4", 9.0)], 2)).await.expect("update");
    all[5].heartbeat().await.expect("heartbeat");
    let mut settled = advertise_request(&[("host 3", 0.0), ("guest 3", 0.0)], 3);
    settled.joined_reservation_ids = vec![taken.pop().expect("four").id];
    all[3].update(settled).await.expect("settle");
    taken.pop().expect("three").release().await.expect("release");
    all.pop().expect("eight").delete().await.expect("delete");
    all.iter().map(|it| it.id().to_owned()).collect()
}

async fn start_sqlite_server(path: &Path) -> TestServer {
    TestServer::start_with_config(|config| config.store = StoreTarget::Sqlite(path.to_owned())).await
}

/// R9: after publishing, heartbeats, seats in every state, deletes, lapses and expiries, memory is what is stored.
#[tokio::test]
async fn consistency_check_finds_no_difference_after_all_operations() {
    let folder = tempfile::tempdir().unwrap();
    for house in [TestServer::start().await, start_sqlite_server(&folder.path().join("a.db")).await] {
        let operator = house.app.server.operator_address;
        let empty = check_consistency(operator).await;
        assert_eq!((empty.difference_count, empty.advertisements, empty.complete), (0, 0, true), "{empty:?}");
        run_all_operations(&house.client().await).await;
        let told = check_consistency(operator).await;
        assert_eq!((told.difference_count, told.advertisements, told.reservations), (0, 7, 2), "{told:?}");
        assert_eq!((told.complete, told.not_yet_durable, told.changing), (true, 0, 0), "{told:?}");
        house.clock.advance_ms(30_000);
        house.sweep_expired().await;
        let told = check_consistency(operator).await;
        assert_eq!(
            (told.difference_count, told.advertisements, told.reservations),
            (0, 7, 1),
            "one has lapsed: {told:?}"
        );
        house.clock.advance_ms(60_000);
        assert_eq!(check_consistency(operator).await.difference_count, 0, "expired and not yet swept");
        house.sweep_expired().await;
        let told = check_consistency(operator).await;
        assert_eq!((told.difference_count, told.advertisements), (0, 0), "{told:?}");
        assert!(house.app.metrics.render().contains("\nfireteam_consistency_differences 0\n"));
        house.app.shutdown().await;
    }
}

async fn execute_on_sqlite(path: &Path, statement: &'static str, id: &str) {
    let mut connection: SqliteConnection = SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    let done = sqlx::query(statement).bind(id).execute(&mut connection).await.unwrap();
    assert_eq!(done.rows_affected(), 1, "{statement}");
    connection.close().await.unwrap();
}

/// R9: what is changed behind a server's back is found, and named for what it is.
#[tokio::test]
async fn consistency_check_reports_rows_changed_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let changes = [
        ("delete from reservation where advertisement_id = unhex($1)", Kind::Reservations),
        (
            "insert into lease select n, expires_ms + 1 from advertisement where advertisement_id = unhex($1)",
            Kind::Expiry,
        ),
        ("update advertisement set connect_data = x'00' where advertisement_id = unhex($1)", Kind::Unreadable),
        ("delete from advertisement where advertisement_id = unhex($1)", Kind::MissingInStore),
    ];
    for (number, (statement, kind)) in changes.into_iter().enumerate() {
        let path = folder.path().join(format!("{number}.db"));
        let house = start_sqlite_server(&path).await;
        let ids = run_all_operations(&house.client().await).await;
        execute_on_sqlite(&path, statement, &ids[1]).await;
        let told = single_difference(house.app.server.operator_address).await;
        assert_eq!(told, (ids[1].clone(), vec![kind]));
        assert!(house.app.metrics.render().contains("\nfireteam_consistency_differences 1\n"));
        let again = single_difference(house.app.server.operator_address).await;
        assert_eq!(again, told, "nothing is repaired");
        house.app.shutdown().await;
    }
}

/// Changes one row of a database, and leaves no word of it for the feeds.
async fn execute_on_postgres(database: &TestDatabase, statement: &str, id: &str) {
    let mut connection: PgConnection = database.connect().await;
    let done = sqlx::query(AssertSqlSafe(statement)).bind(id).execute(&mut connection).await.unwrap();
    assert_eq!(done.rows_affected(), 1, "{statement}");
}

/// R9: servers that share a store are what is stored, each of them, whoever did what; and where they are not, each says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consistency_check_reports_changed_rows_on_each_replica() {
    let Some(database) = create_test_database("replicas_are_what_is_stored_or_say_so").await else { return };
    let replicas = Replicas::start(&database, 2, &[]);
    let [here, there] = &replicas.servers[..] else { unreachable!() };
    let (at, client) = ([here.operator_address, there.operator_address], here.client().await);
    let ids = run_all_operations(&client).await;
    let mut moved = client.advertise(advertise_request(&[("moves", 0.0)], 3)).await.expect("advertise");
    // What has been deleted here may still be found there: the number alone says nothing.
    until("found at the other", async || {
        let answer =
            there.client().await.search_session(1, party_session(&[("a stranger", 0.0)])).search().await.expect("search");
        answer.candidates.len() == 8 && answer.candidates.iter().any(|it| it.advertisement_id == moved.id())
    })
    .await;
    let beat = fireteam_client::pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: moved.id().into(),
        advertisement_token: moved.token().to_vec(),
        ..Default::default()
    };
    there.client().await.update_advertisement(beat).await.expect("a heartbeat at the other");
    for operator in at {
        let told = check_consistency(operator).await;
        assert_eq!((told.difference_count, told.advertisements, told.reservations), (0, 8, 2), "{told:?}");
        assert!(told.complete, "{told:?}");
    }
    moved.heartbeat().await.expect("and here again");
    for operator in at {
        assert_eq!(check_consistency(operator).await.difference_count, 0);
    }

    let that = "where replace(advertisement_id::text, '-', '') = $1";
    let copy = "insert into advertisement select gen_random_uuid(), version, version_before, holder, silo_id, set_id, kind, \
                since_ms, expires_ms, join_seats, body, connect_data, deleted_until_ms from advertisement";
    let changes = [
        (format!("{copy} {that}"), Kind::MissingInMemory),
        (format!("delete from advertisement {that}"), Kind::MissingInStore),
        (format!("update advertisement set version = version + 1 {that}"), Kind::Version),
        (format!("update advertisement set connect_data = '' {that}"), Kind::Content),
        (format!("delete from reservation {that}"), Kind::Reservations),
        (format!("update advertisement set expires_ms = expires_ms + 1 {that}"), Kind::Expiry),
        (format!("update advertisement set holder = 1 {that}"), Kind::HeartbeatOwner),
    ];
    for (number, (statement, _)) in changes.iter().enumerate() {
        // The fifth has seats in it, and so have the first two.
        let id = [6, 5, 2, 3, 0, 1, 4][number];
        execute_on_postgres(&database, statement, &ids[id]).await;
    }
    for operator in at {
        let told = check_consistency(operator).await;
        let mut kinds: Vec<Kind> = told.differences.iter().flat_map(|it| it.kinds()).collect();
        kinds.sort_unstable();
        let mut expected: Vec<Kind> = changes.iter().map(|(_, kind)| *kind).collect();
        // Who is not the holder does not claim to be.
        expected.retain(|kind| *kind != Kind::HeartbeatOwner || operator == at[0]);
        expected.sort_unstable();
        assert_eq!(kinds, expected, "{told:?}");
        assert_eq!(told.difference_count, expected.len() as u64);
    }
}

/// Keeps changing until told to stop: publishes, beats, takes seats and gives them back, deletes.
async fn change_until_stopped(client: Client, number: usize, over: Arc<AtomicBool>, changes: Arc<AtomicU64>) {
    let mut round = 0;
    while !over.load(Ordering::SeqCst) {
        round += 1;
        let name = format!("host {number} {round}");
        let Ok(mut advertised) = client.advertise(advertise_request(&[(&name, 0.0)], 4)).await else { continue };
        let mut searching = client.search_session(1, party_session(&[(&format!("guest {number} {round}"), 0.0)]));
        if searching.search().await.is_ok()
            && let Ok(reserved) = searching.reserve(advertised.id()).await
        {
            let _ = reserved.release().await;
        }
        let _ = advertised.update(advertise_request(&[(&name, 1.0)], 3)).await;
        let _ = advertised.heartbeat().await;
        let _ = advertised.delete().await;
        changes.fetch_add(1, Ordering::SeqCst);
    }
}

/// Audits `at` while `clients` change all that they can.
async fn check_during_writes(clients: Vec<Client>, at: &[SocketAddr]) {
    let (over, changes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..16)
        .map(|number| {
            let client = clients[number % clients.len()].clone().with_retry_policy(RetryPolicy::NEVER);
            tokio::spawn(change_until_stopped(client, number, Arc::clone(&over), Arc::clone(&changes)))
        })
        .collect();
    let mut compared = 0;
    for _ in 0..CHECK_ROUNDS {
        for operator in at {
            let before = changes.load(Ordering::SeqCst);
            let told = check_consistency(*operator).await;
            assert_eq!(told.difference_count, 0, "{told:?}");
            compared += told.advertisements;
            while changes.load(Ordering::SeqCst) == before {
                tokio::task::yield_now().await;
            }
        }
    }
    assert!(0 < compared, "there was nothing to compare");
    over.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
}

/// R9: what is on its way is no difference, on one server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consistency_check_during_writes_finds_no_difference() {
    let folder = tempfile::tempdir().unwrap();
    let house = start_sqlite_server(&folder.path().join("a.db")).await;
    check_during_writes(vec![house.client().await], &[house.app.server.operator_address]).await;
}

/// R9: nor on servers that share a store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consistency_check_of_replicas_during_writes_finds_no_difference() {
    let Some(database) = create_test_database("replicas_that_are_written_to_differ_in_nothing").await else { return };
    let replicas = Replicas::start(&database, 2, &[]);
    let clients = vec![replicas.servers[0].client().await, replicas.servers[1].client().await];
    let at: Vec<SocketAddr> = replicas.servers.iter().map(|it| it.operator_address).collect();
    check_during_writes(clients, &at).await;
}

/// Who goes away compares nothing any more, and does not say that all is well.
#[tokio::test]
async fn consistency_check_of_a_closed_engine_is_unavailable() {
    let house = TestServer::start().await;
    let operator = house.app.server.operator_address;
    house.app.engine.close().await;
    let channel = Endpoint::from_shared(format!("http://{operator}")).unwrap().connect().await.unwrap();
    let refused =
        OperatorServiceClient::new(channel).check_consistency(CheckConsistencyRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
}
