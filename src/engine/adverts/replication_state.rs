//! What a server knows of the others with which it shares a store: how fresh its picture is, and what must be read again.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::domain::id::{AdvertisementId, BuildIdHasher};
use crate::domain::time::UnixMs;

/// A picture that is not older than this is as fresh as any: the feed is read ten times a second.
const STALE_AFTER_MS: u64 = 1_000;

/// Shared by the writer, which changes memory, the feed's task, which reads, and whoever asks how fresh it all is.
#[derive(Debug, Default)]
pub(in crate::engine) struct ReplicationState {
    /// When the others were last heard of, and when a commit last failed, by the engine's clock.
    store_success_at: AtomicU64,
    store_failure_at: AtomicU64,
    /// Until when advertisements that others hold are believed in any case: the store was out of reach a moment ago.
    expiry_grace_until: AtomicU64,
    /// Batches that are in memory, one number each.
    applied_batches: AtomicU64,
    /// Advertisements that memory and store may differ about.
    adverts_to_reread: Mutex<BTreeSet<AdvertisementId>>,
    /// Advertisements that the store has yet to be told of.
    unwritten_count: AtomicUsize,
    /// How often the feed has come to the end of what there was to read, and handed it to the writer.
    completed_reads: watch::Sender<u64>,
}

impl ReplicationState {
    /// Notes that the store was heard at `now`.
    pub(in crate::engine) fn record_store_success(&self, now: UnixMs) {
        self.store_success_at.fetch_max(now.0, Ordering::AcqRel);
    }

    /// Notes that it failed at `now`.
    pub(in crate::engine) fn record_store_failure(&self, now: UnixMs) {
        self.store_failure_at.fetch_max(now.0, Ordering::AcqRel);
    }

    /// Whether the last thing that was heard of the store is that it failed.
    pub(in crate::engine) fn is_store_down(&self) -> bool {
        self.store_success_at.load(Ordering::Acquire) <= self.store_failure_at.load(Ordering::Acquire)
    }

    /// How old the picture is, where that is worth saying.
    pub(in crate::engine) fn staleness_ms(&self, now: UnixMs) -> Option<u64> {
        let age = now.ms_since(UnixMs(self.store_success_at.load(Ordering::Acquire)));
        (STALE_AFTER_MS < age).then_some(age)
    }

    /// Believes until `until` what others hold, whatever the store says of its expiry before they have written.
    pub(in crate::engine) fn extend_expiry_grace(&self, until: UnixMs) {
        self.expiry_grace_until.fetch_max(until.0, Ordering::AcqRel);
    }

    /// Until when that is.
    pub(in crate::engine) fn expiry_grace_until(&self) -> UnixMs {
        UnixMs(self.expiry_grace_until.load(Ordering::Acquire))
    }

    /// The last batch that is in memory.
    pub(in crate::engine) fn last_applied_batch(&self) -> u64 {
        self.applied_batches.load(Ordering::Acquire)
    }

    /// The next batch is in memory; says which it is.
    pub(in crate::engine) fn record_applied_batch(&self) -> u64 {
        self.applied_batches.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// All there was has been read and is with the writer.
    pub(in crate::engine) fn record_completed_read(&self) {
        self.completed_reads.send_modify(|readings| *readings += 1);
    }

    /// Waits until whatever was committed before now is with the writer.
    pub(in crate::engine) async fn wait_until_caught_up(&self) {
        let mut readings = self.completed_reads.subscribe();
        // The reading that is under way may have begun before now; the one after it has not.
        let enough = *readings.borrow() + 2;
        // It fails when the sender is gone, which is here.
        let _ = readings.wait_for(|readings| enough <= *readings).await;
    }

    /// Has `ids` read again.
    pub(in crate::engine) fn request_reread(&self, ids: impl IntoIterator<Item = AdvertisementId>) {
        self.adverts_to_reread.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
    }

    /// What is to be read again, to be given back if that fails.
    pub(in crate::engine) fn take_reread_requests(&self) -> Vec<AdvertisementId> {
        let mut again = self.adverts_to_reread.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *again).into_iter().collect()
    }

    /// Says how many advertisements the store has yet to be told of.
    pub(in crate::engine) fn set_unwritten_count(&self, count: usize) {
        self.unwritten_count.store(count, Ordering::Release);
    }

    /// How many there are.
    pub(in crate::engine) fn unwritten_count(&self) -> usize {
        self.unwritten_count.load(Ordering::Acquire)
    }
}

/// The batch that last changed each advertisement, for as long as some reading may have begun before it.
///
/// A reading says how an advertisement stood at some moment after batch `as_of` was in memory. If a later batch of this
/// server has changed it, nobody knows which of the two came first, and it is read again.
#[derive(Debug, Default)]
pub(in crate::engine) struct LocalChangeLog(HashMap<AdvertisementId, u64, BuildIdHasher>);

impl LocalChangeLog {
    /// Notes a change.
    pub(in crate::engine) fn record_change(&mut self, id: AdvertisementId, batch: u64) {
        self.0.insert(id, batch);
    }

    /// Whether a batch after `as_of` has changed `id`.
    pub(in crate::engine) fn changed_after(&self, id: AdvertisementId, as_of: u64) -> bool {
        self.0.get(&id).is_some_and(|batch| as_of < *batch)
    }

    /// No reading will come any more that began before batch `as_of` was in memory.
    pub(in crate::engine) fn purge_through(&mut self, as_of: u64) {
        self.0.retain(|_, batch| as_of < *batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staleness_grows_until_the_store_is_read() {
        let sharing = ReplicationState::default();
        sharing.record_store_success(UnixMs(10_000));
        assert_eq!(sharing.staleness_ms(UnixMs(11_000)), None);
        assert_eq!(sharing.staleness_ms(UnixMs(12_500)), Some(2_500));
        sharing.record_store_failure(UnixMs(12_600));
        assert!(sharing.is_store_down());
        sharing.record_store_success(UnixMs(12_700));
        assert!(!sharing.is_store_down());
    }

    #[test]
    fn local_change_log_reports_changes_after_a_batch() {
        let (one, other) = (AdvertisementId::from_bytes([1; 16]), AdvertisementId::from_bytes([2; 16]));
        let mut recent = LocalChangeLog::default();
        recent.record_change(one, 5);
        assert!(recent.changed_after(one, 4) && !recent.changed_after(one, 5) && !recent.changed_after(other, 0));
        recent.purge_through(5);
        assert!(!recent.changed_after(one, 4));
    }
}
