//! A store around a store that counts and times each verb.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::domain::id::{AdvertisementId, MatchId, SetId, SiloId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry};
use crate::domain::time::UnixMs;
use crate::store::queues::{
    self, FinishedMatch, QueueFeed, QueueKey, QueueOutcome, QueueStore, QueueWrite, StoredQueueData,
};
use crate::store::{AdvertFeed, AdvertWrite, CommitResult, Store, StoreError, StoredAdvertisement, transaction_label};

/// Who hears about each verb. Brings its own clock, so that the store has none.
pub trait StoreObserver: Send + Sync + 'static {
    /// A clock that never runs backwards, from any start.
    fn monotonic_time(&self) -> Duration;

    /// `verb` is `load`, `commit`, `forget` or `close`, the first three with `_queues` where they are about those. `rows` are
    /// the changes of a commit, asked for or made, and what a load has read; 0 for the others, and for a load that failed.
    fn on_operation(&self, verb: &'static str, took: Duration, ok: bool, rows: usize);

    /// A commit, made or not, by its [`transaction`]'s name.
    fn on_transaction(&self, name: &'static str, took: Duration);
}

/// Passes every verb on, and tells its meter how it went, but for those of whoever compares, which serve no client. A verb
/// that its caller stopped waiting for is not told.
pub struct MeteredStore<M> {
    inner: Arc<dyn Store>,
    meter: M,
}

impl<M: StoreObserver> MeteredStore<M> {
    /// Measures `inner`.
    pub fn new(inner: Arc<dyn Store>, meter: M) -> Self {
        Self { inner, meter }
    }

    fn record_operation(&self, verb: &'static str, began: Duration, ok: bool, rows: usize) -> Duration {
        let took = self.meter.monotonic_time().saturating_sub(began);
        self.meter.on_operation(verb, took, ok, rows);
        took
    }
}

#[async_trait]
impl<M: StoreObserver> Store for MeteredStore<M> {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let began = self.meter.monotonic_time();
        let answer = self.inner.load_advertisements(now).await;
        self.record_operation("load", began, answer.is_ok(), answer.as_ref().map_or(0, Vec::len));
        answer
    }

    async fn commit(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
        let began = self.meter.monotonic_time();
        let answer = self.inner.commit(batch).await;
        let took = self.record_operation("commit", began, answer.is_ok(), batch.len());
        self.meter.on_transaction(transaction_label(batch), took);
        answer
    }

    async fn purge(&self, now: UnixMs) -> Result<(), StoreError> {
        let began = self.meter.monotonic_time();
        let answer = self.inner.purge(now).await;
        self.record_operation("forget", began, answer.is_ok(), 0);
        answer
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
        self.inner.open_feed().await
    }

    async fn close(&self) {
        let began = self.meter.monotonic_time();
        self.inner.close().await;
        self.record_operation("close", began, true, 0);
    }
}

/// Leases and attendance are asked for every moment, by nobody who waits: they are passed on and not told.
#[async_trait]
impl<M: StoreObserver> QueueStore for MeteredStore<M> {
    async fn load_queues(&self, now: UnixMs) -> Result<StoredQueueData, StoreError> {
        let began = self.meter.monotonic_time();
        let answer = self.inner.load_queues(now).await;
        let rows = answer.as_ref().map_or(0, |load| load.tickets.len() + load.matches.len() + load.ratings.len());
        self.record_operation("load_queues", began, answer.is_ok(), rows);
        answer
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        let began = self.meter.monotonic_time();
        let answer = self.inner.commit_queues(batch).await;
        let took = self.record_operation("commit_queues", began, answer.is_ok(), batch.len());
        self.meter.on_transaction(queues::transaction_label(batch), took);
        answer
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
        let began = self.meter.monotonic_time();
        let answer = self.inner.purge_queues(now).await;
        self.record_operation("forget_queues", began, answer.is_ok(), 0);
        answer
    }

    async fn open_queue_feed(&self) -> Option<Box<dyn QueueFeed>> {
        self.inner.open_queue_feed().await
    }

    async fn acquire_leases(&self, queues: &[QueueKey], for_ms: u32) -> Result<Vec<bool>, StoreError> {
        self.inner.acquire_leases(queues, for_ms).await
    }

    async fn release_leases(&self, queues: &[QueueKey]) -> Result<(), StoreError> {
        self.inner.release_leases(queues).await
    }

    async fn report_connected_users(&self, mine: &[(SiloId, u32)]) -> Result<Vec<(SiloId, u32)>, StoreError> {
        self.inner.report_connected_users(mine).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::TicketId;
    use crate::store::WriteOutcome;
    use crate::store::memory::MemoryStore;
    use std::sync::Mutex;

    type RecordedCall = (&'static str, u64, bool, usize);

    /// Each reading is a second after the one before.
    #[derive(Default)]
    struct ObserverLog(Mutex<(u64, Vec<RecordedCall>)>);

    impl StoreObserver for Arc<ObserverLog> {
        fn monotonic_time(&self) -> Duration {
            let mut notes = self.0.lock().unwrap();
            notes.0 += 1;
            Duration::from_secs(notes.0)
        }

        fn on_operation(&self, verb: &'static str, took: Duration, ok: bool, rows: usize) {
            self.0.lock().unwrap().1.push((verb, took.as_secs(), ok, rows));
        }

        fn on_transaction(&self, name: &'static str, took: Duration) {
            self.0.lock().unwrap().1.push((name, took.as_secs(), true, 0));
        }
    }

    #[tokio::test]
    async fn every_verb_is_passed_on_and_told() {
        let notes = Arc::new(ObserverLog::default());
        let store = MeteredStore::new(Arc::new(MemoryStore::new()), Arc::clone(&notes));
        let id = AdvertisementId::from_bytes([1; 16]);
        let delete = AdvertWrite::Delete { advertisement_id: id, tombstone_until: UnixMs(9) };
        let committed = store.commit(&[delete.clone(), delete.clone()]).await.unwrap();
        assert_eq!(committed.outcomes, [WriteOutcome::Applied, WriteOutcome::Applied]);
        store
            .commit(&[delete, AdvertWrite::Expire { advertisement_id: id, now: UnixMs(1), expected_version: None }])
            .await
            .unwrap();
        assert_eq!(store.load_advertisements(UnixMs(1)).await.unwrap(), []);
        store.purge(UnixMs(1)).await.unwrap();
        store.close().await;
        let told = notes.0.lock().unwrap().1.clone();
        assert_eq!(
            told[..4],
            [("commit", 1, true, 2), ("delete", 1, true, 0), ("commit", 1, true, 2), ("several", 1, true, 0)]
        );
        assert_eq!(told[4..], [("load", 1, true, 0), ("forget", 1, true, 0), ("close", 1, true, 0)]);
    }

    #[tokio::test]
    async fn every_verb_of_queues_is_passed_on_and_told() {
        let notes = Arc::new(ObserverLog::default());
        let store = MeteredStore::new(Arc::new(MemoryStore::new()), Arc::clone(&notes));
        let id = TicketId::from_bytes([1; 16]);
        let beat = QueueWrite::Heartbeat { ticket_id: id, expires_at: UnixMs(2), now: UnixMs(1) };
        let rate = QueueWrite::ImportRatings { rows: vec![] };
        let outcomes = store.commit_queues(&[beat.clone(), rate]).await.unwrap();
        assert_eq!(outcomes, [QueueOutcome::TicketNotFound, QueueOutcome::RatingsImported]);
        store.commit_queues(&[beat]).await.unwrap();
        assert!(store.load_queues(UnixMs(1)).await.unwrap().tickets.is_empty());
        store.purge_queues(UnixMs(1)).await.unwrap();
        assert_eq!(store.read_match(MatchId::from_bytes([1; 16])).await.unwrap(), None);
        assert_eq!(store.report_connected_users(&[(SiloId(1), 2)]).await.unwrap(), [(SiloId(1), 2)]);
        let told = notes.0.lock().unwrap().1.clone();
        let commits = [("commit_queues", 1, true, 2), ("queues", 1, true, 0), ("commit_queues", 1, true, 1)];
        assert_eq!(told[..3], commits);
        assert_eq!(told[3..], [("beat", 1, true, 0), ("load_queues", 1, true, 0), ("forget_queues", 1, true, 0)]);
    }
}
