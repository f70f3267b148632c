//! The queues of the store that several servers share.

use std::sync::Arc;

use async_trait::async_trait;

use crate::domain::id::MatchId;
use crate::domain::life::Match;
use crate::domain::time::UnixMs;
use crate::store::StoreError;
use crate::store::postgres::Postgres;
use crate::store::queues::{QueueLoad, QueueOutcome, QueueWrite, Queues};

fn not_yet<T>() -> Result<T, StoreError> {
    Err(StoreError::Unavailable("postgres keeps no queues yet".into()))
}

#[async_trait]
impl Queues for Postgres {
    async fn load_queues(&self, _: UnixMs) -> Result<QueueLoad, StoreError> {
        not_yet()
    }

    async fn commit_queues(&self, _: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        not_yet()
    }

    async fn look_match(&self, _: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
        not_yet()
    }

    async fn forget_queues(&self, _: UnixMs) -> Result<(), StoreError> {
        not_yet()
    }
}
