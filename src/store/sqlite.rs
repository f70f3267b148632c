//! SQLite store: one file, one server, durable on return.
//!
//! One connection makes all changes, one operation at a time, in tasks that continue if the caller stops waiting. After
//! an error the connection is dropped and the next operation opens a new one. So no half-finished transaction survives.
//! Other connections read at startup, checkpoint the write-ahead log, and read snapshots for the consistency check.

mod adverts;
mod allocation_offers;
pub mod backup;
mod beacons;
mod connection;
pub mod diagnosis;
mod outages;
mod queues;
mod ruleset_copies;
mod statistics;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::domain::time::UnixMs;
use crate::store::error::StoreError;
use crate::store::sqlite::connection::checkpoint_task::CheckpointTask;
use crate::store::sqlite::connection::error::add_path_to_error;
use crate::store::sqlite::connection::file_access::FileAccess;
use crate::store::sqlite::connection::lock::DatabaseLock;
use crate::store::sqlite::connection::open;
use crate::store::sqlite::connection::purge::purge_rows;
use crate::store::sqlite::connection::wal::{WalCheckpointer, WalLength, WalLimits};
use crate::store::sqlite::connection::write_batch::BatchableWrite;
use crate::store::unknown_rows::UnknownRows;
use crate::store::writer_version::WriterGate;
use crate::supervisor::TaskSupervisor;

/// SQLite store. Dropping it without `close` loses nothing: the next start reads the write-ahead log.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    file_access: Arc<Mutex<FileAccess>>,
    checkpoint_task: CheckpointTask,
    unknown_rows: Arc<UnknownRows>,
    writer_gate: WriterGate,
}

impl SqliteStore {
    /// Opens the database file at `path`; creates it if it does not exist. Its folder must exist.
    ///
    /// Errors, each with the remedy: `Locked` if another server has the file, without waiting. `Incompatible` if a
    /// newer server changed the schema. `DamagedFile` if it is not a database; `load_advertisements` reports damage
    /// inside the file.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_supervised(path, &TaskSupervisor::default()).await
    }

    /// Opens the database file as `open` does. `supervisor` restarts the checkpoint task after a panic.
    pub async fn open_supervised(path: &Path, supervisor: &TaskSupervisor) -> Result<Self, StoreError> {
        Self::open_with_limits(path, WalLimits::default(), supervisor).await
    }

    async fn open_with_limits(path: &Path, limits: WalLimits, supervisor: &TaskSupervisor) -> Result<Self, StoreError> {
        let lock = DatabaseLock::try_acquire(path)?;
        let connection = open::open_and_migrate(path).await.map_err(|error| add_path_to_error(path, error))?;
        let file_access = Arc::new(Mutex::new(FileAccess {
            connection: Some(connection),
            lock: Some(lock),
            integrity_checked: false,
            wal_length: WalLength::default(),
        }));
        let checkpoint_task = CheckpointTask::start(WalCheckpointer::new(path, limits), &file_access, supervisor);
        Ok(Self {
            path: path.to_owned(),
            file_access,
            checkpoint_task,
            unknown_rows: Arc::default(),
            writer_gate: WriterGate::default(),
        })
    }

    /// Checkpoints the whole write-ahead log; writers wait meanwhile. For benchmarks, and before copying the file.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        let checkpointer = Arc::clone(&self.checkpoint_task.checkpointer);
        self.run_exclusive(|mut access| async move {
            if access.is_store_open() {
                access.wal_length = checkpointer.checkpoint_once().await?;
            }
            Ok(())
        })
        .await
    }

    /// Commits a batch in one transaction.
    async fn commit_batch<W: BatchableWrite>(&self, batch: Vec<W>) -> Result<Vec<W::Output>, StoreError> {
        let (path, checkpointer) = (self.path.clone(), Arc::clone(&self.checkpoint_task.checkpointer));
        let unknown_rows = Arc::clone(&self.unknown_rows);
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.limit_wal_and_take_connection(&path, &checkpointer).await?;
            let result = W::commit_batch(&mut connection, &batch, &unknown_rows).await;
            access.return_connection_if_ok(connection, &result);
            let (outcomes, length) = result?;
            access.record_wal_length(length, &checkpointer);
            Ok(outcomes)
        })
        .await
    }

    /// Purges rows that are due at `now`, by the given statements.
    async fn purge_due_rows(&self, statements: &'static [&'static str], now: UnixMs) -> Result<(), StoreError> {
        self.writer_gate.check_may_write()?;
        let path = self.path.clone();
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let result = purge_rows(&mut connection, statements, now).await;
            access.return_connection_if_ok(connection, &result);
            result
        })
        .await
    }

    /// Runs `operation` in its own task with exclusive access to the file.
    async fn run_exclusive<T, V>(
        &self,
        operation: impl FnOnce(OwnedMutexGuard<FileAccess>) -> V + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        V: Future<Output = Result<T, StoreError>> + Send,
    {
        let (access, path) = (Arc::clone(&self.file_access), self.path.clone());
        let task = tokio::spawn(async move {
            operation(access.lock_owned().await).await.map_err(|error| add_path_to_error(&path, error))
        });
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the store task panicked".into())))
    }

    #[cfg(test)]
    async fn connection_for_test(&self) -> tokio::sync::MappedMutexGuard<'_, Option<sqlx::sqlite::SqliteConnection>> {
        tokio::sync::MutexGuard::map(self.file_access.lock().await, |access| &mut access.connection)
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod unknown_rows_tests;
