//! The store in one file, for one server: SQLite, durable when it answers.
//!
//! One connection does everything, one thing at a time, in tasks that no caller can stop (F1). A connection that has
//! failed is thrown away and another opened for the next verb: whatever state a full disk left it in goes with it.

mod change;
mod load;
mod lock;
mod open;
mod statements;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection, Executor};
use tokio::sync::Mutex;

use crate::domain::time::UnixMs;
use crate::store::sqlite::lock::Lock;
use crate::store::sqlite::statements as sql;
use crate::store::{Outcome, Store, StoreError, StoredAdvertisement, Write, rows};

/// How often one call of `forget` goes on to the next thousand rows.
const FORGET_ROUNDS_MAX: usize = 100;

/// The store in one file. Dropped without `close` it loses nothing: the next start reads the log.
#[derive(Debug)]
pub struct Sqlite {
    path: PathBuf,
    door: Arc<Mutex<Door>>,
}

/// What a verb needs to get to the file.
#[derive(Debug)]
struct Door {
    /// None while nobody has opened one since the last failure.
    connection: Option<SqliteConnection>,
    /// Keeps other servers out. None after `close`.
    lock: Option<Lock>,
}

impl Sqlite {
    /// Opens the file at `path`, made if it is not there; its folder must be.
    ///
    /// `Locked` when another server has it, at once (R17). `Version` when a newer server has changed its schema.
    /// `Damaged` when it is no sound database (R16). Each says in one line what to do.
    pub async fn open(path: &Path) -> Result<Self, StoreError> {
        let lock = Lock::take(path)?;
        let connection = open::open(path).await.map_err(|error| about(path, error))?;
        let door = Door { connection: Some(connection), lock: Some(lock) };
        Ok(Self { path: path.to_owned(), door: Arc::new(Mutex::new(door)) })
    }

    /// Runs `verb` on the connection, in a task of its own, alone.
    async fn run<T: Send + 'static>(
        &self,
        verb: impl for<'c> FnOnce(&'c mut SqliteConnection) -> Pending<'c, T> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (door, path) = (Arc::clone(&self.door), self.path.clone());
        let task = tokio::spawn(async move {
            let mut door = door.lock().await;
            door.run(&path, verb).await.map_err(|error| about(&path, error))
        });
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("its task died".into())))
    }

    #[cfg(test)]
    async fn connection_for_test(&self) -> tokio::sync::MappedMutexGuard<'_, Option<SqliteConnection>> {
        tokio::sync::MutexGuard::map(self.door.lock().await, |door| &mut door.connection)
    }
}

impl Door {
    async fn run<T>(
        &mut self,
        path: &Path,
        verb: impl for<'c> FnOnce(&'c mut SqliteConnection) -> Pending<'c, T>,
    ) -> Result<T, StoreError> {
        if self.lock.is_none() {
            return Err(StoreError::Unavailable("it is closed".into()));
        }
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => open::connect(path).await?,
        };
        let answer = verb(&mut connection).await;
        if answer.is_ok() {
            self.connection = Some(connection);
        }
        answer
    }
}

type Pending<'c, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'c>>;

#[async_trait]
impl Store for Sqlite {
    async fn load(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.run(move |connection| Box::pin(load::load(connection, now))).await
    }

    async fn commit(&self, batch: &[Write]) -> Result<Vec<Outcome>, StoreError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let batch = batch.to_vec();
        self.run(move |connection| Box::pin(async move { change::commit(connection, &batch).await })).await
    }

    async fn forget(&self, now: UnixMs) -> Result<(), StoreError> {
        self.run(move |connection| Box::pin(forget(connection, now))).await
    }

    async fn close(&self) {
        let door = Arc::clone(&self.door);
        let task = tokio::spawn(async move {
            let mut door = door.lock().await;
            if let Some(mut connection) = door.connection.take() {
                // Both are courtesies: what was acknowledged is in the log already, and the next start reads it.
                let _ = connection.execute("pragma wal_checkpoint(truncate)").await;
                let _ = connection.close().await;
            }
            door.lock = None;
        });
        let _ = task.await;
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
