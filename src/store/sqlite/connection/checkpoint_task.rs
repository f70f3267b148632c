//! Task that checkpoints the write-ahead log while the writer continues.

use std::sync::{Arc, Weak};

use tokio::sync::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::store::error::StoreError;
use crate::store::sqlite::connection::file_access::FileAccess;
use crate::store::sqlite::connection::wal::WalCheckpointer;
use crate::supervisor::TaskSupervisor;
use crate::telemetry::label::TaskLabel;

/// Maximum number of passes per round that run beside the writer.
const NON_BLOCKING_CHECKPOINTS_MAX: usize = 4;

/// Checkpointer and its task; the task ends with the store.
#[derive(Debug)]
pub(in crate::store::sqlite) struct CheckpointTask {
    pub(in crate::store::sqlite) checkpointer: Arc<WalCheckpointer>,
    task: JoinHandle<()>,
}

impl CheckpointTask {
    pub(in crate::store::sqlite) fn start(
        checkpointer: WalCheckpointer,
        access: &Arc<Mutex<FileAccess>>,
        supervisor: &TaskSupervisor,
    ) -> Self {
        let checkpointer = Arc::new(checkpointer);
        let (of_task, access) = (Arc::clone(&checkpointer), Arc::downgrade(access));
        let start = move || run_checkpoints(Arc::clone(&of_task), Weak::clone(&access));
        // The task is aborted with the store, so it needs no other signal.
        let task = supervisor.spawn_restarting(TaskLabel::WalCheckpoint, &CancellationToken::new(), start);
        Self { checkpointer, task }
    }
}

impl Drop for CheckpointTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run_checkpoints(checkpointer: Arc<WalCheckpointer>, access: Weak<Mutex<FileAccess>>) {
    loop {
        checkpointer.wait_until_due().await;
        if let Err(error) = checkpoint_all(&checkpointer, &access).await {
            // No data is lost: pages that were not copied are read from the log. The next commit requests a checkpoint
            // again.
            tracing::warn!(%error, "WAL checkpoint failed");
        }
    }
}

/// Copies as much as possible beside the writer, and the rest while it blocks the writer.
async fn checkpoint_all(checkpointer: &WalCheckpointer, access: &Weak<Mutex<FileAccess>>) -> Result<(), StoreError> {
    for _ in 0..NON_BLOCKING_CHECKPOINTS_MAX {
        let length = checkpointer.checkpoint_once().await?;
        if length.pages - length.checkpointed_pages <= checkpointer.limits.final_pass_pages
            || length.pages >= checkpointer.limits.writer_waits_pages
        {
            break;
        }
    }
    let Some(access) = access.upgrade() else { return Ok(()) };
    let mut access = access.lock().await;
    if access.is_store_open() {
        access.wal_length = checkpointer.checkpoint_once().await?;
    }
    Ok(())
}
