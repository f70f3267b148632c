//! Advertisement operations of the engine: start, and the commands for the writer.

mod reserve;
mod updates;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::domain::ruleset::Ruleset;
use crate::engine::adverts::advert_set::AdvertRecord;
use crate::engine::adverts::advert_state::AdvertState;
use crate::engine::adverts::adverts_for_queues::AdvertsForQueues;
use crate::engine::adverts::expiry::{run_expiry_sweeps, sweep_expired_adverts, update_gauges};
use crate::engine::adverts::feed_reader::follow_advert_feed;
use crate::engine::adverts::replication_state::{LastLocalBatchByAdvert, ReplicationState};
use crate::engine::adverts::writer::run_advert_writer;
use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::engine::common::Common;
use crate::engine::error::EngineError;
use crate::engine::party_consent::{CheckedConsents, take_consents};
use crate::engine::startup_retry::retry_at_startup;
use crate::engine::writer_inbox::{PendingAnswer, WRITER_INBOX_CAPACITY, submit_command};
use crate::store::queues::ConsentConsumer;
use crate::store::{AdvertFeed, StoreError};
use crate::telemetry::label::TaskLabel;

/// Advertisements in memory, and the inbox of their writer.
#[derive(Debug)]
pub(crate) struct AdvertEngine {
    pub(crate) state: Arc<AdvertState>,
    writer: mpsc::Sender<AdvertWriterCommand>,
    is_draining: AtomicBool,
}

impl AdvertEngine {
    /// Loads the stored advertisements and starts the tasks. `feed` is the change feed of a shared store.
    pub(crate) async fn start(
        common: Arc<Common>,
        feed: Option<Box<dyn AdvertFeed>>,
        shutdown: &CancellationToken,
    ) -> Result<(Self, Vec<JoinHandle<()>>), StoreError> {
        let state = Arc::new(AdvertState::new(common));
        let (writer, commands) = mpsc::channel(WRITER_INBOX_CAPACITY);
        let mut tasks = Vec::new();
        match (feed, state.replication.clone()) {
            (Some(mut feed), Some(replication)) => {
                load_from_feed(&state, &mut *feed, &replication).await?;
                tasks.push(spawn_feed_reader(&state.common, replication, feed, writer.clone(), shutdown));
            }
            _ => load_adverts(&state).await?,
        }
        // Set the gauges before the first sweep; until then they would read zero.
        update_gauges(&state);
        let supervisor = &state.common.supervisor;
        let run_writer = run_advert_writer(Arc::clone(&state), commands, shutdown.clone());
        tasks.push(supervisor.spawn_critical(TaskLabel::AdvertWriter, run_writer));
        let (swept, sender, stop) = (Arc::clone(&state), writer.clone(), shutdown.clone());
        let start_sweeps = move || run_expiry_sweeps(Arc::clone(&swept), sender.clone(), stop.clone());
        tasks.push(supervisor.spawn_restarting(TaskLabel::AdvertExpiry, shutdown, start_sweeps));
        Ok((Self { state, writer, is_draining: AtomicBool::new(false) }, tasks))
    }

    /// Access of the queues to advertisements.
    pub(crate) fn adverts_for_queues(&self) -> AdvertsForQueues {
        AdvertsForQueues::new(Arc::clone(&self.state), self.writer.clone())
    }

    /// Rejects further changes. Changes already submitted are committed.
    pub(crate) fn stop_accepting_changes(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// Runs an expiry sweep now and waits until its changes are applied.
    pub(crate) async fn sweep_expired_adverts_and_wait(&self) {
        sweep_expired_adverts(&self.state, &self.writer).await;
        let _ = self.flush().await;
    }

    /// Waits until the writer has processed its current inbox.
    pub(crate) async fn flush(&self) -> Result<(), EngineError> {
        let (flushed, flush_done) = oneshot::channel();
        self.writer.send(AdvertWriterCommand::Flush(flushed)).await.map_err(|_| EngineError::Draining)?;
        flush_done.await.map_err(|_| EngineError::Draining)
    }

    /// Replaces the indexed rulesets. Returns when every set has the indexes.
    pub(crate) async fn set_indexed_rulesets(&self, rulesets: Vec<Arc<Ruleset>>) -> Result<(), EngineError> {
        let (built, indexes_built) = oneshot::channel();
        self.submit(AdvertWriterCommand::SetRulesets(rulesets, built))?;
        indexes_built.await.map_err(|_| EngineError::Internal)
    }

    /// Puts a command in the writer's inbox. The caller cannot cancel it afterwards.
    fn submit(&self, command: AdvertWriterCommand) -> Result<(), EngineError> {
        if self.is_draining.load(Ordering::Acquire) {
            return Err(EngineError::Draining);
        }
        submit_command(&self.writer, command)
    }

    /// Puts a command in the writer's inbox after its consents are taken in the store; at once if there are none. `answer` is
    /// of the command. A repeated command finds its consents taken by itself.
    fn take_consents_and_submit<T: Send + 'static>(
        &self,
        (taken_by, consents): (impl FnOnce() -> ConsentConsumer, CheckedConsents),
        command: AdvertWriterCommand,
        answer: oneshot::Receiver<Result<T, EngineError>>,
    ) -> Result<PendingAnswer<T>, EngineError> {
        if consents.is_empty() {
            self.submit(command)?;
            return Ok(PendingAnswer::Pending(answer));
        }
        if self.is_draining.load(Ordering::Acquire) {
            return Err(EngineError::Draining);
        }
        let taken_by = taken_by();
        let (reply, combined_answer) = oneshot::channel();
        let (common, writer) = (Arc::clone(&self.state.common), self.writer.clone());
        tokio::spawn(async move {
            let result = match take_consents(&common, taken_by, &consents).await {
                Ok(()) => match submit_command(&writer, command) {
                    Ok(()) => answer.await.unwrap_or(Err(EngineError::Internal)),
                    Err(error) => Err(error),
                },
                Err(error) => Err(error),
            };
            let _ = reply.send(result);
        });
        Ok(PendingAnswer::Pending(combined_answer))
    }
}

/// Spawns the feed reader. After a panic it opens the feed again, which then reads everything.
fn spawn_feed_reader(
    common: &Arc<Common>,
    replication: Arc<ReplicationState>,
    feed: Box<dyn AdvertFeed>,
    writer: mpsc::Sender<AdvertWriterCommand>,
    shutdown: &CancellationToken,
) -> JoinHandle<()> {
    let (reader, stop, mut feed) = (Arc::clone(common), shutdown.clone(), Some(feed));
    common.supervisor.spawn_restarting(TaskLabel::AdvertFeed, shutdown, move || {
        let (common, replication, writer, stop) =
            (Arc::clone(&reader), Arc::clone(&replication), writer.clone(), stop.clone());
        let opened = feed.take();
        async move {
            let feed = match opened {
                Some(feed) => Some(feed),
                None => common.store.open_advert_feed().await,
            };
            if let Some(feed) = feed {
                follow_advert_feed(common, replication, feed, writer, stop).await;
            }
        }
    })
}

/// Loads all advertisements of a shared store, and synchronizes the clock with the store's.
async fn load_from_feed(
    state: &AdvertState,
    feed: &mut dyn AdvertFeed,
    replication: &ReplicationState,
) -> Result<(), StoreError> {
    let clock = &state.common.clock;
    let (feed_batch, read_started_at) = retry_at_startup("read advertisements", async || {
        let read_started_at = clock.now();
        Ok((feed.read_batch(&[]).await?, read_started_at))
    })
    .await?;
    clock.sync_to_store_clock(feed_batch.read_at, read_started_at);
    replication.store_health.record_success(clock.now());
    state.apply_feed(feed_batch, 0, &mut LastLocalBatchByAdvert::default(), replication);
    Ok(())
}

/// Loads all stored advertisements into memory.
async fn load_adverts(state: &AdvertState) -> Result<(), StoreError> {
    let common = &state.common;
    for stored in common.store.load_advertisements(common.clock.now()).await? {
        let record = AdvertRecord {
            expires_at: stored.expires_at,
            stored_expires_at: stored.expires_at,
            ttl_ms: common.settings.ttl_ms_of_loaded_advert(&stored.advertisement),
            reservations: stored.reservations.into(),
            version: stored.version,
            is_heartbeat_owner: true,
            is_unwritten: false,
            advertisement: stored.advertisement,
        };
        state.advert_sets.get_or_create(record.advertisement.set_id).lock_for_write().upsert(record);
    }
    Ok(())
}
