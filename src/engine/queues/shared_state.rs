//! What the parts of the queues share: the tickets and matches in memory, what was learned from them, and the way to the writer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::domain::id::{MatchId, RulesetHash, SetId};
use crate::domain::lifecycle::event::MatchEvent;
use crate::domain::ruleset::Ruleset;
use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::engine::core::Core;
use crate::engine::error::EngineError;
use crate::engine::queues::connected_users::ConnectedUsers;
use crate::engine::queues::pass_reports::PassReports;
use crate::engine::queues::ticket_match_cache::TicketMatchCache;
use crate::engine::queues::wait_estimator::WaitEstimator;
use crate::engine::queues::writer::{EventOutcome, PendingEvent, QueueWriterCommand};
use crate::engine::ratings::RatingCache;
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite};

/// Changes that may wait to be written; more are refused.
pub(super) const WRITER_INBOX_CAPACITY: usize = 16_384;

/// When to try again after a refusal for too much waiting, milliseconds.
pub(super) const RETRY_AFTER_MS: u32 = 500;

/// What another server has acknowledged is heard of here within this, or is not there.
pub(super) const REPLICATION_DELAY_MAX: Duration = Duration::from_secs(1);

/// Shared by the doors, the writer and the runners. Every lock is held for a look-up or a few changes, never across an await.
pub(super) struct SharedState {
    pub(super) core: Arc<Core>,
    pub(super) cache: RwLock<TicketMatchCache>,
    pub(super) wait_estimator: Mutex<WaitEstimator>,
    pub(super) ratings: Mutex<RatingCache>,
    pub(super) connected_users: Mutex<ConnectedUsers>,
    pub(super) pass_reports: Mutex<PassReports>,
    pub(super) queue_writer: mpsc::Sender<QueueWriterCommand>,
    /// To the writer of advertisements: matches take seats on game servers.
    pub(super) advert_writer: mpsc::Sender<AdvertWriterCommand>,
    /// Other servers share the store: what they have just acknowledged may not have been heard of here.
    pub(super) has_replicas: bool,
    /// Queues for which the keeper has asked who runs them, a moment ago.
    pub(super) requested_leases: Mutex<BTreeSet<QueueKey>>,
    /// Rung when another has changed.
    pub(super) lease_wakeup: Notify,
    /// Rung for whoever runs queues here, when any has changed.
    pub(super) queue_changes: watch::Sender<u64>,
}

impl SharedState {
    pub(super) fn new(
        core: Arc<Core>,
        orders: mpsc::Sender<QueueWriterCommand>,
        jobs: mpsc::Sender<AdvertWriterCommand>,
        shared: bool,
    ) -> Self {
        Self {
            core,
            cache: RwLock::default(),
            wait_estimator: Mutex::default(),
            ratings: Mutex::default(),
            connected_users: Mutex::default(),
            pass_reports: Mutex::default(),
            queue_writer: orders,
            advert_writer: jobs,
            has_replicas: shared,
            requested_leases: Mutex::default(),
            lease_wakeup: Notify::new(),
            queue_changes: watch::Sender::new(0),
        }
    }

    /// The rules that a match or a ticket goes by: those of its hash, or, when nobody knows them any more, the set's current
    /// ones.
    pub(super) fn ruleset_or_current(&self, set_id: SetId, hash: RulesetHash) -> Option<Arc<Ruleset>> {
        self.core.rulesets.find_by_hash(set_id, hash).or_else(|| self.core.rulesets.active_ruleset(set_id))
    }

    /// What `look` finds, if it does at once or, where another server may have made it a moment ago, soon.
    pub(super) async fn wait_for_cached<T>(&self, look: impl Fn(&TicketMatchCache) -> Option<T>) -> Option<T> {
        let mut changed = self.queue_changes.subscribe();
        let until = Instant::now() + if self.has_replicas { REPLICATION_DELAY_MAX } else { Duration::ZERO };
        loop {
            changed.borrow_and_update();
            if let Some(found) = look(&self.cache.read()) {
                return Some(found);
            }
            if timeout_at(until, changed.changed()).await.is_err() {
                return None;
            }
        }
    }

    /// Has something written; answers when it is durable. Dropping the answer cancels nothing.
    pub(super) async fn write(&self, write: QueueWrite) -> Result<QueueOutcome, EngineError> {
        let (reply, answer) = oneshot::channel();
        self.send_to_queue_writer(QueueWriterCommand::Write(Box::new(write), reply))?;
        answer.await.unwrap_or(Err(EngineError::Internal))
    }

    /// Has something happen to a match; answers what came of it, when that is durable. Dropping the answer cancels nothing.
    pub(super) async fn apply_match_event(&self, id: MatchId, event: MatchEvent) -> Result<EventOutcome, EngineError> {
        let (reply, answer) = oneshot::channel();
        self.send_to_queue_writer(QueueWriterCommand::MatchEvent(Box::new(PendingEvent::new(id, event, reply))))?;
        answer.await.unwrap_or(Err(EngineError::Internal))
    }

    /// Puts an order in the writer's inbox.
    pub(super) fn send_to_queue_writer(&self, order: QueueWriterCommand) -> Result<(), EngineError> {
        self.queue_writer.try_send(order).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => EngineError::Overloaded { retry_after_ms: RETRY_AFTER_MS },
            mpsc::error::TrySendError::Closed(_) => EngineError::Draining,
        })
    }

    /// Says that queues have changed.
    pub(super) fn notify_queues_changed(&self, keys: impl IntoIterator<Item = QueueKey>) {
        let (mut any, mut new) = (false, false);
        for key in keys {
            any = true;
            new |= !self.requested_leases.lock().contains(&key);
        }
        if any {
            self.queue_changes.send_modify(|count| *count = count.wrapping_add(1));
        }
        if new {
            self.lease_wakeup.notify_one();
        }
    }
}

impl std::fmt::Debug for SharedState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hall").finish_non_exhaustive()
    }
}
