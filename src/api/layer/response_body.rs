//! The body of an answer, watched to its end: streams stop at their deadline and when the server goes away, always with
//! a status, never with a reset.

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
use crate::api::layer::call_report::{CallReport, RpcObserver};
use crate::api::layer::deadline;
use crate::api::pb::ErrorReason;
use crate::api::status::Rejection;

/// An answer's body.
pub struct CallResponseBody {
    inner: Body,
    report: Option<CallReport>,
    limits: Option<StreamLimits>,
    ended: bool,
}

/// What ends a stream before its time.
pub struct StreamLimits {
    _slot: StreamSlot,
    deadline: Option<Pin<Box<Sleep>>>,
    draining: Option<Pin<Box<WaitForCancellationFutureOwned>>>,
    token_expiry: Option<Pin<Box<Sleep>>>,
    /// Bytes that may still be said.
    bytes_left: usize,
}

/// A stream's place among those of its connection; given back when the stream ends.
#[derive(Default)]
pub struct StreamSlot {
    open_streams: Option<Arc<AtomicU32>>,
    observer: Option<Arc<dyn RpcObserver>>,
}

impl StreamSlot {
    /// A place that nobody counts.
    pub fn uncounted() -> Self {
        Self::default()
    }

    /// A place that has been counted in `open`.
    pub fn counted(open: Arc<AtomicU32>) -> Self {
        Self { open_streams: Some(open), observer: None }
    }

    /// The same, which `observer` counts too.
    pub fn with_observer(mut self, observer: &Arc<dyn RpcObserver>) -> Self {
        observer.stream_count_changed(1);
        self.observer = Some(observer.clone());
        self
    }
}

impl Drop for StreamSlot {
    fn drop(&mut self) {
        if let Some(open) = &self.open_streams {
            open.fetch_sub(1, Ordering::Relaxed);
        }
        if let Some(observer) = &self.observer {
            observer.stream_count_changed(-1);
        }
    }
}

impl StreamLimits {
    /// Ends a stream when the client no longer waits, when `draining` is cancelled, or after `good_for`, when the
    /// caller's proof has run out.
    pub fn new(
        slot: StreamSlot,
        asked: Option<Duration>,
        draining: Option<CancellationToken>,
        good_for: Option<Duration>,
    ) -> Self {
        Self {
            _slot: slot,
            deadline: asked.map(|asked| Box::pin(tokio::time::sleep(asked))),
            draining: draining.map(|token| Box::pin(token.cancelled_owned())),
            token_expiry: good_for.map(|good_for| Box::pin(tokio::time::sleep(good_for))),
            bytes_left: usize::MAX,
        }
    }

    /// The same, but the stream ends as well when so many bytes have been said.
    pub fn with_byte_limit(self, bytes: usize) -> Self {
        Self { bytes_left: bytes, ..self }
    }

    /// Counts what is about to be said; why the stream ends instead, when it is too much.
    fn charge_bytes(&mut self, frame: &Frame<Bytes>) -> Option<Status> {
        let bytes = frame.data_ref().map_or(0, Bytes::len);
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => {
                self.bytes_left = left;
                None
            }
            None => {
                let text = "this stream has been told enough: open another";
                Some(Rejection::new(Code::ResourceExhausted, ErrorReason::StreamLimitReached, text).into_status())
            }
        }
    }

    fn poll_limit_reached(&mut self, cx: &mut Context<'_>) -> Option<Status> {
        if self.deadline.as_mut().is_some_and(|deadline| deadline.as_mut().poll(cx).is_ready()) {
            return Some(deadline::deadline_exceeded_status());
        }
        if self.token_expiry.as_mut().is_some_and(|run_out| run_out.as_mut().poll(cx).is_ready()) {
            return Some(token_expired_rejection().into_status());
        }
        let draining = self.draining.as_mut().is_some_and(|draining| draining.as_mut().poll(cx).is_ready());
        draining.then(|| Rejection::draining().into_status())
    }
}

impl CallResponseBody {
    /// The body of something that is no gRPC call.
    pub fn passthrough(inner: Body) -> Self {
        Self { inner, report: None, limits: None, ended: false }
    }

    /// The body of a call.
    pub fn of_call(inner: Body, report: CallReport, guard: Option<StreamLimits>) -> Self {
        Self { inner, report: Some(report), limits: guard, ended: false }
    }

    /// The stream is over: its place is free before anybody hears of it.
    fn report_end(&mut self, code: Code) {
        self.limits = None;
        if let Some(report) = &mut self.report {
            report.finish(code);
        }
    }

    /// Ends the stream with a status of our own.
    fn end_with_status(&mut self, status: Status) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.ended = true;
        self.report_end(status.code());
        let mut trailers = HeaderMap::new();
        match status.add_header(&mut trailers) {
            Ok(()) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
            Err(status) => Poll::Ready(Some(Err(status))),
        }
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
            Ok(Poll::Pending) => match this.limits.as_mut().and_then(|guard| guard.poll_limit_reached(cx)) {
                Some(status) => this.end_with_status(status),
                None => Poll::Pending,
            },
            Ok(Poll::Ready(Some(Ok(frame)))) => {
                if let Some(status) = this.limits.as_mut().and_then(|guard| guard.charge_bytes(&frame)) {
                    return this.end_with_status(status);
                }
                if let Some(status) = frame.trailers_ref().and_then(Status::from_header_map) {
                    this.report_end(status.code());
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Ok(end) => {
                // Without trailers: something that is no gRPC answer, or an error that says so itself.
                this.report_end(if matches!(end, Poll::Ready(None)) { Code::Ok } else { Code::Internal });
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
