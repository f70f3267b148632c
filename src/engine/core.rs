//! Engine state shared by its parts: clock, store, rulesets, settings and advertisements in memory. Searches read it;
//! only the writer changes advertisements.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::auth::match_credential::MatchCredentialKeys;
use crate::auth::token::TokenSigner;
use crate::clock::Clock;
use crate::domain::id::{AdvertisementId, RulesetHash, SetId, SiloId};
use crate::domain::locality::Locality;
use crate::domain::location_privacy::round_region_latencies;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::adverts::advert_set::AdvertRecord;
use crate::engine::adverts::advert_set_map::{AdvertSetMap, EncodeAdvertFn, LockedAdvertSet};
use crate::engine::adverts::replication_state::ReplicationState;
use crate::engine::adverts::reservation_events::ReservationEventHub;
use crate::engine::adverts::update_answer::UpdateSnapshot;
use crate::engine::adverts::writer_command::{InFlightChanges, InFlightGuard};
use crate::engine::command::{Caller, ReservationView};
use crate::engine::error::{EngineError, field_error};
use crate::engine::settings::EngineSettings;
use crate::engine::writer_inbox::ReplySender;
use crate::geo::ReloadableLocator;
use crate::rules::RulesetCatalog;
use crate::store::Store;
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
    pub token_signer: Arc<TokenSigner>,
    /// Keys for match credentials that game servers verify.
    pub match_credential_keys: Arc<MatchCredentialKeys>,
    /// Metrics.
    pub metrics: Arc<Metrics>,
    /// Limits and switches.
    pub settings: EngineSettings,
    /// Silos that this server serves; `None` for all.
    pub served_silos: Option<Vec<SiloId>>,
    /// Encodes the part of a search result that does not depend on the search.
    pub encode_advert: EncodeAdvertFn,
}

/// Dependencies and in-memory state of the engine.
pub(crate) struct Core {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) rulesets: Arc<RulesetCatalog>,
    pub(crate) geo_locator: Arc<ReloadableLocator>,
    pub(crate) token_signer: Arc<TokenSigner>,
    pub(crate) match_credential_keys: Arc<MatchCredentialKeys>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) settings: EngineSettings,
    served_silos: Option<Vec<SiloId>>,
    pub(crate) encode_advert: EncodeAdvertFn,
    pub(crate) advert_sets: AdvertSetMap,
    pub(crate) reservation_events: ReservationEventHub,
    pub(crate) in_flight_changes: InFlightChanges,
    /// Replication state; `None` if the store is not shared.
    pub(crate) replication: Option<Arc<ReplicationState>>,
}

impl Core {
    pub(crate) fn new(deps: EngineDeps, replication: Option<Arc<ReplicationState>>) -> Self {
        let EngineDeps {
            clock,
            store,
            rulesets,
            geo_locator,
            token_signer,
            match_credential_keys,
            metrics,
            settings,
            served_silos,
            encode_advert,
        } = deps;
        Self {
            clock,
            store,
            rulesets,
            geo_locator,
            token_signer,
            match_credential_keys,
            metrics,
            settings,
            served_silos,
            encode_advert,
            advert_sets: AdvertSetMap::default(),
            reservation_events: ReservationEventHub::default(),
            in_flight_changes: InFlightChanges::default(),
            replication,
        }
    }

    /// Milliseconds since the shared store last answered, if above the staleness threshold.
    pub(crate) fn store_staleness_ms(&self, now: UnixMs) -> Option<u64> {
        self.replication.as_ref()?.staleness_ms(now)
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

    /// Client views of an advertisement's reservations, from any set.
    pub(crate) fn reservation_views_of(&self, id: AdvertisementId) -> Vec<ReservationView> {
        let now = self.clock.now();
        let views = |record: &AdvertRecord| UpdateSnapshot::from_record(record, now).reservations;
        let find = |set: &Arc<LockedAdvertSet>| set.read().get(id).map(views);
        self.advert_sets.all_sets().iter().find_map(|(_, set)| find(set)).unwrap_or_default()
    }

    /// Answers a command. Ends the in-flight change first, so that a heartbeat after the answer finds memory up to
    /// date.
    pub(crate) fn send_answer<T>(
        &self,
        reply: ReplySender<T>,
        in_flight: InFlightGuard,
        answer: Result<T, EngineError>,
    ) {
        drop(in_flight);
        let _ = reply.send(answer);
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("settings", &self.settings).finish_non_exhaustive()
    }
}
