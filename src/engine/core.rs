//! What the engine's parts share: memory, the store, the rules, and the leaves. The writer changes it; searches read it.

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
use crate::engine::adverts::checked_session::field_error;
use crate::engine::adverts::replication_state::ReplicationState;
use crate::engine::adverts::reservation_events::ReservationEventHub;
use crate::engine::adverts::update_answer::UpdateSnapshot;
use crate::engine::adverts::writer_command::{InFlightChanges, InFlightGuard, ReplySender};
use crate::engine::command::{Caller, ReservationView};
use crate::engine::error::EngineError;
use crate::engine::settings::EngineSettings;
use crate::geo::ReloadableLocator;
use crate::rules::RulesetCatalog;
use crate::store::Store;
use crate::telemetry::metric::Metrics;

/// What the engine is made of; given by `server`.
pub struct EngineDeps {
    /// Time and dice.
    pub clock: Arc<dyn Clock>,
    /// What must survive.
    pub store: Arc<dyn Store>,
    /// The rulesets.
    pub rulesets: Arc<RulesetCatalog>,
    /// Addresses to places.
    pub geo_locator: Arc<ReloadableLocator>,
    /// Tokens.
    pub token_signer: Arc<TokenSigner>,
    /// Credentials for game servers.
    pub match_credential_keys: Arc<MatchCredentialKeys>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Bounds and switches.
    pub settings: EngineSettings,
    /// The populations that are served here; none for all.
    pub served_silos: Option<Vec<SiloId>>,
    /// How the wire encodes what does not depend on a search.
    pub encode_advert: EncodeAdvertFn,
}

/// The parts, and memory.
pub(super) struct Core {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) store: Arc<dyn Store>,
    pub(super) rulesets: Arc<RulesetCatalog>,
    pub(super) geo_locator: Arc<ReloadableLocator>,
    pub(super) token_signer: Arc<TokenSigner>,
    pub(super) match_credential_keys: Arc<MatchCredentialKeys>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) settings: EngineSettings,
    served_silos: Option<Vec<SiloId>>,
    pub(super) encode_advert: EncodeAdvertFn,
    pub(super) advert_sets: AdvertSetMap,
    pub(super) reservation_events: ReservationEventHub,
    pub(super) in_flight_changes: InFlightChanges,
    /// What is known of the other servers; none where there can be no others.
    pub(super) replication: Option<Arc<ReplicationState>>,
}

impl Core {
    pub(super) fn new(parts: EngineDeps, sharing: Option<Arc<ReplicationState>>) -> Self {
        let EngineDeps {
            clock,
            store,
            rulesets: catalog,
            geo_locator: locator,
            token_signer: signer,
            match_credential_keys: match_keys,
            metrics,
            settings,
            served_silos: silos,
            encode_advert: encode,
        } = parts;
        Self {
            clock,
            store,
            rulesets: catalog,
            geo_locator: locator,
            token_signer: signer,
            match_credential_keys: match_keys,
            metrics,
            settings,
            served_silos: silos,
            encode_advert: encode,
            advert_sets: AdvertSetMap::default(),
            reservation_events: ReservationEventHub::default(),
            in_flight_changes: InFlightChanges::default(),
            replication: sharing,
        }
    }

    /// How old the picture is, where that is worth saying: the store that servers share is out of reach.
    pub(super) fn store_staleness_ms(&self, now: UnixMs) -> Option<u64> {
        self.replication.as_ref()?.staleness_ms(now)
    }

    /// The ruleset of a set: the current one, or the one of `hash` while it is still known, be the set's file gone.
    pub(super) fn ruleset(&self, set_id: SetId, hash: Option<RulesetHash>) -> Result<Arc<Ruleset>, EngineError> {
        let named = hash.and_then(|given| self.rulesets.find_by_hash(set_id, given));
        if let Some(named) = named {
            return Ok(named);
        }
        let current = self.rulesets.active_ruleset(set_id).ok_or(EngineError::UnknownSet(set_id))?;
        match hash {
            None => Ok(current),
            Some(given) => Err(EngineError::UnknownRulesetHash { requested: given, current: current.hash }),
        }
    }

    /// The session with the server's own idea of where it is, and the paths of what was set aside for it. One of a
    /// population that others serve is refused.
    pub(super) fn with_resolved_locality(
        &self,
        caller: &Caller,
        session: Session,
    ) -> Result<(Session, Vec<String>), EngineError> {
        self.with_locality_from(caller, session, ReloadableLocator::locate)
    }

    /// The same of a session that others are to find: as coarse as they may know it, or a search could be asked where
    /// its players are (SEC-9).
    pub(super) fn with_coarse_locality(
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
            let what = format!("silo {} is not served by this server: ask the one for its region", session.silo);
            return Err(field_error("session_composition.silo_id", what));
        }
        if self.settings.allow_client_locality && session.locality.is_some() {
            return Ok((session, Vec::new()));
        }
        let set_aside = session.locality.is_some().then(|| "locality_info".to_owned());
        if let Some(address) = caller.ip_address.filter(|_| self.geo_locator.is_loaded()) {
            session.locality = locate(&self.geo_locator, address);
            self.metrics.record_locality_lookup(session.locality.is_some());
        } else {
            session.locality = None;
        }
        Ok((session, set_aside.into_iter().collect()))
    }

    /// The reservations of an advertisement, in whichever set it is.
    pub(super) fn reservation_views_of(&self, id: AdvertisementId) -> Vec<ReservationView> {
        let now = self.clock.now();
        let of_record = |record: &AdvertRecord| UpdateSnapshot::from_record(record, now).reservations;
        let of_shelf = |shelf: &Arc<LockedAdvertSet>| shelf.read().get(id).map(of_record);
        self.advert_sets.all().iter().find_map(|(_, shelf)| of_shelf(shelf)).unwrap_or_default()
    }

    /// Answers a job. The change is no longer on its way once its answer is: a heartbeat that follows the answer finds
    /// memory up to date.
    pub(super) fn send_answer<T>(
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
