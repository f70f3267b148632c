//! R10: servers whose machines are an hour off. Advertisements live as long as they were promised to, by whichever server
//! they came and at whichever one they are looked for.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fireteam_client::pb;
use tokio::time::Instant;

use crate::database::database;
use crate::figures::{Chapter, scaled};
use crate::fleet::Fleet;
use crate::party::{host, party};

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
    let found = client.searching(1, party(&[("a stranger", 0.0)])).search().await.expect("a search");
    found.candidates.into_iter().map(|it| String::from_utf8(it.connect_data).expect("text")).collect()
}

fn named(name: &str) -> pb::MatchmakingUpdateAdvertisementRequest {
    pb::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(TIME_TO_LIVE.as_millis() as u32),
        connect_data: name.as_bytes().to_vec(),
        idempotency_key: format!("{name}, at length"),
        ..host(&[(name, 0.0)], 4)
    }
}

/// R10: one's own clock decides nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_clock_changes_nothing() {
    let mut chapter = Chapter::begin("clock").await;
    let Some(library) = library() else {
        eprintln!(
            "SKIPPED: no libfaketime: wrong clocks were NOT tried; install faketime (Debian: apt-get install faketime)"
        );
        return;
    };
    let Some(database) = database("a_wrong_clock_changes_nothing").await else { return };
    let fleet = Arc::new(Fleet::new(&database.url, OFF.len()));
    let preload = library.display().to_string();
    for (at, off) in OFF.into_iter().enumerate() {
        let (fleet, preload) = (Arc::clone(&fleet), preload.clone());
        let start = move || match off {
            None => fleet.fill(at, None, &[]),
            Some(off) => {
                let settings = [("LD_PRELOAD", &*preload), ("FAKETIME", off), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
                fleet.fill(at, None, &settings);
            }
        };
        tokio::task::spawn_blocking(start).await.expect("it starts");
    }
    for at in 1..OFF.len() {
        let told = fleet.with(at, |server| server.log.text());
        // The feature that plants a fault takes this line away with the clock that it is about.
        if !cfg!(feature = "mutants") {
            assert!(told.contains("this machine's clock is not the store's"), "the clock is wrong:\n{told}");
        }
    }

    let mut figures = (Duration::MAX, Duration::ZERO);
    for round in 0..scaled(3).max(1) {
        let mut kept = Vec::new();
        let mut published = Vec::new();
        for by in 0..OFF.len() {
            let client = fleet.client(by, 0).expect("somebody is there");
            let made = client.update_advertisement(named(&format!("kept {round} {by}"))).await.expect("advertise");
            kept.push((made.advertisement_id, made.advertisement_token));
            let name = format!("left {round} {by}");
            client.update_advertisement(named(&name)).await.expect("advertise");
            published.push((name, Instant::now()));
        }
        let mut seen = vec![vec![Duration::ZERO; OFF.len()]; OFF.len()];
        let (begun, mut beat) = (Instant::now(), Instant::now());
        while begun.elapsed() < TIME_TO_LIVE + LATE + BEAT_EVERY {
            if BEAT_EVERY < beat.elapsed() {
                beat = Instant::now();
                for (by, (id, token)) in kept.iter().enumerate() {
                    let request = pb::MatchmakingUpdateAdvertisementRequest {
                        advertisement_id: id.clone(),
                        advertisement_token: token.clone(),
                        ..Default::default()
                    };
                    let answer = fleet.client(by, 0).expect("somebody is there").update_advertisement(request).await;
                    if let Err(error) = answer {
                        chapter.violated(format!("a heartbeat at server {by}: {error}"));
                    }
                }
            }
            for (at, seen) in seen.iter_mut().enumerate() {
                let all = shown(&fleet, at).await;
                for (by, (name, since)) in published.iter().enumerate() {
                    if all.contains(name) {
                        seen[by] = since.elapsed();
                    }
                }
                for by in (0..OFF.len()).filter(|_| BEAT_EVERY < begun.elapsed()) {
                    if !all.contains(&format!("kept {round} {by}")) {
                        chapter.violated(format!("kept alive at server {by}, not shown at {at}"));
                    }
                }
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for (at, seen) in seen.into_iter().enumerate() {
            for (by, seen) in seen.into_iter().enumerate() {
                figures = (figures.0.min(seen), figures.1.max(seen));
                if seen + EARLY < TIME_TO_LIVE || TIME_TO_LIVE + LATE < seen {
                    chapter.violated(format!("left alone at server {by}, last seen at {at} after {seen:?}"));
                }
            }
        }
    }
    chapter.figure("gone after ms, from", figures.0.as_millis());
    chapter.figure("to", figures.1.as_millis());
    chapter.end();
}
