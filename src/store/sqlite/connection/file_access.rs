//! Exclusive access to the database file: the writer's connection and the lock.

use std::path::Path;

use sqlx::sqlite::SqliteConnection;

use crate::store::error::StoreError;
use crate::store::sqlite::connection::lock::DatabaseLock;
use crate::store::sqlite::connection::open;
use crate::store::sqlite::connection::wal::{WalCheckpointer, WalLength};

/// Connection and lock that an operation needs.
#[derive(Debug)]
pub(in crate::store::sqlite) struct FileAccess {
    /// `None` after a failure, until the next operation opens a connection.
    pub(in crate::store::sqlite) connection: Option<SqliteConnection>,
    /// Excludes other servers from the file. `None` after `close`.
    pub(in crate::store::sqlite) lock: Option<DatabaseLock>,
    /// Whether the file passed the integrity check since it was opened.
    pub(in crate::store::sqlite) integrity_checked: bool,
    /// Length of the write-ahead log after the last commit or checkpoint.
    pub(in crate::store::sqlite) wal_length: WalLength,
}

impl FileAccess {
    pub(in crate::store::sqlite) fn is_store_open(&self) -> bool {
        self.lock.is_some()
    }

    /// Takes the connection; the caller returns it if the operation succeeded.
    pub(in crate::store::sqlite) async fn take_connection(
        &mut self,
        path: &Path,
    ) -> Result<SqliteConnection, StoreError> {
        if !self.is_store_open() {
            return Err(StoreError::Unavailable("the store is closed".into()));
        }
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => open::connect(path).await,
        }
    }

    /// Takes the connection for a write. Checkpoints first if the write-ahead log is too long.
    pub(in crate::store::sqlite) async fn limit_wal_and_take_connection(
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
    pub(in crate::store::sqlite) fn record_wal_length(&mut self, length: WalLength, checkpointer: &WalCheckpointer) {
        self.wal_length = length;
        checkpointer.request_checkpoint_if_due(length);
    }

    pub(in crate::store::sqlite) fn return_connection_if_ok<T>(
        &mut self,
        connection: SqliteConnection,
        result: &Result<T, StoreError>,
    ) {
        if result.is_ok() {
            self.connection = Some(connection);
        }
    }
}
