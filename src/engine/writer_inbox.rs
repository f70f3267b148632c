//! Inboxes of the writer tasks: capacity, retry delay, reply channels and answers that await a commit.

use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, oneshot};

use crate::engine::error::EngineError;
use crate::telemetry::trace;

/// Capacity of a writer's inbox. Further commands are rejected with a retry delay.
pub(crate) const WRITER_INBOX_CAPACITY: usize = 16_384;

/// Retry delay when an inbox is full or the store is unavailable, milliseconds.
pub(crate) const RETRY_AFTER_MS: u32 = 500;

/// Reply channel. The receiver may be gone; the change happens regardless.
pub(crate) type ReplySender<T> = oneshot::Sender<Result<T, EngineError>>;

/// Answer that is either ready or pending on a store commit. Dropping it does not cancel the submitted change.
#[derive(Debug)]
pub enum PendingAnswer<T> {
    /// The answer is available.
    Ready(T),
    /// The writer sends the answer after the commit.
    Pending(oneshot::Receiver<Result<T, EngineError>>),
}

impl<T> PendingAnswer<T> {
    /// Waits for the answer. Returns [`EngineError::Internal`] if the writer dropped the reply.
    pub async fn wait(self) -> Result<T, EngineError> {
        match self {
            PendingAnswer::Ready(answer) => Ok(answer),
            PendingAnswer::Pending(answer) => wait_for_commit(answer).await,
        }
    }
}

/// Waits for a writer's answer. Returns [`EngineError::Internal`] if the writer dropped the reply. In a traced call, the wait has a
/// span.
pub(crate) async fn wait_for_commit<T>(answer: oneshot::Receiver<Result<T, EngineError>>) -> Result<T, EngineError> {
    let _span = trace::start_commit_wait();
    answer.await.unwrap_or(Err(EngineError::Internal))
}

/// Puts a command in a writer's inbox without waiting. The caller cannot cancel it afterwards.
pub(crate) fn submit_command<T>(inbox: &mpsc::Sender<T>, command: T) -> Result<(), EngineError> {
    inbox.try_send(command).map_err(|refused| match refused {
        TrySendError::Full(_) => EngineError::Overloaded { retry_after_ms: RETRY_AFTER_MS },
        TrySendError::Closed(_) => EngineError::Draining,
    })
}
