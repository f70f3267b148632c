//! State shared by the queue API, the queue writer and the queue runners.

mod apply_changes;
pub(crate) mod heartbeat;
mod ticket_status;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::domain::id::{MatchId, RulesetHash, SetId};
use crate::domain::lifecycle::event::MatchEvent;
use crate::engine::adverts::advert_handle::AdvertHandle;
use crate::engine::common::Common;
use crate::engine::error::EngineError;
use crate::engine::queues::connected_users::ConnectedUsers;
use crate::engine::queues::pass_reports::PassReports;
use crate::engine::queues::ticket_match_cache::TicketMatchCache;
use crate::engine::queues::wait_estimator::WaitEstimator;
use crate::engine::queues::writer_command::{EventOutcome, PendingEvent, QueueWriterCommand};
use crate::engine::ratings::RatingCache;
use crate::engine::writer_inbox::submit_command;
use crate::rules::catalog::MatchRuleset;
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite};

/// Maximum delay until another replica's acknowledged change is visible here.
pub(crate) const REPLICATION_DELAY_MAX: Duration = Duration::from_secs(1);

/// Shared queue state. Each lock is held for a lookup or a few changes, never across an await.
pub(crate) struct SharedState {
    pub(crate) common: Arc<Common>,
    /// Advertisements: game servers and sessions to backfill.
    pub(crate) adverts: AdvertHandle,
    pub(crate) cache: RwLock<TicketMatchCache>,
    pub(crate) wait_estimator: Mutex<WaitEstimator>,
    pub(crate) ratings: Mutex<RatingCache>,
    pub(crate) connected_users: Mutex<ConnectedUsers>,
    pub(crate) pass_reports: Mutex<PassReports>,
    pub(crate) queue_writer: mpsc::Sender<QueueWriterCommand>,
    /// Replicas share the store, so their acknowledged changes may not be visible here yet.
    pub(crate) has_replicas: bool,
    /// Queues for which the lease task has already requested a lease.
    pub(crate) requested_leases: Mutex<BTreeSet<QueueKey>>,
    /// Wakes the lease task when another queue has changed.
    pub(crate) lease_wakeup: Notify,
    /// Change counter that wakes this replica's queue runners.
    pub(crate) queue_changes: watch::Sender<u64>,
}

impl SharedState {
    pub(crate) fn new(
        common: Arc<Common>,
        adverts: AdvertHandle,
        queue_writer: mpsc::Sender<QueueWriterCommand>,
        has_replicas: bool,
    ) -> Self {
        Self {
            common,
            adverts,
            cache: RwLock::default(),
            wait_estimator: Mutex::default(),
            ratings: Mutex::default(),
            connected_users: Mutex::default(),
            pass_reports: Mutex::default(),
            queue_writer,
            has_replicas,
            requested_leases: Mutex::default(),
            lease_wakeup: Notify::new(),
            queue_changes: watch::Sender::new(0),
        }
    }

    /// Result of `find` on the cache. With replicas, waits up to `REPLICATION_DELAY_MAX` for it to appear.
    pub(crate) async fn wait_for_cached<T>(&self, find: impl Fn(&TicketMatchCache) -> Option<T>) -> Option<T> {
        let mut changes = self.queue_changes.subscribe();
        let deadline = Instant::now() + if self.has_replicas { REPLICATION_DELAY_MAX } else { Duration::ZERO };
        loop {
            changes.borrow_and_update();
            if let Some(found) = find(&self.cache.read()) {
                return Some(found);
            }
            if timeout_at(deadline, changes.changed()).await.is_err() {
                return None;
            }
        }
    }

    /// Writes a change; returns when it is durable. Dropping the future does not cancel the write.
    pub(crate) async fn submit_write(&self, write: QueueWrite) -> Result<QueueOutcome, EngineError> {
        let (reply, answer) = oneshot::channel();
        self.send_to_queue_writer(QueueWriterCommand::Write(Box::new(write), reply))?;
        answer.await.unwrap_or(Err(EngineError::Internal))
    }

    /// Applies an event to a match; returns when the result is durable. Dropping the future does not cancel it.
    pub(crate) async fn apply_match_event(
        &self,
        match_id: MatchId,
        event: MatchEvent,
    ) -> Result<EventOutcome, EngineError> {
        self.wait_for_match_ruleset(match_id).await;
        let (reply, answer) = oneshot::channel();
        self.send_to_queue_writer(QueueWriterCommand::MatchEvent(Box::new(PendingEvent::new(match_id, event, reply))))?;
        answer.await.unwrap_or(Err(EngineError::Internal))
    }

    /// Waits until the ruleset of a match is loaded, at most `REPLICATION_DELAY_MAX`: another replica may have made the
    /// match under a ruleset that this server does not have.
    async fn wait_for_match_ruleset(&self, match_id: MatchId) {
        let Some(found) = self.cache.read().match_by_id(match_id).cloned() else { return };
        self.wait_for_ruleset(found.set_id, found.ruleset_hash).await;
    }

    /// Waits until the ruleset of a match is loaded or is known to be unavailable, at most `REPLICATION_DELAY_MAX`.
    pub(crate) async fn wait_for_ruleset(&self, set_id: SetId, hash: RulesetHash) {
        let mut syncs = self.common.ruleset_syncs.subscribe();
        let deadline = Instant::now() + REPLICATION_DELAY_MAX;
        while self.common.ruleset_of_match(set_id, hash) == MatchRuleset::NotLoaded {
            if timeout_at(deadline, syncs.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Puts a command in the queue writer's inbox.
    pub(crate) fn send_to_queue_writer(&self, command: QueueWriterCommand) -> Result<(), EngineError> {
        submit_command(&self.queue_writer, command)
    }

    /// Wakes the queue runners, and the lease task if a queue is new.
    pub(crate) fn notify_queues_changed(&self, keys: impl IntoIterator<Item = QueueKey>) {
        let (mut any_changed, mut has_unleased) = (false, false);
        for key in keys {
            any_changed = true;
            has_unleased |= !self.requested_leases.lock().contains(&key);
        }
        if any_changed {
            self.queue_changes.send_modify(|count| *count = count.wrapping_add(1));
        }
        if has_unleased {
            self.lease_wakeup.notify_one();
        }
    }
}

impl std::fmt::Debug for SharedState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedState").finish_non_exhaustive()
    }
}
