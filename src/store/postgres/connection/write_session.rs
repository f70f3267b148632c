//! Session that writes one batch at a time: its connection, and the state that batches share.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::store::error::StoreError;
use crate::store::postgres::connection::feed_pacing::LastKnownChange;
use crate::store::postgres::connection::slot::ConnectionSlot;
use crate::store::postgres::connection::unresolved_commits::UnresolvedCommits;
use crate::store::postgres::replica_identity::FireteamReplica;
use crate::store::unknown_rows::UnknownRows;

/// Statements of a session, for advertisements or for queues.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::postgres) struct SessionStatements {
    /// Abandons a batch.
    pub(in crate::store::postgres) abandon_batch: &'static str,
    /// Notifies the other servers of changes.
    pub(in crate::store::postgres) notify: &'static str,
}

/// Connection and state for writing one batch at a time.
#[derive(Debug)]
pub(in crate::store::postgres) struct WriteSession {
    pub(in crate::store::postgres) connection: ConnectionSlot,
    pub(in crate::store::postgres) replica_id: i64,
    /// Number of batches started; with the replica id it forms the batch id.
    pub(in crate::store::postgres) batch_count: u64,
    pub(in crate::store::postgres) last_change: LastKnownChange,
    pub(in crate::store::postgres) statements: SessionStatements,
    pub(in crate::store::postgres) unresolved_commits: UnresolvedCommits,
    pub(in crate::store::postgres) unknown_rows: Arc<UnknownRows>,
    pub(in crate::store::postgres) closed: bool,
}

impl WriteSession {
    pub(in crate::store::postgres) fn new(
        connection: ConnectionSlot,
        replica: &FireteamReplica,
        statements: SessionStatements,
        last_change: LastKnownChange,
        unresolved_commits: UnresolvedCommits,
        unknown_rows: Arc<UnknownRows>,
    ) -> Self {
        Self {
            connection,
            replica_id: replica.id.cast_signed(),
            batch_count: 0,
            last_change,
            statements,
            unresolved_commits,
            unknown_rows,
            closed: false,
        }
    }
}

/// Runs `operation` in its own task with exclusive access to `session`.
pub(in crate::store::postgres) async fn run_with_exclusive_session<T, V>(
    session: &Arc<Mutex<WriteSession>>,
    operation: impl FnOnce(OwnedMutexGuard<WriteSession>) -> V + Send + 'static,
) -> Result<T, StoreError>
where
    T: Send + 'static,
    V: Future<Output = Result<T, StoreError>> + Send,
{
    let session = Arc::clone(session);
    let task = tokio::spawn(async move {
        let session = session.lock_owned().await;
        if session.closed {
            Err(StoreError::Unavailable("the store is closed".into()))
        } else {
            operation(session).await
        }
    });
    task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the store task panicked".into())))
}
