//! The queues of the store that forgets when the process ends.

use std::sync::{Arc, MutexGuard, PoisonError};

use async_trait::async_trait;

use crate::domain::id::MatchId;
use crate::domain::life::Match;
use crate::domain::time::UnixMs;
use crate::store::StoreError;
use crate::store::memory::Memory;
use crate::store::queues::picture::Picture;
use crate::store::queues::{QueueLoad, QueueOutcome, QueueWrite, Queues};

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

    async fn forget_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        self.queues().forget(now);
        Ok(())
    }
}
