//! Goal PD5: throughput of heartbeats through the engine alone, and rows that they write to the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fireteam::auth::jwt_signing_key::JwtSigningKey;
use fireteam::auth::match_credential::MatchCredentialKeys;
use fireteam::auth::public_user_keys::PublicUserKeySecret;
use fireteam::auth::token::HmacTokenSigner;
use fireteam::clock::{Clock, ManualClock};
use fireteam::domain::id::{AdvertisementId, SetId};
use fireteam::domain::time::UnixMs;
use fireteam::engine::BeaconSettings;
use fireteam::engine::command::{Caller, PublishOrHeartbeatAdvertCommand};
use fireteam::engine::settings::EngineSettings;
use fireteam::engine::{Engine, EngineDeps, PendingAnswer};
use fireteam::geo::{LocatorSettings, ReloadableLocator};
use fireteam::rules::RulesetCatalog;
use fireteam::store::memory::MemoryStore;
use fireteam::store::metered::{MeteredStore, StoreObserver};
use fireteam::telemetry::metric::Metrics;

use crate::harness::{ROUNDS, machine, median, time_all};
use crate::population::{NOW, PopulationKind, RuleOptions, ruleset, session};
use crate::split_mix64::SplitMix64;

/// Hosts that send heartbeats.
const HOSTS: usize = 100_000;
/// Simulated time in the second part, and the heartbeat interval of each host, milliseconds.
const PASSING_MS: u64 = 600_000;
const EVERY_MS: u64 = 30_000;

/// Number of rows that the engine has committed.
#[derive(Clone, Debug, Default)]
struct CommitCounter(Arc<AtomicU64>);

impl StoreObserver for CommitCounter {
    /// Always zero: durations are not measured.
    fn monotonic_time(&self) -> Duration {
        Duration::ZERO
    }

    fn on_operation(&self, operation: &'static str, _: Duration, _: bool, rows: usize) {
        if operation == "commit" {
            self.0.fetch_add(rows as u64, Ordering::Relaxed);
        }
    }

    fn on_transaction(&self, _: &'static str, _: Duration) {}
}

/// An engine and its hosts.
struct Hosts {
    engine: Engine,
    clock: Arc<ManualClock>,
    counter: CommitCounter,
    hosts: Vec<(AdvertisementId, Vec<u8>)>,
}

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    if wanted("PD5") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(heartbeats());
    }
}

async fn heartbeats() {
    let hosts = Hosts::new().await;
    let (mut walls, mut cpus) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let took = time_all(HOSTS, |number| drop(hosts.beat(number)));
        walls.push(took.wall_us);
        cpus.push(took.cpu_us);
    }
    let (wall_us, cpu_us) = (median(walls), median(cpus));
    let rate = 1.0 / wall_us;
    println!(
        "| PD5 >= 1 | heartbeat_cost: M heartbeats/s of {HOSTS} hosts, one thread | 1 | {rate:.2} | | {ROUNDS} | {wall_us:.2} | | {cpu_us:.2} | {} |",
        machine()
    );
    let written = hosts.pass().await;
    println!(
        "| PD5 <= 0.4 | heartbeat_cost: rows written for a heartbeat, every 30 s of 90 s, ten minutes | 0.4 | {written:.3} | | {HOSTS} | | | | {} |",
        machine()
    );
    hosts.engine.close().await;
}

impl Hosts {
    async fn new() -> Self {
        let clock = Arc::new(ManualClock::new(UnixMs(NOW), 1));
        let counter = CommitCounter::default();
        let store = Arc::new(MeteredStore::new(Arc::new(MemoryStore::default()), counter.clone()));
        let catalog = Arc::new(RulesetCatalog::default());
        let rules = ruleset(RuleOptions { skill: 0.6, distance: 0.4, ..RuleOptions::default() });
        catalog.replace_all(vec![("bench.xml".into(), Arc::new(rules))], UnixMs(NOW), 0);
        let places = LocatorSettings::default();
        let parts = EngineDeps {
            clock: clock.clone(),
            store,
            rulesets: catalog,
            geo_locator: Arc::new(ReloadableLocator::new(Vec::new(), places)),
            token_signer: Arc::new(HmacTokenSigner::new([7; 32], None)),
            public_user_keys: Arc::new(PublicUserKeySecret::new([7; 32])),
            match_credential_keys: Arc::new(MatchCredentialKeys::new(
                JwtSigningKey::from_seed(&[8; 32]).expect("a key"),
                None,
            )),
            metrics: Arc::new(Metrics::new()),
            settings: EngineSettings { allow_client_locality: true, ..EngineSettings::default() },
            served_silos: None,
            supervisor: fireteam::supervisor::TaskSupervisor::default(),
            pass_failures: fireteam::store::pass_failure::PassFailureFolder::default(),
            erasure_log: None,
            beacon_settings: BeaconSettings::default(),
        };
        let engine = Engine::start(parts).await.expect("an empty store loads");
        let mut this = Self { engine, clock, counter, hosts: Vec::new() };
        let mut rng = SplitMix64(3);
        for from in (0..HOSTS).step_by(1_000) {
            let submitted: Vec<_> = (from..from + 1_000).map(|number| this.publish(&mut rng, number)).collect();
            for submitted in submitted {
                let answer = submitted.wait().await.expect("it is stored");
                this.hosts.push((answer.id, answer.advertisement_token));
            }
        }
        this
    }

    fn publish(
        &self,
        rng: &mut SplitMix64,
        number: usize,
    ) -> PendingAnswer<fireteam::engine::command::UpdateAdvertAnswer> {
        let update = PublishOrHeartbeatAdvertCommand {
            session: Some(session(rng, PopulationKind::Uniform)),
            set_id: Some(SetId(1)),
            idempotency_key: Some(format!("host number {number:020}")),
            ..PublishOrHeartbeatAdvertCommand::default()
        };
        self.engine.update_advertisement(&Caller::default(), update).expect("a good update")
    }

    fn beat(&self, number: usize) -> PendingAnswer<fireteam::engine::command::UpdateAdvertAnswer> {
        let update = PublishOrHeartbeatAdvertCommand {
            existing_advert: Some(self.hosts[number].clone()),
            ..PublishOrHeartbeatAdvertCommand::default()
        };
        self.engine.update_advertisement(&Caller::default(), update).expect("a good heartbeat")
    }

    /// Advances ten minutes of simulated time, with a heartbeat of each host every thirty seconds at a moment of its own. Returns
    /// the rows written per heartbeat.
    async fn pass(&self) -> f64 {
        let before = self.counter.0.load(Ordering::Relaxed);
        let slices = 1_000;
        let each = HOSTS / slices;
        let mut beats = 0_u64;
        for _ in 0..PASSING_MS / EVERY_MS {
            for slice in 0..slices {
                self.clock.advance_ms(EVERY_MS / slices as u64);
                let submitted: Vec<_> = (slice * each..(slice + 1) * each).map(|number| self.beat(number)).collect();
                beats += submitted.len() as u64;
                for submitted in submitted {
                    submitted.wait().await.expect("it lives");
                }
            }
        }
        assert_eq!(self.clock.now().ms_since(UnixMs(NOW)), PASSING_MS, "ten minutes");
        (self.counter.0.load(Ordering::Relaxed) - before) as f64 / beats as f64
    }
}
