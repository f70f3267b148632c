//! What the parts of the queues share: the tickets and matches in memory, what was learned from them, and the way to the writer.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::domain::id::{MatchId, RulesetHash, SetId};
use crate::domain::life::event::Event;
use crate::domain::ruleset::Ruleset;
use crate::engine::core::Core;
use crate::engine::fault::Fault;
use crate::engine::job::Job;
use crate::engine::queues::presence::Presence;
use crate::engine::queues::reports::Reports;
use crate::engine::queues::roster::Roster;
use crate::engine::queues::waits::Waits;
use crate::engine::queues::writer::{Came, Happened, Order};
use crate::engine::ratings::Ratings;
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite};

/// Changes that may wait to be written; more are refused.
pub(super) const INBOX_MAX: usize = 16_384;

/// When to try again after a refusal for too much waiting, milliseconds.
pub(super) const RETRY_AFTER_MS: u32 = 500;

/// What another server has acknowledged is heard of here within this, or is not there.
pub(super) const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// Shared by the doors, the writer and the runners. Every lock is held for a look-up or a few changes, never across an await.
pub(super) struct Hall {
    pub(super) core: Arc<Core>,
    pub(super) roster: RwLock<Roster>,
    pub(super) waits: Mutex<Waits>,
    pub(super) ratings: Mutex<Ratings>,
    pub(super) presence: Mutex<Presence>,
    pub(super) reports: Mutex<Reports>,
    pub(super) orders: mpsc::Sender<Order>,
    /// To the writer of advertisements: matches take seats on game servers.
    pub(super) jobs: mpsc::Sender<Job>,
    /// Other servers share the store: what they have just acknowledged may not have been heard of here.
    pub(super) shared: bool,
    /// Queues for which the keeper has asked who runs them, a moment ago.
    pub(super) asked: Mutex<BTreeSet<QueueKey>>,
    /// Rung when another has changed.
    pub(super) keeper: Notify,
    /// Rung for whoever runs queues here, when any has changed.
    pub(super) changed: watch::Sender<u64>,
}

impl Hall {
    pub(super) fn new(core: Arc<Core>, orders: mpsc::Sender<Order>, jobs: mpsc::Sender<Job>, shared: bool) -> Self {
        Self {
            core,
            roster: RwLock::default(),
            waits: Mutex::default(),
            ratings: Mutex::default(),
            presence: Mutex::default(),
            reports: Mutex::default(),
            orders,
            jobs,
            shared,
            asked: Mutex::default(),
            keeper: Notify::new(),
            changed: watch::Sender::new(0),
        }
    }

    /// The rules that a match or a ticket goes by: those of its hash, or, when nobody knows them any more, the set's current
    /// ones.
    pub(super) fn rules(&self, set_id: SetId, hash: RulesetHash) -> Option<Arc<Ruleset>> {
        self.core.catalog.by_hash(set_id, hash).or_else(|| self.core.catalog.current(set_id))
    }

    /// What `look` finds, if it does at once or, where another server may have made it a moment ago, soon.
    pub(super) async fn soon<T>(&self, look: impl Fn(&Roster) -> Option<T>) -> Option<T> {
        let mut changed = self.changed.subscribe();
        let until = Instant::now() + if self.shared { HEARD_WITHIN } else { Duration::ZERO };
        loop {
            changed.borrow_and_update();
            if let Some(found) = look(&self.roster.read()) {
                return Some(found);
            }
            if timeout_at(until, changed.changed()).await.is_err() {
                return None;
            }
        }
    }

    /// Has something written; answers when it is durable. Dropping the answer cancels nothing.
    pub(super) async fn write(&self, write: QueueWrite) -> Result<QueueOutcome, Fault> {
        let (reply, answer) = oneshot::channel();
        self.order(Order::Write(Box::new(write), reply))?;
        answer.await.unwrap_or(Err(Fault::Internal))
    }

    /// Has something happen to a match; answers what came of it, when that is durable. Dropping the answer cancels nothing.
    pub(super) async fn happen(&self, id: MatchId, event: Event) -> Result<Came, Fault> {
        let (reply, answer) = oneshot::channel();
        self.order(Order::Happened(Box::new(Happened::new(id, event, reply))))?;
        answer.await.unwrap_or(Err(Fault::Internal))
    }

    /// Puts an order in the writer's inbox.
    pub(super) fn order(&self, order: Order) -> Result<(), Fault> {
        self.orders.try_send(order).map_err(|refused| match refused {
            mpsc::error::TrySendError::Full(_) => Fault::Overloaded { retry_after_ms: RETRY_AFTER_MS },
            mpsc::error::TrySendError::Closed(_) => Fault::Draining,
        })
    }

    /// Says that queues have changed.
    pub(super) fn ring(&self, keys: impl IntoIterator<Item = QueueKey>) {
        let (mut any, mut new) = (false, false);
        for key in keys {
            any = true;
            new |= !self.asked.lock().contains(&key);
        }
        if any {
            self.changed.send_modify(|count| *count = count.wrapping_add(1));
        }
        if new {
            self.keeper.notify_one();
        }
    }
}

impl std::fmt::Debug for Hall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hall").finish_non_exhaustive()
    }
}
