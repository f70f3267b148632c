//! Store wrapper that records the duration and row count of each operation.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::domain::id::{AdvertisementId, MatchId, RatingKey, TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry};
use crate::domain::ruleset::rating::defaults::OwnRatingKeys;
use crate::domain::time::UnixMs;
use crate::store::Store;
use crate::store::adverts::{AdvertFeed, AdvertWrite, CommitResult, StoredAdvertisement, transaction_label};
use crate::store::allocation_offers::{OfferStore, OfferWrite, StoredOffer};
use crate::store::beacons::{BeaconAnnouncement, BeaconStore, StoredBeacon};
use crate::store::error::StoreError;
use crate::store::outages::{LivenessReport, OutageStore, StoredOutages};
use crate::store::queues::connected_users_report::ConnectedUsersReport;
use crate::store::queues::first_scale::FirstRatingScaleOfSet;
use crate::store::queues::{
    self, FinishedMatch, LiveServers, QueueFeed, QueueKey, QueueOutcome, QueueStore, QueueWrite, StoredQueueData,
    StoredTicket, UserTicketsMatchAndPenalties,
};
use crate::store::ruleset_copies::{RulesetCopy, RulesetCopyStore, RulesetReport};
use crate::store::statistics::{StatisticsBatch, StatisticsQuery, StatisticsStore, StatisticsTotals};
use crate::store::user_data::{GivenFeedback, UserDataStore, UserRowKind};

/// Receiver of store measurements. It supplies the clock, so that the store has none.
pub trait StoreObserver: Send + Sync + 'static {
    /// Monotonic time since any start.
    fn monotonic_time(&self) -> Duration;

    /// Records one operation: `load`, `commit`, `purge` or `close`, the first three with `_queues` for queues, and `read_ticket`. `rows`
    /// counts the writes of a commit, applied or not, and the rows read by a load or a read. It is 0 for other operations and
    /// for a failed load or read.
    fn on_operation(&self, operation: &'static str, duration: Duration, ok: bool, rows: usize);

    /// Records the duration of a commit, successful or not, under its [`transaction_label`].
    fn on_transaction(&self, name: &'static str, duration: Duration);
}

/// Forwards every operation and reports it to the observer. Not reported: reads that serve no client, and operations
/// whose caller stopped waiting.
pub struct MeteredStore<M> {
    inner: Arc<dyn Store>,
    observer: M,
}

impl<M: StoreObserver> MeteredStore<M> {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Store>, observer: M) -> Self {
        Self { inner, observer }
    }

    fn record_operation(&self, operation: &'static str, started: Duration, ok: bool, rows: usize) -> Duration {
        let duration = self.observer.monotonic_time().saturating_sub(started);
        self.observer.on_operation(operation, duration, ok, rows);
        duration
    }
}

#[async_trait]
impl<M: StoreObserver> Store for MeteredStore<M> {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let started = self.observer.monotonic_time();
        let result = self.inner.load_advertisements(now).await;
        self.record_operation("load", started, result.is_ok(), result.as_ref().map_or(0, Vec::len));
        result
    }

    async fn commit_adverts(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
        let started = self.observer.monotonic_time();
        let result = self.inner.commit_adverts(batch).await;
        let duration = self.record_operation("commit", started, result.is_ok(), batch.len());
        self.observer.on_transaction(transaction_label(batch), duration);
        result
    }

    async fn purge_tombstones_and_reservations(&self, now: UnixMs) -> Result<(), StoreError> {
        let started = self.observer.monotonic_time();
        let result = self.inner.purge_tombstones_and_reservations(now).await;
        self.record_operation("purge", started, result.is_ok(), 0);
        result
    }

    async fn read_advertisements(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.inner.read_advertisements(ids).await
    }

    async fn list_advertisement_ids(
        &self,
        first: AdvertisementId,
        limit: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError> {
        self.inner.list_advertisement_ids(first, limit).await
    }

    async fn open_advert_feed(&self) -> Option<Box<dyn AdvertFeed>> {
        self.inner.open_advert_feed().await
    }

    fn unknown_row_counts(&self) -> Vec<(&'static str, u64)> {
        self.inner.unknown_row_counts()
    }

    fn is_format_writable(&self) -> bool {
        self.inner.is_format_writable()
    }

    async fn close(&self) {
        let started = self.observer.monotonic_time();
        self.inner.close().await;
        self.record_operation("close", started, true, 0);
    }
}

/// Forwarded without a report: no client waits for it.
#[async_trait]
impl<M: StoreObserver> RulesetCopyStore for MeteredStore<M> {
    async fn apply_ruleset_report(&self, report: &RulesetReport) -> Result<Vec<RulesetCopy>, StoreError> {
        self.inner.apply_ruleset_report(report).await
    }
}

/// Forwarded without a report.
#[async_trait]
impl<M: StoreObserver> OfferStore for MeteredStore<M> {
    async fn apply_offer_writes(
        &self,
        writes: &[OfferWrite],
        now: UnixMs,
    ) -> Result<Vec<Option<StoredOffer>>, StoreError> {
        self.inner.apply_offer_writes(writes, now).await
    }
}

/// Forwarded without a report: only operators wait for it.
#[async_trait]
impl<M: StoreObserver> UserDataStore for MeteredStore<M> {
    async fn find_user_rows(
        &self,
        kind: UserRowKind,
        user: UserKey,
        after: [u8; 16],
        limit: usize,
    ) -> Result<Vec<[u8; 16]>, StoreError> {
        self.inner.find_user_rows(kind, user, after, limit).await
    }

    async fn read_given_feedback(
        &self,
        user: UserKey,
        after: MatchId,
        limit: usize,
    ) -> Result<Vec<GivenFeedback>, StoreError> {
        self.inner.read_given_feedback(user, after, limit).await
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

/// Forwarded without a report: no client waits for it.
#[async_trait]
impl<M: StoreObserver> OutageStore for MeteredStore<M> {
    async fn apply_liveness_report(&self, report: &LivenessReport) -> Result<StoredOutages, StoreError> {
        self.inner.apply_liveness_report(report).await
    }
}

/// Forwarded without a report: no player waits for it.
#[async_trait]
impl<M: StoreObserver> BeaconStore for MeteredStore<M> {
    async fn announce_beacon(&self, announcement: &BeaconAnnouncement) -> Result<Vec<StoredBeacon>, StoreError> {
        self.inner.announce_beacon(announcement).await
    }

    async fn read_beacons(&self) -> Result<Vec<StoredBeacon>, StoreError> {
        self.inner.read_beacons().await
    }
}

/// Forwarded without a report: only operators wait for it.
#[async_trait]
impl<M: StoreObserver> StatisticsStore for MeteredStore<M> {
    async fn add_statistics(&self, batch: &StatisticsBatch) -> Result<bool, StoreError> {
        self.inner.add_statistics(batch).await
    }

    async fn read_statistics(&self, query: &StatisticsQuery) -> Result<StatisticsTotals, StoreError> {
        self.inner.read_statistics(query).await
    }
}

/// Leases and user counts are polled and no client waits for them: forwarded without a report.
#[async_trait]
impl<M: StoreObserver> QueueStore for MeteredStore<M> {
    async fn purge_and_load_queues(&self, now: UnixMs) -> Result<StoredQueueData, StoreError> {
        let started = self.observer.monotonic_time();
        let result = self.inner.purge_and_load_queues(now).await;
        let rows = result.as_ref().map_or(0, |data| data.tickets.len() + data.matches.len() + data.ratings.len());
        self.record_operation("load_queues", started, result.is_ok(), rows);
        result
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        let started = self.observer.monotonic_time();
        let result = self.inner.commit_queues(batch).await;
        let duration = self.record_operation("commit_queues", started, result.is_ok(), batch.len());
        self.observer.on_transaction(queues::transaction_label(batch), duration);
        result
    }

    async fn read_ticket(&self, id: TicketId) -> Result<Option<StoredTicket>, StoreError> {
        let started = self.observer.monotonic_time();
        let result = self.inner.read_ticket(id).await;
        let rows = usize::from(result.as_ref().is_ok_and(Option::is_some));
        self.record_operation("read_ticket", started, result.is_ok(), rows);
        result
    }

    async fn read_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
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
        limit: usize,
    ) -> Result<Vec<FinishedMatch>, StoreError> {
        self.inner.list_finished_matches(after, limit).await
    }

    async fn purge_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        let started = self.observer.monotonic_time();
        let result = self.inner.purge_queues(now).await;
        self.record_operation("purge_queues", started, result.is_ok(), 0);
        result
    }

    async fn open_queue_feed(&self) -> Option<Box<dyn QueueFeed>> {
        self.inner.open_queue_feed().await
    }

    async fn renew_lease_holder(&self, for_ms: u32) -> Result<LiveServers, StoreError> {
        self.inner.renew_lease_holder(for_ms).await
    }

    async fn acquire_leases(&self, queues: &[QueueKey], for_ms: u32) -> Result<Vec<bool>, StoreError> {
        self.inner.acquire_leases(queues, for_ms).await
    }

    async fn lowest_store_format(&self) -> Result<i64, StoreError> {
        self.inner.lowest_store_format().await
    }

    async fn release_leases(&self) -> Result<(), StoreError> {
        self.inner.release_leases().await
    }

    async fn exchange_connected_users(
        &self,
        report: &ConnectedUsersReport,
    ) -> Result<Vec<(QueueKey, u32)>, StoreError> {
        self.inner.exchange_connected_users(report).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::{SetId, SiloId, TicketId};
    use crate::store::adverts::WriteOutcome;
    use crate::store::memory::MemoryStore;
    use std::sync::Mutex;

    type RecordedCall = (&'static str, u64, bool, usize);

    /// Each reading of this clock is a second after the one before.
    #[derive(Default)]
    struct ObserverLog(Mutex<(u64, Vec<RecordedCall>)>);

    impl StoreObserver for Arc<ObserverLog> {
        fn monotonic_time(&self) -> Duration {
            let mut log = self.0.lock().unwrap();
            log.0 += 1;
            Duration::from_secs(log.0)
        }

        fn on_operation(&self, operation: &'static str, duration: Duration, ok: bool, rows: usize) {
            self.0.lock().unwrap().1.push((operation, duration.as_secs(), ok, rows));
        }

        fn on_transaction(&self, name: &'static str, duration: Duration) {
            self.0.lock().unwrap().1.push((name, duration.as_secs(), true, 0));
        }
    }

    #[tokio::test]
    async fn metered_store_forwards_and_records_advertisement_operations() {
        let log = Arc::new(ObserverLog::default());
        let store = MeteredStore::new(Arc::new(MemoryStore::new()), Arc::clone(&log));
        let advertisement_id = AdvertisementId::from_bytes([1; 16]);
        let delete = AdvertWrite::Delete { advertisement_id, tombstone_until: UnixMs(9) };
        let committed = store.commit_adverts(&[delete.clone(), delete.clone()]).await.unwrap();
        assert_eq!(committed.outcomes, [WriteOutcome::Applied, WriteOutcome::Applied]);
        let expire = AdvertWrite::Expire { advertisement_id, now: UnixMs(1), expected_version: None };
        store.commit_adverts(&[delete, expire]).await.unwrap();
        assert_eq!(store.load_advertisements(UnixMs(1)).await.unwrap(), []);
        store.purge_tombstones_and_reservations(UnixMs(1)).await.unwrap();
        store.close().await;
        let calls = log.0.lock().unwrap().1.clone();
        assert_eq!(
            calls[..4],
            [("commit", 1, true, 2), ("delete", 1, true, 0), ("commit", 1, true, 2), ("mixed", 1, true, 0)]
        );
        assert_eq!(calls[4..], [("load", 1, true, 0), ("purge", 1, true, 0), ("close", 1, true, 0)]);
    }

    #[tokio::test]
    async fn metered_store_forwards_and_records_queue_operations() {
        let log = Arc::new(ObserverLog::default());
        let store = MeteredStore::new(Arc::new(MemoryStore::new()), Arc::clone(&log));
        let ticket_id = TicketId::from_bytes([1; 16]);
        let heartbeat = QueueWrite::Heartbeat { ticket_id, expires_at: UnixMs(2), now: UnixMs(1) };
        let import = QueueWrite::ImportRatings { rows: vec![] };
        let outcomes = store.commit_queues(&[heartbeat.clone(), import]).await.unwrap();
        assert_eq!(outcomes, [QueueOutcome::TicketNotFound, QueueOutcome::RatingsImported]);
        store.commit_queues(&[heartbeat]).await.unwrap();
        assert!(store.purge_and_load_queues(UnixMs(1)).await.unwrap().tickets.is_empty());
        store.purge_queues(UnixMs(1)).await.unwrap();
        assert_eq!(store.read_match(MatchId::from_bytes([1; 16])).await.unwrap(), None);
        let queue = QueueKey { set_id: SetId(1), silo: SiloId(1) };
        let report = ConnectedUsersReport { counts: vec![(queue, 2)], ..Default::default() };
        assert_eq!(store.exchange_connected_users(&report).await.unwrap(), [(queue, 2)]);
        let calls = log.0.lock().unwrap().1.clone();
        let commits = [("commit_queues", 1, true, 2), ("mixed_queue", 1, true, 0), ("commit_queues", 1, true, 1)];
        assert_eq!(calls[..3], commits);
        assert_eq!(
            calls[3..],
            [("ticket_heartbeat", 1, true, 0), ("load_queues", 1, true, 0), ("purge_queues", 1, true, 0)]
        );
    }
}
