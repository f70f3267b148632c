//! Shared dependencies of advertisements and queues: clock, store, rulesets, locator, signer, metrics, settings, silos.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::auth::match_credential::MatchCredentialKeys;
use crate::auth::token::TokenSigner;
use crate::clock::Clock;
use crate::domain::id::{RulesetHash, SetId, SiloId};
use crate::domain::locality::Locality;
use crate::domain::location_privacy::round_region_latencies;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::command::Caller;
use crate::engine::error::{EngineError, field_error};
use crate::engine::open_silos::OpenSilos;
use crate::engine::ratings::RatingCache;
use crate::engine::settings::EngineSettings;
use crate::engine::store_health::StoreHealth;
use crate::engine::write_health::WriteHealth;
use crate::geo::ReloadableLocator;
use crate::rules::RulesetCatalog;
use crate::store::Store;
use crate::store::pass_failure::PassFailureFolder;
use crate::supervisor::TaskSupervisor;
use crate::telemetry::metric::Metrics;

/// Dependencies of advertisements and of queues. It stands below both and imports neither.
pub(crate) struct Common {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) rulesets: Arc<RulesetCatalog>,
    pub(crate) geo_locator: Arc<ReloadableLocator>,
    pub(crate) token_signer: Arc<TokenSigner>,
    pub(crate) match_credential_keys: Arc<MatchCredentialKeys>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) settings: EngineSettings,
    /// Ratings in memory, and the keys of rulesets' ratings.
    pub(crate) ratings: Arc<Mutex<RatingCache>>,
    /// Silos that this server serves; `None` for all.
    pub(crate) served_silos: Option<Vec<SiloId>>,
    /// Silos with a live ticket or advertisement.
    pub(crate) open_silos: Arc<OpenSilos>,
    /// Health of the shared store; `None` if the store is not shared.
    pub(crate) store_health: Option<Arc<StoreHealth>>,
    /// Result of the last commits.
    pub(crate) write_health: WriteHealth,
    /// Restarts tasks after a panic, or stops the server.
    pub(crate) supervisor: TaskSupervisor,
    /// Keeps the input of a pass that panicked.
    pub(crate) pass_failures: PassFailureFolder,
}

impl Common {
    /// Milliseconds since the shared store last answered, if above the staleness threshold.
    pub(crate) fn store_staleness_ms(&self, now: UnixMs) -> Option<u64> {
        self.store_health.as_ref()?.staleness_ms(now)
    }

    /// Whether commits fail although the store can be read. While a shared store cannot be read, the limit on stale data
    /// decides instead.
    pub(crate) fn are_commits_failing(&self) -> bool {
        let staleness = self.store_health.as_ref().map(|health| health.staleness_ms(self.clock.now()));
        self.write_health.is_failing(staleness.map(|staleness| staleness.is_some()))
    }

    /// Current ruleset of a set, or the ruleset with `hash` while it is cached, even if the set's file was removed.
    pub(crate) fn ruleset(&self, set_id: SetId, hash: Option<RulesetHash>) -> Result<Arc<Ruleset>, EngineError> {
        let cached = hash.and_then(|requested| self.rulesets.find_by_hash(set_id, requested));
        if let Some(cached) = cached {
            return Ok(cached);
        }
        let current = self.rulesets.active_ruleset(set_id).ok_or(EngineError::UnknownSet(set_id))?;
        match hash {
            None => Ok(current),
            Some(requested) => Err(EngineError::UnknownRulesetHash { requested, current: current.hash }),
        }
    }

    /// Ruleset with `hash`, or the set's current one if it is no longer cached.
    pub(crate) fn ruleset_or_current(&self, set_id: SetId, hash: RulesetHash) -> Option<Arc<Ruleset>> {
        self.rulesets.find_by_hash(set_id, hash).or_else(|| self.rulesets.active_ruleset(set_id))
    }

    /// Session with the locality that the server resolved, and the paths of client fields that it ignored.
    ///
    /// Returns [`EngineError::InvalidFields`] for a silo that this server does not serve.
    pub(crate) fn with_resolved_locality(
        &self,
        caller: &Caller,
        session: Session,
    ) -> Result<(Session, Vec<String>), EngineError> {
        self.with_locality_from(caller, session, ReloadableLocator::locate)
    }

    /// Session to publish: locality and latencies are rounded, so that searches do not reveal where its players are.
    pub(crate) fn with_coarse_locality(
        &self,
        caller: &Caller,
        mut session: Session,
    ) -> Result<(Session, Vec<String>), EngineError> {
        round_region_latencies(&mut session);
        self.with_locality_from(caller, session, ReloadableLocator::locate_on_session_grid)
    }

    fn with_locality_from(
        &self,
        caller: &Caller,
        mut session: Session,
        locate: impl FnOnce(&ReloadableLocator, IpAddr) -> Option<Locality>,
    ) -> Result<(Session, Vec<String>), EngineError> {
        if self.served_silos.as_ref().is_some_and(|silos| !silos.contains(&session.silo)) {
            let problem = format!("silo {} is not served by this server; use the server of its region", session.silo);
            return Err(field_error("session_composition.silo_id", problem));
        }
        if self.settings.allow_client_locality && session.locality.is_some() {
            return Ok((session, Vec::new()));
        }
        let ignored_field = session.locality.is_some().then(|| "locality_info".to_owned());
        if let Some(address) = caller.ip_address.filter(|_| self.geo_locator.is_loaded()) {
            session.locality = locate(&self.geo_locator, address);
            self.metrics.record_locality_lookup(session.locality.is_some());
        } else {
            session.locality = None;
        }
        Ok((session, ignored_field.into_iter().collect()))
    }
}

impl fmt::Debug for Common {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Common").field("settings", &self.settings).finish_non_exhaustive()
    }
}
