//! R6: one server loses its connection to Postgres in the middle of a transaction, another is killed there. Other servers can
//! soon change the rows that they had locked, and their uncommitted changes are rolled back.

use std::sync::Arc;
use std::time::Duration;

use fireteam_client::{Client, Code, Error, RetryPolicy, pb};
use sqlx::PgConnection;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::load_client::{LONG_TTL_MS, SEATS};
use crate::netns::{Netns, NetnsRun, REMOTE_ADDRESS, enter_netns};
use crate::proxy::{COMMIT, PostgresAddress, StoreProxy};
use crate::report::{TestReport, until};
use crate::support::database::PostgresCluster;
use crate::support::party::{advertise_request, party_session};

/// The server without a connection, the one that is also killed, and the healthy one.
const UNREACHABLE: usize = 0;
const KILLED: usize = 1;
const HEALTHY: usize = 2;

/// Limits of the requirement (R6).
const REJECTED_WITHIN: Duration = Duration::from_secs(3);
const UNLOCKED_WITHIN: Duration = Duration::from_secs(10);
const RECOVERED_WITHIN: Duration = Duration::from_secs(2);

/// Reserves a seat in `id` for `user`, without retries.
async fn reserve_seat(client: Client, user: &str, id: &str) -> Result<(), Error> {
    let mut searching = client.with_retry_policy(RetryPolicy::NEVER).new_search(1, party_session(&[(user, 0.0)]));
    searching.search().await?;
    searching.reserve(id).await.map(drop)
}

/// Database sessions of servers that hold row locks and are idle in a transaction.
async fn lock_holders(connection: &mut PgConnection) -> Vec<i32> {
    sqlx::query_scalar(
        "select distinct pid from pg_stat_activity join pg_locks using (pid) \
         where datname = current_database() and state = 'idle in transaction' and application_name = 'fireteam adverts' \
         and relation = 'advertisement'::regclass and mode in ('RowShareLock', 'RowExclusiveLock') and granted",
    )
    .fetch_all(connection)
    .await
    .expect("an answer")
}

/// Whether the row of `id` is not locked.
async fn is_free(connection: &mut PgConnection, id: &str) -> bool {
    let query =
        "select 1 from advertisement where replace(advertisement_id::text, '-', '') = $1 for update skip locked";
    let row: Option<i32> = sqlx::query_scalar(query).bind(id).fetch_optional(connection).await.expect("an answer");
    row.is_some()
}

/// Number of reservations in `id`.
async fn reservation_count(connection: &mut PgConnection, id: &str) -> i64 {
    let query = "select count(*) from reservation where replace(advertisement_id::text, '-', '') = $1";
    sqlx::query_scalar(query).bind(id).fetch_one(connection).await.expect("an answer")
}

/// Three servers, of which two have a proxy in front of Postgres.
struct LockTest {
    cluster: Arc<Cluster>,
    proxies: Vec<StoreProxy>,
    observer: PgConnection,
}

/// A server that hangs in the transaction of a reservation, in a session of its own.
struct StoppedWrite {
    id: String,
    /// Result of the client's call, and its duration.
    answer: JoinHandle<(Result<(), Error>, Duration)>,
}

impl LockTest {
    async fn start(postgres: &PostgresCluster, address: PostgresAddress) -> Self {
        let database = postgres.create_database("fireteam").await;
        let cluster = Arc::new(Cluster::new(&database.url, 3));
        let mut proxies = Vec::new();
        for at in [UNREACHABLE, KILLED, HEALTHY] {
            let proxy = StoreProxy::listen(address.clone());
            let (cluster, url) = (Arc::clone(&cluster), (at != HEALTHY).then(|| proxy.url("fireteam")));
            tokio::task::spawn_blocking(move || cluster.fill(at, url.as_deref(), &[]))
                .await
                .expect("the server starts");
            proxies.push(proxy);
        }
        Self { cluster, proxies, observer: database.connect().await }
    }

    fn client(&self, at: usize) -> Client {
        self.cluster.client(at, 0).expect("a server is running")
    }

    /// Makes the server at `at` hang before a commit; `others` servers hang already.
    async fn hang_before_commit(&mut self, at: usize, others: usize) -> StoppedWrite {
        let request = pb::MatchmakingUpdateAdvertisementRequest {
            time_to_live_ms: Some(LONG_TTL_MS),
            idempotency_key: format!("the session at server {at}"),
            ..advertise_request(&[(&format!("host {at}"), 0.0)], SEATS as i32)
        };
        let id = self.client(at).update_advertisement(request).await.expect("advertise").advertisement_id;
        until("the session is found at the healthy server", async || {
            let found = self.client(HEALTHY).new_search(1, party_session(&[("observer", 0.0)])).search().await;
            found.expect("a search").candidates.iter().any(|it| it.advertisement_id == id)
        })
        .await;
        self.proxies[at].hang_at(COMMIT);
        let (client, id_to_reserve) = (self.client(at), id.clone());
        let answer = tokio::spawn(async move {
            let started = Instant::now();
            (reserve_seat(client, "guest of the hanging server", &id_to_reserve).await, started.elapsed())
        });
        // Other transactions are idle for a moment between two statements, so the row itself must be locked too.
        until("the transaction hangs with its row locked", async || {
            let hanging = lock_holders(&mut self.observer).await.len();
            hanging == others + 1 && !is_free(&mut self.observer, &id).await
        })
        .await;
        StoppedWrite { id, answer }
    }

    /// Waits until others can change the row that the server at `at` had locked when it lost its connection, at `since`.
    async fn measure_unlock(&mut self, at: usize, id: &str, since: Instant, report: &mut TestReport) {
        until("the row is free", async || is_free(&mut self.observer, id).await).await;
        report.record("row free after ms", since.elapsed().as_millis());
        let healthy = self.client(HEALTHY);
        let reserve = async || reserve_seat(healthy.clone(), "guest of the healthy server", id).await.is_ok();
        until("another server reserves the seat", reserve).await;
        report.record("seat reserved after ms", since.elapsed().as_millis());
        if UNLOCKED_WITHIN < since.elapsed() {
            report.violation(format!("server {at} blocked others for {:?}", since.elapsed()));
        }
    }
}

/// R6: locks of an unreachable server are released, even if packets are dropped and no connection is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_an_unreachable_server_are_released() {
    let network = match enter_netns("locks::locks_of_an_unreachable_server_are_released").await {
        NetnsRun::RanInside => return,
        NetnsRun::Inside(network) => Some(network),
        // Without a namespace the proxies stop forwarding, which is nearly equivalent.
        NetnsRun::Unavailable => None,
    };
    let mut report = TestReport::start("locks").await;
    let Some(postgres) =
        PostgresCluster::start_with_tcp_addresses("locks", if network.is_some() { REMOTE_ADDRESS } else { "" })
    else {
        return;
    };
    let address = if network.is_some() {
        PostgresAddress::Tcp(REMOTE_ADDRESS)
    } else {
        PostgresAddress::Socket(postgres.folder.clone())
    };
    let mut servers = LockTest::start(&postgres, address).await;
    let unreachable = servers.hang_before_commit(UNREACHABLE, 0).await;
    let killed = servers.hang_before_commit(KILLED, 1).await;

    network.iter().for_each(Netns::drop_packets);
    let since = Instant::now();
    servers.cluster.kill(KILLED);
    let (refused, took) = unreachable.answer.await.expect("the task ends");
    let error = refused.expect_err("the outcome is unknown");
    report.record("error after ms", took.as_millis());
    if error.code() != Some(Code::Unavailable) || error.retry_after().is_none() || REJECTED_WITHIN < took {
        report.violation(format!("unexpected error, after {took:?}: {error}"));
    }
    servers.measure_unlock(UNREACHABLE, &unreachable.id, since, &mut report).await;
    servers.measure_unlock(KILLED, &killed.id, since, &mut report).await;
    let left = lock_holders(&mut servers.observer).await;
    if !left.is_empty() {
        report.violation(format!("still open: {left:?}"));
    }

    network.iter().for_each(Netns::restore);
    servers.proxies.iter().for_each(StoreProxy::resume);
    let (recovered, client) = (Instant::now(), servers.client(UNREACHABLE));
    until("the server reserves seats again", async || {
        reserve_seat(client.clone(), "a guest afterwards", &killed.id).await.is_ok()
    })
    .await;
    report.record("recovered after ms", recovered.elapsed().as_millis());
    if RECOVERED_WITHIN < recovered.elapsed() {
        report.violation(format!("recovered after {:?}", recovered.elapsed()));
    }
    // A commit that was sent before the interruption and arrives after it has no effect.
    for (id, guests) in [(&unreachable.id, 1), (&killed.id, 2)] {
        let count = reservation_count(&mut servers.observer, id).await;
        if count != guests {
            report.violation(format!("{count} parties have seats in {id}, {guests} were acknowledged"));
        }
    }
    report.finish();
}
