//! Server streams over HTTP/2 and TLS, for games without a transport of their own: read message by message, each with a longest time.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tonic::{Status, Streaming};

use crate::call_failure::CallFailure;
use crate::panic_guard::PanicGuard;

/// Server stream of a client. One thread at a time may use it.
pub struct FtStream {
    state: PanicGuard<StreamState>,
    /// Message that did not fit into the caller's buffer.
    message: Option<Vec<u8>>,
    call_id: u64,
    /// After the stream, which it drives.
    runtime: Arc<Runtime>,
}

/// Stream that is being opened.
pub(crate) type Opening = Pin<Box<dyn Future<Output = Result<Streaming<Vec<u8>>, Status>> + Send>>;

enum StreamState {
    Opening(Opening),
    Open(Box<Streaming<Vec<u8>>>),
    /// `None`: the server ended it.
    Ended(Option<CallFailure>),
}

impl FtStream {
    pub(crate) fn new(runtime: Arc<Runtime>, opening: Opening, call_id: u64) -> Self {
        Self { state: PanicGuard::new(StreamState::Opening(opening)), message: None, call_id, runtime }
    }

    /// Waits for the next message, unless one is there.
    pub(crate) fn wait(&mut self, longest: Duration) -> Result<(), i32> {
        if self.message.is_none() {
            self.message = self.state.run(|state| {
                let next = state.next_message();
                // No message in time is no end.
                self.runtime.block_on(async { tokio::time::timeout(longest, next).await.ok().flatten() })
            })?;
        }
        Ok(())
    }

    /// Message that has arrived, until [`Self::message_is_done`].
    pub(crate) fn message(&self) -> Option<&[u8]> {
        self.message.as_deref()
    }

    pub(crate) fn message_is_done(&mut self) {
        self.message = None;
    }

    /// Whether the stream has ended.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.state.object(), StreamState::Ended(_)) && self.message.is_none()
    }

    /// End of the stream: number of the call, status and details. `None` if it has not ended.
    pub(crate) fn end(&self) -> Option<(u64, i32, &[u8])> {
        match self.state.object() {
            StreamState::Ended(failure) if self.message.is_none() => {
                let (code, details) = failure.as_ref().map_or((0, &[][..]), |it| (it.code, &it.details));
                Some((self.call_id, code, details))
            }
            _ => None,
        }
    }
}

impl StreamState {
    /// Opens the stream if need be, and waits for a message. `None` if the stream has ended. May be dropped and called again.
    async fn next_message(&mut self) -> Option<Vec<u8>> {
        loop {
            *self = match self {
                Self::Opening(opening) => match opening.await {
                    Ok(stream) => Self::Open(Box::new(stream)),
                    Err(status) => Self::Ended(Some(CallFailure::from(&status))),
                },
                Self::Open(stream) => match stream.message().await {
                    Ok(Some(message)) => return Some(message),
                    Ok(None) => Self::Ended(None),
                    Err(status) => Self::Ended(Some(CallFailure::from(&status))),
                },
                Self::Ended(_) => return None,
            };
        }
    }
}

impl fmt::Debug for FtStream {
    /// Prints no message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FtStream").field("call_id", &self.call_id).finish_non_exhaustive()
    }
}
