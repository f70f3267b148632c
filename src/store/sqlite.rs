//! SQLite store: one file, one server, durable on return.
//!
//! One connection makes all changes, one operation at a time, in tasks that continue if the caller stops waiting. After
//! an error the connection is dropped and the next operation opens a new one. So no half-finished transaction survives.
//! Other connections read at startup, checkpoint the write-ahead log, and read snapshots for the consistency check.

mod load;
mod lock;
mod open;
mod queues;
mod snapshot_read;
mod statements;
mod transaction;
mod wal;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Executor};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::store::sqlite::lock::DatabaseLock;
use crate::store::sqlite::statements as sql;
use crate::store::sqlite::wal::{CheckpointTask, WalCheckpointer, WalLength, WalLimits};
use crate::store::unknown_rows::{RowKey, UnknownRows};
use crate::store::writer_version::WriterGate;
use crate::store::{AdvertWrite, CommitResult, Store, StoreError, StoredAdvertisement, WriteOutcome, rows};

/// Maximum number of purge statements per table in one call; each removes at most 1,000 rows.
const PURGE_STATEMENTS_MAX: usize = 100;

/// SQLite store. Dropping it without `close` loses nothing: the next start reads the write-ahead log.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    file_access: Arc<Mutex<FileAccess>>,
    checkpoint_task: CheckpointTask,
    unknown_rows: Arc<UnknownRows>,
    writer_gate: WriterGate,
}

/// Connection and lock that an operation needs.
#[derive(Debug)]
struct FileAccess {
    /// `None` after a failure, until the next operation opens a connection.
    connection: Option<SqliteConnection>,
    /// Excludes other servers from the file. `None` after `close`.
    lock: Option<DatabaseLock>,
    /// Whether the file passed the integrity check since it was opened.
    integrity_checked: bool,
    /// Length of the write-ahead log after the last commit or checkpoint.
    wal_length: WalLength,
}

impl SqliteStore {
    /// Opens the database file at `path`; creates it if it does not exist. Its folder must exist.
    ///
    /// Errors, each with the remedy: `Locked` if another server has the file, without waiting. `Incompatible` if a
    /// newer server changed the schema. `DamagedFile` if it is not a database; `load_advertisements` reports damage
    /// inside the file.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with_limits(path, WalLimits::default()).await
    }

    async fn open_with_limits(path: &Path, limits: WalLimits) -> Result<Self, StoreError> {
        let lock = DatabaseLock::try_acquire(path)?;
        let connection = open::open_and_migrate(path).await.map_err(|error| with_path(path, error))?;
        let file_access = Arc::new(Mutex::new(FileAccess {
            connection: Some(connection),
            lock: Some(lock),
            integrity_checked: false,
            wal_length: WalLength::default(),
        }));
        let checkpoint_task = CheckpointTask::start(WalCheckpointer::new(path, limits), &file_access);
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
            if access.is_open() {
                access.wal_length = checkpointer.checkpoint_once().await?;
            }
            Ok(())
        })
        .await
    }

    /// Commits a batch of advertisement writes in one transaction.
    async fn commit_transaction(&self, batch: Vec<AdvertWrite>) -> Result<Vec<WriteOutcome>, StoreError> {
        let (path, checkpointer) = (self.path.clone(), Arc::clone(&self.checkpoint_task.checkpointer));
        let unknown_rows = Arc::clone(&self.unknown_rows);
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_write_connection(&path, &checkpointer).await?;
            let result = transaction::commit_batch(&mut connection, &batch, &unknown_rows).await;
            access.return_connection(connection, &result);
            let (outcomes, length) = result?;
            access.record_wal_length(length, &checkpointer);
            Ok(outcomes)
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
        let task =
            tokio::spawn(
                async move { operation(access.lock_owned().await).await.map_err(|error| with_path(&path, error)) },
            );
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the store task panicked".into())))
    }

    #[cfg(test)]
    async fn connection_for_test(&self) -> tokio::sync::MappedMutexGuard<'_, Option<SqliteConnection>> {
        tokio::sync::MutexGuard::map(self.file_access.lock().await, |access| &mut access.connection)
    }
}

impl FileAccess {
    fn is_open(&self) -> bool {
        self.lock.is_some()
    }

    /// Takes the connection; the caller returns it if the operation succeeded.
    async fn take_connection(&mut self, path: &Path) -> Result<SqliteConnection, StoreError> {
        if !self.is_open() {
            return Err(StoreError::Unavailable("the store is closed".into()));
        }
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => open::connect(path).await,
        }
    }

    /// Takes the connection for a write. Checkpoints first if the write-ahead log is too long.
    async fn take_write_connection(
        &mut self,
        path: &Path,
        checkpointer: &WalCheckpointer,
    ) -> Result<SqliteConnection, StoreError> {
        if self.wal_length.pages >= checkpointer.limits.writer_waits_pages {
            self.wal_length = checkpointer.checkpoint_once().await?;
        }
        self.take_connection(path).await
    }

    /// Stores the length of the log after a commit and requests a checkpoint if it is due.
    fn record_wal_length(&mut self, length: WalLength, checkpointer: &WalCheckpointer) {
        self.wal_length = length;
        checkpointer.request_checkpoint_if_due(length);
    }

    fn return_connection<T>(&mut self, connection: SqliteConnection, result: &Result<T, StoreError>) {
        if result.is_ok() {
            self.connection = Some(connection);
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.writer_gate.check()?;
        let (path, unknown_rows) = (self.path.clone(), Arc::clone(&self.unknown_rows));
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let check = async { if access.integrity_checked { Ok(()) } else { open::check_integrity(&path).await } };
            let (loaded, checked) =
                tokio::join!(load::load_advertisements(&mut connection, &path, now, &unknown_rows), check);
            let result = checked.and(loaded);
            access.integrity_checked |= result.is_ok();
            access.return_connection(connection, &result);
            result
        })
        .await
    }

    async fn commit(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
        if batch.is_empty() {
            return Ok(CommitResult::default());
        }
        self.writer_gate.check()?;
        let is_unknown =
            |write: &AdvertWrite| self.unknown_rows.contains(RowKey::Advertisement(write.advertisement_id()));
        let commit = |batch| self.commit_transaction(batch);
        let outcomes = self.unknown_rows.commit_known(batch, WriteOutcome::UnknownRow, is_unknown, commit).await?;
        Ok(CommitResult { outcomes, version_steps: Vec::new() })
    }

    async fn purge(&self, now: UnixMs) -> Result<(), StoreError> {
        self.writer_gate.check()?;
        let path = self.path.clone();
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let result = purge_rows(&mut connection, now).await;
            access.return_connection(connection, &result);
            result
        })
        .await
    }

    async fn read_advertisements(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        snapshot_read::read_advertisements(&self.path, ids, &self.unknown_rows)
            .await
            .map_err(|error| with_path(&self.path, error))
    }

    async fn list_advertisement_ids(
        &self,
        first: AdvertisementId,
        limit: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError> {
        snapshot_read::list_advertisement_ids(&self.path, first, limit)
            .await
            .map_err(|error| with_path(&self.path, error))
    }

    fn unknown_row_counts(&self) -> Vec<(&'static str, u64)> {
        self.unknown_rows.counts()
    }

    fn is_writable(&self) -> bool {
        self.writer_gate.is_open()
    }

    async fn close(&self) {
        let checkpointer = Arc::clone(&self.checkpoint_task.checkpointer);
        // Errors are ignored: acknowledged writes are in the log, and the next start reads it.
        let _ = self
            .run_exclusive(|mut access| async move {
                if let Some(mut connection) = access.connection.take() {
                    checkpointer.close().await;
                    let _ = connection.execute("pragma wal_checkpoint(truncate)").await;
                    let _ = connection.close().await;
                }
                access.lock = None;
                Ok(())
            })
            .await;
    }
}

async fn purge_rows(connection: &mut SqliteConnection, now: UnixMs) -> Result<(), StoreError> {
    for statement in [sql::PURGE_TOMBSTONES, sql::PURGE_RESERVATIONS] {
        for _ in 0..PURGE_STATEMENTS_MAX {
            let query = sqlx::query(statement).bind(rows::to_ms(now));
            if query.execute(&mut *connection).await.map_err(to_store_error)?.rows_affected() == 0 {
                break;
            }
        }
    }
    Ok(())
}

/// Maps SQLite's error to a store error. The text contains no row values.
fn to_store_error(error: sqlx::Error) -> StoreError {
    const CORRUPT: i32 = 11;
    const FULL: i32 = 13;
    const NOT_A_DATABASE: i32 = 26;
    let code = error.as_database_error().and_then(|error| error.code()).and_then(|code| code.parse::<i32>().ok());
    // The low byte of an extended result code is the primary code.
    match code.map(|code| code & 0xff) {
        Some(CORRUPT | NOT_A_DATABASE) => StoreError::DamagedFile(error.to_string()),
        Some(FULL) => StoreError::Unavailable("the disk is full; free disk space".into()),
        _ => StoreError::Unavailable(error.to_string()),
    }
}

/// Adds the file's path to the error, on one line, and the remedy if the file is damaged.
fn with_path(path: &Path, error: StoreError) -> StoreError {
    let path = path.display();
    match error {
        StoreError::DamagedFile(reason) => {
            let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
            StoreError::DamagedFile(format!(
                "{path} is damaged ({reason}); move it and its -wal file away to start with an empty database, or restore \
                 a copy"
            ))
        }
        StoreError::Incompatible(reason) => StoreError::Incompatible(format!("{path}: {reason}")),
        StoreError::Unavailable(reason) => StoreError::Unavailable(format!("{path}: {reason}")),
        other @ (StoreError::Locked(_) | StoreError::CorruptRow { .. } | StoreError::UnknownRow { .. }) => other,
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod unknown_rows_tests;
