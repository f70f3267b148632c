//! R6, R7: Postgres is paused, unreachable or stopped for a while. Changes are rejected soon, searches continue, and no
//! advertisement that received heartbeats is lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fireteam_client::{Client, Code, RetryPolicy, pb};
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::netns::{Netns, NetnsRun, REMOTE_ADDRESS, enter_netns};
use crate::report::{TestReport, percentile, scale};
use crate::support::database::{PostgresCluster, TestDatabase};
use crate::support::party::{advertise_request, party_session};

const SERVERS: usize = 2;
const HOSTS: usize = 40;

/// Shorter than any outage, so that an advertisement that expires because of the outage is found missing.
const TIME_TO_LIVE_MS: u64 = 5_000;
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(1_000);

/// Limits: time until a change is rejected (R6), and time after the outage until changes succeed.
const REJECTED_WITHIN: Duration = Duration::from_secs(3);
const RECOVERED_WITHIN: Duration = Duration::from_secs(2);

/// Limit on the p99 of a search on the slowest machine, with or without the store; the report has the measured p99.
const SEARCH_P99_MAX: Duration = Duration::from_millis(500);
const SEARCH_INTERVAL: Duration = Duration::from_millis(10);

/// Kind of outage.
enum Outage {
    /// Commands for the Postgres process: at the start and at the end of the outage.
    PostgresCommand(&'static str, &'static str),
    /// Packets to and from Postgres are dropped.
    DroppedPackets(Netns),
}

impl Outage {
    fn begin(&self, postgres: &PostgresCluster) {
        match self {
            Self::PostgresCommand(begin, _) => postgres.send_command(begin),
            Self::DroppedPackets(network) => network.drop_packets(),
        }
    }

    fn end(&self, postgres: &PostgresCluster) {
        match self {
            Self::PostgresCommand(_, end) => postgres.send_command(end),
            Self::DroppedPackets(network) => network.restore(),
        }
    }
}

/// Observations during a test.
#[derive(Default)]
struct OutageLog {
    is_out: AtomicBool,
    was_out: AtomicBool,
    stop: AtomicBool,
    /// Duration of searches, before and during the outage.
    searches: [Mutex<Vec<Duration>>; 2],
    stale: AtomicUsize,
    heartbeats: AtomicUsize,
    not_yet_durable: AtomicUsize,
    rejections: Mutex<Vec<Duration>>,
    violations: Mutex<Vec<String>>,
}

impl OutageLog {
    fn violation(&self, what: String) {
        self.violations.lock().expect("unpoisoned").push(what);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// Duration of an outage: 12 s, or a minute with `SCALE` above 1.
fn outage_duration() -> Duration {
    Duration::from_secs(if scale() <= 1.0 { 12 } else { 60 })
}

fn advertise_host(number: usize) -> pb::MatchmakingUpdateAdvertisementRequest {
    pb::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(TIME_TO_LIVE_MS),
        connect_data: format!("host {number:03} word 00000").into_bytes(),
        idempotency_key: format!("the session of host {number:03}"),
        ..advertise_request(&[(&format!("host {number:03}"), 0.0)], 4)
    }
}

/// Keeps one session alive until stopped: by heartbeats, of which some replace its connect data. Most hosts use one server,
/// some alternate. Returns id and last connect data.
async fn keep_alive(cluster: Arc<Cluster>, log: Arc<OutageLog>, number: usize) -> (String, String) {
    let at =
        |heartbeat: usize| if number.is_multiple_of(4) { (number / 4 + heartbeat) % SERVERS } else { number % SERVERS };
    let client = |heartbeat| cluster.client(at(heartbeat), number).expect("a server is running");
    let first = client(0).update_advertisement(advertise_host(number)).await.expect("advertise");
    let (id, mut token) = (first.advertisement_id, first.advertisement_token);
    let mut word = format!("host {number:03} word 00000");
    let mut every = tokio::time::interval(HEARTBEAT_INTERVAL);
    every.tick().await;
    for heartbeat in 1.. {
        every.tick().await;
        if log.is_stopped() {
            break;
        }
        let mut request = pb::MatchmakingUpdateAdvertisementRequest {
            time_to_live_ms: Some(TIME_TO_LIVE_MS),
            advertisement_id: id.clone(),
            advertisement_token: token.clone(),
            ..Default::default()
        };
        let next = format!("host {number:03} word {heartbeat:05}");
        // Alternating hosts only send heartbeats: if two servers held different connect data, either could be written last.
        let publishes = heartbeat % 4 == number % 4 && !number.is_multiple_of(4);
        if publishes {
            let whole = advertise_host(number);
            request.session_composition = whole.session_composition;
            request.matchmaking_set_id = whole.matchmaking_set_id;
            request.connect_data = next.clone().into_bytes();
        }
        match client(heartbeat).update_advertisement(request).await {
            Ok(answer) => {
                log.heartbeats.fetch_add(1, Ordering::SeqCst);
                log.not_yet_durable.fetch_add(usize::from(answer.not_yet_durable), Ordering::SeqCst);
                if answer.created {
                    log.violation(format!("host {number:03} was lost: created again by heartbeat {heartbeat}"));
                }
                if !answer.advertisement_token.is_empty() {
                    token = answer.advertisement_token;
                }
                if publishes {
                    word = next;
                }
            }
            Err(error) => log.violation(format!("heartbeat {heartbeat} of host {number:03}: {error}")),
        }
    }
    (id, word)
}

/// Searches at one server until stopped: each search must succeed, and report its staleness during the outage.
async fn search_until_stopped(client: Client, log: Arc<OutageLog>, at: usize) {
    let mut searching = client.new_search(1, party_session(&[(&format!("searcher {at}"), 0.0)]));
    let mut out_since: Option<Instant> = None;
    while !log.is_stopped() {
        tokio::time::sleep(SEARCH_INTERVAL).await;
        let is_out = log.is_out.load(Ordering::SeqCst);
        out_since = if is_out { out_since.or_else(|| Some(Instant::now())) } else { None };
        let started = Instant::now();
        match searching.search().await {
            Ok(found) => {
                if is_out || !log.was_out.load(Ordering::SeqCst) {
                    log.searches[usize::from(is_out)].lock().expect("unpoisoned").push(started.elapsed());
                }
                log.stale.fetch_add(usize::from(found.stale_for_ms.is_some()), Ordering::SeqCst);
                let long = out_since.is_some_and(|since| RECOVERED_WITHIN < since.elapsed());
                if long && log.is_out.load(Ordering::SeqCst) && found.stale_for_ms.is_none() {
                    log.violation(format!("server {at} does not report its staleness"));
                }
                if found.candidates.len() < HOSTS {
                    log.violation(format!("server {at} finds {} of {HOSTS} hosts", found.candidates.len()));
                }
            }
            Err(error) => log.violation(format!("search at server {at}: {error}")),
        }
    }
}

/// Reserves seats at one server, one after another, until stopped. Returns the times of successful reservations.
async fn reserve_until_stopped(client: Client, log: Arc<OutageLog>, at: usize, ids: Vec<String>) -> Vec<Instant> {
    let mut searching = client.new_search(1, party_session(&[(&format!("reserver {at}"), 0.0)]));
    searching.search().await.expect("a search");
    let mut reserved_at = Vec::new();
    for attempt in 0.. {
        if log.is_stopped() {
            break;
        }
        // A new search token, so that it does not expire.
        if let Err(error) = searching.search().await {
            log.violation(format!("search before a reservation: {error}"));
        }
        let started = Instant::now();
        match searching.reserve(&ids[attempt % ids.len()]).await {
            Ok(reserved) => {
                reserved_at.push(Instant::now());
                // Releases the seat, so that one is always open.
                let _ = reserved.release().await;
            }
            Err(error) => {
                let took = started.elapsed();
                log.rejections.lock().expect("unpoisoned").push(took);
                if error.code() == Some(Code::FailedPrecondition) {
                    // Full: seats that could not be released during the outage.
                } else if error.code() != Some(Code::Unavailable) || error.retry_after().is_none() {
                    log.violation(format!("a reservation failed with an unexpected error: {error}"));
                } else if REJECTED_WITHIN < took {
                    log.violation(format!("a reservation was rejected after {took:?}"));
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    reserved_at
}

/// Runs one outage.
async fn run_outage(name: &'static str, outage: Outage) {
    let mut report = TestReport::start(name).await;
    let is_remote = matches!(outage, Outage::DroppedPackets(_));
    let Some(postgres) = PostgresCluster::start_with_tcp_addresses(name, if is_remote { REMOTE_ADDRESS } else { "" })
    else {
        return;
    };
    let database = postgres.create_database("fireteam").await;
    let url = if is_remote { format!("postgres://fireteam@{REMOTE_ADDRESS}/fireteam") } else { database.url.clone() };
    let cluster = Arc::new(Cluster::start(&url, SERVERS));
    let log = Arc::new(OutageLog::default());
    let hosts: Vec<_> =
        (0..HOSTS).map(|number| tokio::spawn(keep_alive(Arc::clone(&cluster), Arc::clone(&log), number))).collect();
    for at in 0..SERVERS {
        crate::report::until("all are shown", async || shown(&cluster, at).await.len() == HOSTS).await;
    }
    let ids = shown(&cluster, 0).await;
    let client = |at: usize| cluster.client(at, 0).expect("a server is running").with_retry_policy(RetryPolicy::NEVER);
    let searchers: Vec<_> =
        (0..SERVERS).map(|at| tokio::spawn(search_until_stopped(client(at), Arc::clone(&log), at))).collect();
    let reservers: Vec<_> = (0..SERVERS)
        .map(|at| tokio::spawn(reserve_until_stopped(client(at), Arc::clone(&log), at, ids.clone())))
        .collect();
    tokio::time::sleep(Duration::from_secs(3)).await;

    outage.begin(&postgres);
    log.was_out.store(true, Ordering::SeqCst);
    log.is_out.store(true, Ordering::SeqCst);
    tokio::time::sleep(outage_duration()).await;
    log.is_out.store(false, Ordering::SeqCst);
    outage.end(&postgres);
    let back = Instant::now();
    // Another TTL and somewhat more: an advertisement whose heartbeat was not written has expired by then.
    tokio::time::sleep(Duration::from_millis(TIME_TO_LIVE_MS + 2_000)).await;
    log.stop.store(true, Ordering::SeqCst);

    let mut words = Vec::new();
    for host in hosts {
        words.push(host.await.expect("the task ends"));
    }
    for searcher in searchers {
        searcher.await.expect("the task ends");
    }
    for (at, reserver) in reservers.into_iter().enumerate() {
        let reserved_at = reserver.await.expect("the task ends");
        let recovered = reserved_at.iter().find(|it| back <= **it).map(|it| it.duration_since(back));
        match recovered {
            Some(recovered) if recovered <= RECOVERED_WITHIN => {
                report.record("recovered after ms", recovered.as_millis())
            }
            recovered => report.violation(format!("server {at} recovered after {recovered:?}")),
        }
    }
    report.violations(lost_advertisements(&database, &words).await);
    report_log(&mut report, &log);
    report.violations(log.violations.lock().expect("unpoisoned").clone());
    report.violations(crate::consistency::differences(&cluster).await);
    drop(cluster);
    report.finish();
}

/// Records the counts and times of the log. A search slower than its limit is a violation.
fn report_log(report: &mut TestReport, log: &OutageLog) {
    let mut rejections = log.rejections.lock().expect("unpoisoned").clone();
    rejections.sort_unstable();
    report.record("rejections", rejections.len());
    report.record("slowest rejection ms", rejections.last().map_or(0, Duration::as_millis));
    for (what, searches) in ["before", "during"].into_iter().zip(&log.searches) {
        let mut took = searches.lock().expect("unpoisoned").clone();
        took.sort_unstable();
        let p99 = percentile(&took, 0.99);
        report.record("searches", format!("{} {what}, p99 {:.1} ms", took.len(), p99.as_secs_f64() * 1e3));
        if SEARCH_P99_MAX < p99 {
            report.violation(format!("searches {what} took {p99:?}"));
        }
    }
    let counts = [("stale", &log.stale), ("heartbeats", &log.heartbeats), ("not yet durable", &log.not_yet_durable)];
    for (name, count) in counts {
        report.record(name, count.load(Ordering::SeqCst));
        assert!(0 < count.load(Ordering::SeqCst), "no {name}: the test shows nothing");
    }
}

/// Ids of the search results of server `at`.
async fn shown(cluster: &Cluster, at: usize) -> Vec<String> {
    let client = cluster.client(at, 0).expect("a server is running");
    let found = client.new_search(1, party_session(&[("observer", 0.0)])).search().await.expect("a search");
    found.candidates.into_iter().map(|it| it.advertisement_id).collect()
}

/// Sessions with heartbeats whose rows are missing or differ from their last publication.
async fn lost_advertisements(database: &TestDatabase, words: &[(String, String)]) -> Vec<String> {
    let mut connection = database.connect().await;
    let rows: Vec<(String, String)> = sqlx::query_as(
        "select replace(advertisement_id::text, '-', ''), convert_from(connect_data, 'UTF8') \
         from advertisement where body is not null and (extract(epoch from clock_timestamp()) * 1000) < expires_ms",
    )
    .fetch_all(&mut connection)
    .await
    .expect("advertisements");
    let mut violations = Vec::new();
    for (id, word) in words {
        match rows.iter().find(|(stored, _)| stored == id) {
            Some((_, stored)) if stored == word => {}
            Some((_, stored)) => violations.push(format!("{id} is stored as `{stored}`, accepted as `{word}`")),
            None => violations.push(format!("{id} received heartbeats and is missing ({word})")),
        }
    }
    violations
}

/// R6: Postgres is paused: its connections stay open and nothing is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_of_a_paused_postgres_is_survived() {
    run_outage("outage, paused", Outage::PostgresCommand("pause", "resume")).await;
}

/// R6: the network between servers and Postgres silently drops every packet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_by_dropped_packets_is_survived() {
    if let NetnsRun::Inside(network) = enter_netns("outages::outage_by_dropped_packets_is_survived").await {
        run_outage("outage, packets dropped", Outage::DroppedPackets(network)).await;
    }
}

/// R7: Postgres is stopped, and starts again with crash recovery.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_of_a_stopped_postgres_is_survived() {
    run_outage("outage, stopped", Outage::PostgresCommand("halt", "start")).await;
}
