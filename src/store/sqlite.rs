//! The store in one file, for one server: SQLite, durable when it answers.
//!
//! One connection does what changes anything, one thing at a time, in tasks that no caller can stop (F1). A connection
//! that has failed is thrown away and another opened for the next verb: whatever state a full disk or a batch refused
//! half-way left it in goes with it. Others help to read at a start, move the log into the file, and
//! read for whoever compares.

mod change;
mod load;
mod lock;
mod log;
mod look;
mod open;
mod queues;
mod statements;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Executor};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::store::sqlite::lock::Lock;
use crate::store::sqlite::log::{Length, Limits, Mover, Moving};
use crate::store::sqlite::statements as sql;
use crate::store::{Committed, Store, StoreError, StoredAdvertisement, Write, rows};

/// How often one call of `forget` goes on to the next thousand rows.
const FORGET_ROUNDS_MAX: usize = 100;

/// The store in one file. Dropped without `close` it loses nothing: the next start reads the log.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    door: Arc<Mutex<Door>>,
    moving: Moving,
}

/// What a verb needs to get to the file.
#[derive(Debug)]
struct Door {
    /// None while nobody has opened one since the last failure.
    connection: Option<SqliteConnection>,
    /// Keeps other servers out. None after `close`.
    lock: Option<Lock>,
    /// The file has been looked over since it was opened.
    checked: bool,
    /// As long as the log was when it was last heard of.
    log: Length,
}

impl Sqlite {
    /// Opens the file at `path`, made if it is not there; its folder must be.
    ///
    /// `Locked` when another server has it, at once (R17). `Version` when a newer server has changed its schema.
    /// `Damaged` when it is no database; one that is none in some hidden place is refused by `load` (R16). Each says in
    /// one line what to do.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_within(path, Limits::default()).await
    }

    async fn open_within(path: &Path, limits: Limits) -> Result<Self, StoreError> {
        let lock = Lock::take(path)?;
        let connection = open::open(path).await.map_err(|error| about(path, error))?;
        let door = Door { connection: Some(connection), lock: Some(lock), checked: false, log: Length::default() };
        let door = Arc::new(Mutex::new(door));
        let moving = Moving::begin(Mover::new(path, limits), &door);
        Ok(Self { path: path.to_owned(), door, moving })
    }

    /// Moves the whole log into the file now; writers wait meanwhile. For whoever measures, or copies the file.
    pub async fn settle(&self) -> Result<(), StoreError> {
        let mover = Arc::clone(&self.moving.mover);
        self.alone(|mut door| async move {
            if door.is_open() {
                door.log = mover.pass().await?;
            }
            Ok(())
        })
        .await
    }

    /// Runs `verb` in a task of its own, with the door to itself.
    async fn alone<T, V>(&self, verb: impl FnOnce(OwnedMutexGuard<Door>) -> V + Send + 'static) -> Result<T, StoreError>
    where
        T: Send + 'static,
        V: Future<Output = Result<T, StoreError>> + Send,
    {
        let (door, path) = (Arc::clone(&self.door), self.path.clone());
        let task =
            tokio::spawn(async move { verb(door.lock_owned().await).await.map_err(|error| about(&path, error)) });
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("its task died".into())))
    }

    #[cfg(test)]
    async fn connection_for_test(&self) -> tokio::sync::MappedMutexGuard<'_, Option<SqliteConnection>> {
        tokio::sync::MutexGuard::map(self.door.lock().await, |door| &mut door.connection)
    }
}

impl Door {
    fn is_open(&self) -> bool {
        self.lock.is_some()
    }

    /// The connection, to be given back if it did not fail.
    async fn take(&mut self, path: &Path) -> Result<SqliteConnection, StoreError> {
        if !self.is_open() {
            return Err(StoreError::Unavailable("it is closed".into()));
        }
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => open::connect(path).await,
        }
    }

    /// The same, once the log is not too long to be written to.
    async fn take_to_write(&mut self, path: &Path, mover: &Mover) -> Result<SqliteConnection, StoreError> {
        if mover.limits.longest <= self.log.pages {
            self.log = mover.pass().await?;
        }
        self.take(path).await
    }

    /// Notes how long a commit has made the log.
    fn heard(&mut self, length: Length, mover: &Mover) {
        self.log = length;
        mover.heard(length);
    }

    fn give_back<T>(&mut self, connection: SqliteConnection, answer: &Result<T, StoreError>) {
        if answer.is_ok() {
            self.connection = Some(connection);
        }
    }
}

#[async_trait]
impl Store for Sqlite {
    async fn load(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let path = self.path.clone();
        self.alone(move |mut door| async move {
            let mut connection = door.take(&path).await?;
            let check = async { if door.checked { Ok(()) } else { open::look_over(&path).await } };
            let (loaded, sound) = tokio::join!(load::load(&mut connection, &path, now), check);
            let answer = sound.and(loaded);
            door.checked |= answer.is_ok();
            door.give_back(connection, &answer);
            answer
        })
        .await
    }

    async fn commit(&self, batch: &[Write]) -> Result<Committed, StoreError> {
        if batch.is_empty() {
            return Ok(Committed::default());
        }
        let (path, batch, mover) = (self.path.clone(), batch.to_vec(), Arc::clone(&self.moving.mover));
        self.alone(move |mut door| async move {
            let mut connection = door.take_to_write(&path, &mover).await?;
            let answer = change::commit(&mut connection, &batch).await;
            door.give_back(connection, &answer);
            let (outcomes, length) = answer?;
            door.heard(length, &mover);
            Ok(Committed { outcomes, steps: Vec::new() })
        })
        .await
    }

    async fn forget(&self, now: UnixMs) -> Result<(), StoreError> {
        let path = self.path.clone();
        self.alone(move |mut door| async move {
            let mut connection = door.take(&path).await?;
            let answer = forget(&mut connection, now).await;
            door.give_back(connection, &answer);
            answer
        })
        .await
    }

    async fn look(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        look::look(&self.path, ids).await.map_err(|error| about(&self.path, error))
    }

    async fn names(&self, first: AdvertisementId, most: usize) -> Result<Vec<AdvertisementId>, StoreError> {
        look::names(&self.path, first, most).await.map_err(|error| about(&self.path, error))
    }

    async fn close(&self) {
        let mover = Arc::clone(&self.moving.mover);
        // Whatever goes wrong was a courtesy: what was acknowledged is in the log already, and the next start reads it.
        let _ = self
            .alone(|mut door| async move {
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

async fn forget(connection: &mut SqliteConnection, now: UnixMs) -> Result<(), StoreError> {
    for statement in [sql::FORGET_TOMBSTONES, sql::FORGET_RESERVATIONS] {
        for _ in 0..FORGET_ROUNDS_MAX {
            let query = sqlx::query(statement).bind(rows::to_ms(now));
            if query.execute(&mut *connection).await.map_err(unavailable)?.rows_affected() == 0 {
                break;
            }
        }
    }
    Ok(())
}

/// What SQLite's error means to the caller. The text names no value of any row.
fn unavailable(error: sqlx::Error) -> StoreError {
    const CORRUPT: i32 = 11;
    const FULL: i32 = 13;
    const NOT_A_DATABASE: i32 = 26;
    let code = error.as_database_error().and_then(|it| it.code()).and_then(|code| code.parse::<i32>().ok());
    // The low byte of an extended code is the plain one.
    match code.map(|code| code & 0xff) {
        Some(CORRUPT | NOT_A_DATABASE) => StoreError::Damaged(error.to_string()),
        Some(FULL) => StoreError::Unavailable("the disk is full".into()),
        _ => StoreError::Unavailable(error.to_string()),
    }
}

/// The same error in one line, with the file that it is about and, for a damaged one, what to do.
fn about(path: &Path, error: StoreError) -> StoreError {
    let path = path.display();
    match error {
        StoreError::Damaged(what) => {
            let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
            StoreError::Damaged(format!(
                "{path} is damaged ({what}): move it and its -wal file away to begin with an empty one, or restore a copy"
            ))
        }
        StoreError::Version(what) => StoreError::Version(format!("{path}: {what}")),
        StoreError::Unavailable(what) => StoreError::Unavailable(format!("{path}: {what}")),
        other @ (StoreError::Locked(_) | StoreError::Corrupt { .. }) => other,
    }
}

#[cfg(test)]
mod tests;
