//! R4: clients that cancel calls and close connections at random moments. Other clients' acknowledged changes are kept, and
//! no transaction stays open.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fireteam_client::{Client, Error, pb};

use crate::cluster::{Cluster, client};
use crate::history::History;
use crate::load_client::{LONG_TTL_MS, LoadClient, SEATS, SILOS};
use crate::report::{TestReport, TestRng, scaled};
use crate::support::database::{TestDatabase, create_test_database};
use crate::support::party::{advertise_request, party_session};

const SERVERS: usize = 2;
/// Number of clients that must not be affected, and of clients that cancel.
const UNAFFECTED: usize = 16;
const CANCELLING: usize = 16;

/// Cancelled calls at `SCALE=1`.
const CANCELS: usize = 5_000;

/// A call is cancelled up to this long after it was sent; most calls would be answered by then.
const CANCEL_AFTER_MAX_US: usize = 6_000;

/// A client that cancels its calls.
struct CancellingClient {
    number: usize,
    cluster: Arc<Cluster>,
    rng: TestRng,
    cancelled: Arc<AtomicUsize>,
    /// Errors of calls that were not cancelled.
    violations: Arc<Mutex<Vec<String>>>,
}

impl CancellingClient {
    /// A random server: mostly over a shared connection, sometimes over one that is closed with the call.
    fn server(&self) -> Client {
        let at = self.rng.below(SERVERS);
        match self.rng.chance(0.1) {
            true => client(&self.cluster.with(at, |server| server.address.to_string())),
            false => self.cluster.client(at, self.number).expect("a server is running"),
        }
    }

    /// Makes a call and cancels it after a random time, unless it is answered before.
    async fn call_and_cancel<T, Called: Future<Output = T>>(&self, call: impl FnOnce(Client) -> Called) {
        let cancel_after = Duration::from_micros(self.rng.below(CANCEL_AFTER_MAX_US) as u64);
        if tokio::time::timeout(cancel_after, call(self.server())).await.is_err() {
            self.cancelled.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Publishes, fills and deletes one session; each kind of call is cancelled at least once.
    async fn round(&self, round: usize) {
        let silo = Some((SILOS + 1 + self.number % SILOS) as u64);
        let name = format!("{round:05} of client {:03}, some padding", self.number);
        let mut request = pb::MatchmakingUpdateAdvertisementRequest {
            time_to_live_ms: Some(LONG_TTL_MS),
            connect_data: round.to_string().into_bytes(),
            idempotency_key: format!("session {name}"),
            ..advertise_request(&[(&format!("client {}", self.number), 0.0)], SEATS as i32)
        };
        request.session_composition.as_mut().expect("a session").silo_id = silo;
        let again = request.clone();
        self.call_and_cancel(|it| async move { it.update_advertisement(again).await }).await;
        let uncancelled = self.cluster.client(self.number % SERVERS, self.number).expect("a server is running");
        let Some(made) = self.expect_ok(uncancelled.update_advertisement(request).await) else { return };

        for guest in 0..SEATS {
            let user = format!("guest {guest} {name}");
            let session = pb::SessionCompositionData { silo_id: silo, ..party_session(&[(&user, 0.0)]) };
            let Some(found) = self.expect_ok(uncancelled.new_search(1, session.clone()).search().await) else {
                return;
            };
            let reserve = pb::MatchmakingReserveRequest {
                advertisement_id: made.advertisement_id.clone(),
                idempotency_key: user,
                hold_for_ms: Some(LONG_TTL_MS),
                search_token: found.search_token,
                session_composition: Some(session),
                ..Default::default()
            };
            self.call_and_cancel(|it| async move { it.reserve(reserve).await }).await;
        }
        let delete = pb::MatchmakingDeleteAdvertisementRequest {
            advertisement_id: made.advertisement_id,
            advertisement_token: made.advertisement_token,
        };
        let delete_again = delete.clone();
        self.call_and_cancel(|it| async move { it.delete_advertisement(delete_again).await }).await;
        self.expect_ok(uncancelled.delete_advertisement(delete).await);
    }

    fn expect_ok<T>(&self, answer: Result<T, Error>) -> Option<T> {
        let violations = |error| self.violations.lock().expect("unpoisoned").push(format!("unexpected error: {error}"));
        answer.map_err(violations).ok()
    }
}

/// Transactions that have been open for more than a second.
async fn left_open(database: &TestDatabase) -> Vec<String> {
    let mut connection = database.connect().await;
    sqlx::query_scalar(
        "select 'left open for ' || (clock_timestamp() - state_change) || ' after: ' || left(query, 80) \
         from pg_stat_activity where datname = current_database() and state like 'idle in transaction%' \
         and interval '1 second' < clock_timestamp() - state_change",
    )
    .fetch_all(&mut connection)
    .await
    .expect("an answer")
}

/// R4: cancelled calls affect no other client.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_calls_do_not_affect_other_clients() {
    let mut report = TestReport::start("cancels").await;
    let Some(database) = create_test_database("cancelled_calls_do_not_affect_other_clients").await else { return };
    let cluster = Arc::new(Cluster::start(&database.url, SERVERS));
    let (history, over) = (History::start(), Arc::new(AtomicBool::new(false)));
    let (cancelled, violations) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let unaffected: Vec<_> = (0..UNAFFECTED)
        .map(|number| {
            let mut load_client =
                LoadClient::new(number, Arc::clone(&cluster), history.clone(), report.rng(number as u64));
            let over = Arc::clone(&over);
            tokio::spawn(async move {
                while !over.load(Ordering::SeqCst) {
                    load_client.step().await;
                }
            })
        })
        .collect();
    crate::seats::wait_for_traffic(&mut report, &history).await;
    let cancelling: Vec<_> = (0..CANCELLING)
        .map(|number| {
            let (cluster, rng, cancelled) = (Arc::clone(&cluster), report.rng(500 + number as u64), cancelled.clone());
            let client = CancellingClient { number, cluster, rng, cancelled, violations: Arc::clone(&violations) };
            let over = Arc::clone(&over);
            tokio::spawn(async move {
                for round in 0.. {
                    if over.load(Ordering::SeqCst) {
                        return;
                    }
                    client.round(round).await;
                }
            })
        })
        .collect();
    while cancelled.load(Ordering::SeqCst) < scaled(CANCELS) && !cancelling.iter().all(|it| it.is_finished()) {
        tokio::time::sleep(Duration::from_millis(200)).await;
        report.violations(left_open(&database).await);
    }
    over.store(true, Ordering::SeqCst);
    for task in unaffected.into_iter().chain(cancelling) {
        task.await.expect("the task ends");
    }
    // The limit for open transactions is a second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    report.violations(left_open(&database).await);
    report.record("cancelled", cancelled.load(Ordering::SeqCst));
    crate::seats::check(&mut report, &database, &cluster, &history, "cancels").await;
    report.violations(violations.lock().expect("unpoisoned").clone());
    report.finish();
}
