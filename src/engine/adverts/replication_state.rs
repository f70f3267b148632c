//! Replication state of a replica that shares its store: applied batches, expiry grace and rows to read again.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

use crate::domain::id::{AdvertisementId, BuildIdHasher};
use crate::domain::time::UnixMs;
use crate::engine::store_health::StoreHealth;

/// Shared by the writer, the feed listener and the expiry sweep.
#[derive(Debug, Default)]
pub(crate) struct ReplicationState {
    /// Health of the store, which the queues share.
    pub(crate) store_health: Arc<StoreHealth>,
    /// Time until which other replicas' advertisements do not expire here, because of a recent outage.
    expiry_grace_until: AtomicU64,
    /// Number of batches applied to memory.
    applied_batches: AtomicU64,
    /// Advertisements that may differ between memory and store.
    adverts_to_reread: Mutex<BTreeSet<AdvertisementId>>,
    /// Number of advertisements not yet written to the store.
    unwritten_count: AtomicUsize,
    /// Number of times that the feed was read to its end and handed to the writer.
    completed_reads: watch::Sender<u64>,
}

impl ReplicationState {
    /// State of a replica that has not read the store yet.
    pub(crate) fn new(store_health: Arc<StoreHealth>) -> Self {
        Self { store_health, ..Self::default() }
    }

    /// Extends the grace period during which other replicas' advertisements do not expire here.
    pub(crate) fn extend_expiry_grace(&self, until: UnixMs) {
        self.expiry_grace_until.fetch_max(until.0, Ordering::AcqRel);
    }

    /// End of the grace period.
    pub(crate) fn expiry_grace_until(&self) -> UnixMs {
        UnixMs(self.expiry_grace_until.load(Ordering::Acquire))
    }

    /// Number of the last batch applied to memory.
    pub(crate) fn applied_batch_count(&self) -> u64 {
        self.applied_batches.load(Ordering::Acquire)
    }

    /// Counts an applied batch and returns its number.
    pub(crate) fn count_applied_batch(&self) -> u64 {
        self.applied_batches.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Records that the feed was read to its end and handed to the writer.
    pub(crate) fn record_completed_read(&self) {
        self.completed_reads.send_modify(|reads| *reads += 1);
    }

    /// Waits until all commits made before this call are with the writer.
    pub(crate) async fn wait_until_caught_up(&self) {
        let mut reads = self.completed_reads.subscribe();
        // The read in progress may have begun before this call; the next one has not.
        let target = *reads.borrow() + 2;
        // Fails only if the sender is dropped, and `self` holds it.
        let _ = reads.wait_for(|reads| *reads >= target).await;
    }

    /// Requests that `ids` are read again.
    pub(crate) fn request_reread(&self, ids: impl IntoIterator<Item = AdvertisementId>) {
        self.adverts_to_reread.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
    }

    /// Takes the requested ids; the caller must request them again if the read fails.
    pub(crate) fn take_reread_requests(&self) -> Vec<AdvertisementId> {
        let mut requested = self.adverts_to_reread.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *requested).into_iter().collect()
    }

    /// Sets the number of unwritten advertisements.
    pub(crate) fn set_unwritten_count(&self, count: usize) {
        self.unwritten_count.store(count, Ordering::Release);
    }

    /// Number of unwritten advertisements.
    pub(crate) fn unwritten_count(&self) -> usize {
        self.unwritten_count.load(Ordering::Acquire)
    }
}

/// Last local batch that changed each advertisement, while a read may have begun before that batch.
///
/// A read shows an advertisement at some moment after batch `as_of_batch`. If a later local batch changed it, the order of
/// the two is unknown, and it is read again.
#[derive(Debug, Default)]
pub(crate) struct LastLocalBatchByAdvert(HashMap<AdvertisementId, u64, BuildIdHasher>);

impl LastLocalBatchByAdvert {
    pub(crate) fn record_change(&mut self, id: AdvertisementId, batch: u64) {
        self.0.insert(id, batch);
    }

    /// Whether a batch after `as_of_batch` changed `id`.
    pub(crate) fn has_changed_after(&self, id: AdvertisementId, as_of_batch: u64) -> bool {
        self.0.get(&id).is_some_and(|batch| *batch > as_of_batch)
    }

    /// Drops entries up to batch `as_of_batch`; no older read is in progress.
    pub(crate) fn purge_through(&mut self, as_of_batch: u64) {
        self.0.retain(|_, batch| *batch > as_of_batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_change_log_reports_changes_after_a_batch() {
        let (changed, unchanged) = (AdvertisementId::from_bytes([1; 16]), AdvertisementId::from_bytes([2; 16]));
        let mut local_changes = LastLocalBatchByAdvert::default();
        local_changes.record_change(changed, 5);
        assert!(
            local_changes.has_changed_after(changed, 4)
                && !local_changes.has_changed_after(changed, 5)
                && !local_changes.has_changed_after(unchanged, 0)
        );
        local_changes.purge_through(5);
        assert!(!local_changes.has_changed_after(changed, 4));
    }
}
