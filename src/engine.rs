//! Matchmaking engine: takes commands, decides from memory, commits through the store and notifies listeners.

mod adverts;
mod beacon_directory;
pub mod beacons;
mod block_lists;
mod checked_session;
pub mod command;
mod common;
mod consistency;
mod deps;
pub mod error;
#[cfg(feature = "failpoints")]
mod fail_points;
mod feed_reads;
mod follow_feed;
mod hosted_match;
mod joining_ticket;
mod latency_tokens;
mod open_session_changes;
mod open_silos;
mod outage_log;
mod party_avoidance;
mod party_consent;
mod party_values;
mod past_match_logs;
pub mod queues;
pub mod ratings;
mod request_digest;
pub mod rulesets;
mod searching_party;
pub mod settings;
pub(crate) mod startup_retry;
mod statistics;
mod statistics_task;
mod store_health;
mod user_advert;
mod write_health;
mod write_probe;
mod writer_inbox;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::domain::id::{AdvertisementId, RulesetHash, SetId};
use crate::domain::ruleset::Ruleset;
pub use crate::engine::beacon_directory::{BeaconSettings, ReceiptPrefixRule};
use crate::engine::beacons::BeaconEngine;
use crate::engine::beacons::refresh_task::{refresh_beacon_directory, run_beacon_refresh};
pub use crate::engine::latency_tokens::LatencyTokens;
use crate::store::StoreError;
use crate::supervisor::TaskSupervisor;
use crate::telemetry::label::TaskLabel;

use self::adverts::advert_engine::AdvertEngine;
use self::adverts::search_claim;
use self::command::{
    Caller, CandidateView, ChooseActionAnswer, ConsistencyReport, DeleteAdvertCommand, GrantConsentAnswer,
    GrantConsentCommand, LatencyReportSummary, PublishOrHeartbeatAdvertCommand, ReleaseReservationOrSeatCommand,
    ReportLatencyCommand, ReservationView, ReserveAnswer, ReserveCommand, SearchCommand, SearchSummary,
    UpdateAdvertAnswer, UpdateBlockListCommand,
};
use self::common::Common;
use self::error::EngineError;
use self::queues::QueueEngine;
use self::queues::start_match_command::{StartMatchAnswer, StartMatchCommand};
use self::ratings::first_scales::{prepare_active_rulesets, record_first_scales};
use self::rulesets::RulesetReloader;
use self::rulesets::activator::RulesetActivator;
use self::rulesets::store_sync::{RulesetStoreSync, load_copies_at_start};
use self::startup_retry::retry_at_startup;
use self::statistics_task::run_statistics_task;
use self::write_probe::run_write_probe;

pub use self::adverts::host_events::{HostEvent, HostEventSender};
pub use self::deps::EngineDeps;
pub use self::hosted_match::{HostedMatch, HostedMatchDetails, HostedMatchState, HostedParty, HostedPlayer};
pub use self::user_advert::{ExportedAdvert, Reservation, ReservationState};
pub use self::writer_inbox::PendingAnswer;

/// Running matchmaker: advertisements, queues and their background tasks.
#[derive(Debug)]
pub struct Engine {
    common: Arc<Common>,
    adverts: Arc<AdvertEngine>,
    queue_engine: QueueEngine,
    ruleset_activator: Arc<RulesetActivator>,
    ruleset_store_sync: Arc<RulesetStoreSync>,
    /// Held during a consistency check, so that only one runs at a time.
    consistency_check_lock: tokio::sync::Mutex<()>,
    shutdown: CancellationToken,
    background_tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Loads the store's data and starts the background tasks. The engine is ready to serve when this returns.
    pub async fn start(deps: EngineDeps) -> Result<Self, StoreError> {
        let feed = deps.store.open_advert_feed().await;
        let common = Arc::new(deps.into_common(feed.is_some()));
        let shutdown = CancellationToken::new();
        // Before the rulesets are used or stored: their constants depend on it.
        retry_at_startup("record rating scales", async || prepare_active_rulesets(&common).await).await?;
        // Before the advertisements: their indexes are built for these rulesets too.
        let sync_state = load_copies_at_start(&common).await?;
        let rulesets = common.rulesets.rulesets_to_index();
        let record_scales = async || record_first_scales(&*common.store, &common.ratings, &rulesets).await;
        retry_at_startup("record rating scales of rulesets without a file", record_scales).await?;
        // Before the queues: without beacons a pass would pair by distance whom it pairs by predictions.
        retry_at_startup("read beacons", async || refresh_beacon_directory(&common).await).await?;
        let (adverts, mut tasks) = AdvertEngine::start(Arc::clone(&common), feed, &shutdown).await?;
        let (queue_engine, queue_tasks) =
            QueueEngine::start(Arc::clone(&common), adverts.adverts_for_queues(), &shutdown).await?;
        tasks.extend(queue_tasks);
        // The ratings were loaded after the advertisements, whose values depend on them.
        let _ = adverts.flush().await;
        let (probed, stop) = (Arc::clone(&common), shutdown.clone());
        let start_probe = move || run_write_probe(Arc::clone(&probed), stop.clone());
        tasks.push(common.supervisor.spawn_restarting(TaskLabel::WriteProbe, &shutdown, start_probe));
        let (counted, stop) = (Arc::clone(&common), shutdown.clone());
        let start_statistics = move || run_statistics_task(Arc::clone(&counted), stop.clone());
        tasks.push(common.supervisor.spawn_restarting(TaskLabel::Statistics, &shutdown, start_statistics));
        let (refreshed, stop) = (Arc::clone(&common), shutdown.clone());
        let start_refresh = move || run_beacon_refresh(Arc::clone(&refreshed), stop.clone());
        tasks.push(common.supervisor.spawn_restarting(TaskLabel::Beacons, &shutdown, start_refresh));
        let adverts = Arc::new(adverts);
        let ruleset_activator = Arc::new(RulesetActivator::new(Arc::clone(&common), Arc::clone(&adverts)));
        let activator = Arc::clone(&ruleset_activator);
        let store_sync = RulesetStoreSync::new(Arc::clone(&common), activator, queue_engine.clone(), sync_state);
        let ruleset_store_sync = Arc::new(store_sync);
        let (synced, stop) = (Arc::clone(&ruleset_store_sync), shutdown.clone());
        let start_sync = move || Arc::clone(&synced).run(stop.clone());
        tasks.push(common.supervisor.spawn_restarting(TaskLabel::RulesetCopies, &shutdown, start_sync));
        Ok(Self {
            ruleset_activator,
            ruleset_store_sync,
            common,
            adverts,
            queue_engine,
            consistency_check_lock: tokio::sync::Mutex::default(),
            shutdown,
            background_tasks: Mutex::new(tasks),
        })
    }

    /// Beacons and their receipts.
    pub fn beacons(&self) -> BeaconEngine {
        BeaconEngine::new(Arc::clone(&self.common))
    }

    /// Queue operations.
    pub fn queues(&self) -> &QueueEngine {
        &self.queue_engine
    }

    /// Milliseconds since the shared store last answered. `None` for an unshared store and below one second.
    pub fn store_staleness_ms(&self) -> Option<u64> {
        self.common.store_staleness_ms(self.common.clock.now())
    }

    /// Whether the store accepts writes of this server's store format version.
    pub fn is_store_format_writable(&self) -> bool {
        self.common.store.is_format_writable()
    }

    /// Supervisor of the engine's tasks.
    pub fn supervisor(&self) -> &TaskSupervisor {
        &self.common.supervisor
    }

    /// Whether commits fail although the store can be read, for example because the disk is full.
    pub fn are_commits_failing(&self) -> bool {
        self.common.are_commits_failing()
    }

    /// Finds sessions. Calls `each` per candidate, best first, while the set's index is locked; `each` must be quick.
    pub fn search(
        &self,
        caller: &Caller,
        search: SearchCommand,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<SearchSummary, EngineError> {
        self.adverts.state.search(caller, search, each)
    }

    /// Ranks candidates by measured round trips. Calls `each` per remaining candidate, best first.
    pub fn report_latency(
        &self,
        caller: &Caller,
        report: ReportLatencyCommand,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<LatencyReportSummary, EngineError> {
        self.adverts.state.rank_candidates_by_measured_round_trips(caller, report, each)
    }

    /// Chooses at random between search and advertise, with the ruleset's probability for this party size.
    pub fn choose_action(&self, set_id: SetId, party_size: u16) -> Result<ChooseActionAnswer, EngineError> {
        let ruleset = self.common.current_or_cached_ruleset(set_id, None)?;
        let action = ruleset.advertise_chances.choose_action(party_size, self.common.clock.random_unit_f64());
        Ok(ChooseActionAnswer { action, advertise_percent: ruleset.advertise_chances.percent_for_party(party_size) })
    }

    /// Publishes, replaces or extends an advertisement.
    ///
    /// Changes of one advertisement take effect in the order submitted. Dropping the answer does not cancel the change.
    pub fn update_advertisement(
        &self,
        caller: &Caller,
        update: PublishOrHeartbeatAdvertCommand,
    ) -> Result<PendingAnswer<UpdateAdvertAnswer>, EngineError> {
        self.adverts.update_advertisement(caller, update)
    }

    /// Deletes an advertisement. Idempotent; a late update cannot bring it back.
    pub fn delete_advertisement(
        &self,
        caller: &Caller,
        delete: DeleteAdvertCommand,
    ) -> Result<PendingAnswer<()>, EngineError> {
        self.adverts.delete_advertisement(caller, delete)
    }

    /// Reserves seats for the whole party or for none. The search's rules are checked again when the writer processes
    /// it.
    pub fn reserve_seats(
        &self,
        caller: &Caller,
        reserve: ReserveCommand,
    ) -> Result<PendingAnswer<ReserveAnswer>, EngineError> {
        self.adverts.reserve_seats(caller, reserve)
    }

    /// Releases a reservation. Idempotent.
    pub fn release_reservation(
        &self,
        caller: &Caller,
        release: ReleaseReservationOrSeatCommand,
    ) -> Result<PendingAnswer<()>, EngineError> {
        self.adverts.release_reservation(caller, release)
    }

    /// Starts a match of a session with the players of its settled reservations, as its host. Idempotent by its key.
    pub fn start_match(
        &self,
        caller: &Caller,
        start: StartMatchCommand,
    ) -> Result<PendingAnswer<StartMatchAnswer>, EngineError> {
        self.queue_engine.start_match(caller, start)
    }

    /// Issues a consent token that lets `leader` include the caller in a party. Anonymous callers get an empty token.
    pub fn grant_party_consent(
        &self,
        caller: &Caller,
        grant: &GrantConsentCommand,
    ) -> Result<GrantConsentAnswer, EngineError> {
        party_consent::grant_consent(&self.common, caller, grant)
    }

    /// Revokes a consent of the caller. The answer says whether something had taken it before. Idempotent.
    pub fn revoke_consent(&self, caller: &Caller, consent_token: &[u8]) -> Result<PendingAnswer<bool>, EngineError> {
        party_consent::revoke_consent(&self.common, caller, consent_token)
    }

    /// Changes the durable block list of a user. The answer is its length. Idempotent.
    pub fn update_block_list(
        &self,
        caller: &Caller,
        update: UpdateBlockListCommand,
    ) -> Result<PendingAnswer<usize>, EngineError> {
        self.queue_engine.update_block_list(caller, update)
    }

    /// Current ruleset of a set, or the ruleset with `hash` while it is still cached.
    pub fn current_or_cached_ruleset(
        &self,
        set_id: SetId,
        hash: Option<RulesetHash>,
    ) -> Result<Arc<Ruleset>, EngineError> {
        self.common.current_or_cached_ruleset(set_id, hash)
    }

    /// Ruleset that a search used: that of `hash`, else that named in the search token, else the current one.
    pub fn ruleset_of_search(
        &self,
        set_id: SetId,
        hash: Option<RulesetHash>,
        token: &[u8],
    ) -> Result<Arc<Ruleset>, EngineError> {
        search_claim::ruleset_of_search(&self.common, set_id, hash, token)
    }

    /// Subscribes `listener` to an advertisement's events and returns its current reservations and matches.
    ///
    /// Subscribes before it reads, so no event is missed in between.
    pub fn subscribe_to_host_events(
        &self,
        id: AdvertisementId,
        listener: &HostEventSender,
    ) -> (Vec<ReservationView>, Vec<HostedMatch>) {
        let state = &self.adverts.state;
        state.host_events.subscribe(id, listener);
        (state.reservation_views_of(id), state.host_events.hosted_matches(id, self.common.clock.now()))
    }

    /// Whether a heartbeat that the host of an advertisement was asked for is due. It is then taken.
    pub fn take_due_host_heartbeat(&self, id: AdvertisementId) -> bool {
        self.adverts.state.host_events.consume_expected_beat(id, self.common.clock.now())
    }

    /// Compares memory with the store and with the indexes. Lists up to `max_listed` inconsistencies.
    ///
    /// Checks run one at a time; a second caller waits. Changes nothing, and stops when dropped.
    pub async fn check_consistency(&self, max_listed: usize) -> Result<ConsistencyReport, EngineError> {
        let _lock = self.consistency_check_lock.lock().await;
        consistency::check_consistency(&self.adverts, max_listed).await
    }

    /// Purges retired rulesets past their retention, and their indexes.
    pub async fn purge_retired_rulesets(&self) -> Result<(), EngineError> {
        self.ruleset_store_sync.purge_retired_rulesets().await
    }

    /// Reloader of the rulesets in `directory`; `None` for the bundled ones. Create one per engine.
    pub fn ruleset_reloader(&self, directory: Option<PathBuf>) -> RulesetReloader {
        let (common, activator) = (Arc::clone(&self.common), Arc::clone(&self.ruleset_activator));
        RulesetReloader::new(directory, common, activator, Arc::clone(&self.ruleset_store_sync))
    }

    /// Runs an expiry sweep now and waits until its changes are applied. For tests with a manual clock.
    pub async fn sweep_expired_adverts_and_wait(&self) {
        self.adverts.sweep_expired_adverts_and_wait().await;
    }

    /// Removes ended tickets and matches from memory now, as the lease task does every ten seconds. For tests with a
    /// manual clock.
    pub fn purge_ended_from_memory(&self) {
        self.queue_engine.purge_ended_from_memory();
    }

    /// Rejects further changes. Searches continue, and changes already submitted are committed.
    pub fn stop_accepting_changes(&self) {
        self.adverts.stop_accepting_changes();
    }

    /// Drains, commits submitted changes, stops the tasks and closes the store.
    pub async fn close(&self) {
        self.stop_accepting_changes();
        self.shutdown.cancel();
        let tasks = std::mem::take(&mut *self.background_tasks.lock().unwrap_or_else(PoisonError::into_inner));
        for task in tasks {
            let _ = task.await;
        }
        if let Err(error) = self.common.flush_statistics().await {
            tracing::warn!(%error, "statistics of the last seconds not written, they are lost");
        }
        self.common.store.close().await;
    }
}
