//! SQLite store: one file, one server, durable on return.
//!
//! One connection makes all changes, one operation at a time, in tasks that continue if the caller stops waiting. After
//! an error the connection is dropped and the next operation opens a new one. So no half-finished transaction survives.
//! Other connections read at startup, checkpoint the write-ahead log, and read snapshots for the consistency check.

mod adverts;
mod connection;
mod queues;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use sqlx::sqlite::SqliteConnection;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::store::StoreError;
use crate::store::sqlite::connection::lock::DatabaseLock;
use crate::store::sqlite::connection::open;
use crate::store::sqlite::connection::wal::{CheckpointTask, WalCheckpointer, WalLength, WalLimits};

/// Maximum number of purge statements per table in one call; each removes at most 1,000 rows.
const PURGE_STATEMENTS_MAX: usize = 100;

/// SQLite store. Dropping it without `close` loses nothing: the next start reads the write-ahead log.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    file_access: Arc<Mutex<FileAccess>>,
    checkpoint_task: CheckpointTask,
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
        Ok(Self { path: path.to_owned(), file_access, checkpoint_task })
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
        other @ (StoreError::Locked(_) | StoreError::CorruptRow { .. }) => other,
    }
}

#[cfg(test)]
mod tests;
