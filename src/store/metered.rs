//! A store around a store that counts and times each verb.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::domain::id::{AdvertisementId, MatchId, SetId, SiloId, UserKey};
use crate::domain::life::Match;
use crate::domain::result::{MatchResult, RatingChange};
use crate::domain::time::UnixMs;
use crate::store::queues::{self, Finished, QueueFeed, QueueKey, QueueLoad, QueueOutcome, QueueWrite, Queues};
use crate::store::{Committed, Feed, Store, StoreError, StoredAdvertisement, Write, transaction};

/// Who hears about each verb. Brings its own clock, so that the store has none.
pub trait Meter: Send + Sync + 'static {
    /// A clock that never runs backwards, from any start.
    fn elapsed(&self) -> Duration;

    /// `verb` is `load`, `commit`, `forget` or `close`, the first three with `_queues` where they are about those. `rows` are
    /// the changes of a commit, asked for or made, and what a load has read; 0 for the others, and for a load that failed.
    fn on_verb(&self, verb: &'static str, took: Duration, ok: bool, rows: usize);

    /// A commit, made or not, by its [`transaction`]'s name.
    fn on_transaction(&self, name: &'static str, took: Duration);
}

/// Passes every verb on, and tells its meter how it went, but for those of whoever compares, which serve no client. A verb
/// that its caller stopped waiting for is not told.
pub struct Metered<M> {
    inner: Arc<dyn Store>,
    meter: M,
}

impl<M: Meter> Metered<M> {
    /// Measures `inner`.
    pub fn new(inner: Arc<dyn Store>, meter: M) -> Self {
        Self { inner, meter }
    }

    fn tell(&self, verb: &'static str, began: Duration, ok: bool, rows: usize) -> Duration {
        let took = self.meter.elapsed().saturating_sub(began);
        self.meter.on_verb(verb, took, ok, rows);
        took
    }
}

#[async_trait]
impl<M: Meter> Store for Metered<M> {
    async fn load(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let began = self.meter.elapsed();
        let answer = self.inner.load(now).await;
        self.tell("load", began, answer.is_ok(), answer.as_ref().map_or(0, Vec::len));
        answer
    }

    async fn commit(&self, batch: &[Write]) -> Result<Committed, StoreError> {
        let began = self.meter.elapsed();
        let answer = self.inner.commit(batch).await;
        let took = self.tell("commit", began, answer.is_ok(), batch.len());
        self.meter.on_transaction(transaction(batch), took);
        answer
    }

    async fn forget(&self, now: UnixMs) -> Result<(), StoreError> {
        let began = self.meter.elapsed();
        let answer = self.inner.forget(now).await;
        self.tell("forget", began, answer.is_ok(), 0);
        answer
    }

    async fn look(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.inner.look(ids).await
    }

    async fn names(&self, first: AdvertisementId, most: usize) -> Result<Vec<AdvertisementId>, StoreError> {
        self.inner.names(first, most).await
    }

    async fn feed(&self) -> Option<Box<dyn Feed>> {
        self.inner.feed().await
    }

    async fn close(&self) {
        let began = self.meter.elapsed();
        self.inner.close().await;
        self.tell("close", began, true, 0);
    }
}

/// Leases and attendance are asked for every moment, by nobody who waits: they are passed on and not told.
#[async_trait]
impl<M: Meter> Queues for Metered<M> {
    async fn load_queues(&self, now: UnixMs) -> Result<QueueLoad, StoreError> {
        let began = self.meter.elapsed();
        let answer = self.inner.load_queues(now).await;
        let rows = answer.as_ref().map_or(0, |load| load.tickets.len() + load.matches.len() + load.ratings.len());
        self.tell("load_queues", began, answer.is_ok(), rows);
        answer
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        let began = self.meter.elapsed();
        let answer = self.inner.commit_queues(batch).await;
        let took = self.tell("commit_queues", began, answer.is_ok(), batch.len());
        self.meter.on_transaction(queues::transaction(batch), took);
        answer
    }

    async fn look_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
        self.inner.look_match(id).await
    }

    async fn look_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, StoreError> {
        self.inner.look_result(id).await
    }

    async fn rating_changes(&self, user: UserKey, set_id: SetId) -> Result<Vec<RatingChange>, StoreError> {
        self.inner.rating_changes(user, set_id).await
    }

    async fn finished(&self, after: (UnixMs, MatchId), most: usize) -> Result<Vec<Finished>, StoreError> {
        self.inner.finished(after, most).await
    }

    async fn forget_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        let began = self.meter.elapsed();
        let answer = self.inner.forget_queues(now).await;
        self.tell("forget_queues", began, answer.is_ok(), 0);
        answer
    }

    async fn queue_feed(&self) -> Option<Box<dyn QueueFeed>> {
        self.inner.queue_feed().await
    }

    async fn lease(&self, queues: &[QueueKey], for_ms: u32) -> Result<Vec<bool>, StoreError> {
        self.inner.lease(queues, for_ms).await
    }

    async fn release(&self, queues: &[QueueKey]) -> Result<(), StoreError> {
        self.inner.release(queues).await
    }

    async fn attend(&self, mine: &[(SiloId, u32)]) -> Result<Vec<(SiloId, u32)>, StoreError> {
        self.inner.attend(mine).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::TicketId;
    use crate::store::Outcome;
    use crate::store::memory::Memory;
    use std::sync::Mutex;

    type Told = (&'static str, u64, bool, usize);

    /// Each reading is a second after the one before.
    #[derive(Default)]
    struct Notes(Mutex<(u64, Vec<Told>)>);

    impl Meter for Arc<Notes> {
        fn elapsed(&self) -> Duration {
            let mut notes = self.0.lock().unwrap();
            notes.0 += 1;
            Duration::from_secs(notes.0)
        }

        fn on_verb(&self, verb: &'static str, took: Duration, ok: bool, rows: usize) {
            self.0.lock().unwrap().1.push((verb, took.as_secs(), ok, rows));
        }

        fn on_transaction(&self, name: &'static str, took: Duration) {
            self.0.lock().unwrap().1.push((name, took.as_secs(), true, 0));
        }
    }

    #[tokio::test]
    async fn every_verb_is_passed_on_and_told() {
        let notes = Arc::new(Notes::default());
        let store = Metered::new(Arc::new(Memory::new()), Arc::clone(&notes));
        let id = AdvertisementId::from_bytes([1; 16]);
        let delete = Write::Delete { id, tombstone_until: UnixMs(9) };
        let committed = store.commit(&[delete.clone(), delete.clone()]).await.unwrap();
        assert_eq!(committed.outcomes, [Outcome::Done, Outcome::Done]);
        store.commit(&[delete, Write::Expire { id, now: UnixMs(1), seen: None }]).await.unwrap();
        assert_eq!(store.load(UnixMs(1)).await.unwrap(), []);
        store.forget(UnixMs(1)).await.unwrap();
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
        let notes = Arc::new(Notes::default());
        let store = Metered::new(Arc::new(Memory::new()), Arc::clone(&notes));
        let id = TicketId::from_bytes([1; 16]);
        let beat = QueueWrite::Beat { id, expires: UnixMs(2), now: UnixMs(1) };
        let rate = QueueWrite::Rate { rows: vec![] };
        let outcomes = store.commit_queues(&[beat.clone(), rate]).await.unwrap();
        assert_eq!(outcomes, [QueueOutcome::Absent, QueueOutcome::Rated]);
        store.commit_queues(&[beat]).await.unwrap();
        assert!(store.load_queues(UnixMs(1)).await.unwrap().tickets.is_empty());
        store.forget_queues(UnixMs(1)).await.unwrap();
        assert_eq!(store.look_match(MatchId::from_bytes([1; 16])).await.unwrap(), None);
        assert_eq!(store.attend(&[(SiloId(1), 2)]).await.unwrap(), [(SiloId(1), 2)]);
        let told = notes.0.lock().unwrap().1.clone();
        let commits = [("commit_queues", 1, true, 2), ("queues", 1, true, 0), ("commit_queues", 1, true, 1)];
        assert_eq!(told[..3], commits);
        assert_eq!(told[3..], [("beat", 1, true, 0), ("load_queues", 1, true, 0), ("forget_queues", 1, true, 0)]);
    }
}
