//! R10: servers whose machines are an hour off. Advertisements live as long as they were promised to, by whichever server
//! they came and at whichever one they are looked for.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fireteam_client::pb;
use tokio::time::Instant;

use crate::cluster::Fleet;
use crate::report::{Chapter, percentile, scaled};
use crate::support::database::create_test_database;
use crate::support::party::{advertise_request, party_session};

/// By how much each server's machine is off.
const OFF: [Option<&str>; 3] = [None, Some("+1h"), Some("-1h")];

const TIME_TO_LIVE: Duration = Duration::from_millis(5_000);
const BEAT_EVERY: Duration = Duration::from_millis(1_000);

/// Nobody is gone more than this early: what clocks that follow each other may differ by, and the time between two looks.
const EARLY: Duration = Duration::from_millis(250);
/// Nobody is there more than this late (R10).
const LATE: Duration = Duration::from_millis(2_000);

/// The library that shows a process another time.
fn library() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.filter_map(|it| Some(it.ok()?.path().join("faketime")));
    folders.map(|folder| folder.join("libfaketime.so.1")).find(|file| file.exists())
}

/// What a stranger is shown at `at`, by what the hosts said.
async fn shown(fleet: &Fleet, at: usize) -> Vec<String> {
    let client = fleet.client(at, 0).expect("somebody is there");
    let found = client.search_session(1, party_session(&[("a stranger", 0.0)])).search().await.expect("a search");
    found.candidates.into_iter().map(|it| String::from_utf8(it.connect_data).expect("text")).collect()
}

fn named(name: &str) -> pb::MatchmakingUpdateAdvertisementRequest {
    pb::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(TIME_TO_LIVE.as_millis() as u64),
        connect_data: name.as_bytes().to_vec(),
        idempotency_key: format!("{name}, at length"),
        ..advertise_request(&[(name, 0.0)], 4)
    }
}

/// A server for each of `OFF`.
async fn start(url: &str, library: PathBuf) -> Arc<Fleet> {
    let fleet = Arc::new(Fleet::new(url, OFF.len()));
    let preload = library.display().to_string();
    for (at, off) in OFF.into_iter().enumerate() {
        let (filled, preload) = (Arc::clone(&fleet), preload.clone());
        let fill = move || match off {
            None => filled.fill(at, None, &[]),
            Some(off) => {
                let settings = [("LD_PRELOAD", &*preload), ("FAKETIME", off), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
                filled.fill(at, None, &settings);
            }
        };
        tokio::task::spawn_blocking(fill).await.expect("it starts");
        let told = fleet.with(at, |server| server.log.text());
        // The feature may plant a fault that takes this line away with the clock that it is about.
        if off.is_some() && !cfg!(feature = "mutants") {
            assert!(told.contains("clock offset limit exceeded"), "the clock is wrong:\n{told}");
        }
    }
    fleet
}

/// Sessions that are kept alive, each at a server of its own.
struct Kept<'a> {
    fleet: &'a Fleet,
    round: usize,
    sessions: Vec<(String, Vec<u8>)>,
}

impl Kept<'_> {
    /// A heartbeat for each.
    async fn beat(&self, wrong: &mut Vec<String>) {
        for (by, (id, token)) in self.sessions.iter().enumerate() {
            let request = pb::MatchmakingUpdateAdvertisementRequest {
                advertisement_id: id.clone(),
                advertisement_token: token.clone(),
                ..Default::default()
            };
            let client = self.fleet.client(by, 0).expect("somebody is there");
            if let Err(error) = client.update_advertisement(request).await {
                wrong.push(format!("a heartbeat at server {by}: {error}"));
            }
        }
    }

    /// Whether all of them are among what server `at` shows.
    fn look(&self, at: usize, all: &[String], wrong: &mut Vec<String>) {
        for by in 0..self.sessions.len() {
            if !all.contains(&format!("kept {} {by}", self.round)) {
                wrong.push(format!("kept alive at server {by}, not shown at {at}"));
            }
        }
    }
}

/// Publishes a session at each server and leaves it alone, and another that it keeps alive. Says how long after its
/// publication each of the former was last seen at each server, and what else was wrong.
async fn lives(fleet: &Fleet, round: usize) -> (Vec<(String, Duration)>, Vec<String>) {
    let (mut kept, mut left) = (Kept { fleet, round, sessions: Vec::new() }, Vec::new());
    for by in 0..OFF.len() {
        let client = fleet.client(by, 0).expect("somebody is there");
        let made = client.update_advertisement(named(&format!("kept {round} {by}"))).await.expect("advertise");
        kept.sessions.push((made.advertisement_id, made.advertisement_token));
        let name = format!("left {round} {by}");
        client.update_advertisement(named(&name)).await.expect("advertise");
        left.push((name, Instant::now()));
    }
    let mut seen = vec![Duration::ZERO; OFF.len() * OFF.len()];
    let mut wrong = Vec::new();
    let (begun, mut beat) = (Instant::now(), Instant::now());
    while begun.elapsed() < TIME_TO_LIVE + LATE + BEAT_EVERY {
        if BEAT_EVERY < beat.elapsed() {
            beat = Instant::now();
            kept.beat(&mut wrong).await;
        }
        for at in 0..OFF.len() {
            let all = shown(fleet, at).await;
            for (by, (name, since)) in left.iter().enumerate() {
                if all.contains(name) {
                    seen[at * OFF.len() + by] = since.elapsed();
                }
            }
            if BEAT_EVERY < begun.elapsed() {
                kept.look(at, &all, &mut wrong);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let who = |n: usize| format!("left alone at server {}, last seen at {}", n % OFF.len(), n / OFF.len());
    (seen.into_iter().enumerate().map(|(n, seen)| (who(n), seen)).collect(), wrong)
}

/// R10: one's own clock decides nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_clock_changes_nothing() {
    let mut chapter = Chapter::begin("clock").await;
    let Some(library) = library() else {
        eprintln!(
            "SKIPPED: no libfaketime: wrong clocks were NOT tried; install it (Debian: apt-get install faketime)"
        );
        return;
    };
    let Some(database) = create_test_database("a_wrong_clock_changes_nothing").await else { return };
    let fleet = start(&database.url, library).await;
    let mut all = Vec::new();
    for round in 0..scaled(3) {
        let (seen, wrong) = lives(&fleet, round).await;
        chapter.all_violated(wrong);
        for (who, seen) in seen {
            all.push(seen);
            if seen + EARLY < TIME_TO_LIVE || TIME_TO_LIVE + LATE < seen {
                chapter.violated(format!("{who} after {seen:?}"));
            }
        }
    }
    all.sort_unstable();
    chapter.figure("lives", all.len());
    chapter.figure("gone after ms, from", percentile(&all, 0.0).as_millis());
    chapter.figure("to", percentile(&all, 1.0).as_millis());
    chapter.end();
}
