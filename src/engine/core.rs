//! What the engine's parts share: memory, the store, the rules, and the leaves. The writer changes it; searches read it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::auth::credential::MatchKeys;
use crate::auth::token::Signer;
use crate::clock::Clock;
use crate::domain::coarse::step_regions;
use crate::domain::id::{AdvertisementId, RulesetHash, SetId, SiloId};
use crate::domain::locality::Locality;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::command::{Caller, ReservationAnswer};
use crate::engine::directory::{Directory, EncodeStatic, Shared};
use crate::engine::events::Events;
use crate::engine::fault::Fault;
use crate::engine::job::{Flights, InFlight, Reply};
use crate::engine::receipt::Seen;
use crate::engine::seeker::field;
use crate::engine::settings::Settings;
use crate::engine::sharing::Sharing;
use crate::engine::shelf::Record;
use crate::geo::LocatorHandle;
use crate::rules::Catalog;
use crate::store::Store;
use crate::telemetry::metric::Metrics;

/// What the engine is made of; given by `server`.
pub struct Parts {
    /// Time and dice.
    pub clock: Arc<dyn Clock>,
    /// What must survive.
    pub store: Arc<dyn Store>,
    /// The rulesets.
    pub catalog: Arc<Catalog>,
    /// Addresses to places.
    pub locator: Arc<LocatorHandle>,
    /// Tokens.
    pub signer: Arc<Signer>,
    /// Credentials for game servers.
    pub match_keys: Arc<MatchKeys>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Bounds and switches.
    pub settings: Settings,
    /// The populations that are served here; none for all.
    pub silos: Option<Vec<SiloId>>,
    /// How the wire encodes what does not depend on a search.
    pub encode: EncodeStatic,
}

/// The parts, and memory.
pub(super) struct Core {
    pub(super) clock: Arc<dyn Clock>,
    pub(super) store: Arc<dyn Store>,
    pub(super) catalog: Arc<Catalog>,
    pub(super) locator: Arc<LocatorHandle>,
    pub(super) signer: Arc<Signer>,
    pub(super) match_keys: Arc<MatchKeys>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) settings: Settings,
    silos: Option<Vec<SiloId>>,
    pub(super) encode: EncodeStatic,
    pub(super) directory: Directory,
    pub(super) events: Events,
    pub(super) flights: Flights,
    /// What is known of the other servers; none where there can be no others.
    pub(super) sharing: Option<Arc<Sharing>>,
}

impl Core {
    pub(super) fn new(parts: Parts, sharing: Option<Arc<Sharing>>) -> Self {
        let Parts { clock, store, catalog, locator, signer, match_keys, metrics, settings, silos, encode } = parts;
        Self {
            clock,
            store,
            catalog,
            locator,
            signer,
            match_keys,
            metrics,
            settings,
            silos,
            encode,
            directory: Directory::default(),
            events: Events::default(),
            flights: Flights::default(),
            sharing,
        }
    }

    /// How old the picture is, where that is worth saying: the store that servers share is out of reach.
    pub(super) fn stale_for_ms(&self, now: UnixMs) -> Option<u64> {
        self.sharing.as_ref()?.stale_for_ms(now)
    }

    /// The ruleset of a set: the current one, or the one of `hash` while it is still known, be the set's file gone.
    pub(super) fn ruleset(&self, set_id: SetId, hash: Option<RulesetHash>) -> Result<Arc<Ruleset>, Fault> {
        let named = hash.and_then(|given| self.catalog.by_hash(set_id, given));
        if let Some(named) = named {
            return Ok(named);
        }
        let current = self.catalog.current(set_id).ok_or(Fault::UnknownSet(set_id))?;
        match hash {
            None => Ok(current),
            Some(given) => Err(Fault::UnknownHash { given, current: current.hash }),
        }
    }

    /// The session with the server's own idea of where it is, and the paths of what was set aside for it. One of a
    /// population that others serve is refused.
    pub(super) fn placed(&self, caller: &Caller, session: Session) -> Result<(Session, Vec<String>), Fault> {
        self.placed_by(caller, session, LocatorHandle::locate)
    }

    /// The same of a session that others are to find: as coarse as they may know it, or a search could be asked where
    /// its players are (SEC-9).
    pub(super) fn placed_for_others(
        &self,
        caller: &Caller,
        mut session: Session,
    ) -> Result<(Session, Vec<String>), Fault> {
        step_regions(&mut session);
        self.placed_by(caller, session, LocatorHandle::locate_coarsely)
    }

    fn placed_by(
        &self,
        caller: &Caller,
        mut session: Session,
        locate: impl FnOnce(&LocatorHandle, IpAddr) -> Option<Locality>,
    ) -> Result<(Session, Vec<String>), Fault> {
        if self.silos.as_ref().is_some_and(|silos| !silos.contains(&session.silo)) {
            let what = format!("silo {} is not served by this server: ask the one for its region", session.silo);
            return Err(field("session_composition.silo_id", what));
        }
        if self.settings.allow_client_locality && session.locality.is_some() {
            return Ok((session, Vec::new()));
        }
        let set_aside = session.locality.is_some().then(|| "locality_info".to_owned());
        if let Some(address) = caller.address.filter(|_| self.locator.is_loaded()) {
            session.locality = locate(&self.locator, address);
            self.metrics.record_look_up(session.locality.is_some());
        } else {
            session.locality = None;
        }
        Ok((session, set_aside.into_iter().collect()))
    }

    /// The reservations of an advertisement, in whichever set it is.
    pub(super) fn reservations_of(&self, id: AdvertisementId) -> Vec<ReservationAnswer> {
        let now = self.clock.now();
        let of_record = |record: &Record| Seen::of(record, now).reservations;
        let of_shelf = |shelf: &Arc<Shared>| shelf.read().get(id).map(of_record);
        self.directory.shelves().iter().find_map(|(_, shelf)| of_shelf(shelf)).unwrap_or_default()
    }

    /// Answers a job. The change is no longer on its way once its answer is: a heartbeat that follows the answer finds
    /// memory up to date.
    pub(super) fn answer<T>(&self, reply: Reply<T>, in_flight: InFlight, answer: Result<T, Fault>) {
        drop(in_flight);
        let _ = reply.send(answer);
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("settings", &self.settings).finish_non_exhaustive()
    }
}
