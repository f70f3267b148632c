//! Checkpoints of the write-ahead log on their own connection, while the writer continues; keeps the log short.
//!
//! SQLite starts the log again at the first write after a complete checkpoint. A busy writer would always be one batch
//! ahead. So a round ends with a pass that blocks the writer, when little is left to copy. If rounds are too slow, the
//! writer itself waits at [`WalLimits::writer_waits_pages`]: the log grows to at most that and one batch. An external
//! reader inside a long read can delay this; writes continue, and the log grows until that read ends.

use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnection;
use tokio::sync::{Mutex, Notify};

use crate::store::error::StoreError;
use crate::store::sqlite::connection::error::to_store_error;
use crate::store::sqlite::connection::open;
use crate::store::sqlite::connection::statements as sql;

/// Limits on the length of the write-ahead log, in pages.
#[derive(Clone, Copy, Debug)]
pub(in crate::store::sqlite) struct WalLimits {
    /// Length at which a checkpoint starts. A page that changed several times is copied once, so a higher value saves
    /// work.
    pub(in crate::store::sqlite) checkpoint_due_pages: i64,
    /// Length at which the writer waits for a checkpoint.
    pub(in crate::store::sqlite) writer_waits_pages: i64,
    /// Number of pages left at which the writer may wait for the rest.
    pub(in crate::store::sqlite) final_pass_pages: i64,
}

impl Default for WalLimits {
    /// With pages of 1 KiB: 16 MiB, about ten batches of a thousand; 64 MiB; 2 MiB, about one batch.
    fn default() -> Self {
        Self { checkpoint_due_pages: 16_384, writer_waits_pages: 65_536, final_pass_pages: 2_048 }
    }
}

/// Length of the write-ahead log.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::store::sqlite) struct WalLength {
    /// Pages in the log.
    pub(in crate::store::sqlite) pages: i64,
    /// Pages of the log that are already in the database file.
    pub(in crate::store::sqlite) checkpointed_pages: i64,
}

/// Runs checkpoints, one at a time.
#[derive(Debug)]
pub(in crate::store::sqlite) struct WalCheckpointer {
    path: PathBuf,
    connection: Mutex<Option<SqliteConnection>>,
    /// Notified when a checkpoint is due.
    checkpoint_due: Notify,
    pub(in crate::store::sqlite) limits: WalLimits,
}

impl WalCheckpointer {
    pub(in crate::store::sqlite) fn new(path: &Path, limits: WalLimits) -> Self {
        Self { path: path.to_owned(), connection: Mutex::new(None), checkpoint_due: Notify::new(), limits }
    }

    /// Requests a checkpoint if the log has reached its limit.
    pub(in crate::store::sqlite) fn request_checkpoint_if_due(&self, length: WalLength) {
        if length.pages >= self.limits.checkpoint_due_pages {
            self.checkpoint_due.notify_one();
        }
    }

    /// Copies all pages that no reader still needs, and returns the new length. A caller that needs the lock on
    /// `FileAccess` must hold it before this call.
    pub(in crate::store::sqlite) async fn checkpoint_once(&self) -> Result<WalLength, StoreError> {
        let mut slot = self.connection.lock().await;
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => open::connect(&self.path).await?,
        };
        let query = sqlx::query_as(sql::CHECKPOINT_WAL);
        let (_busy, pages, checkpointed_pages): (i64, i64, i64) =
            query.fetch_one(&mut connection).await.map_err(to_store_error)?;
        *slot = Some(connection);
        Ok(WalLength { pages, checkpointed_pages })
    }

    /// Copies all pages and empties the log's file. Returns whether it succeeded: a reader may have been in the way. The caller
    /// must hold the lock on `FileAccess`.
    pub(in crate::store::sqlite) async fn truncate_wal(&self) -> Result<bool, StoreError> {
        let mut slot = self.connection.lock().await;
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => open::connect(&self.path).await?,
        };
        let query = sqlx::query_as(sql::TRUNCATE_WAL);
        let (busy, _, _): (i64, i64, i64) = query.fetch_one(&mut connection).await.map_err(to_store_error)?;
        *slot = Some(connection);
        Ok(busy == 0)
    }

    /// Waits until a checkpoint is requested.
    pub(in crate::store::sqlite) async fn wait_until_due(&self) {
        self.checkpoint_due.notified().await;
    }

    /// Closes the connection when no pass is running.
    pub(in crate::store::sqlite) async fn close(&self) {
        let connection = self.connection.lock().await.take();
        if let Some(connection) = connection {
            let _ = sqlx::Connection::close(connection).await;
        }
    }
}
