//! Commit of a batch with retries: repeats it after a write conflict, and resolves a commit whose answer was lost.

use std::future::Future;
use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::{PgConnection, PgDatabaseError, PgSeverity};
use sqlx::types::Uuid;
use tokio::time::Instant;

use crate::store::error::StoreError;
use crate::store::postgres::connection::resolve_commit;
use crate::store::postgres::connection::slot::{timeout_error, to_store_error};
use crate::store::postgres::connection::statements::NOT_NULL_VIOLATION;
use crate::store::postgres::connection::write_session::WriteSession;

/// Time limit of a batch, over all attempts. Clients get an error at most half a second later, within their limit of
/// 2.5 seconds.
const BATCH_TIMEOUT: Duration = Duration::from_millis(1_900);

/// Time limit of a notification after a commit; its caller is waiting.
const NOTIFY_TIMEOUT: Duration = Duration::from_millis(100);

/// Maximum number of attempts after write conflicts.
const ATTEMPTS_MAX: u32 = 8;

/// Failure of one attempt.
pub(in crate::store::postgres) enum CommitError {
    /// Another server changed a row first. Nothing was committed.
    WriteConflict,
    /// The batch cannot use the fast path. Nothing was committed.
    FastPathRejected,
    /// The attempt failed. Nothing was committed.
    Failed(StoreError),
    /// The batch may be committed; the answer is missing.
    OutcomeUnknown(String),
}

impl CommitError {
    /// Maps the error of a statement that is its own transaction. If the database reports a statement error, and not
    /// the end of the connection, the transaction was rolled back.
    pub(in crate::store::postgres) fn from_single_statement(error: sqlx::Error) -> Self {
        let database_error = error.as_database_error().and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
        match database_error {
            Some(reported) if reported.code() == NOT_NULL_VIOLATION => Self::FastPathRejected,
            Some(reported) if reported.severity() == PgSeverity::Error => error.into(),
            _ => Self::OutcomeUnknown(error.to_string()),
        }
    }
}

impl From<StoreError> for CommitError {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<sqlx::Error> for CommitError {
    fn from(error: sqlx::Error) -> Self {
        const LOCK_NOT_AVAILABLE: &str = "55P03";
        const DEADLOCK: &str = "40P01";
        const SERIALIZATION: &str = "40001";
        let code = error.as_database_error().and_then(|error| error.code());
        match code.as_deref() {
            Some(LOCK_NOT_AVAILABLE | DEADLOCK | SERIALIZATION) => Self::WriteConflict,
            _ => Self::Failed(to_store_error(error)),
        }
    }
}

/// Fails if fewer rows were inserted than expected: another server inserted the others first.
pub(in crate::store::postgres) fn check_row_count(inserted: u64, expected: usize) -> Result<(), CommitError> {
    if inserted == expected as u64 { Ok(()) } else { Err(CommitError::WriteConflict) }
}

/// One attempt to commit a batch.
pub(in crate::store::postgres) struct CommitAttempt {
    /// Id of the attempt, used to find or abandon it later.
    pub(in crate::store::postgres) attempt_id: Uuid,
    pub(in crate::store::postgres) replica_id: i64,
    /// Whether to notify the other servers.
    pub(in crate::store::postgres) notifies_replicas: bool,
}

/// Batch that was written.
pub(in crate::store::postgres) struct WrittenBatch<T> {
    pub(in crate::store::postgres) output: T,
    /// Whether the other servers have a change to read.
    pub(in crate::store::postgres) has_changes: bool,
}

/// Batch that [`commit_with_retries`] commits.
pub(in crate::store::postgres) trait RetryableTransaction: Send {
    /// Result of the batch.
    type Output: Send;

    /// Label of the transaction in logs and metrics.
    fn transaction_label(&self) -> &'static str;

    /// Number of writes.
    fn write_count(&self) -> usize;

    /// Whether an attempt is one statement that is its own transaction, without a separate commit.
    fn is_single_statement(&self) -> bool {
        false
    }

    /// Disables the fast path from the next attempt on.
    fn disable_fast_path(&mut self) {}

    /// Writes the batch without committing it.
    fn write(
        &self,
        connection: &mut PgConnection,
        attempt: &CommitAttempt,
    ) -> impl Future<Output = Result<WrittenBatch<Self::Output>, CommitError>> + Send;

    /// Reads the result of a committed single-statement batch whose answer was lost.
    fn read_committed_result(
        &self,
        session: &mut WriteSession,
        batch_id: Uuid,
    ) -> impl Future<Output = Result<Self::Output, StoreError>> + Send;
}

/// Whether the fail point is on that answers a client before the commit.
pub(in crate::store::postgres) fn fail_point_acknowledges_early() -> bool {
    fail::fail_point!("acknowledge_before_commit", |_| true);
    false
}

/// Commits a batch and returns its result. On an error it was not committed, or the outcome is unknown.
pub(in crate::store::postgres) async fn commit_with_retries<W: RetryableTransaction>(
    session: &mut WriteSession,
    mut work: W,
) -> Result<W::Output, StoreError> {
    let deadline = Instant::now() + BATCH_TIMEOUT;
    for _ in 0..ATTEMPTS_MAX {
        session.batch_count += 1;
        let batch_id = Uuid::from_u64_pair(session.replica_id.cast_unsigned(), session.batch_count);
        let notify = session.last_change.is_quiet();
        let attempt = CommitAttempt { attempt_id: batch_id, replica_id: session.replica_id, notifies_replicas: notify };
        #[cfg_attr(feature = "failpoints", expect(unused_mut, reason = "the connection is wrapped below"))]
        let mut connection = session.connection.take_connection().await?;
        #[cfg(feature = "failpoints")]
        let mut connection =
            crate::store::postgres::connection::fail_points::UncheckedPooledConnection(Some(connection));
        let is_single_statement = work.is_single_statement();
        let written = tokio::time::timeout_at(deadline, work.write(&mut connection, &attempt)).await;
        let written = written.unwrap_or_else(|_| Err(attempt_timeout_error(is_single_statement)));
        #[cfg(feature = "failpoints")]
        let mut connection = connection.into_inner();
        let (output, failure) = match written {
            #[cfg(feature = "failpoints")]
            Ok(written) if fail_point_acknowledges_early() => {
                crate::store::postgres::connection::fail_points::commit_later(connection);
                return Ok(written.output);
            }
            Ok(WrittenBatch { output, has_changes }) => {
                let sent = if is_single_statement { Ok(()) } else { send_commit(&mut connection, deadline).await };
                match sent {
                    Ok(()) => {
                        announce_commit(session, connection, has_changes, notify).await;
                        return Ok(output);
                    }
                    Err(failure) => (Some(output), failure),
                }
            }
            Err(CommitError::OutcomeUnknown(failure)) => (None, failure),
            Err(error @ (CommitError::WriteConflict | CommitError::FastPathRejected)) => {
                if !is_single_statement {
                    // A connection that does not answer the rollback is dropped.
                    let rolled_back = tokio::time::timeout_at(deadline, connection.execute("rollback")).await;
                    rolled_back.map_err(|_| timeout_error("a rollback", BATCH_TIMEOUT))?.map_err(to_store_error)?;
                }
                if matches!(error, CommitError::FastPathRejected) {
                    work.disable_fast_path();
                }
                session.connection.return_connection_if_ok(connection);
                continue;
            }
            Err(CommitError::Failed(error)) => {
                let (transaction, writes) = (work.transaction_label(), work.write_count());
                tracing::warn!(%error, transaction, writes, "transaction failed");
                return Err(error);
            }
        };
        drop(connection);
        let (transaction, writes) = (work.transaction_label(), work.write_count());
        tracing::warn!(failure, transaction, writes, "commit answer lost");
        return match (resolve_commit::resolve_commit(session, batch_id).await?, output) {
            (false, _) => Err(StoreError::Unavailable("postgres: the commit failed and nothing was written".into())),
            (true, Some(output)) => Ok(output),
            (true, None) => work.read_committed_result(session, batch_id).await,
        };
    }
    Err(StoreError::Unavailable(format!("postgres: {ATTEMPTS_MAX} attempts failed because of write conflicts; retry")))
}

/// Records a commit as the last known change. Notifies the other servers if the commit did not and took so long that they
/// may have stopped reading. A failed notification costs its connection, and the change is read at the next poll.
async fn announce_commit(
    session: &mut WriteSession,
    mut connection: PgConnection,
    has_changes: bool,
    has_notified: bool,
) {
    let mut is_usable = true;
    if has_changes {
        if !has_notified && session.last_change.is_quiet() {
            let notified = tokio::time::timeout(NOTIFY_TIMEOUT, connection.execute(session.statements.notify)).await;
            is_usable = matches!(notified, Ok(Ok(_)));
        }
        session.last_change.record_change();
    }
    if is_usable {
        session.connection.return_connection_if_ok(connection);
    }
}

/// Error for an attempt that timed out. A single statement may be committed; otherwise no commit was sent.
fn attempt_timeout_error(is_single_statement: bool) -> CommitError {
    if is_single_statement {
        CommitError::OutcomeUnknown("timed out".into())
    } else {
        timeout_error("writing a batch", BATCH_TIMEOUT).into()
    }
}

/// Commits the open transaction; on failure, returns the error text.
async fn send_commit(connection: &mut PgConnection, deadline: Instant) -> Result<(), String> {
    match tokio::time::timeout_at(deadline, connection.execute("commit")).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("timed out".into()),
    }
}
