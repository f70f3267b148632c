//! Server killed with SIGKILL during ten thousand changes, several times: acknowledged changes are there after each
//! restart.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fireteam::clock::{Clock, ManualClock, SystemClock};
use fireteam::domain::time::UnixMs;
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::mpsc;

use crate::store::random_caller::RandomCaller;
use crate::support::server_process::{ServerProcess, TEST_TIMEOUT};

const ROUNDS: u64 = 5;
const CALLERS: u64 = 12;
/// Acknowledged changes before each kill: at least this number, plus up to `CHANGES_MORE` at random.
const CHANGES_MIN: u64 = 2_000;
const CHANGES_MORE: f64 = 1_000.0;

/// `TEST_SEED`, or a random seed.
fn seed() -> u64 {
    let given = std::env::var_os("TEST_SEED").map(|it| it.to_str().and_then(|it| it.parse().ok()).expect("a number"));
    given.unwrap_or_else(|| u64::from_be_bytes(SystemClock::start().random_bytes()[..8].try_into().unwrap()))
}

/// A server that lets all callers, who have one address, have a silo of their own.
fn start_server(folder: &Path) -> ServerProcess {
    ServerProcess::start(folder, &["--max-silos-per-user", &CALLERS.to_string()])
}

/// Runs `pragma integrity_check` on a copy, log included, so that the server finds its own file unchanged.
async fn check_file(folder: &Path) {
    let copy = tempfile::tempdir().unwrap();
    for name in ["fireteam.db", "fireteam.db-wal"] {
        std::fs::copy(folder.join(name), copy.path().join(name)).unwrap();
    }
    let url = format!("sqlite:{}", copy.path().join("fireteam.db").display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let verdict: String = sqlx::query_scalar("pragma integrity_check").fetch_one(&mut connection).await.unwrap();
    assert_eq!(verdict, "ok");
    let advertisements: i64 =
        sqlx::query_scalar("select count(*) from advertisement").fetch_one(&mut connection).await.unwrap();
    assert!(0 < advertisements, "the file has advertisements");
}

/// Lets all callers send random requests until `changes` are acknowledged, then kills the server while they still send.
async fn run_until_killed(server: ServerProcess, callers: Vec<RandomCaller>, changes: u64) -> Vec<RandomCaller> {
    let is_killed = Arc::new(AtomicBool::new(false));
    let (sender, mut acknowledged) = mpsc::channel::<()>(64);
    let mut tasks = Vec::new();
    for mut caller in callers {
        let connection = caller.connect(server.client().await).await;
        let (sender, is_killed) = (sender.clone(), is_killed.clone());
        tasks.push(tokio::spawn(async move {
            let error = caller.run_until_error(&connection, sender).await;
            assert!(is_killed.load(Ordering::SeqCst), "refused by a running server: {error}");
            caller
        }));
    }
    let counted = async {
        for _ in 0..changes {
            assert!(acknowledged.recv().await.is_some());
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, counted).await.expect("changes are acknowledged");
    is_killed.store(true, Ordering::SeqCst);
    server.kill();
    // Callers that still wait to send to the channel stop.
    drop(acknowledged);
    let mut callers = Vec::new();
    for caller in tasks {
        callers.push(caller.await.expect("the caller's task does not panic"));
    }
    callers
}

/// R1, R2: no acknowledged change is missing, deleted sessions stay deleted, seats are as acknowledged, and the file is
/// intact; over streams and single calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kill_server_keeps_acknowledged_advertisements_and_seats() {
    let seed = seed();
    println!("TEST_SEED={seed}");
    let rng = ManualClock::new(UnixMs(0), seed);
    let folder = tempfile::tempdir().unwrap();
    let mut callers: Vec<RandomCaller> =
        (1..=CALLERS).map(|number| RandomCaller::new(number, ManualClock::new(UnixMs(0), seed ^ number))).collect();
    let mut changes = 0;
    for round in 0..ROUNDS {
        let server = start_server(folder.path());
        for caller in &mut callers {
            let connection = caller.connect(server.client().await).await;
            caller.check(&connection).await;
        }
        let target = CHANGES_MIN + (CHANGES_MORE * rng.random_unit_f64()) as u64;
        println!("round {round}: serving after {:?}, killed after {target} changes", server.started_in);
        callers = run_until_killed(server, callers, target).await;
        check_file(folder.path()).await;
        changes += target;
    }
    let server = start_server(folder.path());
    for caller in &mut callers {
        let connection = caller.connect(server.client().await).await;
        caller.check(&connection).await;
    }
    println!("{changes} acknowledged changes survived {ROUNDS} kills");
}
