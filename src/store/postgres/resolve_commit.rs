//! Finds out what became of a commit that was sent and not answered.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::types::Uuid;
use tokio::time::Instant;

use crate::store::postgres::WriteSession;
use crate::store::postgres::connection::{ConnectionSlot, ask, timeout_error};
use crate::store::{StoreError, mutant};

/// Batches of this server that nobody knows the fate of. Its own changes are not news to it, but these are, should they
/// turn up.
#[derive(Clone, Debug, Default)]
pub(super) struct UnresolvedCommits(Arc<Mutex<VecDeque<Uuid>>>);

/// So many of them are kept, the latest.
const UNRESOLVED_COMMITS_MAX: usize = 64;

impl UnresolvedCommits {
    fn add(&self, batch_id: Uuid) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == UNRESOLVED_COMMITS_MAX {
            all.pop_front();
        }
        all.push_back(batch_id);
    }

    /// All of them.
    pub(super) fn list(&self) -> Vec<Uuid> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}

/// How long to ask. Clients are waiting.
const RESOLVE_TIMEOUT: Duration = Duration::from_millis(500);

/// Between one asking and the next.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Whether batch `batch_id` has been committed. If not, it never will be: its name in `change`, or `queue_change`, is taken, and whatever is
/// left of its transaction fails by it. The insert waits for a transaction that is still on its way.
pub(super) async fn resolve_commit(desk: &mut WriteSession, batch_id: Uuid) -> Result<bool, StoreError> {
    if mutant::is("settle_by_guessing") {
        return Ok(false);
    }
    let end = Instant::now() + RESOLVE_TIMEOUT;
    let (replica, statement) = (desk.replica_id, desk.abandon_statement);
    loop {
        // Connecting counts as well: a database that is silent takes as long to say so as it is given.
        let answer =
            tokio::time::timeout_at(end, abandon_or_find_committed(&mut desk.connection, statement, batch_id, replica))
                .await;
        match answer.unwrap_or_else(|_| Err(timeout_error("settling a commit", RESOLVE_TIMEOUT))) {
            Ok(is_committed) => return Ok(is_committed),
            Err(error) if end <= Instant::now() => {
                tracing::error!(%error, transaction = "settle", "nobody knows what became of a commit");
                desk.unresolved_commits.add(batch_id);
                return Err(timeout_error("settling a commit", RESOLVE_TIMEOUT));
            }
            // It waited for that very transaction longer than any statement may, or nobody is there.
            Err(_) => tokio::time::sleep(RETRY_DELAY).await,
        }
    }
}

async fn abandon_or_find_committed(
    line: &mut ConnectionSlot,
    statement: &'static str,
    batch_id: Uuid,
    replica: i64,
) -> Result<bool, StoreError> {
    let done = ask!(line, RESOLVE_TIMEOUT, "settling a commit", |connection| sqlx::query(statement)
        .bind(batch_id)
        .bind(replica)
        .execute(&mut *connection))?;
    Ok(done.rows_affected() == 0)
}
