//! Goal QIDLE: cost of 10,000 idle queues, each in a silo of its own with one waiting ticket: processor time while nothing
//! happens, and latency of Enter beside them.

use std::sync::Arc;
use std::time::Duration;

use fireteam::api::response_encoder::encode_static_candidate_fields;
use fireteam::auth::issuing_key::IssuingKey;
use fireteam::auth::match_credential::MatchCredentialKeys;
use fireteam::auth::token::TokenSigner;
use fireteam::clock::SystemClock;
use fireteam::domain::id::{SetId, SiloId, UserKey};
use fireteam::domain::session::{Player, Session};
use fireteam::engine::command::Caller;
use fireteam::engine::queues::command::EnterQueueCommand;
use fireteam::engine::settings::EngineSettings;
use fireteam::engine::{Engine, EngineDeps};
use fireteam::geo::{LocatorSettings, ReloadableLocator};
use fireteam::rules::{self, RulesetCatalog};
use fireteam::store::memory::MemoryStore;
use fireteam::telemetry::metric::Metrics;

use crate::harness::{clock, machine, quantile_of};

/// Idle queues.
const IDLE_QUEUES: u64 = 10_000;

/// Enters that are measured.
const ENTERS: u64 = 1_000;

/// Time without calls for which processor time is measured.
const IDLE_TIME: Duration = Duration::from_secs(30);

/// Clock ticks per second of `/proc/self/stat`.
const TICKS_PER_SECOND: f64 = 100.0;

/// A queue whose tickets stay for an hour without a heartbeat.
const RULES: &str =
    r#"<Ruleset Name="Idle" SetId="11"><Teams Count="2" Size="1"/><Queue TicketTtlMs="3600000"/></Ruleset>"#;

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    if wanted("QIDLE") {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.expect("a runtime").block_on(measure());
    }
}

/// Processor time of this process so far, seconds.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: f64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<f64>().ok()).sum();
    ticks / TICKS_PER_SECOND
}

async fn start_engine() -> Engine {
    let catalog = Arc::new(RulesetCatalog::default());
    let clock = Arc::new(SystemClock::start());
    let ruleset = Arc::new(rules::parse_ruleset("idle.xml", RULES).expect("valid rules"));
    let now = fireteam::clock::Clock::now(&*clock);
    catalog.replace_all(vec![("idle.xml".into(), ruleset)], now, 0);
    let issuing_key = IssuingKey::from_seed(&[8; 32]).expect("a key");
    let parts = EngineDeps {
        clock,
        store: Arc::new(MemoryStore::default()),
        rulesets: catalog,
        geo_locator: Arc::new(ReloadableLocator::new(Vec::new(), LocatorSettings::default())),
        token_signer: Arc::new(TokenSigner::new([7; 32], None)),
        match_credential_keys: Arc::new(MatchCredentialKeys::new(issuing_key, None)),
        metrics: Arc::new(Metrics::new()),
        settings: EngineSettings { max_silos: 100_000, max_silos_per_user: 100_000, ..EngineSettings::default() },
        served_silos: None,
        supervisor: fireteam::supervisor::TaskSupervisor::default(),
        pass_failures: fireteam::store::pass_failure::PassFailureFolder::default(),
        encode_advert: encode_static_candidate_fields,
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
            party_sizes: vec![1],
            players: vec![Player { user, client_key: user, stated_skill: None }],
            ..Session::default()
        },
        idempotency_key: format!("ticket of user number {number}"),
        ..EnterQueueCommand::default()
    };
    let started = clock();
    engine.queues().enter_queue(&Caller::default(), command).await.expect("entered");
    started.elapsed().as_secs_f64() * 1e6
}

async fn measure() {
    let engine = start_engine().await;
    for number in 0..IDLE_QUEUES {
        enter(&engine, number, number).await;
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let cpu_before = cpu_seconds();
    tokio::time::sleep(IDLE_TIME).await;
    let percent = (cpu_seconds() - cpu_before) / IDLE_TIME.as_secs_f64() * 100.0;
    println!(
        "| QIDLE <= 1 | idle_queues: percent of one core with {IDLE_QUEUES} idle queues | 1 | {percent:.2} | | 1 | | | | {} |",
        machine()
    );
    for (what, first_silo) in [("a new silo", IDLE_QUEUES), ("one idle silo after the other", 0)] {
        let mut latencies_us = Vec::new();
        for number in 0..ENTERS {
            latencies_us.push(enter(&engine, 2 * first_silo + IDLE_QUEUES + number, first_silo + number).await);
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let (p50, p99) = (quantile_of(&mut latencies_us, 0.5), quantile_of(&mut latencies_us, 0.99));
        println!(
            "| QIDLE | idle_queues: Enter into {what}, beside {IDLE_QUEUES} idle queues, p50 and p99 | | | | {ENTERS} | {p50:.0} | {p99:.0} | | {} |",
            machine()
        );
    }
    engine.close().await;
}
