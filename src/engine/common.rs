//! Shared dependencies of advertisements and queues: clock, store, rulesets, locator, signer, metrics, settings, silos.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, watch};

use crate::auth::match_credential::MatchCredentialKeys;
use crate::auth::public_user_keys::PublicUserKeySecret;
use crate::auth::token::HmacTokenSigner;
use crate::clock::Clock;
use crate::domain::id::{MatchId, RulesetHash, SetId, SiloId, UserKey};
use crate::domain::locality::Locality;
use crate::domain::location_privacy::coarsen_region_latencies;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use crate::engine::beacon_directory::BeaconDirectory;
use crate::engine::beacons::party_floors::PartyBeaconFloors;
use crate::engine::block_lists::BlockLists;
use crate::engine::command::Caller;
use crate::engine::error::{EngineError, field_error};
use crate::engine::feed_reads::FeedReads;
use crate::engine::open_session_changes::OpenSessionChanges;
use crate::engine::open_silos::OpenSilos;
use crate::engine::outage_log::OutageLog;
use crate::engine::party_values::PartyValueReader;
use crate::engine::past_match_logs::PastMatchLogs;
use crate::engine::ratings::RatingCache;
use crate::engine::settings::EngineSettings;
use crate::engine::statistics::StatisticsRecorder;
use crate::engine::store_health::StoreHealth;
use crate::engine::write_health::WriteHealth;
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::geo::ReloadableLocator;
use crate::rules::RulesetCatalog;
use crate::rules::catalog::MatchRulesetLookup;
use crate::store::erasure_log::ErasureLog;
use crate::store::pass_failure::PassFailureFolder;
use crate::store::{Store, StoreError};
use crate::supervisor::TaskSupervisor;
use crate::telemetry::metric::Metrics;

/// Limit of the rulesets that one read of the store's copies looks for.
const WANTED_RULESETS_MAX: usize = 1_024;

/// Dependencies of advertisements and of queues. It stands below both and imports neither.
pub(crate) struct Common {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) rulesets: Arc<RulesetCatalog>,
    pub(crate) geo_locator: Arc<ReloadableLocator>,
    /// Beacons, and the keys of their receipts.
    pub(crate) beacons: BeaconDirectory,
    pub(crate) token_signer: Arc<HmacTokenSigner>,
    pub(crate) match_credential_keys: Arc<MatchCredentialKeys>,
    pub(crate) public_user_keys: Arc<PublicUserKeySecret>,
    pub(crate) metrics: Arc<Metrics>,
    /// Statistics of searches, queues and matches.
    pub(crate) statistics: StatisticsRecorder,
    pub(crate) settings: EngineSettings,
    /// Ratings in memory, and the keys of rulesets' ratings.
    pub(crate) ratings: Arc<Mutex<RatingCache>>,
    /// Durable block lists in memory. Locked before the advertisements of a set, never after.
    pub(crate) block_lists: RwLock<BlockLists>,
    /// Played matches in memory.
    pub(crate) past_matches: Arc<PastMatchLogs>,
    /// Attribute values and ratings of parties.
    pub(crate) party_values: PartyValueReader,
    /// Silos that this server serves; `None` for all.
    pub(crate) served_silos: Option<Vec<SiloId>>,
    /// Silos with a live ticket or advertisement.
    pub(crate) open_silos: Arc<OpenSilos>,
    /// Sessions with open seats, for the queues that fill them.
    pub(crate) open_session_changes: OpenSessionChanges,
    /// Rulesets of matches that were asked for and are not loaded.
    pub(crate) wanted_rulesets: Mutex<BTreeSet<(SetId, RulesetHash)>>,
    /// Wakes the task that compares rulesets with their copies in the store.
    pub(crate) ruleset_sync_requests: Notify,
    /// Number of finished comparisons of rulesets with their copies in the store.
    pub(crate) ruleset_syncs: watch::Sender<u64>,
    /// Health of the shared store; `None` if the store is not shared.
    pub(crate) store_health: Option<Arc<StoreHealth>>,
    /// Last reads of the change feeds of a shared store.
    pub(crate) feed_reads: FeedReads,
    /// Result of the last commits.
    pub(crate) write_health: WriteHealth,
    /// Outages, which extend the deadlines of tickets and matches.
    pub(crate) server_outages: OutageLog,
    /// Restarts tasks after a panic, or stops the server.
    pub(crate) supervisor: TaskSupervisor,
    /// Keeps the input of a pass that panicked.
    pub(crate) pass_failures: PassFailureFolder,
    /// File of erasures; `None` to keep none.
    pub(crate) erasure_log: Option<Arc<ErasureLog>>,
}

/// Place with the center of its grid cell, if it is known.
type PlaceAndCellCenter = Option<(Locality, Locality)>;

impl Common {
    /// Key by which a match names one of its players.
    pub(crate) fn match_player_key(&self, match_id: MatchId, user: UserKey) -> UserKey {
        self.public_user_keys.match_player_key(match_id, user)
    }

    /// Keys by which a caller may name a player of a match: that of [`match_player_key`](Self::match_player_key), and the one that
    /// servers of version 0.2.0 told.
    pub(crate) fn current_and_legacy_match_player_keys(&self, match_id: MatchId, user: UserKey) -> [UserKey; 2] {
        [self.match_player_key(match_id, user), self.token_signer.legacy_match_player_key(match_id, user)]
    }

    /// Records the result of a commit.
    pub(crate) fn record_commit<T>(&self, result: &Result<T, StoreError>) {
        self.write_health.record(result);
        self.server_outages.record_commit_result(result, self.clock.now());
    }

    /// Adds all counts of statistics to the store. On an error they wait for the next call, and while commits fail: an attempt
    /// would only delay others.
    pub(crate) async fn flush_statistics(&self) -> Result<(), StoreError> {
        let is_down = self.store_health.as_ref().is_some_and(|health| health.is_down());
        let is_writable = !is_down && !self.server_outages.has_open_outage();
        self.statistics.flush((&*self.store, is_writable), &*self.clock, &self.metrics).await
    }

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
    pub(crate) fn current_or_cached_ruleset(
        &self,
        set_id: SetId,
        hash: Option<RulesetHash>,
    ) -> Result<Arc<Ruleset>, EngineError> {
        let cached = hash.and_then(|requested| self.rulesets.find_by_hash_with_index(set_id, requested));
        if let Some(cached) = cached {
            return Ok(cached);
        }
        let current = self.rulesets.ruleset_in_force(set_id).ok_or(EngineError::UnknownSet(set_id))?;
        match hash {
            None => Ok(current),
            Some(requested) => Err(EngineError::UnknownRulesetHash { requested, current: current.hash }),
        }
    }

    /// Ruleset of a match that was made under `hash`. If it is not loaded yet, requests a read of the store's copies.
    pub(crate) fn ruleset_of_match(&self, set_id: SetId, hash: RulesetHash) -> MatchRulesetLookup {
        let found = self.rulesets.look_up_match_ruleset(set_id, hash);
        if found == MatchRulesetLookup::NotLoaded {
            let mut wanted = self.wanted_rulesets.lock();
            if wanted.len() < WANTED_RULESETS_MAX {
                wanted.insert((set_id, hash));
            }
            drop(wanted);
            self.ruleset_sync_requests.notify_one();
        }
        found
    }

    /// Whether the queue of a set fills open sessions.
    pub(crate) fn fills_open_sessions(&self, set_id: SetId) -> bool {
        let ruleset = self.rulesets.ruleset_in_force(set_id);
        ruleset.is_some_and(|ruleset| ruleset.queue.as_ref().is_some_and(|queue| queue.backfill))
    }

    /// Fails with the remaining time if the set is being retired: it takes no new tickets and advertisements.
    pub(crate) fn check_set_not_retiring(&self, set_id: SetId) -> Result<(), EngineError> {
        match self.rulesets.snapshot().retiring.get(&set_id) {
            None => Ok(()),
            Some(retiring) => {
                let ends_in_ms = retiring.ends_at.ms_since(self.clock.now());
                Err(EngineError::SetRetired { set_id, retires_in_ms: ends_in_ms })
            }
        }
    }

    /// Fails if the store has no copy of an active ruleset, which its tickets and matches would need after a restart.
    pub(crate) fn check_ruleset_is_durable(&self, ruleset: &Ruleset) -> Result<(), EngineError> {
        if self.rulesets.is_durable(ruleset.set_id, ruleset.hash) {
            return Ok(());
        }
        self.ruleset_sync_requests.notify_one();
        Err(EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS })
    }

    /// Whether this server serves a silo.
    pub(crate) fn serves_silo(&self, silo: SiloId) -> bool {
        self.served_silos.as_ref().is_none_or(|silos| silos.contains(&silo))
    }

    /// Session with the locality that the server resolved, and the paths of client fields that it ignored.
    ///
    /// Returns [`EngineError::InvalidFields`] for a silo that this server does not serve.
    pub(crate) fn with_resolved_locality(
        &self,
        caller: &Caller,
        session: Session,
    ) -> Result<(Session, Vec<String>), EngineError> {
        self.with_locality_by_locator(caller, session, ReloadableLocator::locate)
    }

    /// Session as others may judge it, to publish or to match: with the center of a grid cell as locality, and rounded
    /// latencies, so that neither searches nor matches reveal where its players are. With the vector that follows from `floors`. Also
    /// the paths of ignored fields.
    pub(crate) fn with_coarse_locality_and_vector(
        &self,
        caller: &Caller,
        session: Session,
        floors: &PartyBeaconFloors,
    ) -> Result<(Session, Vec<String>), EngineError> {
        let (mut session, place_and_center, ignored_fields) = self.with_coarse_locality_and_place(caller, session)?;
        self.publish_vector(&mut session, place_and_center, floors);
        Ok((session, ignored_fields))
    }

    /// Session of a game server to publish: with its locality as it is, since players receive its address, and with the vector that
    /// follows from `floors`. Also the paths of ignored fields.
    pub(crate) fn with_exact_locality_and_vector(
        &self,
        caller: &Caller,
        session: Session,
        floors: &PartyBeaconFloors,
    ) -> Result<(Session, Vec<String>), EngineError> {
        let (mut session, ignored_fields) = self.with_resolved_locality(caller, session)?;
        let place_and_center = session.locality.zip(session.locality);
        self.publish_vector(&mut session, place_and_center, floors);
        Ok((session, ignored_fields))
    }

    fn publish_vector(&self, session: &mut Session, place_and_center: PlaceAndCellCenter, floors: &PartyBeaconFloors) {
        let vector = floors.to_published_vector(&self.beacons, place_and_center, self.clock.now());
        session.set_published_beacon_vector(vector);
    }

    /// Session as [`Common::with_coarse_locality_and_vector`] gives it, without a vector; its place with the center of its grid cell; and the
    /// paths of ignored fields.
    pub(crate) fn with_coarse_locality_and_place(
        &self,
        caller: &Caller,
        session: Session,
    ) -> Result<(Session, PlaceAndCellCenter, Vec<String>), EngineError> {
        let mut found_place = None;
        let locate = |locator: &ReloadableLocator, address| {
            let found = locator.locate_in_session_cell(address)?;
            found_place = Some(found.place);
            Some(found.center)
        };
        let (mut session, ignored_fields) = self.with_locality_by_locator(caller, session, locate)?;
        let locator = &self.geo_locator;
        // A locality that the client stated, where that is allowed.
        let place = found_place.or(session.locality);
        if found_place.is_none() {
            session.locality = place.map(|place| locator.session_cell_center(place));
        }
        let place_and_center = place.zip(session.locality);
        let beacons = self.beacons.all();
        let region_place = |region: &str| {
            let configured = locator.region_places().place_of(region);
            configured.or_else(|| beacons.iter().find(|beacon| beacon.body.region == region)?.body.locality())
        };
        coarsen_region_latencies(&mut session.region_latencies, place_and_center, region_place);
        Ok((session, place_and_center, ignored_fields))
    }

    /// Place of a caller with the center of its grid cell, by its address; `None` if it has none.
    pub(crate) fn place_and_cell_center_of(&self, caller: &Caller) -> PlaceAndCellCenter {
        let found = self.geo_locator.locate_in_session_cell(caller.ip_address?)?;
        Some((found.place, found.center))
    }

    fn with_locality_by_locator(
        &self,
        caller: &Caller,
        mut session: Session,
        locate: impl FnOnce(&ReloadableLocator, IpAddr) -> Option<Locality>,
    ) -> Result<(Session, Vec<String>), EngineError> {
        if !self.serves_silo(session.silo) {
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
