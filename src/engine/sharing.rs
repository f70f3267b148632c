//! What a server knows of the others with which it shares a store: how fresh its picture is, and what must be read again.

use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::domain::id::{AdvertisementId, IdState};
use crate::domain::time::UnixMs;

/// A picture that is not older than this is as fresh as any: the feed is read ten times a second.
const FRESH_MS: u64 = 1_000;

/// Shared by the writer, which changes memory, the feed's task, which reads, and whoever asks how fresh it all is.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    /// When the others were last heard of, and when a commit last failed, by the engine's clock.
    heard_at: AtomicU64,
    failed_at: AtomicU64,
    /// Until when advertisements that others hold are believed in any case: the store was out of reach a moment ago.
    borne_until: AtomicU64,
    /// Batches that are in memory, one number each.
    batches: AtomicU64,
    /// Advertisements that memory and store may differ about.
    again: Mutex<BTreeSet<AdvertisementId>>,
    /// Advertisements that the store has yet to be told of.
    pending: AtomicUsize,
    /// How often the feed has come to the end of what there was to read, and handed it to the writer.
    readings: watch::Sender<u64>,
}

impl Sharing {
    /// Notes that the store was heard at `now`.
    pub(super) fn heard(&self, now: UnixMs) {
        self.heard_at.fetch_max(now.0, Ordering::AcqRel);
    }

    /// Notes that it failed at `now`.
    pub(super) fn failed(&self, now: UnixMs) {
        self.failed_at.fetch_max(now.0, Ordering::AcqRel);
    }

    /// Whether the last thing that was heard of the store is that it failed.
    pub(super) fn is_down(&self) -> bool {
        self.heard_at.load(Ordering::Acquire) <= self.failed_at.load(Ordering::Acquire)
    }

    /// How old the picture is, where that is worth saying.
    pub(super) fn stale_for_ms(&self, now: UnixMs) -> Option<u64> {
        let age = now.since(UnixMs(self.heard_at.load(Ordering::Acquire)));
        (FRESH_MS < age).then_some(age)
    }

    /// Believes until `until` what others hold, whatever the store says of its expiry before they have written.
    pub(super) fn bear(&self, until: UnixMs) {
        self.borne_until.fetch_max(until.0, Ordering::AcqRel);
    }

    /// Until when that is.
    pub(super) fn borne_until(&self) -> UnixMs {
        UnixMs(self.borne_until.load(Ordering::Acquire))
    }

    /// The last batch that is in memory.
    pub(super) fn batches(&self) -> u64 {
        self.batches.load(Ordering::Acquire)
    }

    /// The next batch is in memory; says which it is.
    pub(super) fn applied(&self) -> u64 {
        self.batches.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// All there was has been read and is with the writer.
    pub(super) fn has_read(&self) {
        self.readings.send_modify(|readings| *readings += 1);
    }

    /// Waits until whatever was committed before now is with the writer.
    pub(super) async fn caught_up(&self) {
        let mut readings = self.readings.subscribe();
        // The reading that is under way may have begun before now; the one after it has not.
        let enough = *readings.borrow() + 2;
        // It fails when the sender is gone, which is here.
        let _ = readings.wait_for(|readings| enough <= *readings).await;
    }

    /// Has `ids` read again.
    pub(super) fn read_again(&self, ids: impl IntoIterator<Item = AdvertisementId>) {
        self.again.lock().unwrap_or_else(PoisonError::into_inner).extend(ids);
    }

    /// What is to be read again, to be given back if that fails.
    pub(super) fn take_again(&self) -> Vec<AdvertisementId> {
        let mut again = self.again.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *again).into_iter().collect()
    }

    /// Says how many advertisements the store has yet to be told of.
    pub(super) fn set_pending(&self, count: usize) {
        self.pending.store(count, Ordering::Release);
    }

    /// How many there are.
    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }
}

/// The batch that last changed each advertisement, for as long as some reading may have begun before it.
///
/// A reading says how an advertisement stood at some moment after batch `as_of` was in memory. If a later batch of this
/// server has changed it, nobody knows which of the two came first, and it is read again.
#[derive(Debug, Default)]
pub(super) struct Recent(HashMap<AdvertisementId, u64, IdState>);

impl Recent {
    /// Notes a change.
    pub(super) fn note(&mut self, id: AdvertisementId, batch: u64) {
        self.0.insert(id, batch);
    }

    /// Whether a batch after `as_of` has changed `id`.
    pub(super) fn is_newer(&self, id: AdvertisementId, as_of: u64) -> bool {
        self.0.get(&id).is_some_and(|batch| as_of < *batch)
    }

    /// No reading will come any more that began before batch `as_of` was in memory.
    pub(super) fn forget(&mut self, as_of: u64) {
        self.0.retain(|_, batch| as_of < *batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_ages_until_something_is_heard() {
        let sharing = Sharing::default();
        sharing.heard(UnixMs(10_000));
        assert_eq!(sharing.stale_for_ms(UnixMs(11_000)), None);
        assert_eq!(sharing.stale_for_ms(UnixMs(12_500)), Some(2_500));
        sharing.failed(UnixMs(12_600));
        assert!(sharing.is_down());
        sharing.heard(UnixMs(12_700));
        assert!(!sharing.is_down());
    }

    #[test]
    fn what_a_later_batch_has_changed_is_newer() {
        let (one, other) = (AdvertisementId::from_bytes([1; 16]), AdvertisementId::from_bytes([2; 16]));
        let mut recent = Recent::default();
        recent.note(one, 5);
        assert!(recent.is_newer(one, 4) && !recent.is_newer(one, 5) && !recent.is_newer(other, 0));
        recent.forget(5);
        assert!(!recent.is_newer(one, 4));
    }
}
