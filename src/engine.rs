//! Matchmaking engine: takes commands, decides from memory, commits through the store and notifies listeners.

mod adverts;
pub mod command;
mod consistency;
mod core;
pub mod error;
#[cfg(feature = "mutants")]
mod fail_points;
mod party_consent;
pub mod queues;
pub mod ratings;
mod ruleset_reload;
pub mod settings;

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::domain::id::{AdvertisementId, RulesetHash, SetId};
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::store::{AdvertFeed, FeedBatch, StoreError, mutant};

use self::adverts::advert_set::AdvertRecord;
use self::adverts::replication_state::{LocalChangeLog, ReplicationState};
use self::adverts::writer_command::AdvertWriterCommand;
use self::command::{
    Caller, CandidateView, ChooseActionAnswer, ReportLatencyAnswer, ReportLatencyCommand, ReservationView,
    SearchAnswer, SearchCommand,
};
use self::core::Core;
use self::error::EngineError;
use self::queues::QueueEngine;

pub use self::adverts::advert_set_map::EncodeAdvertFn;
pub use self::adverts::reservation_events::ReservationListener;
pub use self::core::EngineDeps;

/// Answer that is either ready or pending on a store commit. Dropping it does not cancel the submitted change.
#[derive(Debug)]
pub enum PendingAnswer<T> {
    /// The answer is available.
    Ready(T),
    /// The writer sends the answer after the commit.
    Pending(oneshot::Receiver<Result<T, EngineError>>),
}

impl<T> PendingAnswer<T> {
    /// Waits for the answer. Returns [`EngineError::Internal`] if the writer dropped the reply.
    pub async fn wait(self) -> Result<T, EngineError> {
        match self {
            PendingAnswer::Ready(answer) => Ok(answer),
            PendingAnswer::Pending(answer) => answer.await.unwrap_or(Err(EngineError::Internal)),
        }
    }
}

/// Running matchmaker: memory, the advertisement writer, the queue engine and their background tasks.
#[derive(Debug)]
pub struct Engine {
    core: Arc<Core>,
    advert_writer: mpsc::Sender<AdvertWriterCommand>,
    is_draining: AtomicBool,
    shutdown: CancellationToken,
    /// Held during a ruleset change. Each change builds indexes for all cached rulesets, so changes must not
    /// overlap.
    ruleset_change_lock: tokio::sync::Mutex<()>,
    /// Held during a consistency check, so that only one runs at a time.
    consistency_check_lock: tokio::sync::Mutex<()>,
    queue_engine: QueueEngine,
    background_tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Loads the store's data and starts the background tasks. The engine is ready to serve when this returns.
    pub async fn start(deps: EngineDeps) -> Result<Self, StoreError> {
        let feed = deps.store.open_feed().await;
        let replication = feed.is_some().then(|| Arc::new(ReplicationState::default()));
        let core = Arc::new(Core::new(deps, replication.clone()));
        let shutdown = CancellationToken::new();
        let (advert_writer, commands) = mpsc::channel(adverts::writer::WRITER_INBOX_CAPACITY);
        core.advert_sets.set_indexed_rulesets(core.rulesets.active_and_retired());
        let mut tasks = Vec::new();
        match (feed, replication) {
            (Some(mut feed), Some(replication)) => {
                let (feed_batch, read_started_at) = read_initial_feed(&core, &mut *feed).await?;
                if !mutant::is("expiry_by_the_local_clock") {
                    core.clock.sync_to_store_clock(feed_batch.read_at, read_started_at);
                }
                replication.record_store_success(core.clock.now());
                core.apply_feed(feed_batch, 0, &mut LocalChangeLog::default(), &replication);
                let feed_listener = adverts::follow_feed::follow_advert_feed(
                    Arc::clone(&core),
                    replication,
                    feed,
                    advert_writer.clone(),
                    shutdown.clone(),
                );
                tasks.push(tokio::spawn(feed_listener));
            }
            _ => load_adverts(&core).await?,
        }
        // Set the gauges before the first sweep; until then they would read zero.
        adverts::expiry::update_gauges(&core);
        tasks.push(tokio::spawn(adverts::writer::run_advert_writer(Arc::clone(&core), commands, shutdown.clone())));
        tasks.push(tokio::spawn(adverts::expiry::run_expiry_sweeps(
            Arc::clone(&core),
            advert_writer.clone(),
            shutdown.clone(),
        )));
        let (queue_engine, queue_tasks) =
            QueueEngine::start(Arc::clone(&core), advert_writer.clone(), &shutdown).await?;
        tasks.extend(queue_tasks);
        Ok(Self {
            core,
            advert_writer,
            is_draining: AtomicBool::new(false),
            shutdown,
            ruleset_change_lock: tokio::sync::Mutex::default(),
            consistency_check_lock: tokio::sync::Mutex::default(),
            queue_engine,
            background_tasks: Mutex::new(tasks),
        })
    }

    /// Queue operations.
    pub fn queues(&self) -> &QueueEngine {
        &self.queue_engine
    }

    /// Milliseconds since the shared store last answered. `None` for an unshared store and below one second.
    pub fn store_staleness_ms(&self) -> Option<u64> {
        self.core.store_staleness_ms(self.core.clock.now())
    }

    /// Whether the store accepts writes of this server's store format version.
    pub fn is_store_writable(&self) -> bool {
        self.core.store.is_writable()
    }

    /// Finds sessions. Calls `each` per candidate, best first, while the set's index is locked; `each` must be quick.
    pub fn search(
        &self,
        caller: &Caller,
        search: SearchCommand,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<SearchAnswer, EngineError> {
        self.core.search(caller, search, each)
    }

    /// Ranks candidates by measured round trips. Calls `each` per remaining candidate, best first.
    pub fn report_latency(
        &self,
        caller: &Caller,
        report: ReportLatencyCommand,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<ReportLatencyAnswer, EngineError> {
        self.core.report_latency(caller, report, each)
    }

    /// Chooses at random between search and advertise, with the ruleset's probability for this party size.
    pub fn choose_action(&self, set_id: SetId, party_size: u16) -> Result<ChooseActionAnswer, EngineError> {
        let ruleset = self.core.ruleset(set_id, None)?;
        let action = ruleset.advertise_chances.choose_action(party_size, self.core.clock.random_unit_f64());
        Ok(ChooseActionAnswer { action, advertise_percent: ruleset.advertise_chances.percent_for_party(party_size) })
    }

    /// Current ruleset of a set, or the ruleset with `hash` while it is still cached.
    pub fn ruleset(&self, set_id: SetId, hash: Option<RulesetHash>) -> Result<Arc<Ruleset>, EngineError> {
        self.core.ruleset(set_id, hash)
    }

    /// Ruleset that a search used: that of `hash`, else that named in the search token, else the current one.
    pub fn ruleset_of_search(
        &self,
        set_id: SetId,
        hash: Option<RulesetHash>,
        token: &[u8],
    ) -> Result<Arc<Ruleset>, EngineError> {
        self.core.ruleset_of_search(set_id, hash, token)
    }

    /// Subscribes `listener` to an advertisement's reservation events and returns its current reservations.
    ///
    /// Subscribes before it reads, so no reservation is missed in between.
    pub fn subscribe_to_reservations(
        &self,
        id: AdvertisementId,
        listener: &ReservationListener,
    ) -> Vec<ReservationView> {
        self.core.reservation_events.subscribe(id, listener);
        self.core.reservation_views_of(id)
    }

    /// Runs an expiry sweep now and waits until its changes are applied. For tests with a manual clock.
    pub async fn sweep_expired(&self) {
        adverts::expiry::sweep_expired_adverts(&self.core, &self.advert_writer).await;
        let _ = self.wait_for_advert_writer().await;
    }

    /// Rejects further changes. Searches continue, and changes already submitted are committed.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// Drains, commits submitted changes, stops the tasks and closes the store.
    pub async fn close(&self) {
        self.drain();
        self.shutdown.cancel();
        let tasks =
            std::mem::take(&mut *self.background_tasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        for task in tasks {
            let _ = task.await;
        }
        self.core.store.close().await;
    }

    /// Waits until the advertisement writer has processed its current inbox.
    async fn wait_for_advert_writer(&self) -> Result<(), EngineError> {
        let (flushed, flush_done) = oneshot::channel();
        self.advert_writer.send(AdvertWriterCommand::Flush(flushed)).await.map_err(|_| EngineError::Draining)?;
        flush_done.await.map_err(|_| EngineError::Draining)
    }

    /// Puts a command in the writer's inbox. The caller cannot cancel it afterwards.
    fn send_to_advert_writer(&self, command: AdvertWriterCommand) -> Result<(), EngineError> {
        if self.is_draining.load(Ordering::Acquire) {
            return Err(EngineError::Draining);
        }
        self.advert_writer.try_send(command).map_err(|refused| match refused {
            TrySendError::Full(_) => EngineError::Overloaded { retry_after_ms: adverts::writer::RETRY_AFTER_MS },
            TrySendError::Closed(_) => EngineError::Draining,
        })
    }
}

/// Maximum attempts of the initial read. The store may be slow when several replicas start at once.
const INITIAL_READ_ATTEMPTS_MAX: usize = 5;

/// Reads everything in the store, and returns it with the time at which the read began. Retries if the store is slow.
async fn read_initial_feed(core: &Core, feed: &mut dyn AdvertFeed) -> Result<(FeedBatch, UnixMs), StoreError> {
    let mut attempts = 0;
    loop {
        let read_started_at = core.clock.now();
        attempts += 1;
        match feed.read_batch(&[]).await {
            Err(StoreError::Unavailable(reason)) if attempts < INITIAL_READ_ATTEMPTS_MAX => {
                tracing::warn!(reason, attempts, "initial store read failed, retrying");
            }
            feed_batch => return Ok((feed_batch?, read_started_at)),
        }
    }
}

/// Loads all stored advertisements into memory.
async fn load_adverts(core: &Core) -> Result<(), StoreError> {
    for stored in core.store.load_advertisements(core.clock.now()).await? {
        let record = AdvertRecord {
            encoded_advert: (core.encode_advert)(&stored.advertisement),
            expires_at: stored.expires_at,
            stored_expires_at: stored.expires_at,
            ttl_ms: core.settings.default_ttl_ms,
            reservations: stored.reservations,
            version: stored.version,
            is_heartbeat_owner: true,
            is_unwritten: false,
            advertisement: stored.advertisement,
        };
        core.advert_sets.get_or_create(record.advertisement.set_id).write().upsert(record);
    }
    Ok(())
}
