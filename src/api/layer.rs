//! Middleware of each call: authentication, rate limit, deadline, panic handling, stream limits, one count in the
//! metrics, and one log line if the call fails.

pub mod call_reporter;
pub mod deadline;
pub mod request_errors;
pub mod response_body;

use std::any::Any;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::future::BoxFuture;
use http::{HeaderMap, Request, Response, StatusCode};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::api::authorization::{AuthError, Authorizer, PassedAuthCheck};
use crate::api::client_address::ConnectionPeer;
use crate::api::drain::Drain;
use crate::api::internal_error_status;
use crate::api::pb::ErrorReason;
use crate::api::rate_limits_and_audit::{self, AuditedCall, RateLimitsAndAudit};
use crate::api::rpc_method::{self, RpcKind, RpcMethod};
use crate::api::status::Rejection;
use crate::auth::credential_error::CredentialError;
use crate::auth::policy::AccessPolicy;
use crate::telemetry::trace::run_in_span;

use call_reporter::{CallReporter, RpcObserver};
use response_body::{CallResponseBody, ConnectionStreamSlot, StreamEndConditions};

/// Deadline of a long unary call whose client sets none or a longer one.
const LONG_UNARY_DEADLINE: Duration = Duration::from_secs(600);

/// Limit of response bytes on one stream of health, reflection, Watch or Allocate. The full reflection answer is a fifth of it. A client
/// that reads more opens another stream, which is charged again.
const LAYER_ENDED_STREAM_BYTES_MAX: usize = 1024 * 1024;

/// Tower layer that puts `CallService` in front of the routes of a port.
#[derive(Clone)]
pub struct CallLayer {
    state: Arc<LayerState>,
}

struct LayerState {
    observer: Arc<dyn RpcObserver>,
    authorizer: Authorizer,
    unary_deadline: Duration,
    draining: CancellationToken,
    /// Rate limits per call and audit of operator calls; `None`: neither.
    rate_limits_and_audit: Option<RateLimitsAndAudit>,
}

impl CallLayer {
    /// Creates the layer. It reports to `observer`, checks callers with `authorizer`, ends unary calls after
    /// `unary_deadline`, and ends streams when `drain` starts.
    pub fn new(
        observer: Arc<dyn RpcObserver>,
        authorizer: Authorizer,
        unary_deadline: Duration,
        drain: &Drain,
    ) -> Self {
        let draining = drain.stream_cancellation().clone();
        Self {
            state: Arc::new(LayerState { observer, authorizer, unary_deadline, draining, rate_limits_and_audit: None }),
        }
    }

    /// Adds rate limits per call and per failed authentication, and the audit of operator calls.
    pub fn with_rate_limits_and_audit(self, rate_limits_and_audit: RateLimitsAndAudit) -> Self {
        let LayerState { observer, authorizer, unary_deadline, draining, .. } = &*self.state;
        let (observer, authorizer, draining) = (observer.clone(), authorizer.clone(), draining.clone());
        Self {
            state: Arc::new(LayerState {
                observer,
                authorizer,
                unary_deadline: *unary_deadline,
                draining,
                rate_limits_and_audit: Some(rate_limits_and_audit),
            }),
        }
    }
}

impl<S> Layer<S> for CallLayer {
    type Service = CallService<S>;

    fn layer(&self, inner: S) -> CallService<S> {
        CallService { inner, state: self.state.clone() }
    }
}

/// Service wrapped by the middleware.
#[derive(Clone)]
pub struct CallService<S> {
    inner: S,
    state: Arc<LayerState>,
}

impl<S> Service<Request<Body>> for CallService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<CallResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<CallResponseBody>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if !is_grpc(&request) {
            // A request that is not gRPC must not reach an RPC method.
            if rpc_method::is_known_path(request.uri().path()) {
                return Box::pin(async { Ok(unsupported_media_type().map(CallResponseBody::passthrough)) });
            }
            let charged = self
                .state
                .rate_limits_and_audit
                .as_ref()
                .map(|rate_limits_and_audit| rate_limits_and_audit.charge_non_grpc_request(&request));
            if let Some(Err(_rate_limited)) = charged {
                return Box::pin(async { Ok(too_many_requests().map(CallResponseBody::passthrough)) });
            }
            let response = self.inner.call(request);
            return Box::pin(async move { Ok(page_or_not_found(response.await?).map(CallResponseBody::passthrough)) });
        }
        let method = rpc_method::method_of_path(request.uri().path());
        let timeout = deadline::requested_timeout(request.headers());
        let report = CallReporter::new(method.name, self.state.observer.clone()).with_span(request.headers());
        let mut audited = self.start_audit(method, &request);
        let auth = match self.authorize_call(method, &request, &mut audited) {
            Ok(auth) => auth,
            Err(rejection) => return reject_call(rejection, report, audited),
        };
        let slot = match self.acquire_stream_slot(method, &request) {
            Ok(Some(slot)) if method.kind == RpcKind::SelfEndedStream => Some(slot.with_observer(&self.state.observer)),
            Ok(slot) => slot,
            Err(rejection) => return reject_call(rejection, report, audited),
        };
        let valid_for = auth.valid_for().filter(|_| method.kind == RpcKind::LayerEndedStream);
        let limits =
            slot.map(|slot| StreamEndConditions::new(slot, timeout, self.stream_drain_token(method), valid_for));
        let limits = limits.map(|limits| {
            if method.kind == RpcKind::LayerEndedStream {
                limits.with_response_byte_limit(LAYER_ENDED_STREAM_BYTES_MAX)
            } else {
                limits
            }
        });
        request.extensions_mut().insert(auth);
        let max_duration =
            if method.kind == RpcKind::LongUnary { LONG_UNARY_DEADLINE } else { self.state.unary_deadline };
        let duration = timeout.map_or(max_duration, |timeout| timeout.min(max_duration));
        let response = run_in_span(report.span(), self.inner.call(request));
        Box::pin(async move {
            let response =
                match tokio::time::timeout_at(report.call_started_at() + duration, catch_panic(response)).await {
                    Ok(Ok(response)) => response,
                    Ok(Err(_panic)) => internal_error_status().into_http(),
                    Err(_elapsed) => deadline::deadline_exceeded_status().into_http(),
                };
            Ok(finish_response(rate_limits_and_audit::finish_audit(audited, response).await, report, limits))
        })
    }
}

impl<S> CallService<S> {
    /// Starts the audit of a call that only operators may make.
    fn start_audit(&self, method: RpcMethod, request: &Request<Body>) -> Option<AuditedCall> {
        self.state.rate_limits_and_audit.as_ref()?.start_audit(method, request)
    }

    /// Authorizes a call and charges it. Fails if the caller may not make the call or is over a rate limit.
    fn authorize_call(
        &self,
        method: RpcMethod,
        request: &Request<Body>,
        audited: &mut Option<AuditedCall>,
    ) -> Result<PassedAuthCheck, Rejection> {
        let auth = self.state.authorizer.authorize(method.access, request.headers(), request.extensions());
        if is_identified(&auth, method.access)
            && let Some(peer) = request.extensions().get::<ConnectionPeer>()
        {
            peer.set_identified();
        }
        let auth = auth.map_err(|error| self.rejection_of_auth_error(error, method, request, audited.as_mut()))?;
        if let Some(rate_limits_and_audit) = &self.state.rate_limits_and_audit {
            rate_limits_and_audit.charge_call(auth.identity(), method, request)?;
        }
        if let Some(audited) = audited {
            if let Some(identity) = auth.identity() {
                audited.set_identity(identity);
            }
            audited.charge_operator_call()?;
        }
        Ok(auth)
    }

    /// Counts a failed authentication or role check and charges the caller's address. A client that keeps sending bad
    /// credentials receives RATE_LIMITED.
    fn rejection_of_auth_error(
        &self,
        error: AuthError,
        method: RpcMethod,
        request: &Request<Body>,
        audited: Option<&mut AuditedCall>,
    ) -> Rejection {
        self.state.observer.auth_failed(match error {
            AuthError::Unauthenticated(credential_error) => credential_error.as_str(),
            AuthError::RoleNotAllowed(_) => "wrong_role",
            // Counted as a call over a rate limit; nothing was verified.
            AuthError::RateLimited(_) => return error.into(),
        });
        if let (AuthError::RoleNotAllowed(role), Some(audited)) = (error, audited) {
            audited.set_role(role);
        }
        let is_bad_credential = match error {
            AuthError::Unauthenticated(credential_error) => {
                !matches!(credential_error, CredentialError::Missing | CredentialError::Expired)
            }
            AuthError::RoleNotAllowed(_) | AuthError::RateLimited(_) => false,
        };
        let charged = self.state.rate_limits_and_audit.as_ref().map(|rate_limits_and_audit| {
            if is_bad_credential {
                rate_limits_and_audit.charge_auth_failure(request)
            } else {
                rate_limits_and_audit.charge_call(None, method, request)
            }
        });
        match charged {
            Some(Err(rate_limited)) => rate_limited,
            Some(Ok(())) | None => error.into(),
        }
    }

    /// Slot for a stream; `None` for a unary call. Fails if the connection has too many streams or the server is
    /// draining.
    fn acquire_stream_slot(
        &self,
        method: RpcMethod,
        request: &Request<Body>,
    ) -> Result<Option<ConnectionStreamSlot>, Rejection> {
        match method.kind {
            RpcKind::Unary | RpcKind::LongUnary => return Ok(None),
            RpcKind::LayerEndedStream => {}
            RpcKind::SelfEndedStream if self.state.draining.is_cancelled() => return Err(Rejection::draining()),
            RpcKind::SelfEndedStream => {}
        }
        let Some(peer) = request.extensions().get::<ConnectionPeer>() else {
            return Ok(Some(ConnectionStreamSlot::new_without_limit()));
        };
        if peer.open_streams.fetch_add(1, Ordering::Relaxed) >= peer.streams_max {
            peer.open_streams.fetch_sub(1, Ordering::Relaxed);
            let text = format!(
                "the connection has its maximum of {} streams; end one or open another connection",
                peer.streams_max
            );
            return Err(Rejection::new(Code::ResourceExhausted, ErrorReason::TooManyStreams, text));
        }
        Ok(Some(ConnectionStreamSlot::new_for_already_counted_stream(peer.open_streams.clone())))
    }

    /// Token that ends a stream when the server drains. A `SelfEndedStream` ends itself after its last responses.
    fn stream_drain_token(&self, method: RpcMethod) -> Option<CancellationToken> {
        (method.kind == RpcKind::LayerEndedStream).then(|| self.state.draining.clone())
    }
}

/// Whether a call shows that its connection is of a known caller: it was authenticated. If authentication is off, any call
/// that needs it otherwise does.
fn is_identified(auth: &Result<PassedAuthCheck, AuthError>, access: AccessPolicy) -> bool {
    match auth {
        Ok(_) => access != AccessPolicy::Public,
        Err(AuthError::RoleNotAllowed(_)) => true,
        Err(AuthError::Unauthenticated(_) | AuthError::RateLimited(_)) => false,
    }
}

/// Whether a request has a gRPC content type.
pub fn is_grpc(request: &Request<Body>) -> bool {
    has_grpc_content_type(request.headers())
}

fn has_grpc_content_type(headers: &HeaderMap) -> bool {
    let content_type = headers.get(http::header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// HTTP 415 for a request that names a method and is not gRPC (gRPC over HTTP/2, "Requests").
fn unsupported_media_type() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

/// Response to a request for a page. A service answers a method that does not exist with a gRPC status, which is no page.
fn page_or_not_found(response: Response<Body>) -> Response<Body> {
    if !has_grpc_content_type(response.headers()) {
        return response;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

/// HTTP 429 for a page whose reader is over the rate limit.
fn too_many_requests() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    response
}

fn reject_call(
    rejection: Rejection,
    report: CallReporter,
    audited: Option<AuditedCall>,
) -> BoxFuture<'static, Result<Response<CallResponseBody>, Infallible>> {
    let response = rejection.into_status().into_http();
    Box::pin(async move {
        Ok(finish_response(rate_limits_and_audit::finish_rejected_audit(audited, response).await, report, None))
    })
}

fn finish_response(
    response: Response<Body>,
    mut report: CallReporter,
    limits: Option<StreamEndConditions>,
) -> Response<CallResponseBody> {
    // A status in the headers is a complete, trailers-only response.
    let response = match Status::from_header_map(response.headers()) {
        Some(status) => {
            let (response, code) = match request_errors::rejection_of_unreadable_request(&status) {
                Some(rejection) => (rejection.into_status().into_http(), Code::InvalidArgument),
                None => (response, status.code()),
            };
            report.finish(code);
            response
        }
        None => response,
    };
    response.map(|body| CallResponseBody::of_call(body, report, limits))
}

/// Runs a future to its end; returns its panic as an error.
async fn catch_panic<F>(future: F) -> Result<Response<Body>, Box<dyn Any + Send>>
where
    F: Future<Output = Result<Response<Body>, Infallible>>,
{
    let mut future = pin!(future);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(Ok(response))) => Poll::Ready(Ok(response)),
        Err(panic) => Poll::Ready(Err(panic)),
    })
    .await
}

#[cfg(test)]
mod tests;
