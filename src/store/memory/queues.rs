//! The queues of the store that forgets when the process ends.

use std::sync::{Arc, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::life::Match;
use crate::domain::result::{MatchResult, RatingChange};
use crate::domain::time::UnixMs;
use crate::store::StoreError;
use crate::store::memory::Memory;
use crate::store::queues::picture::Picture;
use crate::store::queues::{Finished, QueueLoad, QueueOutcome, QueueWrite, Queues};

/// The least name that a user can have.
const NOBODY: UserKey = UserKey::from_bytes([0; 16]);

impl Memory {
    /// A change cannot fail half-way, so what a panicking thread leaves behind is whole.
    fn queues(&self) -> MutexGuard<'_, Picture> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Queues for Memory {
    async fn load_queues(&self, now: UnixMs) -> Result<QueueLoad, StoreError> {
        let mut picture = self.queues();
        picture.forget(now);
        let mut load = QueueLoad {
            tickets: picture.tickets.values().cloned().collect(),
            matches: picture.matches.values().cloned().collect(),
            ratings: picture.ratings.values().copied().collect(),
        };
        load.tickets.sort_unstable_by_key(|stored| stored.ticket.id);
        load.matches.sort_unstable_by_key(|it| it.id);
        Ok(load)
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        Ok(self.queues().apply_all(batch))
    }

    async fn look_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
        Ok(self.queues().matches.get(&id).cloned())
    }

    async fn look_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, StoreError> {
        Ok(self.queues().results.get(&id).cloned())
    }

    async fn rating_changes(&self, user: UserKey, set_id: SetId) -> Result<Vec<RatingChange>, StoreError> {
        let picture = self.queues();
        let all = picture.changes.range((user, set_id, 0)..=(user, set_id, u32::MAX));
        let mut all: Vec<RatingChange> = all.map(|(_, change)| *change).collect();
        all.sort_unstable_by_key(|it| std::cmp::Reverse((it.at, it.number)));
        Ok(all)
    }

    async fn finished(&self, after: (UnixMs, MatchId), most: usize) -> Result<Vec<Finished>, StoreError> {
        let picture = self.queues();
        let mut all: Vec<&Arc<MatchResult>> = picture.results.values().collect();
        all.retain(|it| after < (it.reported, it.report.match_id));
        all.sort_unstable_by_key(|it| (it.reported, it.report.match_id));
        let finished = |result: &Arc<MatchResult>| {
            let id = result.report.match_id;
            let scores = picture.scores.range((id, NOBODY)..).take_while(|((of, _), _)| *of == id);
            let scores: Vec<u32> = scores.map(|(_, (score, _))| u32::from(*score)).collect();
            let count = u32::try_from(scores.len()).unwrap_or(u32::MAX);
            Finished { result: Arc::clone(result), scores: count, score_sum: scores.iter().sum() }
        };
        Ok(all.into_iter().take(most).map(finished).collect())
    }

    async fn forget_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        self.queues().forget(now);
        Ok(())
    }
}
