//! Batch of counts that the store may not have yet.

use parking_lot::Mutex;

use crate::clock::Clock;
use crate::domain::time::UnixMs;
use crate::engine::statistics::pending_counts::PendingCounts;
use crate::store::statistics::{STATISTICS_HOUR_MS, STATISTICS_INCREMENTS_PER_BATCH_MAX, StatisticsBatch};

/// The next batch, which is repeated with its number until the store has it, and the numbers of batches.
#[derive(Debug, Default)]
pub(super) struct UnsavedBatch {
    /// Random id of this process; drawn with the first batch.
    writer_id: Option<[u8; 16]>,
    last_number: u64,
    batch: Option<StatisticsBatch>,
    /// Time of the last purge, or of the first call.
    purged_at: Option<UnixMs>,
    /// The last purge has left rows to purge.
    must_continue_purge: bool,
}

impl UnsavedBatch {
    /// Batch to add next. `None` without counts, unless rows must be purged: once an hour, and as long as a purge leaves some.
    /// The first batch with counts purges, too, for servers that are restarted often. Without `may_purge` none does.
    pub(super) fn next(
        &mut self,
        pending: &Mutex<PendingCounts>,
        clock: &dyn Clock,
        may_purge: bool,
    ) -> Option<&StatisticsBatch> {
        if self.batch.is_none() {
            let now = clock.now();
            let increments = pending.lock().take(STATISTICS_INCREMENTS_PER_BATCH_MAX);
            let since_purge_ms = now.ms_since(*self.purged_at.get_or_insert(now));
            let must_purge = may_purge && (self.must_continue_purge || STATISTICS_HOUR_MS <= since_purge_ms);
            if increments.is_empty() && !must_purge {
                return None;
            }
            let purges = must_purge || self.last_number == 0;
            if purges {
                self.purged_at = Some(now);
            }
            let writer = *self.writer_id.get_or_insert_with(|| clock.random_bytes());
            self.last_number += 1;
            self.batch = Some(StatisticsBatch { writer, number: self.last_number, increments, purges, now });
        }
        self.batch.as_ref()
    }

    /// The store has the batch. `must_continue_purge`: it has more rows to purge.
    pub(super) fn mark_saved(&mut self, must_continue_purge: bool) {
        if self.batch.take().is_some_and(|batch| batch.purges) {
            self.must_continue_purge = must_continue_purge;
        }
    }
}
