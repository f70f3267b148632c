//! Consistency check: an operator compares a server's memory with its store (R9).

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

use crate::store::replicas::{Replicas, until};
use crate::support::database::{TestDatabase, create_test_database};
use crate::support::generated_client::ConsistencyDifferenceKind as Kind;
use crate::support::generated_client::operator_service_client::OperatorServiceClient;
use crate::support::generated_client::{CheckConsistencyRequest, CheckConsistencyResponse};
use crate::support::test_server::{TestServer, advertise_request, party_session};

/// Checks of a server during writes.
const CHECK_ROUNDS: usize = 10;

async fn check_consistency(operator: SocketAddr) -> CheckConsistencyResponse {
    let channel = Endpoint::from_shared(format!("http://{operator}")).unwrap().connect().await.expect("connect");
    let request = CheckConsistencyRequest { max_differences: Some(1_000) };
    OperatorServiceClient::new(channel).check_consistency(request).await.expect("consistency check").into_inner()
}

/// The only reported difference: advertisement id and kinds.
async fn single_difference(operator: SocketAddr) -> (String, Vec<Kind>) {
    let report = check_consistency(operator).await;
    assert_eq!((report.difference_count, report.differences.len()), (1, 1), "{report:?}");
    (report.differences[0].advertisement_id.clone(), report.differences[0].kinds().collect())
}

/// Runs every operation on advertisements and reservations. Leaves 7 advertisements with 2 reservations.
async fn run_all_operations(client: &Client) -> Vec<String> {
    let mut all = Vec::new();
    for n in 0..8 {
        all.push(client.advertise(advertise_request(&[(&format!("host {n}"), 0.0)], 4)).await.expect("advertise"));
    }
    let mut taken = Vec::new();
    for (n, hosted) in all.iter().enumerate().take(4) {
        let mut searching = client.new_search(1, party_session(&[(&format!("guest {n}"), 0.0)]));
        searching.search().await.expect("search");
        taken.push(searching.reserve(hosted.id()).await.expect("reserve"));
    }
    all[0].confirm_reservations(vec![taken[0].id.clone()]).await.expect("confirm");
    all[4].replace_published(advertise_request(&[("host 4", 9.0)], 2)).await.expect("update");
    all[5].heartbeat().await.expect("heartbeat");
    let mut joined = advertise_request(&[("host 3", 0.0), ("guest 3", 0.0)], 3);
    joined.joined_reservation_ids = vec![taken.pop().expect("four").id];
    all[3].replace_published(joined).await.expect("join");
    taken.pop().expect("three").release().await.expect("release");
    all.pop().expect("eight").delete().await.expect("delete");
    all.iter().map(|advertisement| advertisement.id().to_owned()).collect()
}

async fn start_sqlite_server(path: &Path) -> TestServer {
    TestServer::start_with_config(|config| config.store = StoreTarget::Sqlite(path.to_owned())).await
}

/// R9: after creates, heartbeats, reservations in every state, deletes and expiries, memory equals the store.
#[tokio::test]
async fn consistency_check_finds_no_difference_after_all_operations() {
    let folder = tempfile::tempdir().unwrap();
    for server in [TestServer::start().await, start_sqlite_server(&folder.path().join("a.db")).await] {
        let operator = server.app.server.operator_address;
        let empty = check_consistency(operator).await;
        assert_eq!((empty.difference_count, empty.advertisements, empty.complete), (0, 0, true), "{empty:?}");
        run_all_operations(&server.client().await).await;
        let report = check_consistency(operator).await;
        assert_eq!((report.difference_count, report.advertisements, report.reservations), (0, 7, 2), "{report:?}");
        assert_eq!((report.complete, report.not_yet_durable, report.changing), (true, 0, 0), "{report:?}");
        server.clock.advance_ms(30_000);
        server.sweep_expired_adverts_and_wait().await;
        let report = check_consistency(operator).await;
        assert_eq!(
            (report.difference_count, report.advertisements, report.reservations),
            (0, 7, 1),
            "one hold has expired: {report:?}"
        );
        server.clock.advance_ms(60_000);
        assert_eq!(check_consistency(operator).await.difference_count, 0, "expired, not yet swept");
        server.sweep_expired_adverts_and_wait().await;
        let report = check_consistency(operator).await;
        assert_eq!((report.difference_count, report.advertisements), (0, 0), "{report:?}");
        assert!(server.app.metrics.render().contains("\nfireteam_consistency_differences 0\n"));
        server.app.shutdown().await;
    }
}

async fn execute_on_sqlite(path: &Path, statement: &'static str, id: &str) {
    let mut connection: SqliteConnection = SqliteConnectOptions::new().filename(path).connect().await.unwrap();
    let result = sqlx::query(statement).bind(id).execute(&mut connection).await.unwrap();
    assert_eq!(result.rows_affected(), 1, "{statement}");
    connection.close().await.unwrap();
}

/// R9: rows changed directly in the file are found and named by kind.
#[tokio::test]
async fn consistency_check_reports_rows_changed_in_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let changes = [
        ("delete from reservation where advertisement_id = unhex($1)", Kind::Reservations),
        (
            "insert into heartbeat select n, expires_ms + 1 from advertisement where advertisement_id = unhex($1)",
            Kind::Expiry,
        ),
        ("update advertisement set connect_data = x'00' where advertisement_id = unhex($1)", Kind::Unreadable),
        ("delete from advertisement where advertisement_id = unhex($1)", Kind::MissingInStore),
    ];
    for (number, (statement, kind)) in changes.into_iter().enumerate() {
        let path = folder.path().join(format!("{number}.db"));
        let server = start_sqlite_server(&path).await;
        let ids = run_all_operations(&server.client().await).await;
        execute_on_sqlite(&path, statement, &ids[1]).await;
        let report = single_difference(server.app.server.operator_address).await;
        assert_eq!(report, (ids[1].clone(), vec![kind]));
        assert!(server.app.metrics.render().contains("\nfireteam_consistency_differences 1\n"));
        let again = single_difference(server.app.server.operator_address).await;
        assert_eq!(again, report, "nothing is repaired");
        server.app.shutdown().await;
    }
}

/// Changes one row without a feed entry.
async fn execute_on_postgres(database: &TestDatabase, statement: &str, id: &str) {
    let mut connection: PgConnection = database.connect().await;
    let result = sqlx::query(AssertSqlSafe(statement)).bind(id).execute(&mut connection).await.unwrap();
    assert_eq!(result.rows_affected(), 1, "{statement}");
}

/// R9: servers that share a store equal it, no matter which server wrote. Rows changed directly are reported by each
/// server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consistency_check_reports_changed_rows_on_each_replica() {
    let Some(database) = create_test_database("consistency_check_reports_changed_rows_on_each_replica").await else {
        return;
    };
    let replicas = Replicas::start(&database, 2, &[]);
    let [here, there] = &replicas.servers[..] else { unreachable!() };
    let (at, client) = ([here.operator_address, there.operator_address], here.client().await);
    let ids = run_all_operations(&client).await;
    let mut moved = client.advertise(advertise_request(&[("moves", 0.0)], 3)).await.expect("advertise");
    // A deleted advertisement may still be found there: the number alone proves nothing.
    until("the advertisement is found on the other server", async || {
        let answer =
            there.client().await.new_search(1, party_session(&[("searcher", 0.0)])).search().await.expect("search");
        answer.candidates.len() == 8
            && answer.candidates.iter().any(|candidate| candidate.advertisement_id == moved.id())
    })
    .await;
    let heartbeat = fireteam_client::pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: moved.id().into(),
        advertisement_token: moved.token().to_vec(),
        ..Default::default()
    };
    there.client().await.update_advertisement(heartbeat).await.expect("heartbeat on the other server");
    for operator in at {
        let report = check_consistency(operator).await;
        assert_eq!((report.difference_count, report.advertisements, report.reservations), (0, 8, 2), "{report:?}");
        assert!(report.complete, "{report:?}");
    }
    moved.heartbeat().await.expect("heartbeat on the first server");
    for operator in at {
        assert_eq!(check_consistency(operator).await.difference_count, 0);
    }

    let condition = "where replace(advertisement_id::text, '-', '') = $1";
    let copy = "insert into advertisement select gen_random_uuid(), version, version_before, heartbeat_owner, silo_id, set_id, kind, \
                since_ms, expires_ms, join_seats, body, connect_data, deleted_until_ms from advertisement";
    let changes = [
        (format!("{copy} {condition}"), Kind::MissingInMemory),
        (format!("delete from advertisement {condition}"), Kind::MissingInStore),
        (format!("update advertisement set version = version + 1 {condition}"), Kind::Version),
        (format!("update advertisement set connect_data = '' {condition}"), Kind::Content),
        (format!("delete from reservation {condition}"), Kind::Reservations),
        (format!("update advertisement set expires_ms = expires_ms + 1 {condition}"), Kind::Expiry),
        (format!("update advertisement set heartbeat_owner = 1 {condition}"), Kind::HeartbeatOwner),
    ];
    for (number, (statement, _)) in changes.iter().enumerate() {
        // The fifth advertisement has reservations, and so have the first two.
        let id = [6, 5, 2, 3, 0, 1, 4][number];
        execute_on_postgres(&database, statement, &ids[id]).await;
    }
    for operator in at {
        let report = check_consistency(operator).await;
        let mut kinds: Vec<Kind> = report.differences.iter().flat_map(|difference| difference.kinds()).collect();
        kinds.sort_unstable();
        let mut expected: Vec<Kind> = changes.iter().map(|(_, kind)| *kind).collect();
        // Only the heartbeat owner reports a changed heartbeat owner.
        expected.retain(|kind| *kind != Kind::HeartbeatOwner || operator == at[0]);
        expected.sort_unstable();
        assert_eq!(kinds, expected, "{report:?}");
        assert_eq!(report.difference_count, expected.len() as u64);
    }
}

/// Changes until `stop` is set: creates, heartbeats, reserves, releases, deletes.
async fn change_until_stopped(client: Client, number: usize, stop: Arc<AtomicBool>, changes: Arc<AtomicU64>) {
    let mut round = 0;
    while !stop.load(Ordering::SeqCst) {
        round += 1;
        let name = format!("host {number} {round}");
        let Ok(mut advertised) = client.advertise(advertise_request(&[(&name, 0.0)], 4)).await else { continue };
        let mut searching = client.new_search(1, party_session(&[(&format!("guest {number} {round}"), 0.0)]));
        if searching.search().await.is_ok()
            && let Ok(reserved) = searching.reserve(advertised.id()).await
        {
            let _ = reserved.release().await;
        }
        let _ = advertised.replace_published(advertise_request(&[(&name, 1.0)], 3)).await;
        let _ = advertised.heartbeat().await;
        let _ = advertised.delete().await;
        changes.fetch_add(1, Ordering::SeqCst);
    }
}

/// Checks the servers at `at` while `clients` write.
async fn check_during_writes(clients: Vec<Client>, at: &[SocketAddr]) {
    let (stop, changes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writers: Vec<_> = (0..16)
        .map(|number| {
            let client = clients[number % clients.len()].clone().with_retry_policy(RetryPolicy::NEVER);
            tokio::spawn(change_until_stopped(client, number, Arc::clone(&stop), Arc::clone(&changes)))
        })
        .collect();
    let mut compared = 0;
    for _ in 0..CHECK_ROUNDS {
        for operator in at {
            let before = changes.load(Ordering::SeqCst);
            let report = check_consistency(*operator).await;
            assert_eq!(report.difference_count, 0, "{report:?}");
            compared += report.advertisements;
            while changes.load(Ordering::SeqCst) == before {
                tokio::task::yield_now().await;
            }
        }
    }
    assert!(compared > 0, "no advertisement was compared");
    stop.store(true, Ordering::SeqCst);
    for writer in writers {
        writer.await.unwrap();
    }
}

/// R9: changes in flight are not differences, on one server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consistency_check_during_writes_finds_no_difference() {
    let folder = tempfile::tempdir().unwrap();
    let server = start_sqlite_server(&folder.path().join("a.db")).await;
    check_during_writes(vec![server.client().await], &[server.app.server.operator_address]).await;
}

/// R9: changes in flight are not differences, on servers that share a store.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consistency_check_of_replicas_during_writes_finds_no_difference() {
    let Some(database) = create_test_database("consistency_check_of_replicas_during_writes_finds_no_difference").await
    else {
        return;
    };
    let replicas = Replicas::start(&database, 2, &[]);
    let clients = vec![replicas.servers[0].client().await, replicas.servers[1].client().await];
    let at: Vec<SocketAddr> = replicas.servers.iter().map(|server| server.operator_address).collect();
    check_during_writes(clients, &at).await;
}

/// A closed engine compares nothing and returns an error.
#[tokio::test]
async fn consistency_check_of_a_closed_engine_is_unavailable() {
    let server = TestServer::start().await;
    let operator = server.app.server.operator_address;
    server.app.engine.close().await;
    let channel = Endpoint::from_shared(format!("http://{operator}")).unwrap().connect().await.unwrap();
    let refused =
        OperatorServiceClient::new(channel).check_consistency(CheckConsistencyRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
}
