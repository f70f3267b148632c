//! R12: servers of the previous release and of this build serve one database, in both directions. `.ci/previous-release`
//! builds the previous release; the variable `PREVIOUS_RELEASE` names its binary.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::cluster::Cluster;
use crate::match_checks::{Observed, check_rows};
use crate::matches::{RULES, spawn_players};
use crate::report::{TestReport, TestRng, scale, until};
use crate::support::database::create_test_database;

const SERVERS: usize = 3;

/// Matches before each change of a server.
const MATCHES_BETWEEN: usize = 40;

/// Time in which servers of random versions are killed and replaced.
const MIXED_FOR: Duration = Duration::from_secs(20);

/// Version of a server.
#[derive(Clone, Copy, Debug)]
enum Version {
    Previous,
    This,
}

/// A cluster whose servers are of two versions.
struct MixedCluster {
    cluster: Arc<Cluster>,
    previous: PathBuf,
    observed: Arc<Observed>,
    replaced: usize,
    slowest_start: Duration,
    violations: Vec<String>,
}

impl MixedCluster {
    async fn fill(&mut self, at: usize, version: Version) {
        let (cluster, previous) = (Arc::clone(&self.cluster), self.previous.clone());
        let fill = move || match version {
            Version::Previous => cluster.fill_with_program(at, &previous),
            Version::This => cluster.fill(at, None, &[]),
        };
        tokio::task::spawn_blocking(fill).await.expect("the server starts");
        self.slowest_start = self.slowest_start.max(self.cluster.with(at, |server| server.started_in));
    }

    /// Kills a server and starts one of `version` in its place, after some matches.
    async fn replace(&mut self, at: usize, version: Version) {
        self.check_log(at);
        self.cluster.kill(at);
        self.replaced += 1;
        self.fill(at, version).await;
        let played = || self.observed.played.load(Ordering::SeqCst) / 2;
        let before = played();
        until("matches are played after a replacement", async || before + MATCHES_BETWEEN <= played()).await;
    }

    /// No server finds a row that it cannot read, or a panic.
    fn check_log(&mut self, at: usize) {
        let log = self.cluster.with(at, |server| server.log.text());
        let is_wrong = |line: &&str| line.contains("corrupt") || line.contains("panicked");
        self.violations.extend(log.lines().filter(is_wrong).take(3).map(|line| format!("server {at}: {line}")));
    }
}

/// Binary of the previous release; `None` if it was not built.
fn previous_release() -> Option<PathBuf> {
    let path = std::env::var_os("PREVIOUS_RELEASE").filter(|path| !path.is_empty()).map(PathBuf::from);
    if !path.as_deref().is_some_and(Path::is_file) {
        println!(
            "SKIPPED: PREVIOUS_RELEASE names no binary; the rolling upgrade was NOT tried. See .ci/previous-release"
        );
        return None;
    }
    path
}

/// R12, R1: an upgrade and a rollback, server by server under load, and then both versions at random. No player is in two
/// matches, no ticket is lost, no match is partial, each result is rated once, and no row is unreadable.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rolling_upgrade_and_rollback_lose_nothing() {
    let Some(previous) = previous_release() else { return };
    let mut report = TestReport::start("rolling upgrade").await;
    let Some(database) = create_test_database("rolling_upgrade_and_rollback_lose_nothing").await else { return };
    let cluster = Arc::new(Cluster::new_with_ruleset(&database.url, SERVERS, RULES));
    let (observed, stop) = (Arc::new(Observed::default()), Arc::new(AtomicBool::new(false)));
    let mut mixed = MixedCluster {
        cluster: Arc::clone(&cluster),
        previous,
        observed: Arc::clone(&observed),
        replaced: 0,
        slowest_start: Duration::ZERO,
        violations: Vec::new(),
    };
    for at in 0..SERVERS {
        mixed.fill(at, Version::Previous).await;
    }
    let players = spawn_players(&cluster, &observed, &stop, |number| report.rng(number));
    for version in [Version::This, Version::Previous, Version::This] {
        for at in 0..SERVERS {
            mixed.replace(at, version).await;
        }
    }
    replace_at_random(&mut mixed, &report.rng(1_000)).await;
    for at in 0..SERVERS {
        mixed.check_log(at);
    }
    stop.store(true, Ordering::SeqCst);
    for player in players {
        player.await.expect("the task ends");
    }
    report.record("servers replaced", mixed.replaced);
    report.record("slowest start ms", mixed.slowest_start.as_millis());
    report.record("matched", observed.matched.lock().unwrap().len());
    report.violations(std::mem::take(&mut mixed.violations));
    check_rows(&mut report, &database, &observed).await;
    report.finish();
}

async fn replace_at_random(mixed: &mut MixedCluster, rng: &TestRng) {
    let started = Instant::now();
    while started.elapsed() < MIXED_FOR.mul_f64(scale().max(1.0)) {
        let version = if rng.chance(0.5) { Version::Previous } else { Version::This };
        mixed.replace(rng.below(SERVERS), version).await;
    }
}
