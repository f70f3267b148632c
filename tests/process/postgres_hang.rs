//! R6: Postgres stops answering in the middle of a transaction. A waiting caller receives an error in time.

use std::sync::Arc;
use std::time::Duration;

use fireteam_client::{Code, pb};
use sqlx::{Connection as _, Executor as _};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::load_client::LONG_TTL_MS;
use crate::proxy::{COMMIT, PostgresAddress, ROLLBACK, StoreProxy};
use crate::report::TestReport;
use crate::support::database::PostgresCluster;
use crate::support::party::{advertise_request, party_session};

/// Limit on the time until the error (R6).
const REJECTED_WITHIN: Duration = Duration::from_secs(3);

/// R6: an unanswered commit or rollback delays the caller's error by no more than the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_hang_in_a_transaction_times_out() {
    let mut report = TestReport::start("postgres hang").await;
    let Some(postgres) = PostgresCluster::start("postgres_hang_in_a_transaction_times_out") else { return };
    let database = postgres.create_database("fireteam").await;
    let proxy = StoreProxy::listen(PostgresAddress::Socket(postgres.folder.clone()));
    let cluster = Arc::new(Cluster::new(&database.url, 1));
    let (starting, url) = (Arc::clone(&cluster), proxy.url("fireteam"));
    tokio::task::spawn_blocking(move || starting.fill(0, Some(&url), &[])).await.expect("the server starts");
    let client = cluster.client(0, 0).expect("a server is running").with_attempt_deadline(Duration::from_secs(20));

    for (name, word) in [("commit ms", COMMIT), ("rollback ms", ROLLBACK)] {
        let request = pb::MatchmakingUpdateAdvertisementRequest {
            time_to_live_ms: Some(LONG_TTL_MS),
            idempotency_key: format!("a session, until {name}"),
            ..advertise_request(&[(name, 0.0)], 4)
        };
        let made = client.update_advertisement(request).await.expect("advertise");
        let mut searching = client.new_search(1, party_session(&[("a guest", 0.0)]));
        searching.search().await.expect("a search");

        // A lock of another connection, for which the server waits in vain before it rolls its transaction back.
        let mut other = database.connect().await;
        let mut other = other.begin().await.expect("a transaction");
        if word == ROLLBACK {
            other.execute("select from advertisement for update").await.expect("a lock");
        }
        proxy.hang_at(word);
        let started = Instant::now();
        let error = searching.reserve(&made.advertisement_id).await.expect_err("the outcome is unknown");
        let took = started.elapsed();
        report.record(name, took.as_millis());
        if error.code() != Some(Code::Unavailable) || error.retry_after().is_none() {
            report.violation(format!("unexpected error: {error}"));
        }
        if REJECTED_WITHIN < took {
            report.violation(format!("{name}: error after {took:?}"));
        }
        proxy.resume();
        other.rollback().await.expect("unlocked");
        crate::report::until("the server reserves seats again", async || {
            match searching.reserve(&made.advertisement_id).await {
                Ok(reserved) => reserved.release().await.is_ok(),
                Err(_) => false,
            }
        })
        .await;
    }
    report.finish();
}
