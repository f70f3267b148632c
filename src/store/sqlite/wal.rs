//! Moves the write-ahead log into the file on a connection of its own, while the writer goes on, and keeps it short.
//!
//! SQLite begins the log anew at the first write after all of it has been moved. A writer that never rests would always
//! be a batch ahead, so a round ends with a pass while the writer is held out; by then little is left to move. Were
//! rounds ever too slow, the writer itself waits for one at [`Limits::longest`]: the log grows no further than that and
//! one batch. A reader from outside that stays in the middle of a read can hold that up; then writing goes on all the
//! same, and the log is as long as that reader wants it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use sqlx::sqlite::SqliteConnection;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinHandle;

use crate::store::StoreError;
use crate::store::sqlite::statements as sql;
use crate::store::sqlite::{FileAccess, open, to_store_error};

/// Passes of a round beside the writer, before the one that holds it out.
const CONCURRENT_PASSES_MAX: usize = 4;

/// How long the log may be, in pages.
#[derive(Clone, Copy, Debug)]
pub(super) struct WalLimits {
    /// From here on it is moved. A page that changed often since the last time is moved once, so more is better.
    pub(super) checkpoint_pages: i64,
    /// From here on the writer waits until it has been moved.
    pub(super) writer_waits_pages: i64,
    /// So little left to move that the writer may wait for it.
    pub(super) final_pass_pages: i64,
}

impl Default for WalLimits {
    /// With pages of 1 KiB: 16 MiB, some ten batches of a thousand; 64 MiB; 2 MiB, about a batch.
    fn default() -> Self {
        Self { checkpoint_pages: 16_384, writer_waits_pages: 65_536, final_pass_pages: 2_048 }
    }
}

/// How much is in the log.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WalLength {
    /// Pages in it.
    pub(super) pages: i64,
    /// How many of them are in the file already.
    pub(super) checkpointed_pages: i64,
}

/// Whoever moves the log; one at a time.
#[derive(Debug)]
pub(super) struct WalCheckpointer {
    path: PathBuf,
    connection: Mutex<Option<SqliteConnection>>,
    /// The log has become long.
    checkpoint_due: Notify,
    pub(super) limits: WalLimits,
}

impl WalCheckpointer {
    pub(super) fn new(path: &Path, limits: WalLimits) -> Self {
        Self { path: path.to_owned(), connection: Mutex::new(None), checkpoint_due: Notify::new(), limits }
    }

    /// Tells how long the log has become; a long one is moved soon.
    pub(super) fn request_if_due(&self, length: WalLength) {
        if self.limits.checkpoint_pages <= length.pages {
            self.checkpoint_due.notify_one();
        }
    }

    /// Moves what no reader still needs, and says how much is left. Whoever holds the door must take it before this.
    pub(super) async fn checkpoint_once(&self) -> Result<WalLength, StoreError> {
        let mut place = self.connection.lock().await;
        let mut connection = match place.take() {
            Some(connection) => connection,
            None => open::connect(&self.path).await?,
        };
        let query = sqlx::query_as(sql::CHECKPOINT_WAL);
        let (_busy, pages, moved): (i64, i64, i64) = query.fetch_one(&mut connection).await.map_err(to_store_error)?;
        *place = Some(connection);
        Ok(WalLength { pages, checkpointed_pages: moved })
    }

    /// Lets go of the connection, when no pass is under way.
    pub(super) async fn close(&self) {
        let connection = self.connection.lock().await.take();
        if let Some(connection) = connection {
            let _ = sqlx::Connection::close(connection).await;
        }
    }

    /// Moves as much as it can beside the writer, and the rest while it holds the writer out.
    async fn checkpoint_all(&self, door: &Weak<Mutex<FileAccess>>) -> Result<(), StoreError> {
        for _ in 0..CONCURRENT_PASSES_MAX {
            let length = self.checkpoint_once().await?;
            if length.pages - length.checkpointed_pages <= self.limits.final_pass_pages
                || self.limits.writer_waits_pages <= length.pages
            {
                break;
            }
        }
        let Some(door) = door.upgrade() else { return Ok(()) };
        let mut door = door.lock().await;
        if door.is_open() {
            door.wal_length = self.checkpoint_once().await?;
        }
        Ok(())
    }
}

/// A mover and the task that calls it, for as long as the store lives.
#[derive(Debug)]
pub(super) struct CheckpointTask {
    pub(super) checkpointer: Arc<WalCheckpointer>,
    task: JoinHandle<()>,
}

impl CheckpointTask {
    pub(super) fn start(mover: WalCheckpointer, door: &Arc<Mutex<FileAccess>>) -> Self {
        let mover = Arc::new(mover);
        let task = tokio::spawn(run_checkpoints(Arc::clone(&mover), Arc::downgrade(door)));
        Self { checkpointer: mover, task }
    }
}

impl Drop for CheckpointTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run_checkpoints(mover: Arc<WalCheckpointer>, door: Weak<Mutex<FileAccess>>) {
    loop {
        mover.checkpoint_due.notified().await;
        if let Err(error) = mover.checkpoint_all(&door).await {
            // Nothing is lost: what is not moved is read from the log. The next commit asks again.
            tracing::warn!(%error, "move the store's log");
        }
    }
}
