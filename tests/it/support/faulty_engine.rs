//! An engine on a store with injected faults.

use std::path::PathBuf;
use std::sync::Arc;

use fireteam::auth::jwt_signing_key::JwtSigningKey;
use fireteam::auth::match_credential::MatchCredentialKeys;
use fireteam::auth::public_user_keys::PublicUserKeySecret;
use fireteam::auth::token::HmacTokenSigner;
use fireteam::clock::Clock as _;
use fireteam::domain::ruleset::Ruleset;
use fireteam::engine::BeaconSettings;
use fireteam::engine::settings::EngineSettings;

use fireteam::engine::{Engine, EngineDeps};
use fireteam::geo::{LocatorSettings, ReloadableLocator};
use fireteam::rules::RulesetCatalog;
use fireteam::server::{RunningServer, Server, ServerDeps};
use fireteam::store::pass_failure::PassFailureFolder;
use fireteam::supervisor::TaskSupervisor;
use fireteam::telemetry::Metrics;

use crate::support::faulty_store::FaultyStore;
use crate::support::scripted_server::{RecordingObserver, server_deps};
use crate::support::test_server::TestClock;

/// Serves an engine with its queues on free ports.
pub(crate) async fn serve(engine: &Arc<Engine>, clock: &Arc<TestClock>) -> RunningServer {
    let parts = server_deps(engine.clone(), Arc::new(RecordingObserver::default()));
    let parts = ServerDeps { queues: Some(engine.queues().clone()), clock: clock.clone(), ..parts };
    Server::start(parts).await.expect("the server starts")
}

/// Starts an engine on `store` with these rulesets.
pub(crate) async fn start_engine(
    store: &Arc<FaultyStore>,
    rulesets: Vec<(PathBuf, Arc<Ruleset>)>,
    clock: &Arc<TestClock>,
) -> Engine {
    let catalog = Arc::new(RulesetCatalog::default());
    catalog.replace_all(rulesets, clock.now(), 0);
    let locator_settings = LocatorSettings::default();
    let deps = EngineDeps {
        clock: clock.clone(),
        store: store.clone(),
        rulesets: catalog,
        geo_locator: Arc::new(ReloadableLocator::new(Vec::new(), locator_settings)),
        token_signer: Arc::new(HmacTokenSigner::new([1; 32], None)),
        public_user_keys: Arc::new(PublicUserKeySecret::new([1; 32])),
        match_credential_keys: Arc::new(MatchCredentialKeys::new(JwtSigningKey::from_seed(&[2; 32]).unwrap(), None)),
        metrics: Arc::new(Metrics::new()),
        settings: EngineSettings::default(),
        served_silos: None,
        supervisor: TaskSupervisor::default(),
        pass_failures: PassFailureFolder::default(),
        erasure_log: None,
        beacon_settings: BeaconSettings::default(),
    };
    Engine::start(deps).await.expect("the engine starts")
}
