//! Runs the domain in time: takes commands, decides with memory, has the store confirm, tells who must hear.

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
use crate::store::{AdvertFeed, FeedBatch, StoreError, mutant as planted};

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

/// An answer that is there already, or that comes when the store has confirmed it. Dropping it cancels nothing: what
/// was submitted happens.
#[derive(Debug)]
pub enum PendingAnswer<T> {
    /// Done.
    Ready(T),
    /// On its way.
    Pending(oneshot::Receiver<Result<T, EngineError>>),
}

impl<T> PendingAnswer<T> {
    /// Waits for the answer.
    pub async fn wait(self) -> Result<T, EngineError> {
        match self {
            PendingAnswer::Ready(answer) => Ok(answer),
            PendingAnswer::Pending(answer) => answer.await.unwrap_or(Err(EngineError::Internal)),
        }
    }
}

/// The matchmaker at work.
#[derive(Debug)]
pub struct Engine {
    core: Arc<Core>,
    advert_writer: mpsc::Sender<AdvertWriterCommand>,
    is_draining: AtomicBool,
    shutdown: CancellationToken,
    /// Held while rulesets change hands: who builds views must know what the others are about to put in force.
    ruleset_change_lock: tokio::sync::Mutex<()>,
    /// Held while memory and store are compared: one at a time.
    consistency_check_lock: tokio::sync::Mutex<()>,
    queue_engine: QueueEngine,
    background_tasks: Mutex<Vec<JoinHandle<()>>>,
}

impl Engine {
    /// Loads what the store has and starts the tasks. Ready to serve when it returns.
    pub async fn start(parts: EngineDeps) -> Result<Self, StoreError> {
        let feed = parts.store.open_feed().await;
        let sharing = feed.is_some().then(|| Arc::new(ReplicationState::default()));
        let core = Arc::new(Core::new(parts, sharing.clone()));
        let stop = CancellationToken::new();
        let (inbox, jobs) = mpsc::channel(adverts::writer::WRITER_INBOX_CAPACITY);
        core.advert_sets.set_indexed_rulesets(core.rulesets.active_and_retired());
        let mut tasks = Vec::new();
        match (feed, sharing) {
            (Some(mut feed), Some(sharing)) => {
                let (news, asked) = read_initial_feed(&core, &mut *feed).await?;
                if !planted::is("expiry_by_the_local_clock") {
                    core.clock.sync_to_store_clock(news.read_at, asked);
                }
                sharing.record_store_success(core.clock.now());
                core.apply_feed(news, 0, &mut LocalChangeLog::default(), &sharing);
                let hearing = adverts::follow_feed::follow_advert_feed(
                    Arc::clone(&core),
                    sharing,
                    feed,
                    inbox.clone(),
                    stop.clone(),
                );
                tasks.push(tokio::spawn(hearing));
            }
            _ => load_adverts(&core).await?,
        }
        // Whoever asks before the first sweep must not hear that there is nothing.
        adverts::expiry::update_gauges(&core);
        tasks.push(tokio::spawn(adverts::writer::run_advert_writer(Arc::clone(&core), jobs, stop.clone())));
        tasks.push(tokio::spawn(adverts::expiry::run_expiry_sweeps(Arc::clone(&core), inbox.clone(), stop.clone())));
        let (queues, of_queues) = QueueEngine::start(Arc::clone(&core), inbox.clone(), &stop).await?;
        tasks.extend(of_queues);
        Ok(Self {
            core,
            advert_writer: inbox,
            is_draining: AtomicBool::new(false),
            shutdown: stop,
            ruleset_change_lock: tokio::sync::Mutex::default(),
            consistency_check_lock: tokio::sync::Mutex::default(),
            queue_engine: queues,
            background_tasks: Mutex::new(tasks),
        })
    }

    /// Where parties wait.
    pub fn queues(&self) -> &QueueEngine {
        &self.queue_engine
    }

    /// How long the store has been out of reach, if it is one that servers share and has been for a moment.
    pub fn store_staleness_ms(&self) -> Option<u64> {
        self.core.store_staleness_ms(self.core.clock.now())
    }

    /// Finds sessions; `each` sees the candidates, best first, while the set's index is held, and must be quick.
    pub fn search(
        &self,
        caller: &Caller,
        search: SearchCommand,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<SearchAnswer, EngineError> {
        self.core.search(caller, search, each)
    }

    /// Orders candidates by measured round trips (S1-28 to S1-31); `each` sees those still standing, best first.
    pub fn report_latency(
        &self,
        caller: &Caller,
        report: ReportLatencyCommand,
        each: &mut dyn FnMut(CandidateView<'_>),
    ) -> Result<ReportLatencyAnswer, EngineError> {
        self.core.report_latency(caller, report, each)
    }

    /// Draws a role from the ruleset's chances for this size of party (S1-5 to S1-8).
    pub fn choose_action(&self, set_id: SetId, party_size: u16) -> Result<ChooseActionAnswer, EngineError> {
        let ruleset = self.core.ruleset(set_id, None)?;
        let role = ruleset.advertise_chances.choose_action(party_size, self.core.clock.random_unit_f64());
        Ok(ChooseActionAnswer {
            action: role,
            advertise_percent: ruleset.advertise_chances.percent_for_party(party_size),
        })
    }

    /// The ruleset of a set: the current one, or the one of `hash` while it is still known.
    pub fn ruleset(&self, set_id: SetId, hash: Option<RulesetHash>) -> Result<Arc<Ruleset>, EngineError> {
        self.core.ruleset(set_id, hash)
    }

    /// The ruleset that a search went by: the one of `hash`, else the one that its token names, else the current one.
    pub fn ruleset_of_search(
        &self,
        set_id: SetId,
        hash: Option<RulesetHash>,
        token: &[u8],
    ) -> Result<Arc<Ruleset>, EngineError> {
        self.core.ruleset_of_search(set_id, hash, token)
    }

    /// Lets `listener` hear of an advertisement's reservations from now on, and says which there are: none that is taken
    /// at this very moment falls between the two.
    pub fn subscribe_to_reservations(
        &self,
        id: AdvertisementId,
        listener: &ReservationListener,
    ) -> Vec<ReservationView> {
        self.core.reservation_events.subscribe(id, listener);
        self.core.reservation_views_of(id)
    }

    /// Takes what is due out now rather than at the next sweep, and returns when it is out; for tests that turn the
    /// clock.
    pub async fn sweep_expired(&self) {
        adverts::expiry::sweep_expired_adverts(&self.core, &self.advert_writer).await;
        let _ = self.wait_for_advert_writer().await;
    }

    /// Takes no more changes; searches and what was submitted before go on.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// Drains, writes what was submitted, closes the store.
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

    /// Waits until the writer has done everything that it was given so far.
    async fn wait_for_advert_writer(&self) -> Result<(), EngineError> {
        let (passed, written) = oneshot::channel();
        self.advert_writer.send(AdvertWriterCommand::Flush(passed)).await.map_err(|_| EngineError::Draining)?;
        written.await.map_err(|_| EngineError::Draining)
    }

    /// Puts a change in the writer's inbox; from here on nobody can cancel it.
    fn send_to_advert_writer(&self, job: AdvertWriterCommand) -> Result<(), EngineError> {
        if self.is_draining.load(Ordering::Acquire) {
            return Err(EngineError::Draining);
        }
        self.advert_writer.try_send(job).map_err(|refused| match refused {
            TrySendError::Full(_) => EngineError::Overloaded { retry_after_ms: adverts::writer::RETRY_AFTER_MS },
            TrySendError::Closed(_) => EngineError::Draining,
        })
    }
}

/// How often a start begins to read: a store that has just answered may be busy, as when many servers start at once.
const INITIAL_READ_ATTEMPTS_MAX: usize = 5;

/// Everything there is, and when it was asked for. A start has more time than a call: it asks again when the answer is late.
async fn read_initial_feed(core: &Core, feed: &mut dyn AdvertFeed) -> Result<(FeedBatch, UnixMs), StoreError> {
    let mut read = 0;
    loop {
        let asked = core.clock.now();
        read += 1;
        match feed.read_batch(&[]).await {
            Err(StoreError::Unavailable(why)) if read < INITIAL_READ_ATTEMPTS_MAX => {
                tracing::warn!(why, "the store is slow to say what there is");
            }
            news => return Ok((news?, asked)),
        }
    }
}

/// Fills memory from the store.
async fn load_adverts(core: &Core) -> Result<(), StoreError> {
    for stored in core.store.load_advertisements(core.clock.now()).await? {
        let time_to_live_ms = core.settings.default_ttl_ms;
        let record = AdvertRecord {
            encoded_advert: (core.encode_advert)(&stored.advertisement),
            expires_at: stored.expires_at,
            stored_expires_at: stored.expires_at,
            ttl_ms: time_to_live_ms,
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
