//! A server killed in the middle of ten thousand changes, several times over: what it acknowledged is there afterwards.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fireteam::clock::{Clock, ManualClock, SystemClock};
use fireteam::domain::time::UnixMs;
use sqlx::Connection;
use sqlx::sqlite::SqliteConnection;
use tokio::sync::mpsc;

use crate::store::random_caller::Lane;
use crate::support::server_process::{ServerProcess, TEST_TIMEOUT};

const ROUNDS: u64 = 5;
const LANES: u64 = 12;
/// Acknowledged changes before each kill, and up to as many again by chance.
const CHANGES_MIN: u64 = 2_000;
const CHANGES_MORE: f64 = 1_000.0;

/// From `TEST_SEED`, or another each time.
fn seed() -> u64 {
    let given = std::env::var_os("TEST_SEED").map(|it| it.to_str().and_then(|it| it.parse().ok()).expect("a number"));
    given.unwrap_or_else(|| u64::from_be_bytes(SystemClock::start().random_bytes()[..8].try_into().unwrap()))
}

/// `pragma integrity_check` of a copy, log included, so that the server itself finds the file as it left it.
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
    assert!(0 < advertisements, "there was something to check");
}

/// Lets every lane ask at random until `changes` were acknowledged, then kills the server while they are still asking.
async fn live_until_killed(server: ServerProcess, lanes: Vec<Lane>, changes: u64) -> Vec<Lane> {
    let is_killed = Arc::new(AtomicBool::new(false));
    let (told, mut acknowledged) = mpsc::channel::<()>(64);
    let mut living = Vec::new();
    for mut lane in lanes {
        let voice = lane.speak(server.client().await).await;
        let (told, is_killed) = (told.clone(), is_killed.clone());
        living.push(tokio::spawn(async move {
            let error = lane.live(&voice, told).await;
            assert!(is_killed.load(Ordering::SeqCst), "refused by a living server: {error}");
            lane
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
    // Whoever waits to say that it was answered need not wait any longer.
    drop(acknowledged);
    let mut lanes = Vec::new();
    for lane in living {
        lanes.push(lane.await.expect("a lane ends by itself"));
    }
    lanes
}

/// R1, R2: nothing acknowledged is missing, nothing deleted is back, seats are as they were acknowledged, and the file is
/// sound; through streams and single calls.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_nothing_that_it_acknowledged() {
    let seed = seed();
    println!("TEST_SEED={seed}");
    let dice = ManualClock::new(UnixMs(0), seed);
    let folder = tempfile::tempdir().unwrap();
    let mut lanes: Vec<Lane> =
        (1..=LANES).map(|number| Lane::new(number, ManualClock::new(UnixMs(0), seed ^ number))).collect();
    let mut changes = 0;
    for round in 0..ROUNDS {
        let server = ServerProcess::start(folder.path(), &[]);
        for lane in &mut lanes {
            let voice = lane.speak(server.client().await).await;
            lane.check(&voice).await;
        }
        let target = CHANGES_MIN + (CHANGES_MORE * dice.random_unit_f64()) as u64;
        println!("round {round}: serving after {:?}, killed after {target} changes", server.started_in);
        lanes = live_until_killed(server, lanes, target).await;
        check_file(folder.path()).await;
        changes += target;
    }
    let server = ServerProcess::start(folder.path(), &[]);
    for lane in &mut lanes {
        let voice = lane.speak(server.client().await).await;
        lane.check(&voice).await;
    }
    println!("{changes} acknowledged changes survived {ROUNDS} kills");
}
