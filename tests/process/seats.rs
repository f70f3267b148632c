//! R1: many clients compete for few seats at four servers, of which some are being killed or paused at any time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::history::{CallOutcome, History};
use crate::load_client::LoadClient;
use crate::report::{TestReport, TestRng, scale, until};
use crate::support::database::{TestDatabase, create_test_database};
use crate::table_checks::{Tables, overfull_sessions};

const SERVERS: usize = 4;
const CLIENTS: usize = 64;

/// Target number of kills, and the time limit: a slow machine reaches fewer kills, and reports the number.
const KILLS: usize = 500;
const TIME_MAX: Duration = Duration::from_secs(40);

/// Time for the database to roll back transactions of killed servers; far more than it needs.
const ROLLED_BACK_WITHIN: Duration = Duration::from_secs(15);

/// Acknowledged calls before the first fault, so that the test has enough load to show a violation.
const CALLS_BEFORE_FAULTS: usize = 200;

/// Share of the faults that are pauses.
const PAUSE_SHARE: f64 = 1.0 / 6.0;

/// Faults so far.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) kills: AtomicUsize,
    pub(crate) pauses: AtomicUsize,
    pub(crate) stop: AtomicBool,
}

/// Kills, pauses and starts the server at `at` until stopped. It runs when this returns. Blocking.
pub(crate) fn inject_faults(cluster: &Cluster, at: usize, rng: &TestRng, faults: &Faults) {
    while !faults.stop.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(rng.below(150) as u64));
        if rng.chance(PAUSE_SHARE) {
            cluster.with(at, |server| server.signal("STOP"));
            // Mostly shorter than any timeout, sometimes longer.
            let ms = if rng.chance(0.05) { 3_000 } else { 20 + rng.below(180) };
            std::thread::sleep(Duration::from_millis(ms as u64));
            cluster.with(at, |server| server.signal("CONT"));
            faults.pauses.fetch_add(1, Ordering::SeqCst);
        } else {
            cluster.kill(at);
            faults.kills.fetch_add(1, Ordering::SeqCst);
            cluster.fill(at, None, &[]);
        }
    }
}

/// R1: no seat is taken twice, no acknowledged reservation is lost, and no change is partially stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seats_are_taken_once_when_servers_are_killed() {
    // Several rounds, so that each is shorter than the reservation and advertisement TTLs.
    let rounds = scale().ceil();
    for round in 0..rounds as u64 {
        run_round(round, scale() / rounds).await;
    }
}

/// One round, with `share` of the kills and of the time limit.
async fn run_round(round: u64, share: f64) {
    let mut report = TestReport::start("seats").await;
    let Some(database) = create_test_database("seats_are_taken_once_when_servers_are_killed").await else { return };
    let cluster = Arc::new(Cluster::start(&database.url, SERVERS));
    let (history, faults) = (History::start(), Arc::new(Faults::default()));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let rng = report.rng(round * 10_000 + number as u64);
            let mut load_client = LoadClient::new(number, Arc::clone(&cluster), history.clone(), rng);
            let faults = Arc::clone(&faults);
            tokio::spawn(async move {
                while !faults.stop.load(Ordering::SeqCst) {
                    load_client.step().await;
                }
            })
        })
        .collect();

    wait_for_traffic(&mut report, &history).await;

    let started = Instant::now();
    let (kills, time_max) = ((KILLS as f64 * share) as usize, TIME_MAX.mul_f64(share));
    let fault_tasks: Vec<_> = (0..SERVERS)
        .map(|at| {
            let (cluster, faults, rng) =
                (Arc::clone(&cluster), Arc::clone(&faults), report.rng(round * 10_000 + 1_000 + at as u64));
            tokio::task::spawn_blocking(move || inject_faults(&cluster, at, &rng, &faults))
        })
        .collect();
    while faults.kills.load(Ordering::SeqCst) < kills && started.elapsed() < time_max {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    faults.stop.store(true, Ordering::SeqCst);
    for task in fault_tasks.into_iter().chain(clients) {
        task.await.expect("the task ends");
    }

    let took = started.elapsed();
    report.record("seconds", format!("{:.0}", took.as_secs_f64()));
    report.record("kills", faults.kills.load(Ordering::SeqCst));
    report.record("pauses", faults.pauses.load(Ordering::SeqCst));
    check(&mut report, &database, &cluster, &history, "seats").await;
    report.finish();
}

/// Waits until enough calls are acknowledged.
pub(crate) async fn wait_for_traffic(report: &mut TestReport, history: &History) {
    let acknowledged = || history.count(CallOutcome::Succeeded);
    until("calls are acknowledged", async || CALLS_BEFORE_FAULTS <= acknowledged()).await;
    report.record("calls/s before", format!("{:.0}", acknowledged() as f64 / history.now().as_secs_f64()));
}

/// Compares history, tables and servers.
pub(crate) async fn check(
    report: &mut TestReport,
    database: &TestDatabase,
    cluster: &Cluster,
    history: &History,
    name: &str,
) {
    for (word, outcome) in
        [("ok", CallOutcome::Succeeded), ("fail", CallOutcome::Rejected), ("unknown", CallOutcome::Unknown)]
    {
        report.record(word, history.count(outcome));
    }
    println!("{name}: history in {}", history.save(name).display());
    report.violations(wait_for_open_transactions(database).await);
    let tables = Tables::read(database).await;
    report.record("sessions", tables.advertised());
    report.record("seats taken", tables.taken());
    report.violations(tables.inconsistencies());
    report.violations(tables.lost_acknowledgements(history));
    report.violations(overfull_sessions(history));
    if !report.has_detected_fault() {
        report.violations(tables.index_differences(cluster).await);
        report.violations(crate::consistency::differences(cluster).await);
    }
}

/// Waits until no transaction runs: those of killed servers are then committed or rolled back.
pub(crate) async fn wait_for_open_transactions(database: &TestDatabase) -> Vec<String> {
    let mut connection = database.connect().await;
    let started = Instant::now();
    loop {
        let running: Vec<String> = sqlx::query_scalar(
            "select 'left open: ' || application_name || ' after: ' || left(query, 80) from pg_stat_activity \
             where datname = current_database() and pid <> pg_backend_pid() and backend_xid is not null",
        )
        .fetch_all(&mut connection)
        .await
        .expect("an answer");
        if running.is_empty() || ROLLED_BACK_WITHIN < started.elapsed() {
            return running;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
