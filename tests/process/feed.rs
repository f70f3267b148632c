//! R9: an update at one server becomes visible at another within a limit, and a transaction that commits late is not skipped.

use std::time::Duration;

use fireteam_client::pb;
use sqlx::{Connection as _, Executor as _};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::load_client::LONG_TTL_MS;
use crate::report::{TestReport, percentile, scale, scaled};
use crate::support::database::create_test_database;
use crate::support::party::{advertise_request, party_session};
use crate::support::server_process::TEST_TIMEOUT;
use crate::table_checks::Tables;

/// Updates that are timed at `SCALE=1`.
const UPDATES: usize = 300;

/// Required p99; the goal is an eighth of it.
const FOUND_WITHIN: Duration = Duration::from_secs(2);

/// Seats that the late transaction writes; no word has them.
const LATE_SEATS: u32 = 950;

/// Time for which a late transaction stays open while others commit.
const HELD_OPEN: Duration = Duration::from_secs(1);

/// Session `number`. Searches show `word` as the number of open seats.
pub(crate) fn named(number: usize, word: usize) -> pb::MatchmakingUpdateAdvertisementRequest {
    let mut request = pb::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(LONG_TTL_MS),
        idempotency_key: format!("session {number:05}, some padding"),
        ..advertise_request(&[(&format!("host {number}"), 0.0)], seats(word) as i32)
    };
    request.session_composition.as_mut().expect("a session").silo_id = Some(1);
    request
}

/// Open seats that stand for `word`: at least 1, and different for words that follow each other.
pub(crate) fn seats(word: usize) -> u32 {
    1 + (word % 900) as u32
}

/// Time until a search at server `at` finds a session with these open seats. `None` after a timeout.
pub(crate) async fn found(cluster: &Cluster, at: usize, seats: u32) -> Option<Duration> {
    let session = pb::SessionCompositionData { silo_id: Some(1), ..party_session(&[("observer", 0.0)]) };
    let mut searching = cluster.client(at, 0).expect("a server is running").new_search(1, session);
    let started = Instant::now();
    while started.elapsed() < TEST_TIMEOUT / 6 {
        let answer = searching.search().await.expect("a search");
        if answer.candidates.iter().any(|it| it.open_seats == seats) {
            return Some(started.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    None
}

/// R9: another server finds each update within the limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn feed_delivers_updates_to_another_server() {
    let mut report = TestReport::start("feed").await;
    let Some(database) = create_test_database("feed_delivers_updates_to_another_server").await else { return };
    let cluster = Cluster::start(&database.url, 2);
    let rng = report.rng(1);
    let here = cluster.client(0, 1).expect("a server is running");
    let mut sessions = Vec::new();
    for number in 0..20 {
        let made = here.update_advertisement(named(number, 0)).await.expect("advertise");
        sessions.push((made.advertisement_id, made.advertisement_token));
    }
    let mut took = Vec::new();
    for update in 1..=scaled(UPDATES) {
        // At random moments of the reader's poll interval.
        tokio::time::sleep(Duration::from_millis(rng.below(100) as u64)).await;
        let number = rng.below(sessions.len());
        let mut request = named(number, update);
        request.idempotency_key.clear();
        (request.advertisement_id, request.advertisement_token) = sessions[number].clone();
        here.update_advertisement(request).await.expect("update");
        match found(&cluster, 1, seats(update)).await {
            Some(after) => took.push(after),
            None => report.violation(format!("update {update} is never found at the other server")),
        }
    }
    took.sort_unstable();
    if let Some(worst) = took.last() {
        report.record("updates", took.len());
        report.record("p50 ms", format!("{:.1}", percentile(&took, 0.50).as_secs_f64() * 1e3));
        report.record("p99 ms", format!("{:.1}", percentile(&took, 0.99).as_secs_f64() * 1e3));
        report.record("max ms", format!("{:.1}", worst.as_secs_f64() * 1e3));
        if FOUND_WITHIN < percentile(&took, 0.99) {
            report.violation("p99 exceeds the limit");
        }
    }
    late_commit(&mut report, &database, &cluster, &sessions).await;
    if !report.has_detected_fault() {
        report.violations(Tables::read(&database).await.index_differences(&cluster).await);
        report.violations(crate::consistency::differences(&cluster).await);
    }
    report.finish();
}

/// Another server's transaction takes its version number, stays open while others commit and are read, and then commits.
async fn late_commit(
    report: &mut TestReport,
    database: &crate::support::database::TestDatabase,
    cluster: &Cluster,
    sessions: &[(String, Vec<u8>)],
) {
    let change = "with moved as (update advertisement set version = pg_current_xact_id()::text::bigint, \
                  join_seats = 950 where replace(advertisement_id::text, '-', '') = $1 \
                  returning advertisement_id, version) \
                  insert into advertisement_change (batch_id, version, replica, advertisement_ids) \
                  select gen_random_uuid(), version, 3, array[advertisement_id] from moved";
    let mut slow = database.connect().await;
    let mut slow = slow.begin().await.expect("a transaction");
    let done = slow.execute(sqlx::query(change).bind(&sessions[0].0)).await.expect("a change");
    assert_eq!(done.rows_affected(), 1);
    let (started, mut meanwhile) = (Instant::now(), 0);
    while started.elapsed() < HELD_OPEN.mul_f64(scale()) {
        meanwhile += 1;
        let mut request = named(1, meanwhile);
        request.idempotency_key.clear();
        (request.advertisement_id, request.advertisement_token) = sessions[1].clone();
        cluster.client(0, 1).expect("a server is running").update_advertisement(request).await.expect("update");
        if found(cluster, 1, seats(meanwhile)).await.is_none() {
            report.violation("an open transaction delays the feed entries of others");
        }
    }
    slow.commit().await.expect("commit");
    for at in 0..cluster.len() {
        if report.has_detected_fault() {
            break;
        }
        match found(cluster, at, LATE_SEATS).await {
            Some(after) => report.record("late commit ms", format!("{:.1}", after.as_secs_f64() * 1e3)),
            None => report.violation(format!("a late commit is never found at server {at}")),
        }
    }
    report.record("commits during it", meanwhile);
}
