//! A memory store with injected faults: unavailable for advertisements, or pausing batches of queue changes. It may have a
//! change feed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use fireteam::domain::id::{AdvertisementId, MatchId, SetId, UserKey};
use fireteam::domain::lifecycle::Match;
use fireteam::domain::match_result::{MatchResult, RatingHistoryEntry};
use fireteam::domain::time::UnixMs;
use fireteam::store::memory::MemoryStore;
use fireteam::store::queues::{FinishedMatch, QueueOutcome, QueueStore, QueueWrite, StoredQueueData};
use fireteam::store::ruleset_copies::{RulesetCopy, RulesetCopyStore, RulesetReport};
use fireteam::store::{AdvertFeed, AdvertWrite, CommitResult, Store, StoreError, StoredAdvertisement};
use tokio::sync::watch;

/// Memory store with injected faults.
pub(crate) struct FaultyStore {
    pub(crate) inner: MemoryStore,
    /// While set, writes of advertisements fail as unavailable.
    pub(crate) adverts_unavailable: AtomicBool,
    /// While set, reports about rulesets fail as unavailable.
    pub(crate) ruleset_copies_unavailable: AtomicBool,
    /// Change feed that an engine opens; `None`: the store is not shared.
    pub(crate) feed: Mutex<Option<Box<dyn AdvertFeed>>>,
    /// Number of queue batches received.
    queue_batches_received: watch::Sender<u64>,
    /// Number of queue batches that may be committed.
    queue_batches_allowed: watch::Sender<u64>,
}

impl Default for FaultyStore {
    fn default() -> Self {
        let (received, may_pass) = (watch::Sender::new(0), watch::Sender::new(u64::MAX));
        Self {
            inner: MemoryStore::new(),
            adverts_unavailable: AtomicBool::new(false),
            ruleset_copies_unavailable: AtomicBool::new(false),
            feed: Mutex::new(None),
            queue_batches_received: received,
            queue_batches_allowed: may_pass,
        }
    }
}

impl FaultyStore {
    /// Pauses every queue batch from now on.
    pub(crate) fn pause_queue_batches(&self) {
        self.queue_batches_allowed.send_replace(*self.queue_batches_received.borrow());
    }

    /// Commits paused and later queue batches without a pause.
    pub(crate) fn resume_queue_batches(&self) {
        self.queue_batches_allowed.send_replace(u64::MAX);
    }

    /// Waits until a queue batch is paused.
    pub(crate) async fn wait_for_paused_batch(&self) {
        let passed = *self.queue_batches_allowed.borrow();
        self.queue_batches_received
            .subscribe()
            .wait_for(|received| passed < *received)
            .await
            .expect("the sender exists");
    }

    /// Commits the paused queue batch and waits until the next one is paused.
    pub(crate) async fn release_batch_and_wait_for_next(&self) {
        self.queue_batches_allowed.send_modify(|may_pass| *may_pass += 1);
        self.wait_for_paused_batch().await;
    }
}

#[async_trait]
impl QueueStore for FaultyStore {
    async fn load_queues(&self, now: UnixMs) -> Result<StoredQueueData, StoreError> {
        self.inner.load_queues(now).await
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        let number = *self.queue_batches_received.borrow() + 1;
        self.queue_batches_received.send_replace(number);
        self.queue_batches_allowed
            .subscribe()
            .wait_for(|may_pass| number <= *may_pass)
            .await
            .expect("the sender exists");
        self.inner.commit_queues(batch).await
    }

    async fn read_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
        self.inner.read_match(id).await
    }

    async fn read_match_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, StoreError> {
        self.inner.read_match_result(id).await
    }

    async fn read_rating_changes(&self, user: UserKey, set_id: SetId) -> Result<Vec<RatingHistoryEntry>, StoreError> {
        self.inner.read_rating_changes(user, set_id).await
    }

    async fn list_finished_matches(
        &self,
        after: (UnixMs, MatchId),
        most: usize,
    ) -> Result<Vec<FinishedMatch>, StoreError> {
        self.inner.list_finished_matches(after, most).await
    }

    async fn purge_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        self.inner.purge_queues(now).await
    }
}

#[async_trait]
impl RulesetCopyStore for FaultyStore {
    async fn apply_ruleset_report(&self, report: &RulesetReport) -> Result<Vec<RulesetCopy>, StoreError> {
        if self.ruleset_copies_unavailable.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("injected fault".into()));
        }
        self.inner.apply_ruleset_report(report).await
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.inner.load_advertisements(now).await
    }
    async fn commit(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
        if self.adverts_unavailable.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("injected fault".into()));
        }
        self.inner.commit(batch).await
    }
    async fn purge(&self, now: UnixMs) -> Result<(), StoreError> {
        self.inner.purge(now).await
    }
    async fn read_advertisements(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.inner.read_advertisements(ids).await
    }
    async fn list_advertisement_ids(
        &self,
        first: AdvertisementId,
        most: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError> {
        self.inner.list_advertisement_ids(first, most).await
    }
    async fn open_feed(&self) -> Option<Box<dyn AdvertFeed>> {
        self.feed.lock().expect("unpoisoned").take()
    }
    async fn close(&self) {
        self.inner.close().await;
    }
}
