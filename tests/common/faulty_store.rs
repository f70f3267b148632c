//! A memory store with injected faults: unavailable for advertisements or for queues, pausing batches of queue changes, or panicking. It
//! may have change feeds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use fireteam::domain::id::{AdvertisementId, MatchId, RatingKey, TicketId, UserKey};
use fireteam::domain::lifecycle::Match;
use fireteam::domain::match_result::{MatchResult, RatingHistoryEntry};
use fireteam::domain::ruleset::rating::defaults::OwnRatingKeys;
use fireteam::domain::time::UnixMs;
use fireteam::store::allocation_offers::{OfferStore, OfferWrite, StoredOffer};
use fireteam::store::beacons::{BeaconAnnouncement, BeaconStore, StoredBeacon};
use fireteam::store::memory::MemoryStore;
use fireteam::store::outages::{LivenessReport, OutageStore, StoredOutages};
use fireteam::store::queues::first_scale::FirstRatingScaleOfSet;
use fireteam::store::queues::{
    FinishedMatch, QueueFeed, QueueKey, QueueOutcome, QueueStore, QueueWrite, StoredQueueData, StoredTicket,
    UserTicketsMatchAndPenalties,
};
use fireteam::store::ruleset_copies::{RulesetCopy, RulesetCopyStore, RulesetReport};
use fireteam::store::statistics::{StatisticsBatch, StatisticsQuery, StatisticsStore, StatisticsTotals};
use fireteam::store::user_data::{GivenFeedback, UserDataStore, UserRowKind};
use fireteam::store::{AdvertFeed, AdvertWrite, CommitResult, Store, StoreError, StoredAdvertisement};
use tokio::sync::watch;

/// Memory store with injected faults.
pub(crate) struct FaultyStore {
    pub(crate) inner: MemoryStore,
    /// While set, writes of advertisements fail as unavailable.
    pub(crate) adverts_unavailable: AtomicBool,
    /// Number of the next calls of each operation that panic.
    panics_left: Mutex<BTreeMap<&'static str, u64>>,
    /// Number of calls of `acquire_leases`.
    lease_calls: watch::Sender<u64>,
    /// While set, reports about rulesets fail as unavailable.
    pub(crate) ruleset_copies_unavailable: AtomicBool,
    /// Change feed that an engine opens; `None`: the store is not shared.
    pub(crate) feed: Mutex<Option<Box<dyn AdvertFeed>>>,
    /// Queue feed that an engine opens; `None`: the store is not shared.
    pub(crate) queue_feed: Mutex<Option<Box<dyn QueueFeed>>>,
    /// While set, writes to the queues and reads of tickets and matches fail as unavailable.
    pub(crate) queues_unavailable: AtomicBool,
    /// Number of reads of tickets that have failed.
    failed_ticket_reads: watch::Sender<u64>,
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
            panics_left: Mutex::default(),
            lease_calls: watch::Sender::new(0),
            ruleset_copies_unavailable: AtomicBool::new(false),
            feed: Mutex::new(None),
            queue_feed: Mutex::new(None),
            queues_unavailable: AtomicBool::new(false),
            failed_ticket_reads: watch::Sender::new(0),
            queue_batches_received: received,
            queue_batches_allowed: may_pass,
        }
    }
}

impl FaultyStore {
    /// Makes the next `count` calls of `operation` panic: `commit`, `commit_queues` or `acquire_leases`.
    pub(crate) fn panic_in(&self, operation: &'static str, count: u64) {
        self.panics_left.lock().expect("unpoisoned").insert(operation, count);
    }

    fn panic_if_planted(&self, operation: &'static str) {
        let mut panics_left = self.panics_left.lock().expect("unpoisoned");
        let is_planted = panics_left.get_mut(operation).filter(|left| **left > 0).map(|left| *left -= 1).is_some();
        drop(panics_left);
        assert!(!is_planted, "planted panic in {operation}");
    }

    /// Waits for `count` further calls of `acquire_leases`.
    pub(crate) async fn wait_for_lease_calls(&self, count: u64) {
        let before = *self.lease_calls.borrow();
        let mut calls = self.lease_calls.subscribe();
        calls.wait_for(|calls| before + count <= *calls).await.expect("the sender exists");
    }

    fn check_queues_available(&self) -> Result<(), StoreError> {
        match self.queues_unavailable.load(Ordering::SeqCst) {
            true => Err(StoreError::Unavailable("injected fault".into())),
            false => Ok(()),
        }
    }

    /// Waits until `count` further reads of tickets have failed.
    pub(crate) async fn wait_for_failed_ticket_reads(&self, count: u64) {
        let before = *self.failed_ticket_reads.borrow();
        let mut reads = self.failed_ticket_reads.subscribe();
        reads.wait_for(|reads| before + count <= *reads).await.expect("the sender exists");
    }

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
    async fn purge_and_load_queues(&self, now: UnixMs) -> Result<StoredQueueData, StoreError> {
        self.inner.purge_and_load_queues(now).await
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        self.panic_if_planted("commit_queues");
        let number = *self.queue_batches_received.borrow() + 1;
        self.queue_batches_received.send_replace(number);
        self.queue_batches_allowed
            .subscribe()
            .wait_for(|may_pass| number <= *may_pass)
            .await
            .expect("the sender exists");
        self.check_queues_available()?;
        self.inner.commit_queues(batch).await
    }

    async fn read_ticket(&self, id: TicketId) -> Result<Option<StoredTicket>, StoreError> {
        self.check_queues_available().inspect_err(|_| self.failed_ticket_reads.send_modify(|reads| *reads += 1))?;
        self.inner.read_ticket(id).await
    }

    async fn read_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
        self.check_queues_available()?;
        self.inner.read_match(id).await
    }

    async fn read_match_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, StoreError> {
        self.inner.read_match_result(id).await
    }

    async fn read_tickets_match_and_penalties(
        &self,
        user: UserKey,
    ) -> Result<UserTicketsMatchAndPenalties, StoreError> {
        self.inner.read_tickets_match_and_penalties(user).await
    }

    async fn read_rating_changes(&self, user: UserKey, key: RatingKey) -> Result<Vec<RatingHistoryEntry>, StoreError> {
        self.inner.read_rating_changes(user, key).await
    }

    async fn record_first_scales(&self, current: &[OwnRatingKeys]) -> Result<Vec<FirstRatingScaleOfSet>, StoreError> {
        self.inner.record_first_scales(current).await
    }

    async fn list_finished_matches(
        &self,
        after: (UnixMs, MatchId),
        most: usize,
    ) -> Result<Vec<FinishedMatch>, StoreError> {
        self.inner.list_finished_matches(after, most).await
    }

    async fn acquire_leases(&self, queues: &[QueueKey], for_ms: u32) -> Result<Vec<bool>, StoreError> {
        self.lease_calls.send_modify(|calls| *calls += 1);
        self.panic_if_planted("acquire_leases");
        self.inner.acquire_leases(queues, for_ms).await
    }

    async fn purge_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        self.inner.purge_queues(now).await
    }

    async fn open_queue_feed(&self) -> Option<Box<dyn QueueFeed>> {
        self.queue_feed.lock().expect("unpoisoned").take()
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
impl OfferStore for FaultyStore {
    async fn apply_offer_writes(
        &self,
        writes: &[OfferWrite],
        now: UnixMs,
    ) -> Result<Vec<Option<StoredOffer>>, StoreError> {
        self.inner.apply_offer_writes(writes, now).await
    }
}

#[async_trait]
impl UserDataStore for FaultyStore {
    async fn find_user_rows(
        &self,
        kind: UserRowKind,
        user: UserKey,
        after: [u8; 16],
        most: usize,
    ) -> Result<Vec<[u8; 16]>, StoreError> {
        self.inner.find_user_rows(kind, user, after, most).await
    }

    async fn read_given_feedback(
        &self,
        user: UserKey,
        after: MatchId,
        most: usize,
    ) -> Result<Vec<GivenFeedback>, StoreError> {
        self.inner.read_given_feedback(user, after, most).await
    }

    async fn get_or_insert_user_log_name(
        &self,
        user: UserKey,
        new_name: Option<[u8; 16]>,
    ) -> Result<Option<[u8; 16]>, StoreError> {
        self.inner.get_or_insert_user_log_name(user, new_name).await
    }

    async fn request_erasure_cleanup(&self, now: UnixMs) -> Result<(), StoreError> {
        self.inner.request_erasure_cleanup(now).await
    }

    async fn clean_up_erasures(&self) -> Result<bool, StoreError> {
        self.inner.clean_up_erasures().await
    }

    async fn record_user_key_secret_id(&self, secret_id: i64) -> Result<i64, StoreError> {
        self.inner.record_user_key_secret_id(secret_id).await
    }

    async fn read_erasure_position(&self, log_id: u64) -> Result<u64, StoreError> {
        self.inner.read_erasure_position(log_id).await
    }

    async fn record_erasure_position(&self, log_id: u64, position: u64) -> Result<(), StoreError> {
        self.inner.record_erasure_position(log_id, position).await
    }
}

#[async_trait]
impl StatisticsStore for FaultyStore {
    async fn add_statistics(&self, batch: &StatisticsBatch) -> Result<bool, StoreError> {
        self.inner.add_statistics(batch).await
    }

    async fn read_statistics(&self, query: &StatisticsQuery) -> Result<StatisticsTotals, StoreError> {
        self.inner.read_statistics(query).await
    }
}

#[async_trait]
impl BeaconStore for FaultyStore {
    async fn announce_beacon(&self, announcement: &BeaconAnnouncement) -> Result<Vec<StoredBeacon>, StoreError> {
        self.inner.announce_beacon(announcement).await
    }

    async fn read_beacons(&self) -> Result<Vec<StoredBeacon>, StoreError> {
        self.inner.read_beacons().await
    }
}

#[async_trait]
impl OutageStore for FaultyStore {
    async fn apply_liveness_report(&self, report: &LivenessReport) -> Result<StoredOutages, StoreError> {
        self.inner.apply_liveness_report(report).await
    }
}

#[async_trait]
impl Store for FaultyStore {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.inner.load_advertisements(now).await
    }
    async fn commit_adverts(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
        self.panic_if_planted("commit");
        if self.adverts_unavailable.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable("injected fault".into()));
        }
        self.inner.commit_adverts(batch).await
    }
    async fn purge_tombstones_and_reservations(&self, now: UnixMs) -> Result<(), StoreError> {
        self.inner.purge_tombstones_and_reservations(now).await
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
    async fn open_advert_feed(&self) -> Option<Box<dyn AdvertFeed>> {
        self.feed.lock().expect("unpoisoned").take()
    }
    async fn close(&self) {
        self.inner.close().await;
    }
}
