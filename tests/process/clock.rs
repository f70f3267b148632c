//! R10: servers with clocks an hour fast and slow. An advertisement expires after its TTL, at each server that published it
//! and at each server that searches for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fireteam_client::pb;
use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::report::{TestReport, percentile, scaled};
use crate::support::database::create_test_database;
use crate::support::party::{advertise_request, party_session};

/// Clock offset of each server.
const CLOCK_OFFSETS: [Option<&str>; 3] = [None, Some("+1h"), Some("-1h")];

const TIME_TO_LIVE: Duration = Duration::from_millis(5_000);
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(1_000);

/// Earliest expiry before the end of the TTL: the tolerance between correct clocks, and the time between two searches.
const EARLY_MAX: Duration = Duration::from_millis(250);
/// Latest expiry after the end of the TTL (R10).
const LATE_MAX: Duration = Duration::from_millis(2_000);

/// Path of the library that shows a process another time.
fn find_libfaketime() -> Option<PathBuf> {
    let folders = std::fs::read_dir("/usr/lib").ok()?.filter_map(|it| Some(it.ok()?.path().join("faketime")));
    folders.map(|folder| folder.join("libfaketime.so.1")).find(|file| file.exists())
}

/// Ids of the search results of server `at`.
async fn shown(cluster: &Cluster, at: usize) -> Vec<String> {
    let client = cluster.client(at, 0).expect("a server is running");
    let found = client.new_search(1, party_session(&[("observer", 0.0)])).search().await.expect("a search");
    found.candidates.into_iter().map(|it| it.advertisement_id).collect()
}

fn named(name: &str) -> pb::MatchmakingUpdateAdvertisementRequest {
    pb::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(TIME_TO_LIVE.as_millis() as u64),
        idempotency_key: format!("{name}, some padding"),
        ..advertise_request(&[(name, 0.0)], 4)
    }
}

/// Starts one server for each of `CLOCK_OFFSETS`.
async fn start(url: &str, library: PathBuf) -> Arc<Cluster> {
    let cluster = Arc::new(Cluster::new(url, CLOCK_OFFSETS.len()));
    let preload = library.display().to_string();
    for (at, off) in CLOCK_OFFSETS.into_iter().enumerate() {
        let (filled, preload) = (Arc::clone(&cluster), preload.clone());
        let fill = move || match off {
            None => filled.fill(at, None, &[]),
            Some(off) => {
                let settings = [("LD_PRELOAD", &*preload), ("FAKETIME", off), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
                filled.fill(at, None, &settings);
            }
        };
        tokio::task::spawn_blocking(fill).await.expect("the server starts");
        let log = cluster.with(at, |server| server.log.text());
        // With the feature, an injected fault may replace the clock and with it this log line.
        if off.is_some() && !cfg!(feature = "failpoints") {
            assert!(log.contains("clock offset limit exceeded"), "the clock offset is not reported:\n{log}");
        }
    }
    cluster
}

/// Sessions that receive heartbeats, one published at each server.
struct LiveSessions<'a> {
    cluster: &'a Cluster,
    sessions: Vec<(String, Vec<u8>)>,
}

impl LiveSessions<'_> {
    /// Sends one heartbeat for each session.
    async fn send_heartbeats(&self, violations: &mut Vec<String>) {
        for (by, (id, token)) in self.sessions.iter().enumerate() {
            let request = pb::MatchmakingUpdateAdvertisementRequest {
                advertisement_id: id.clone(),
                advertisement_token: token.clone(),
                ..Default::default()
            };
            let client = self.cluster.client(by, 0).expect("a server is running");
            if let Err(error) = client.update_advertisement(request).await {
                violations.push(format!("heartbeat at server {by}: {error}"));
            }
        }
    }

    /// Checks that the search results `all` of server `at` contain each session.
    fn check_visible(&self, at: usize, all: &[String], violations: &mut Vec<String>) {
        for (by, (id, _)) in self.sessions.iter().enumerate() {
            if !all.contains(id) {
                violations.push(format!("session with heartbeats at server {by} is not found at {at}"));
            }
        }
    }
}

/// Publishes two sessions at each server, one without and one with heartbeats. Returns for the former how long after its
/// publication each server last found it, and violations.
async fn measure_ttls(cluster: &Cluster, round: usize) -> (Vec<(String, Duration)>, Vec<String>) {
    let (mut kept, mut left) = (LiveSessions { cluster, sessions: Vec::new() }, Vec::new());
    for by in 0..CLOCK_OFFSETS.len() {
        let client = cluster.client(by, 0).expect("a server is running");
        let made = client.update_advertisement(named(&format!("kept {round} {by}"))).await.expect("advertise");
        kept.sessions.push((made.advertisement_id, made.advertisement_token));
        let made = client.update_advertisement(named(&format!("left {round} {by}"))).await.expect("advertise");
        left.push((made.advertisement_id, Instant::now()));
    }
    let mut seen = vec![Duration::ZERO; CLOCK_OFFSETS.len() * CLOCK_OFFSETS.len()];
    let mut violations = Vec::new();
    let (started, mut last_heartbeat) = (Instant::now(), Instant::now());
    while started.elapsed() < TIME_TO_LIVE + LATE_MAX + HEARTBEAT_INTERVAL {
        if HEARTBEAT_INTERVAL < last_heartbeat.elapsed() {
            last_heartbeat = Instant::now();
            kept.send_heartbeats(&mut violations).await;
        }
        for at in 0..CLOCK_OFFSETS.len() {
            let all = shown(cluster, at).await;
            for (by, (id, since)) in left.iter().enumerate() {
                if all.contains(id) {
                    seen[at * CLOCK_OFFSETS.len() + by] = since.elapsed();
                }
            }
            if HEARTBEAT_INTERVAL < started.elapsed() {
                kept.check_visible(at, &all, &mut violations);
            }
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let case = |n: usize| {
        format!(
            "published at server {} without heartbeats, last found at {}",
            n % CLOCK_OFFSETS.len(),
            n / CLOCK_OFFSETS.len()
        )
    };
    (seen.into_iter().enumerate().map(|(n, seen)| (case(n), seen)).collect(), violations)
}

/// R10: TTLs do not depend on a server's own clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_offset_does_not_change_ttls() {
    let mut report = TestReport::start("clock").await;
    let Some(library) = find_libfaketime() else {
        eprintln!(
            "SKIPPED: no libfaketime: wrong clocks were NOT tried; install it (Debian: apt-get install faketime)"
        );
        return;
    };
    let Some(database) = create_test_database("clock_offset_does_not_change_ttls").await else { return };
    let cluster = start(&database.url, library).await;
    let mut all = Vec::new();
    for round in 0..scaled(3) {
        let (seen, violations) = measure_ttls(&cluster, round).await;
        report.violations(violations);
        for (case, seen) in seen {
            all.push(seen);
            if seen + EARLY_MAX < TIME_TO_LIVE || TIME_TO_LIVE + LATE_MAX < seen {
                report.violation(format!("{case} after {seen:?}"));
            }
        }
    }
    all.sort_unstable();
    report.record("advertisements", all.len());
    report.record("expired after ms, from", percentile(&all, 0.0).as_millis());
    report.record("to", percentile(&all, 1.0).as_millis());
    report.finish();
}
