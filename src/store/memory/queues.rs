//! Queues of the in-memory store.

use std::sync::{Arc, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::domain::id::{MatchId, RatingKey, TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry};
use crate::domain::ruleset::rating::defaults::OwnRatingKeys;
use crate::domain::time::UnixMs;
use crate::store::error::StoreError;
use crate::store::memory::MemoryStore;
use crate::store::queues::first_scale::FirstRatingScaleOfSet;
use crate::store::queues::queue_rows::QueueRows;
use crate::store::queues::{
    FinishedMatch, QueueOutcome, QueueStore, QueueWrite, StoredQueueData, StoredTicket, UserTicketsMatchAndPenalties,
};

/// Smallest possible user key.
const MIN_USER_KEY: UserKey = UserKey::from_bytes([0; 16]);

impl MemoryStore {
    /// A write cannot fail halfway, so the rows are consistent even after a panic of another thread.
    pub(super) fn lock_queues(&self) -> MutexGuard<'_, QueueRows> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl QueueStore for MemoryStore {
    async fn purge_and_load_queues(&self, now: UnixMs) -> Result<StoredQueueData, StoreError> {
        let mut rows = self.lock_queues();
        rows.purge(now);
        let mut data = StoredQueueData {
            tickets: rows.tickets.values().cloned().collect(),
            matches: rows.matches.values().cloned().collect(),
            ratings: rows.ratings.values().copied().collect(),
            block_lists: rows.block_lists.values().cloned().collect(),
        };
        data.tickets.sort_unstable_by_key(|stored| stored.ticket.id);
        data.matches.sort_unstable_by_key(|found| found.id);
        Ok(data)
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        Ok(self.lock_queues().apply_batch(batch))
    }

    async fn read_ticket(&self, id: TicketId) -> Result<Option<StoredTicket>, StoreError> {
        Ok(self.lock_queues().tickets.get(&id).cloned())
    }

    async fn read_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
        Ok(self.lock_queues().matches.get(&id).cloned())
    }

    async fn read_match_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, StoreError> {
        Ok(self.lock_queues().results.get(&id).cloned())
    }

    async fn record_first_scales(&self, current: &[OwnRatingKeys]) -> Result<Vec<FirstRatingScaleOfSet>, StoreError> {
        let mut rows = self.lock_queues();
        let record = |keys: &OwnRatingKeys| {
            *rows
                .first_scales
                .entry(keys.set_id)
                .or_insert_with(|| FirstRatingScaleOfSet::of_unrecorded_set(keys, false))
        };
        Ok(current.iter().map(record).collect())
    }

    async fn read_tickets_match_and_penalties(
        &self,
        user: UserKey,
    ) -> Result<UserTicketsMatchAndPenalties, StoreError> {
        Ok(self.lock_queues().tickets_match_and_penalties(user))
    }

    async fn read_rating_changes(&self, user: UserKey, key: RatingKey) -> Result<Vec<RatingHistoryEntry>, StoreError> {
        let rows = self.lock_queues();
        let history = rows.rating_changes.range((user, key, 0)..=(user, key, u32::MAX));
        let mut entries: Vec<RatingHistoryEntry> = history.map(|(_, entry)| *entry).collect();
        entries.sort_unstable_by_key(|entry| std::cmp::Reverse((entry.reported_at, entry.rated_match_number)));
        Ok(entries)
    }

    async fn list_finished_matches(
        &self,
        after: (UnixMs, MatchId),
        limit: usize,
    ) -> Result<Vec<FinishedMatch>, StoreError> {
        let rows = self.lock_queues();
        let mut results: Vec<&Arc<MatchResult>> = rows.results.values().collect();
        results.retain(|result| (result.reported_at, result.report.match_id) > after);
        results.sort_unstable_by_key(|result| (result.reported_at, result.report.match_id));
        let finished_match = |result: &Arc<MatchResult>| {
            let match_id = result.report.match_id;
            let feedback = rows.feedback.range((match_id, MIN_USER_KEY)..).take_while(|((id, _), _)| *id == match_id);
            let stars: Vec<u32> = feedback.map(|(_, (stars, _))| u32::from(*stars)).collect();
            let feedback_count = u32::try_from(stars.len()).unwrap_or(u32::MAX);
            FinishedMatch { result: Arc::clone(result), feedback_count, feedback_sum: stars.iter().sum() }
        };
        Ok(results.into_iter().take(limit).map(finished_match).collect())
    }

    async fn purge_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        self.lock_queues().purge(now);
        Ok(())
    }
}
