//! Commits a batch of whatever kind: tries, tries again where another server was quicker, and finds out what became of a
//! commit that was not answered.

use std::future::Future;
use std::time::Duration;

use sqlx::Executor;
use sqlx::postgres::{PgConnection, PgDatabaseError, PgSeverity};
use sqlx::types::Uuid;
use tokio::time::Instant;

use crate::store::StoreError;
#[cfg(feature = "mutants")]
use crate::store::mutant;
use crate::store::postgres::connection::{timeout_error, to_store_error};
use crate::store::postgres::{WriteSession, resolve_commit, statements as sql};

/// What a batch may take, all attempts together; clients are told within half a second more, and so within the 2.5 seconds
/// of R6.
const COMMIT_TIMEOUT: Duration = Duration::from_millis(1_900);

/// How often a batch begins again because another server was quicker.
const ATTEMPTS_MAX: u32 = 8;

/// Other servers are told of a change at once, but not more often than this; the rest they find when they next look.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(100);

/// When the others were last told that there is something new. Telling takes a lock that all commits of the database
/// share, so it is not done for each.
#[derive(Debug, Default)]
pub(super) struct NotifyThrottle {
    last_notified: Option<Instant>,
}

impl NotifyThrottle {
    fn should_notify(&mut self) -> bool {
        let now = Instant::now();
        let may = self.last_notified.is_none_or(|rung| NOTIFY_INTERVAL <= now.duration_since(rung));
        if may {
            self.last_notified = Some(now);
        }
        may
    }
}

/// Why an attempt came to nothing.
pub(super) enum CommitError {
    /// Another server was quicker. Nothing has happened.
    WriteConflict,
    /// It has to be decided in code.
    FastPathRejected,
    /// It failed. Nothing has happened.
    Failed(StoreError),
    /// It may be committed, and nobody has said so.
    OutcomeUnknown(String),
}

impl CommitError {
    /// What the failure of a statement means that was a transaction by itself. Once the database has called it an error,
    /// and not the end of the connection, it has been taken back.
    pub(super) fn from_single_statement(error: sqlx::Error) -> Self {
        let said = error.as_database_error().and_then(|it| it.try_downcast_ref::<PgDatabaseError>());
        match said {
            Some(said) if said.code() == sql::NOT_NULL_VIOLATION => Self::FastPathRejected,
            Some(said) if said.severity() == PgSeverity::Error => error.into(),
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
        let code = error.as_database_error().and_then(|it| it.code());
        match code.as_deref() {
            Some(LOCK_NOT_AVAILABLE | DEADLOCK | SERIALIZATION) => Self::WriteConflict,
            _ => Self::Failed(to_store_error(error)),
        }
    }
}

/// Fewer rows made than wanted: another server made the others a moment ago.
pub(super) fn check_row_count(made: u64, wanted: usize) -> Result<(), CommitError> {
    if made == wanted as u64 { Ok(()) } else { Err(CommitError::WriteConflict) }
}

/// One try at a batch.
pub(super) struct CommitAttempt {
    /// Its name, by which it can be looked for, and given up.
    pub(super) batch_id: Uuid,
    pub(super) replica_id: i64,
    /// The others are told.
    pub(super) notify: bool,
}

/// A batch of changes.
pub(super) trait BatchWork: Send {
    /// What it answers.
    type Output: Send;

    /// What operators know it by.
    fn transaction_label(&self) -> &'static str;

    /// How many changes it is.
    fn write_count(&self) -> usize;

    /// Whether a try is a transaction by itself, with nothing to commit after it.
    fn is_single_statement(&self) -> bool {
        false
    }

    /// Makes it one that is decided in code, from the next try on.
    fn disable_fast_path(&mut self) {}

    /// Everything but `commit`.
    fn write(
        &self,
        connection: &mut PgConnection,
        attempt: &CommitAttempt,
    ) -> impl Future<Output = Result<Self::Output, CommitError>> + Send;

    /// What a batch has answered that was a transaction by itself, is committed, and was not heard.
    fn read_committed_result(
        &self,
        desk: &mut WriteSession,
        batch_id: Uuid,
    ) -> impl Future<Output = Result<Self::Output, StoreError>> + Send;
}

/// Makes all changes and answers each. On an error none has happened, or nobody knows.
pub(super) async fn commit_with_retries<W: BatchWork>(
    desk: &mut WriteSession,
    mut work: W,
) -> Result<W::Output, StoreError> {
    let end = Instant::now() + COMMIT_TIMEOUT;
    for _ in 0..ATTEMPTS_MAX {
        desk.batch_count += 1;
        let batch_id = Uuid::from_u64_pair(desk.replica_id.cast_unsigned(), desk.batch_count);
        let attempt =
            CommitAttempt { batch_id, replica_id: desk.replica_id, notify: desk.notify_throttle.should_notify() };
        #[cfg_attr(feature = "mutants", expect(unused_mut, reason = "it is wrapped"))]
        let mut connection = desk.connection.take_connection().await?;
        #[cfg(feature = "mutants")]
        let mut connection = super::mutant::Pooled(Some(connection));
        let whole = work.is_single_statement();
        let made = tokio::time::timeout_at(end, work.write(&mut connection, &attempt)).await;
        let made = made.unwrap_or_else(|_| match whole {
            true => Err(CommitError::OutcomeUnknown("it took too long".into())),
            false => Err(timeout_error("a commit", COMMIT_TIMEOUT).into()),
        });
        #[cfg(feature = "mutants")]
        let mut connection = connection.whole();
        let (known, heard) = match made {
            #[cfg(feature = "mutants")]
            Ok(done) if mutant::is("acknowledge_before_commit") => {
                super::mutant::commit_later(connection);
                return Ok(done);
            }
            Ok(done) => {
                let sent = if whole { Ok(()) } else { send_commit(&mut connection, end).await };
                match sent {
                    Ok(()) => {
                        desk.connection.return_connection(connection);
                        return Ok(done);
                    }
                    Err(heard) => (Some(done), heard),
                }
            }
            Err(CommitError::OutcomeUnknown(heard)) => (None, heard),
            Err(trouble @ (CommitError::WriteConflict | CommitError::FastPathRejected)) => {
                if !whole {
                    // A connection that does not answer this either is thrown away, and nobody waits for it.
                    let undone = tokio::time::timeout_at(end, connection.execute("rollback")).await;
                    undone.map_err(|_| timeout_error("a rollback", COMMIT_TIMEOUT))?.map_err(to_store_error)?;
                }
                if matches!(trouble, CommitError::FastPathRejected) {
                    work.disable_fast_path();
                }
                desk.connection.return_connection(connection);
                continue;
            }
            Err(CommitError::Failed(error)) => {
                tracing::warn!(%error, transaction = work.transaction_label(), changes = work.write_count(), "a transaction failed");
                return Err(error);
            }
        };
        drop(connection);
        tracing::warn!(
            heard,
            transaction = work.transaction_label(),
            changes = work.write_count(),
            "a commit was not answered"
        );
        return match (resolve_commit::resolve_commit(desk, batch_id).await?, known) {
            (false, _) => Err(StoreError::Unavailable("postgres: a commit was lost; nothing of it happened".into())),
            (true, Some(done)) => Ok(done),
            (true, None) => work.read_committed_result(desk, batch_id).await,
        };
    }
    Err(StoreError::Unavailable(format!("postgres: other servers were quicker {ATTEMPTS_MAX} times")))
}

/// Commits what is open; says what came instead of an answer.
async fn send_commit(connection: &mut PgConnection, end: Instant) -> Result<(), String> {
    match tokio::time::timeout_at(end, connection.execute("commit")).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it took too long".into()),
    }
}
