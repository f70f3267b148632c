//! Dependencies of the engine, supplied by the server.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use crate::auth::match_credential::MatchCredentialKeys;
use crate::auth::public_user_keys::PublicUserKeySecret;
use crate::auth::token::HmacTokenSigner;
use crate::clock::Clock;
use crate::domain::id::SiloId;
use crate::engine::beacon_directory::{BeaconDirectory, BeaconSettings};
use crate::engine::common::Common;
use crate::engine::feed_reads::FeedReads;
use crate::engine::open_session_changes::OpenSessionChanges;
use crate::engine::open_silos::{OpenSiloLimits, OpenSilos};
use crate::engine::outage_log::OutageLog;
use crate::engine::party_values::PartyValueReader;
use crate::engine::settings::EngineSettings;
use crate::engine::statistics::StatisticsRecorder;
use crate::engine::store_health::StoreHealth;
use crate::engine::write_health::WriteHealth;
use crate::geo::ReloadableLocator;
use crate::rules::RulesetCatalog;
use crate::store::Store;
use crate::store::erasure_log::ErasureLog;
use crate::store::pass_failure::PassFailureFolder;
use crate::supervisor::TaskSupervisor;
use crate::telemetry::metric::Metrics;

/// Dependencies of the engine, supplied by the server.
pub struct EngineDeps {
    /// Time and random numbers.
    pub clock: Arc<dyn Clock>,
    /// Durable storage.
    pub store: Arc<dyn Store>,
    /// Loaded rulesets.
    pub rulesets: Arc<RulesetCatalog>,
    /// IP geolocation.
    pub geo_locator: Arc<ReloadableLocator>,
    /// Signs and verifies tokens.
    pub token_signer: Arc<HmacTokenSigner>,
    /// Keys for match credentials that game servers verify.
    pub match_credential_keys: Arc<MatchCredentialKeys>,
    /// Keys by which answers name users.
    pub public_user_keys: Arc<PublicUserKeySecret>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Limits and switches.
    pub settings: EngineSettings,
    /// Silos that this server serves; `None` for all.
    pub served_silos: Option<Vec<SiloId>>,
    /// Restarts tasks after a panic, or stops the server.
    pub supervisor: TaskSupervisor,
    /// Folder for the inputs of passes that panicked.
    pub pass_failures: PassFailureFolder,
    /// File of erasures; `None` to keep none.
    pub erasure_log: Option<Arc<ErasureLog>>,
    /// Keys of the beacons' receipts.
    pub beacon_settings: BeaconSettings,
}

impl EngineDeps {
    /// State that advertisements and queues share.
    pub(crate) fn into_common(self, is_store_shared: bool) -> Common {
        let Self {
            clock,
            store,
            rulesets,
            geo_locator,
            token_signer,
            match_credential_keys,
            public_user_keys,
            metrics,
            settings,
            served_silos,
            supervisor,
            pass_failures,
            erasure_log,
            beacon_settings: beacons,
        } = self;
        let EngineSettings { max_silos, max_silos_per_user, .. } = settings;
        let silo_limits = served_silos.is_none().then_some(OpenSiloLimits { max_silos, max_silos_per_user });
        let ratings = Arc::default();
        Common {
            party_values: PartyValueReader::new(Arc::clone(&ratings), Arc::clone(&clock)),
            clock,
            store,
            rulesets,
            geo_locator,
            beacons: BeaconDirectory::new(beacons),
            token_signer,
            match_credential_keys,
            public_user_keys,
            metrics,
            statistics: StatisticsRecorder::default(),
            settings,
            ratings,
            block_lists: RwLock::default(),
            past_matches: Arc::default(),
            served_silos,
            open_silos: Arc::new(OpenSilos::new(silo_limits)),
            open_session_changes: OpenSessionChanges::default(),
            wanted_rulesets: Mutex::default(),
            ruleset_sync_requests: Notify::new(),
            ruleset_syncs: watch::Sender::new(0),
            store_health: is_store_shared.then(|| Arc::new(StoreHealth::default())),
            feed_reads: FeedReads::default(),
            write_health: WriteHealth::default(),
            server_outages: OutageLog::default(),
            supervisor,
            pass_failures,
            erasure_log,
        }
    }
}
