//! The store in one file, for one server: SQLite, durable when it answers.
//!
//! One connection does what changes anything, one thing at a time, in tasks that no caller can stop (F1). A connection
//! that has failed is thrown away and another opened for the next verb: whatever state a full disk or a batch refused
//! half-way left it in goes with it. Others help to read at a start, move the log into the file, and
//! read for whoever compares.

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
use crate::store::{AdvertWrite, CommitResult, Store, StoreError, StoredAdvertisement, rows};

/// How often one call of `forget` goes on to the next thousand rows.
const PURGE_STATEMENTS_MAX: usize = 100;

/// The store in one file. Dropped without `close` it loses nothing: the next start reads the log.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    file_access: Arc<Mutex<FileAccess>>,
    checkpoint_task: CheckpointTask,
}

/// What a verb needs to get to the file.
#[derive(Debug)]
struct FileAccess {
    /// None while nobody has opened one since the last failure.
    connection: Option<SqliteConnection>,
    /// Keeps other servers out. None after `close`.
    lock: Option<DatabaseLock>,
    /// The file has been looked over since it was opened.
    integrity_checked: bool,
    /// As long as the log was when it was last heard of.
    wal_length: WalLength,
}

impl SqliteStore {
    /// Opens the file at `path`, made if it is not there; its folder must be.
    ///
    /// `Locked` when another server has it, at once (R17). `Version` when a newer server has changed its schema.
    /// `Damaged` when it is no database; one that is none in some hidden place is refused by `load` (R16). Each says in
    /// one line what to do.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_with_limits(path, WalLimits::default()).await
    }

    async fn open_with_limits(path: &Path, limits: WalLimits) -> Result<Self, StoreError> {
        let lock = DatabaseLock::try_acquire(path)?;
        let connection = open::open_and_migrate(path).await.map_err(|error| with_path(path, error))?;
        let door = FileAccess {
            connection: Some(connection),
            lock: Some(lock),
            integrity_checked: false,
            wal_length: WalLength::default(),
        };
        let door = Arc::new(Mutex::new(door));
        let moving = CheckpointTask::start(WalCheckpointer::new(path, limits), &door);
        Ok(Self { path: path.to_owned(), file_access: door, checkpoint_task: moving })
    }

    /// Moves the whole log into the file now; writers wait meanwhile. For whoever measures, or copies the file.
    pub async fn checkpoint(&self) -> Result<(), StoreError> {
        let mover = Arc::clone(&self.checkpoint_task.checkpointer);
        self.run_exclusive(|mut door| async move {
            if door.is_open() {
                door.wal_length = mover.checkpoint_once().await?;
            }
            Ok(())
        })
        .await
    }

    /// Runs `verb` in a task of its own, with the door to itself.
    async fn run_exclusive<T, V>(
        &self,
        verb: impl FnOnce(OwnedMutexGuard<FileAccess>) -> V + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        V: Future<Output = Result<T, StoreError>> + Send,
    {
        let (door, path) = (Arc::clone(&self.file_access), self.path.clone());
        let task =
            tokio::spawn(async move { verb(door.lock_owned().await).await.map_err(|error| with_path(&path, error)) });
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("its task died".into())))
    }

    #[cfg(test)]
    async fn connection_for_test(&self) -> tokio::sync::MappedMutexGuard<'_, Option<SqliteConnection>> {
        tokio::sync::MutexGuard::map(self.file_access.lock().await, |door| &mut door.connection)
    }
}

impl FileAccess {
    fn is_open(&self) -> bool {
        self.lock.is_some()
    }

    /// The connection, to be given back if it did not fail.
    async fn take_connection(&mut self, path: &Path) -> Result<SqliteConnection, StoreError> {
        if !self.is_open() {
            return Err(StoreError::Unavailable("it is closed".into()));
        }
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => open::connect(path).await,
        }
    }

    /// The same, once the log is not too long to be written to.
    async fn take_write_connection(
        &mut self,
        path: &Path,
        mover: &WalCheckpointer,
    ) -> Result<SqliteConnection, StoreError> {
        if mover.limits.writer_waits_pages <= self.wal_length.pages {
            self.wal_length = mover.checkpoint_once().await?;
        }
        self.take_connection(path).await
    }

    /// Notes how long a commit has made the log.
    fn record_wal_length(&mut self, length: WalLength, mover: &WalCheckpointer) {
        self.wal_length = length;
        mover.request_if_due(length);
    }

    fn return_connection<T>(&mut self, connection: SqliteConnection, answer: &Result<T, StoreError>) {
        if answer.is_ok() {
            self.connection = Some(connection);
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let path = self.path.clone();
        self.run_exclusive(move |mut door| async move {
            let mut connection = door.take_connection(&path).await?;
            let check = async { if door.integrity_checked { Ok(()) } else { open::check_integrity(&path).await } };
            let (loaded, sound) = tokio::join!(load::load_advertisements(&mut connection, &path, now), check);
            let answer = sound.and(loaded);
            door.integrity_checked |= answer.is_ok();
            door.return_connection(connection, &answer);
            answer
        })
        .await
    }

    async fn commit(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
        if batch.is_empty() {
            return Ok(CommitResult::default());
        }
        let (path, batch, mover) = (self.path.clone(), batch.to_vec(), Arc::clone(&self.checkpoint_task.checkpointer));
        self.run_exclusive(move |mut door| async move {
            let mut connection = door.take_write_connection(&path, &mover).await?;
            let answer = transaction::commit_batch(&mut connection, &batch).await;
            door.return_connection(connection, &answer);
            let (outcomes, length) = answer?;
            door.record_wal_length(length, &mover);
            Ok(CommitResult { outcomes, version_steps: Vec::new() })
        })
        .await
    }

    async fn purge(&self, now: UnixMs) -> Result<(), StoreError> {
        let path = self.path.clone();
        self.run_exclusive(move |mut door| async move {
            let mut connection = door.take_connection(&path).await?;
            let answer = purge_rows(&mut connection, now).await;
            door.return_connection(connection, &answer);
            answer
        })
        .await
    }

    async fn read_advertisements(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        snapshot_read::read_advertisements(&self.path, ids).await.map_err(|error| with_path(&self.path, error))
    }

    async fn list_advertisement_ids(
        &self,
        first: AdvertisementId,
        most: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError> {
        snapshot_read::list_advertisement_ids(&self.path, first, most)
            .await
            .map_err(|error| with_path(&self.path, error))
    }

    async fn close(&self) {
        let mover = Arc::clone(&self.checkpoint_task.checkpointer);
        // Whatever goes wrong was a courtesy: what was acknowledged is in the log already, and the next start reads it.
        let _ = self
            .run_exclusive(|mut door| async move {
                if let Some(mut connection) = door.connection.take() {
                    mover.close().await;
                    let _ = connection.execute("pragma wal_checkpoint(truncate)").await;
                    let _ = connection.close().await;
                }
                door.lock = None;
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

/// What SQLite's error means to the caller. The text names no value of any row.
fn to_store_error(error: sqlx::Error) -> StoreError {
    const CORRUPT: i32 = 11;
    const FULL: i32 = 13;
    const NOT_A_DATABASE: i32 = 26;
    let code = error.as_database_error().and_then(|it| it.code()).and_then(|code| code.parse::<i32>().ok());
    // The low byte of an extended code is the plain one.
    match code.map(|code| code & 0xff) {
        Some(CORRUPT | NOT_A_DATABASE) => StoreError::DamagedFile(error.to_string()),
        Some(FULL) => StoreError::Unavailable("the disk is full".into()),
        _ => StoreError::Unavailable(error.to_string()),
    }
}

/// The same error in one line, with the file that it is about and, for a damaged one, what to do.
fn with_path(path: &Path, error: StoreError) -> StoreError {
    let path = path.display();
    match error {
        StoreError::DamagedFile(what) => {
            let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
            StoreError::DamagedFile(format!(
                "{path} is damaged ({what}): move it and its -wal file away to begin with an empty one, or restore a copy"
            ))
        }
        StoreError::Incompatible(what) => StoreError::Incompatible(format!("{path}: {what}")),
        StoreError::Unavailable(what) => StoreError::Unavailable(format!("{path}: {what}")),
        other @ (StoreError::Locked(_) | StoreError::CorruptRow { .. }) => other,
    }
}

#[cfg(test)]
mod tests;
