//! What is said of a call when it is over: one count, and one line when it failed. Never an address, never a token.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tonic::Code;

/// Who counts.
pub trait RpcObserver: Send + Sync + 'static {
    /// A call is over. `method` is one of a fixed set of names, `code` is how it ended.
    fn call_finished(&self, method: &'static str, code: Code, elapsed: Duration);

    /// A call was not let in: one of the words of `auth::refused`, or `wrong_role`.
    fn auth_failed(&self, why: &'static str) {
        let _ = why;
    }

    /// A connection was turned away at the door: `too_many` or `too_many_from_one_place`.
    fn connection_rejected(&self, why: &'static str);

    /// So many connections more, or less, are open.
    fn connection_count_changed(&self, change: i64) {
        let _ = change;
    }

    /// So many Connect streams more, or less, are open.
    fn stream_count_changed(&self, change: i64) {
        let _ = change;
    }
}

/// Tells of one call, once.
pub struct CallReport {
    method: &'static str,
    started_at: Instant,
    observer: Option<Arc<dyn RpcObserver>>,
}

impl CallReport {
    /// A call has begun.
    pub fn new(method: &'static str, observer: Arc<dyn RpcObserver>) -> Self {
        Self { method, started_at: Instant::now(), observer: Some(observer) }
    }

    /// When it began.
    pub fn started_at(&self) -> Instant {
        self.started_at
    }

    /// It is over; whatever is said after the first time is not heard.
    pub fn finish(&mut self, code: Code) {
        let Some(observer) = self.observer.take() else { return };
        let elapsed = self.started_at.elapsed();
        let (method, word) = (self.method, status_code_name(code));
        observer.call_finished(method, code, elapsed);
        let ms = elapsed.as_secs_f64() * 1000.0;
        match code {
            Code::Ok => {}
            // Somebody hung up: the most usual end of a stream.
            Code::Cancelled => tracing::debug!(method, code = word, ms, "call ended early"),
            Code::Internal | Code::Unknown | Code::DataLoss | Code::DeadlineExceeded | Code::Unavailable => {
                tracing::warn!(method, code = word, ms, "call failed");
            }
            _ => tracing::info!(method, code = word, ms, "call refused"),
        }
    }
}

/// A call that nobody finished was given up by its client.
impl Drop for CallReport {
    fn drop(&mut self) {
        self.finish(Code::Cancelled);
    }
}

/// A code as metrics and logs write it.
pub fn status_code_name(code: Code) -> &'static str {
    match code {
        Code::Ok => "OK",
        Code::Cancelled => "CANCELLED",
        Code::Unknown => "UNKNOWN",
        Code::InvalidArgument => "INVALID_ARGUMENT",
        Code::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Code::NotFound => "NOT_FOUND",
        Code::AlreadyExists => "ALREADY_EXISTS",
        Code::PermissionDenied => "PERMISSION_DENIED",
        Code::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Code::FailedPrecondition => "FAILED_PRECONDITION",
        Code::Aborted => "ABORTED",
        Code::OutOfRange => "OUT_OF_RANGE",
        Code::Unimplemented => "UNIMPLEMENTED",
        Code::Internal => "INTERNAL",
        Code::Unavailable => "UNAVAILABLE",
        Code::DataLoss => "DATA_LOSS",
        Code::Unauthenticated => "UNAUTHENTICATED",
    }
}
