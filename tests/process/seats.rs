//! R1: many clients fight for few seats at four servers, of which some are killed and some stand still all the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::Fleet;
use crate::history::{History, Outcome};
use crate::load_client::Rival;
use crate::report::{Chapter, Dice, scale};
use crate::support::database::{TestDatabase, create_test_database};
use crate::table_checks::{Tables, crowded};

const SERVERS: usize = 4;
const CLIENTS: usize = 64;

/// What is aimed at, and what it may take: the slower of two machines gets fewer, and says how many.
const KILLS: usize = 1_000;
const WITHIN: Duration = Duration::from_secs(80);

/// The database gives up what a dead server left behind well within this.
const QUIET_WITHIN: Duration = Duration::from_secs(15);

/// Acknowledged calls a second before the first fault; with fewer the chapter would prove nothing.
const TRAFFIC_MIN: f64 = 50.0;

/// The share of faults that are pauses.
const PAUSES: f64 = 1.0 / 6.0;

/// What has been done to servers so far.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) kills: AtomicUsize,
    pub(crate) pauses: AtomicUsize,
    pub(crate) over: AtomicBool,
}

/// Kills, pauses and starts the server at `at` until it is over; leaves one that serves. Blocking.
pub(crate) fn torment(fleet: &Fleet, at: usize, dice: &Dice, faults: &Faults) {
    while !faults.over.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_millis(dice.below(150) as u64));
        if dice.chance(PAUSES) {
            fleet.with(at, |server| server.signal("STOP"));
            // Mostly shorter than what anybody waits for; some longer than that.
            let ms = if dice.chance(0.05) { 3_000 } else { 20 + dice.below(180) };
            std::thread::sleep(Duration::from_millis(ms as u64));
            fleet.with(at, |server| server.signal("CONT"));
            faults.pauses.fetch_add(1, Ordering::SeqCst);
        } else {
            fleet.kill(at);
            faults.kills.fetch_add(1, Ordering::SeqCst);
            fleet.fill(at, None, &[]);
        }
    }
}

/// R1: nobody sits where another sits, nobody's seat is lost, nothing is half done.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seats_are_taken_once_whoever_dies() {
    // In rounds, so that none takes longer than a hold or an advertisement lasts.
    let rounds = scale().ceil();
    for round in 0..rounds as u64 {
        fight(round, scale() / rounds).await;
    }
}

/// One round, which is this much of the short form.
async fn fight(round: u64, share: f64) {
    let mut chapter = Chapter::begin("seats").await;
    let Some(database) = create_test_database("seats_are_taken_once_whoever_dies").await else { return };
    let fleet = Arc::new(Fleet::start(&database.url, SERVERS));
    let (history, faults) = (History::begin(), Arc::new(Faults::default()));
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let dice = chapter.dice(round * 10_000 + number as u64);
            let mut rival = Rival::new(number, Arc::clone(&fleet), history.clone(), dice);
            let faults = Arc::clone(&faults);
            tokio::spawn(async move {
                while !faults.over.load(Ordering::SeqCst) {
                    rival.act().await;
                }
            })
        })
        .collect();

    demand_traffic(&mut chapter, &history).await;

    let begun = Instant::now();
    let (kills, within) = ((KILLS as f64 * share) as usize, WITHIN.mul_f64(share));
    let tormentors: Vec<_> = (0..SERVERS)
        .map(|at| {
            let (fleet, faults, dice) =
                (Arc::clone(&fleet), Arc::clone(&faults), chapter.dice(round * 10_000 + 1_000 + at as u64));
            tokio::task::spawn_blocking(move || torment(&fleet, at, &dice, &faults))
        })
        .collect();
    while faults.kills.load(Ordering::SeqCst) < kills && begun.elapsed() < within {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    faults.over.store(true, Ordering::SeqCst);
    for task in tormentors.into_iter().chain(clients) {
        task.await.expect("it ends by itself");
    }

    let took = begun.elapsed();
    chapter.figure("seconds", format!("{:.0}", took.as_secs_f64()));
    chapter.figure("kills", faults.kills.load(Ordering::SeqCst));
    chapter.figure("pauses", faults.pauses.load(Ordering::SeqCst));
    check(&mut chapter, &database, &fleet, &history, "seats").await;
    chapter.end();
}

/// Waits a moment, in which enough must be acknowledged.
pub(crate) async fn demand_traffic(chapter: &mut Chapter, history: &History) {
    tokio::time::sleep(Duration::from_secs(2)).await;
    let traffic = history.count(Outcome::Done) as f64 / history.now().as_secs_f64();
    assert!(TRAFFIC_MIN <= traffic, "{traffic:.0} calls a second: too few to prove anything");
    chapter.figure("calls/s before", format!("{traffic:.0}"));
}

/// Holds everything against everything.
pub(crate) async fn check(
    chapter: &mut Chapter,
    database: &TestDatabase,
    fleet: &Fleet,
    history: &History,
    name: &str,
) {
    for (word, outcome) in [("ok", Outcome::Done), ("fail", Outcome::Refused), ("unknown", Outcome::Unknown)] {
        chapter.figure(word, history.count(outcome));
    }
    println!("{name}: history in {}", history.save(name).display());
    chapter.all_violated(quiet(database).await);
    let tables = Tables::read(database).await;
    chapter.figure("sessions", tables.standing());
    chapter.figure("seats taken", tables.taken());
    chapter.all_violated(tables.contradictions());
    chapter.all_violated(tables.broken_promises(history));
    chapter.all_violated(crowded(history));
    if !chapter.is_enough() {
        chapter.all_violated(tables.pictures(fleet).await);
        chapter.all_violated(crate::consistency::differences(fleet).await);
    }
}

/// Waits until no transaction runs any more: what a server left behind when it died is then done or undone.
async fn quiet(database: &TestDatabase) -> Vec<String> {
    let mut connection = database.connect().await;
    let begun = Instant::now();
    loop {
        let running: Vec<String> = sqlx::query_scalar(
            "select 'left open: ' || application_name || ' after: ' || left(query, 80) from pg_stat_activity \
             where datname = current_database() and pid <> pg_backend_pid() and backend_xid is not null",
        )
        .fetch_all(&mut connection)
        .await
        .expect("an answer");
        if running.is_empty() || QUIET_WITHIN < begun.elapsed() {
            return running;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
