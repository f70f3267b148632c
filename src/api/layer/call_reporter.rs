//! Report of a finished call: one count, the end of its span, and one log line if it failed. Never an address, never a token.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use tokio::time::Instant;
use tonic::Code;

use crate::telemetry::event_sampler::Sampled;
use crate::telemetry::trace::CallSpan;

/// Receives counts of calls, connections and streams.
pub trait RpcObserver: Send + Sync + 'static {
    /// A call has ended. `method` is from a fixed set of names; `code` is its final status; `span` is that of a traced call.
    fn call_finished(&self, method: &'static str, code: Code, elapsed: Duration, span: Option<&CallSpan>);

    /// Starts the span of a call whose headers these are; `None` if the call is not traced.
    fn start_span(&self, _method: &'static str, _headers: &HeaderMap) -> Option<CallSpan> {
        None
    }

    /// Authentication or the role check failed. `reason` is a name of `auth::credential_error`, or `wrong_role`.
    fn auth_failed(&self, reason: &'static str) {
        let _ = reason;
    }

    /// Whether the log line of a failed call is written; otherwise the call is only counted for the log. Callers must not be
    /// able to fill the disk with it.
    fn sample_failed_call(&self, method: &'static str, code: Code) -> Sampled {
        let _ = (method, code);
        Sampled::Write { counted: 0 }
    }

    /// A connection was rejected or closed by a limit. `reason` is a name of `telemetry::label`, such as
    /// `max_connections`.
    fn connection_rejected(&self, reason: &'static str);

    /// The number of open connections changed by `change`.
    fn connection_count_changed(&self, change: i64) {
        let _ = change;
    }

    /// The number of open Connect streams changed by `change`.
    fn connect_stream_count_changed(&self, change: i64) {
        let _ = change;
    }
}

/// Reports one call, once: when it is finished, or dropped.
pub struct CallReporter {
    method: &'static str,
    started_at: Instant,
    observer: Option<Arc<dyn RpcObserver>>,
    span: Option<CallSpan>,
}

impl CallReporter {
    /// Starts the report of a call.
    pub fn new(method: &'static str, observer: Arc<dyn RpcObserver>) -> Self {
        Self { method, started_at: Instant::now(), observer: Some(observer), span: None }
    }

    /// The report with a span, if the call is traced. `headers` are those of the call.
    pub fn with_span(mut self, headers: &HeaderMap) -> Self {
        self.span = self.observer.as_ref().and_then(|observer| observer.start_span(self.method, headers));
        self
    }

    /// Span of the call, if it is traced.
    pub fn span(&self) -> Option<&CallSpan> {
        self.span.as_ref()
    }

    /// Start of the call.
    pub fn call_started_at(&self) -> Instant {
        self.started_at
    }

    /// Reports the end of the call. Later calls have no effect.
    pub fn finish(&mut self, code: Code) {
        let Some(observer) = self.observer.take() else { return };
        let elapsed = self.started_at.elapsed();
        let (method, code_name) = (self.method, status_code_name(code));
        observer.call_finished(method, code, elapsed, self.span.as_ref());
        if let Some(span) = self.span.take() {
            span.end(code_name, is_server_fault(code));
        }
        let ms = elapsed.as_secs_f64() * 1000.0;
        if code == Code::Ok {
            return;
        }
        // The client cancelled: the normal end of a stream.
        if code == Code::Cancelled {
            return tracing::debug!(method, code = code_name, ms, "call cancelled by the client");
        }
        match observer.sample_failed_call(method, code) {
            Sampled::Count => tracing::debug!(method, code = code_name, ms, "call failed, counted only"),
            Sampled::Write { counted } => {
                log_unlogged_failure_count(method, code, counted);
                if is_server_fault(code) {
                    tracing::warn!(method, code = code_name, ms, "call failed");
                } else {
                    tracing::info!(method, code = code_name, ms, "call rejected");
                }
            }
        }
    }
}

/// Logs the number of failed calls of a kind that were only counted.
pub fn log_unlogged_failure_count(method: &'static str, code: Code, count: u64) {
    let code_name = status_code_name(code);
    if count == 0 {
        return;
    }
    if is_server_fault(code) {
        tracing::warn!(method, code = code_name, count, "further calls failed");
    } else {
        tracing::info!(method, code = code_name, count, "further calls rejected");
    }
}

/// Whether a code says that the server, and not the caller, has a problem.
fn is_server_fault(code: Code) -> bool {
    use Code::{DataLoss, DeadlineExceeded, Internal, Unavailable, Unknown};
    matches!(code, Internal | Unknown | DataLoss | DeadlineExceeded | Unavailable)
}

/// A call that is dropped before its end was cancelled by its client.
impl Drop for CallReporter {
    fn drop(&mut self) {
        self.finish(Code::Cancelled);
    }
}

/// Name of a code in metrics and logs.
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
