//! Goals QIDLE and PGIDLE: cost of 10,000 idle queues, each in a silo of its own with one waiting ticket, in memory and on
//! Postgres: processor time while nothing happens, and latency of Enter beside them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fireteam::auth::jwt_signing_key::JwtSigningKey;
use fireteam::auth::match_credential::MatchCredentialKeys;
use fireteam::auth::public_user_keys::PublicUserKeySecret;
use fireteam::auth::token::HmacTokenSigner;
use fireteam::clock::SystemClock;
use fireteam::domain::id::{SetId, SiloId, UserKey};
use fireteam::domain::session::{Player, Session};
use fireteam::engine::BeaconSettings;
use fireteam::engine::command::Caller;
use fireteam::engine::queues::command::EnterQueueCommand;
use fireteam::engine::settings::EngineSettings;
use fireteam::engine::{Engine, EngineDeps};
use fireteam::geo::{LocatorSettings, ReloadableLocator};
use fireteam::rules::{self, RulesetCatalog};
use fireteam::store::Store;
use fireteam::store::memory::MemoryStore;
use fireteam::store::postgres::{FireteamReplica, PostgresStore};
use fireteam::telemetry::metric::Metrics;

use crate::harness::{clock, machine, quantile_of};
use crate::store_postgres;

/// Idle queues.
const IDLE_QUEUES: u64 = 10_000;

/// Enters at the same time while the queues are filled.
const ENTERS_AT_ONCE: usize = 64;

/// Enters that are measured.
const ENTERS: u64 = 1_000;

/// Time without calls for which processor time is measured.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// Time after which the last call has no more effects.
const SETTLE_TIME: Duration = Duration::from_secs(3);

/// Clock ticks per second of `/proc/self/stat`.
const TICKS_PER_SECOND: f64 = 100.0;

/// A queue whose tickets stay for an hour without a heartbeat.
const RULES: &str =
    r#"<Ruleset Name="Idle" SetId="11"><Teams Count="2" Size="1"/><Queue TicketTtlMs="3600000"/></Ruleset>"#;

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    if wanted("QIDLE") {
        runtime.block_on(measure("QIDLE", Arc::new(MemoryStore::default())));
    }
    if wanted("PGIDLE") {
        let Some(url) = store_postgres::database() else {
            println!("SKIPPED: PGIDLE: set FIRETEAM_BENCH_POSTGRES to a database to fill");
            return;
        };
        runtime.block_on(async {
            let replica = FireteamReplica { id: 1, silos: None };
            let store = PostgresStore::open(&url, replica).await.expect("a database");
            measure("PGIDLE", Arc::new(store)).await;
        });
    }
}

/// Processor time so far of the processes for which `is_counted` is true, by their folder in `/proc`, seconds.
pub(crate) fn cpu_seconds(is_counted: impl Fn(&Path) -> bool) -> f64 {
    let ticks = |folder: std::path::PathBuf| -> f64 {
        let stat = std::fs::read_to_string(folder.join("stat")).unwrap_or_default();
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum()
    };
    let folders = std::fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    folders.filter(|folder| is_counted(folder)).map(ticks).sum::<f64>() / TICKS_PER_SECOND
}

/// Processor time so far of this process, and of all Postgres processes of this machine, seconds.
fn cpu_of_server_and_database() -> [f64; 2] {
    let own = std::process::id().to_string();
    let is_postgres =
        |folder: &Path| std::fs::read_to_string(folder.join("comm")).is_ok_and(|name| name.trim_end() == "postgres");
    [cpu_seconds(|folder| folder.ends_with(&own)), cpu_seconds(is_postgres)]
}

async fn start_engine(store: Arc<dyn Store>) -> Engine {
    let catalog = Arc::new(RulesetCatalog::default());
    let clock = Arc::new(SystemClock::start());
    let ruleset = Arc::new(rules::parse_ruleset("idle.xml", RULES).expect("valid rules"));
    let now = fireteam::clock::Clock::now(&*clock);
    catalog.replace_all(vec![("idle.xml".into(), ruleset)], now, 0);
    let jwt_signing_key = JwtSigningKey::from_seed(&[8; 32]).expect("a key");
    let parts = EngineDeps {
        clock,
        store,
        rulesets: catalog,
        geo_locator: Arc::new(ReloadableLocator::new(Vec::new(), LocatorSettings::default())),
        token_signer: Arc::new(HmacTokenSigner::new([7; 32], None)),
        public_user_keys: Arc::new(PublicUserKeySecret::new([7; 32])),
        match_credential_keys: Arc::new(MatchCredentialKeys::new(jwt_signing_key, None)),
        metrics: Arc::new(Metrics::new()),
        settings: EngineSettings { max_silos: 100_000, max_silos_per_user: 100_000, ..EngineSettings::default() },
        served_silos: None,
        supervisor: fireteam::supervisor::TaskSupervisor::default(),
        pass_failures: fireteam::store::pass_failure::PassFailureFolder::default(),
        erasure_log: None,
        beacon_settings: BeaconSettings::default(),
    };
    Engine::start(parts).await.expect("an empty store loads")
}

/// Enters a user of its own in `silo`; returns the latency, microseconds.
async fn enter(engine: &Engine, number: u64, silo: u64) -> f64 {
    let user = UserKey::from_name(&format!("user {number}"));
    let command = EnterQueueCommand {
        set_id: SetId(11),
        session: Session {
            silo: SiloId(silo),
            party_sizes: [1].into(),
            players: vec![Player::from_user(user)],
            ..Session::default()
        },
        idempotency_key: format!("ticket of user number {number}"),
        ..EnterQueueCommand::default()
    };
    let started = clock();
    engine.queues().enter_queue(&Caller::default(), command).await.expect("entered");
    started.elapsed().as_secs_f64() * 1e6
}

/// Percent of one core that the server and Postgres use while nothing happens.
async fn idle_percent() -> [f64; 2] {
    tokio::time::sleep(SETTLE_TIME).await;
    let before = cpu_of_server_and_database();
    tokio::time::sleep(IDLE_TIME).await;
    let after = cpu_of_server_and_database();
    [0, 1].map(|at| (after[at] - before[at]) / IDLE_TIME.as_secs_f64() * 100.0)
}

async fn measure(goal: &str, store: Arc<dyn Store>) {
    let engine = start_engine(store).await;
    let without_queues = idle_percent().await;
    let mut numbers = 0..IDLE_QUEUES;
    while !numbers.is_empty() {
        let some = numbers.by_ref().take(ENTERS_AT_ONCE);
        futures_util::future::join_all(some.map(|number| enter(&engine, number, number))).await;
    }
    let with_queues = idle_percent().await;
    for (at, what) in ["the server", "Postgres"].into_iter().enumerate().take(if goal == "PGIDLE" { 2 } else { 1 }) {
        let percent = with_queues[at] - without_queues[at];
        println!(
            "| {goal} <= 1 | idle_queues: percent of one core of {what} for {IDLE_QUEUES} idle queues, above {:.2} without | 1 | {percent:.2} | | 1 | | | | {} |",
            without_queues[at],
            machine()
        );
    }
    for (what, first_silo) in [("a new silo", IDLE_QUEUES), ("one idle silo after the other", 0)] {
        let mut latencies_us = Vec::new();
        for number in 0..ENTERS {
            latencies_us.push(enter(&engine, 2 * first_silo + IDLE_QUEUES + number, first_silo + number).await);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let (p50, p99) = (quantile_of(&mut latencies_us, 0.5), quantile_of(&mut latencies_us, 0.99));
        println!(
            "| {goal} | idle_queues: Enter into {what}, beside {IDLE_QUEUES} idle queues, p50 and p99 | | | | {ENTERS} | {p50:.0} | {p99:.0} | | {} |",
            machine()
        );
    }
    engine.close().await;
}
