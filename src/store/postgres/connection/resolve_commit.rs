//! Resolution of a commit whose answer was lost: finds out whether the batch was committed.

use std::time::Duration;

use sqlx::types::Uuid;
use tokio::time::Instant;

use crate::store::error::StoreError;
use crate::store::postgres::connection::slot::{ConnectionSlot, query_within, timeout_error};
use crate::store::postgres::connection::write_session::WriteSession;

/// Time limit for the resolution; clients are waiting.
const RESOLVE_TIMEOUT: Duration = Duration::from_millis(500);

/// Delay between attempts.
const RETRY_DELAY: Duration = Duration::from_millis(20);

/// Returns whether batch `batch_id` was committed. If not, it never will be: its id in the change table is taken, so a
/// transaction that is still running fails. The insert waits for such a transaction.
pub(in crate::store::postgres) async fn resolve_commit(
    session: &mut WriteSession,
    batch_id: Uuid,
) -> Result<bool, StoreError> {
    fail::fail_point!("assume_not_committed", |_| Ok(false));
    let deadline = Instant::now() + RESOLVE_TIMEOUT;
    let (replica_id, statement) = (session.replica_id, session.statements.abandon_batch);
    loop {
        // Connecting counts too: a database that does not answer uses up the time limit.
        let attempt = abandon_or_find_committed(&mut session.connection, statement, batch_id, replica_id);
        let resolved = tokio::time::timeout_at(deadline, attempt).await;
        match resolved.unwrap_or_else(|_| Err(timeout_error("resolving a commit", RESOLVE_TIMEOUT))) {
            Ok(is_committed) => return Ok(is_committed),
            Err(error) if Instant::now() >= deadline => {
                tracing::error!(%error, %batch_id, "commit outcome unknown; resolution failed");
                session.unresolved_commits.add(batch_id);
                return Err(timeout_error("resolving a commit", RESOLVE_TIMEOUT));
            }
            // The statement waited for that transaction until its timeout, or the database is unreachable.
            Err(_) => tokio::time::sleep(RETRY_DELAY).await,
        }
    }
}

async fn abandon_or_find_committed(
    slot: &mut ConnectionSlot,
    statement: &'static str,
    batch_id: Uuid,
    replica_id: i64,
) -> Result<bool, StoreError> {
    let result = query_within!(slot, RESOLVE_TIMEOUT, "resolving a commit", |connection| {
        sqlx::query(statement).bind(batch_id).bind(replica_id).execute(&mut *connection)
    })?;
    Ok(result.rows_affected() == 0)
}
