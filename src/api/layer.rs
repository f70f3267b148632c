//! What every call passes through: the check of who is calling, deadline, panics caught, streams ended in good order, one
//! count and, when it fails, one line in the log.

pub mod call_report;
pub mod deadline;
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
use http::{Request, Response, StatusCode};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::api::audit_layer::{self, AuditLayer, AuditedCall};
use crate::api::authorization::{AuthContext, AuthError, Authorizer};
use crate::api::client_address::ConnectionPeer;
use crate::api::drain::Drain;
use crate::api::internal_error_status;
use crate::api::pb::ErrorReason;
use crate::api::rpc_method::{self, RpcKind, RpcMethod};
use crate::api::status::Rejection;
use crate::auth::credential_error::CredentialError;

use call_report::{CallReport, RpcObserver};
use response_body::{CallResponseBody, StreamLimits, StreamSlot};

/// What a patient call may take, should its client wait as long.
const LONG_CALL_DEADLINE: Duration = Duration::from_secs(600);

/// Bytes of answers on one stream of health or reflection. All that reflection has to tell is a fifth of it; whoever asks for
/// the same again and again opens another stream, and that is charged.
const STREAM_RESPONSE_BYTES_MAX: usize = 1024 * 1024;

/// Puts `CallService` in front of the routes of a port.
#[derive(Clone)]
pub struct CallLayer {
    state: Arc<LayerState>,
}

struct LayerState {
    observer: Arc<dyn RpcObserver>,
    authorizer: Authorizer,
    unary_deadline: Duration,
    draining: CancellationToken,
    /// Watches over operators; none: nobody does.
    audit_layer: Option<AuditLayer>,
}

impl CallLayer {
    /// A layer that reports to `observer`, lets in whom `keeper` lets in, ends unary calls after `unary_deadline` and
    /// streams when `drain` begins.
    pub fn new(observer: Arc<dyn RpcObserver>, keeper: Authorizer, unary_deadline: Duration, drain: &Drain) -> Self {
        let draining = drain.stream_cancellation().clone();
        Self {
            state: Arc::new(LayerState { observer, authorizer: keeper, unary_deadline, draining, audit_layer: None }),
        }
    }

    /// The same, with somebody who watches over what only operators may ask, and over proofs that are worth nothing.
    pub fn with_audit_layer(self, oversight: AuditLayer) -> Self {
        let LayerState { observer, authorizer: keeper, unary_deadline, draining, .. } = &*self.state;
        let (observer, keeper, draining) = (observer.clone(), keeper.clone(), draining.clone());
        let oversight = Some(oversight);
        Self {
            state: Arc::new(LayerState {
                observer,
                authorizer: keeper,
                unary_deadline: *unary_deadline,
                draining,
                audit_layer: oversight,
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

/// A service with the layer's care around each call.
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
            // What is no call must not be taken for one further in.
            if rpc_method::is_known_path(request.uri().path()) {
                return Box::pin(async { Ok(unsupported_media_type().map(CallResponseBody::passthrough)) });
            }
            let answer = self.inner.call(request);
            return Box::pin(async move { Ok(answer.await?.map(CallResponseBody::passthrough)) });
        }
        let method = rpc_method::method_of_path(request.uri().path());
        let asked = deadline::requested_timeout(request.headers());
        let report = CallReport::new(method.name, self.state.observer.clone());
        let mut watched = self.start_audit(method, &request);
        let admitted = match self.authorize_call(method, &request, &mut watched) {
            Ok(admitted) => admitted,
            Err(rejection) => return reject_call(rejection, report, watched),
        };
        let slot = match self.acquire_stream_slot(method, &request) {
            Ok(Some(slot)) if method.kind == RpcKind::SelfEndedStream => Some(slot.with_observer(&self.state.observer)),
            Ok(slot) => slot,
            Err(rejection) => return reject_call(rejection, report, watched),
        };
        let good_for = admitted.valid_for().filter(|_| method.kind == RpcKind::LayerEndedStream);
        let guard = slot.map(|slot| StreamLimits::new(slot, asked, self.stream_drain_token(method), good_for));
        let guard = guard.map(|guard| {
            if method.kind == RpcKind::LayerEndedStream {
                guard.with_byte_limit(STREAM_RESPONSE_BYTES_MAX)
            } else {
                guard
            }
        });
        request.extensions_mut().insert(admitted);
        let most = if method.kind == RpcKind::LongUnary { LONG_CALL_DEADLINE } else { self.state.unary_deadline };
        let limit = asked.map_or(most, |asked| asked.min(most));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = match tokio::time::timeout_at(report.started_at() + limit, catch_panic(answer)).await {
                Ok(Ok(response)) => response,
                Ok(Err(_panic)) => internal_error_status().into_http(),
                Err(_elapsed) => deadline::deadline_exceeded_status().into_http(),
            };
            Ok(finish_response(audit_layer::finish_audit(watched, response).await, report, guard))
        })
    }
}

impl<S> CallService<S> {
    /// A call that is watched.
    fn start_audit(&self, method: RpcMethod, request: &Request<Body>) -> Option<AuditedCall> {
        self.state.audit_layer.as_ref()?.start_audit(method, request)
    }

    /// Word of who is calling, for whoever is behind this and whoever watches; an error when the call is not theirs to
    /// make, or one too many.
    fn authorize_call(
        &self,
        method: RpcMethod,
        request: &Request<Body>,
        watched: &mut Option<AuditedCall>,
    ) -> Result<AuthContext, Rejection> {
        let admitted = self.state.authorizer.authorize(method.access, request.headers(), request.extensions());
        let admitted = admitted.map_err(|denied| self.rejection_of_auth_error(denied, request, watched.as_mut()))?;
        if let Some(oversight) = &self.state.audit_layer {
            oversight.charge_call(admitted.identity(), request)?;
        }
        if let Some(watched) = watched {
            if let Some(identity) = admitted.identity() {
                watched.set_identity(identity);
            }
            watched.charge_operator_call()?;
        }
        Ok(admitted)
    }

    /// Counts somebody who is not let in, and charges the place that they come from. Whoever shows what is worth nothing,
    /// again and again, is soon told that alone.
    fn rejection_of_auth_error(
        &self,
        denied: AuthError,
        request: &Request<Body>,
        watched: Option<&mut AuditedCall>,
    ) -> Rejection {
        self.state.observer.auth_failed(match denied {
            AuthError::Unauthenticated(refused) => refused.as_str(),
            AuthError::RoleNotAllowed(_) => "wrong_role",
        });
        if let (AuthError::RoleNotAllowed(role), Some(watched)) = (denied, watched) {
            watched.set_role(role);
        }
        let is_worthless = match denied {
            AuthError::Unauthenticated(refused) => {
                !matches!(refused, CredentialError::Missing | CredentialError::Expired)
            }
            AuthError::RoleNotAllowed(_) => false,
        };
        let charged = self.state.audit_layer.as_ref().map(|oversight| match is_worthless {
            true => oversight.charge_auth_failure(request),
            false => oversight.charge_call(None, request),
        });
        match charged {
            Some(Err(over)) => over,
            Some(Ok(())) | None => denied.into(),
        }
    }

    /// A place for a stream, or none for a call that is no stream; an error when there is no place.
    fn acquire_stream_slot(&self, method: RpcMethod, request: &Request<Body>) -> Result<Option<StreamSlot>, Rejection> {
        match method.kind {
            RpcKind::Unary | RpcKind::LongUnary => return Ok(None),
            RpcKind::LayerEndedStream => {}
            RpcKind::SelfEndedStream if self.state.draining.is_cancelled() => return Err(Rejection::draining()),
            RpcKind::SelfEndedStream => {}
        }
        let Some(peer) = request.extensions().get::<ConnectionPeer>() else { return Ok(Some(StreamSlot::uncounted())) };
        if peer.streams_max <= peer.open_streams.fetch_add(1, Ordering::Relaxed) {
            peer.open_streams.fetch_sub(1, Ordering::Relaxed);
            let text = format!("at most {} streams may be open on one connection", peer.streams_max);
            return Err(Rejection::new(Code::ResourceExhausted, ErrorReason::TooManyStreams, text));
        }
        Ok(Some(StreamSlot::counted(peer.open_streams.clone())))
    }

    /// What ends a stream when the server goes away; a conversation sees to that itself, after its last answers.
    fn stream_drain_token(&self, method: RpcMethod) -> Option<CancellationToken> {
        (method.kind == RpcKind::LayerEndedStream).then(|| self.state.draining.clone())
    }
}

fn is_grpc(request: &Request<Body>) -> bool {
    let content_type = request.headers().get(http::header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// What HTTP says to a request that names a method and is no gRPC (gRPC over HTTP/2, "Requests").
fn unsupported_media_type() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

fn reject_call(
    rejection: Rejection,
    report: CallReport,
    watched: Option<AuditedCall>,
) -> BoxFuture<'static, Result<Response<CallResponseBody>, Infallible>> {
    let response = rejection.into_status().into_http();
    Box::pin(async move { Ok(finish_response(audit_layer::finish_audit(watched, response).await, report, None)) })
}

fn finish_response(
    response: Response<Body>,
    mut report: CallReport,
    guard: Option<StreamLimits>,
) -> Response<CallResponseBody> {
    // A status among the headers is the whole answer.
    if let Some(status) = Status::from_header_map(response.headers()) {
        report.finish(status.code());
    }
    response.map(|body| CallResponseBody::of_call(body, report, guard))
}

/// Runs a future to its end, or to its panic.
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
