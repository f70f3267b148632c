//! The queues of the store that forgets when the process ends.

use std::sync::{Arc, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry};
use crate::domain::time::UnixMs;
use crate::store::StoreError;
use crate::store::memory::MemoryStore;
use crate::store::queues::queue_rows::QueueRows;
use crate::store::queues::{FinishedMatch, QueueOutcome, QueueStore, QueueWrite, StoredQueueData};

/// The least name that a user can have.
const MIN_USER_KEY: UserKey = UserKey::from_bytes([0; 16]);

impl MemoryStore {
    /// A change cannot fail half-way, so what a panicking thread leaves behind is whole.
    fn lock_queues(&self) -> MutexGuard<'_, QueueRows> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl QueueStore for MemoryStore {
    async fn load_queues(&self, now: UnixMs) -> Result<StoredQueueData, StoreError> {
        let mut picture = self.lock_queues();
        picture.purge(now);
        let mut load = StoredQueueData {
            tickets: picture.tickets.values().cloned().collect(),
            matches: picture.matches.values().cloned().collect(),
            ratings: picture.ratings.values().copied().collect(),
        };
        load.tickets.sort_unstable_by_key(|stored| stored.ticket.id);
        load.matches.sort_unstable_by_key(|it| it.id);
        Ok(load)
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        Ok(self.lock_queues().apply_batch(batch))
    }

    async fn read_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
        Ok(self.lock_queues().matches.get(&id).cloned())
    }

    async fn read_match_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, StoreError> {
        Ok(self.lock_queues().results.get(&id).cloned())
    }

    async fn read_rating_changes(&self, user: UserKey, set_id: SetId) -> Result<Vec<RatingHistoryEntry>, StoreError> {
        let picture = self.lock_queues();
        let all = picture.rating_changes.range((user, set_id, 0)..=(user, set_id, u32::MAX));
        let mut all: Vec<RatingHistoryEntry> = all.map(|(_, change)| *change).collect();
        all.sort_unstable_by_key(|it| std::cmp::Reverse((it.reported_at, it.rated_match_number)));
        Ok(all)
    }

    async fn list_finished_matches(
        &self,
        after: (UnixMs, MatchId),
        most: usize,
    ) -> Result<Vec<FinishedMatch>, StoreError> {
        let picture = self.lock_queues();
        let mut all: Vec<&Arc<MatchResult>> = picture.results.values().collect();
        all.retain(|it| after < (it.reported_at, it.report.match_id));
        all.sort_unstable_by_key(|it| (it.reported_at, it.report.match_id));
        let finished = |result: &Arc<MatchResult>| {
            let id = result.report.match_id;
            let scores = picture.feedback.range((id, MIN_USER_KEY)..).take_while(|((of, _), _)| *of == id);
            let scores: Vec<u32> = scores.map(|(_, (score, _))| u32::from(*score)).collect();
            let count = u32::try_from(scores.len()).unwrap_or(u32::MAX);
            FinishedMatch { result: Arc::clone(result), feedback_count: count, star_sum: scores.iter().sum() }
        };
        Ok(all.into_iter().take(most).map(finished).collect())
    }

    async fn purge_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        self.lock_queues().purge(now);
        Ok(())
    }
}
