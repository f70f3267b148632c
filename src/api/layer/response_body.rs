//! Response body of a call. Ends a stream at its deadline, at token expiry, at its byte limit, or when the server
//! drains; always with a status in the trailers, never with a reset.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::api::authorization::token_expired_rejection;
use crate::api::internal_error_status;
use crate::api::layer::call_reporter::{CallReporter, RpcObserver};
use crate::api::layer::deadline;
use crate::api::layer::request_errors::rejection_of_unreadable_request;
use crate::api::pb::ErrorReason;
use crate::api::status::Rejection;

/// Response body that enforces limits and reports the end of its call.
pub struct CallResponseBody {
    inner: Body,
    report: Option<CallReporter>,
    limits: Option<StreamEndConditions>,
    ended: bool,
}

/// Conditions that end a stream early.
pub struct StreamEndConditions {
    _slot: ConnectionStreamSlot,
    deadline: Option<Pin<Box<Sleep>>>,
    draining: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    token_expiry: Option<Pin<Box<Sleep>>>,
    /// Response bytes that may still be sent.
    bytes_left: usize,
}

/// Slot of a stream in its connection's stream limit; released on drop.
#[derive(Default)]
pub struct ConnectionStreamSlot {
    open_streams: Option<Arc<AtomicU32>>,
    observer: Option<Arc<dyn RpcObserver>>,
}

impl ConnectionStreamSlot {
    /// Creates a slot without a limit.
    pub fn new_without_limit() -> Self {
        Self::default()
    }

    /// Creates a slot that its caller has already counted in `open_streams`.
    pub fn new_for_already_counted_stream(open_streams: Arc<AtomicU32>) -> Self {
        Self { open_streams: Some(open_streams), observer: None }
    }

    /// Also counts the stream at `observer`.
    pub fn with_observer(mut self, observer: &Arc<dyn RpcObserver>) -> Self {
        observer.connect_stream_count_changed(1);
        self.observer = Some(observer.clone());
        self
    }
}

impl Drop for ConnectionStreamSlot {
    fn drop(&mut self) {
        if let Some(open_streams) = &self.open_streams {
            open_streams.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(observer) = &self.observer {
            observer.connect_stream_count_changed(-1);
        }
    }
}

impl StreamEndConditions {
    /// Ends the stream after the client's `timeout`, when `draining` is cancelled, or after `valid_for`, when the
    /// caller's credentials expire.
    pub fn new(
        slot: ConnectionStreamSlot,
        timeout: Option<Duration>,
        draining: Option<CancellationToken>,
        valid_for: Option<Duration>,
    ) -> Self {
        Self {
            _slot: slot,
            deadline: timeout.map(|timeout| Box::pin(tokio::time::sleep(timeout))),
            draining: draining.map(|token| Box::pin(token.cancelled_owned())),
            token_expiry: valid_for.map(|valid_for| Box::pin(tokio::time::sleep(valid_for))),
            bytes_left: usize::MAX,
        }
    }

    /// Also ends the stream after `bytes` response bytes.
    pub fn with_response_byte_limit(self, bytes: usize) -> Self {
        Self { bytes_left: bytes, ..self }
    }

    /// Charges a frame to the byte limit. Returns the final status if the limit is exceeded.
    fn charge_bytes(&mut self, frame: &Frame<Bytes>) -> Option<Status> {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => {
                self.bytes_left = left;
                None
            }
            None => {
                let text = "stream byte limit reached; open a new stream";
                Some(Rejection::new(Code::ResourceExhausted, ErrorReason::StreamLimitReached, text).into_status())
            }
        }
    }

    fn poll_end_condition(&mut self, cx: &mut Context<'_>) -> Option<Status> {
        if self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready()) {
            return Some(deadline::deadline_exceeded_status());
        }
        if self.token_expiry.as_mut().is_some_and(|expiry| expiry.as_mut().poll(cx).is_ready()) {
            return Some(token_expired_rejection().into_status());
        }
        let is_draining = self.draining.as_mut().is_some_and(|draining| draining.as_mut().poll(cx).is_ready());
        is_draining.then(|| Rejection::draining().into_status())
    }
}

impl CallResponseBody {
    /// Creates the body of a response that is not gRPC: no limits, no report.
    pub fn passthrough(inner: Body) -> Self {
        Self { inner, report: None, limits: None, ended: false }
    }

    /// Creates the body of a call's response.
    pub fn of_call(inner: Body, report: CallReporter, limits: Option<StreamEndConditions>) -> Self {
        Self { inner, report: Some(report), limits, ended: false }
    }

    /// Releases the slot, then reports the end, so that the slot is free before the client sees the end.
    fn release_slot_and_report_end(&mut self, code: Code) {
        self.limits = None;
        if let Some(report) = &mut self.report {
            report.finish(code);
        }
    }

    /// Ends the stream with a status of the server.
    fn end_with_status(&mut self, status: Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.ended = true;
        self.release_slot_and_report_end(status.code());
        let mut trailers = HeaderMap::new();
        match status.add_header(&mut trailers) {
            Ok(()) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Err(status) => Poll::Ready(Some(Err(status))),
        }
    }
}

/// Empty body of a response that is not gRPC.
impl Default for CallResponseBody {
    fn default() -> Self {
        Self::passthrough(Body::empty())
    }
}

impl http_body::Body for CallResponseBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        if this.ended {
            return Poll::Ready(None);
        }
        match catch_unwind(AssertUnwindSafe(|| Pin::new(&mut this.inner).poll_frame(cx))) {
            Err(_panic) => this.end_with_status(internal_error_status()),
            Ok(Poll::Pending) => match this.limits.as_mut().and_then(|limits| limits.poll_end_condition(cx)) {
                Some(status) => this.end_with_status(status),
                None => Poll::Pending,
            },
            Ok(Poll::Ready(Some(Ok(frame)))) => {
                if let Some(status) = this.limits.as_mut().and_then(|limits| limits.charge_bytes(&frame)) {
                    return this.end_with_status(status);
                }
                if let Some(status) = frame.trailers_ref().and_then(Status::from_header_map) {
                    if let Some(rejection) = rejection_of_unreadable_request(&status) {
                        return this.end_with_status(rejection.into_status());
                    }
                    this.release_slot_and_report_end(status.code());
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Ok(end) => {
                // No trailers: either the response is not gRPC, or the body itself failed.
                this.release_slot_and_report_end(if matches!(end, Poll::Ready(None)) {
                    Code::Ok
                } else {
                    Code::Internal
                });
                end
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
