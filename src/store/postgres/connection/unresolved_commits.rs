//! Commits of unknown outcome.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::types::Uuid;

/// Batches of this server with unknown outcome. The feed skips this server's own changes, but delivers these if they
/// were committed.
#[derive(Clone, Debug, Default)]
pub(in crate::store::postgres) struct UnresolvedCommits(Arc<Mutex<VecDeque<Uuid>>>);

/// Maximum number of batches kept; the oldest is dropped.
const UNRESOLVED_COMMITS_MAX: usize = 64;

impl UnresolvedCommits {
    pub(in crate::store::postgres) fn add(&self, batch_id: Uuid) {
        let mut batch_ids = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if batch_ids.len() == UNRESOLVED_COMMITS_MAX {
            batch_ids.pop_front();
        }
        batch_ids.push_back(batch_id);
    }

    /// Ids of the batches.
    pub(in crate::store::postgres) fn list(&self) -> Vec<Uuid> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}
