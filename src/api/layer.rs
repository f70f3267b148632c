//! What every call passes through: the check of who is calling, deadline, panics caught, streams ended in good order, one
//! count and, when it fails, one line in the log.

pub mod body;
pub mod deadline;
pub mod report;

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

use crate::api::pb::ErrorReason;
use crate::api::admission::{Admitted, Denied, Keeper};
use crate::api::caller::Peer;
use crate::api::drain::Drain;
use crate::api::fault_in_server;
use crate::api::method::{self, Method, Shape};
use crate::api::oversight::{self, Oversight, Watched};
use crate::api::status::Rejection;
use crate::auth::refused::Refused;

use body::{CallBody, Guard, StreamSlot};
use report::{Report, RpcObserver};

/// What a patient call may take, should its client wait as long.
const PATIENT_DEADLINE: Duration = Duration::from_secs(600);

/// Bytes of answers on one stream of health or reflection. All that reflection has to tell is a fifth of it; whoever asks for
/// the same again and again opens another stream, and that is charged.
const STREAM_BYTES_MAX: usize = 1024 * 1024;

/// Puts `CallService` in front of the routes of a port.
#[derive(Clone)]
pub struct CallLayer {
    shared: Arc<Shared>,
}

struct Shared {
    observer: Arc<dyn RpcObserver>,
    keeper: Keeper,
    unary_deadline: Duration,
    draining: CancellationToken,
    /// Watches over operators; none: nobody does.
    oversight: Option<Oversight>,
}

impl CallLayer {
    /// A layer that reports to `observer`, lets in whom `keeper` lets in, ends unary calls after `unary_deadline` and
    /// streams when `drain` begins.
    pub fn new(observer: Arc<dyn RpcObserver>, keeper: Keeper, unary_deadline: Duration, drain: &Drain) -> Self {
        let draining = drain.token().clone();
        Self { shared: Arc::new(Shared { observer, keeper, unary_deadline, draining, oversight: None }) }
    }

    /// The same, with somebody who watches over what only operators may ask, and over proofs that are worth nothing.
    pub fn with_oversight(self, oversight: Oversight) -> Self {
        let Shared { observer, keeper, unary_deadline, draining, .. } = &*self.shared;
        let (observer, keeper, draining) = (observer.clone(), keeper.clone(), draining.clone());
        let oversight = Some(oversight);
        Self { shared: Arc::new(Shared { observer, keeper, unary_deadline: *unary_deadline, draining, oversight }) }
    }
}

impl<S> Layer<S> for CallLayer {
    type Service = CallService<S>;

    fn layer(&self, inner: S) -> CallService<S> {
        CallService { inner, shared: self.shared.clone() }
    }
}

/// A service with the layer's care around each call.
#[derive(Clone)]
pub struct CallService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Service<Request<Body>> for CallService<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response<CallBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<CallBody>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        if !is_grpc(&request) {
            // What is no call must not be taken for one further in.
            if method::is_known(request.uri().path()) {
                return Box::pin(async { Ok(not_grpc().map(CallBody::plain)) });
            }
            let answer = self.inner.call(request);
            return Box::pin(async move { Ok(answer.await?.map(CallBody::plain)) });
        }
        let method = method::of_path(request.uri().path());
        let asked = deadline::asked(request.headers());
        let report = Report::new(method.name, self.shared.observer.clone());
        let mut watched = self.watched(method, &request);
        let admitted = match self.let_in(method, &request, &mut watched) {
            Ok(admitted) => admitted,
            Err(rejection) => return refused(rejection, report, watched),
        };
        let slot = match self.place(method, &request) {
            Ok(Some(slot)) if method.shape == Shape::Conversation => Some(slot.counted_by(&self.shared.observer)),
            Ok(slot) => slot,
            Err(rejection) => return refused(rejection, report, watched),
        };
        let good_for = admitted.good_for().filter(|_| method.shape == Shape::Stream);
        let guard = slot.map(|slot| Guard::new(slot, asked, self.ends_with_the_server(method), good_for));
        let guard =
            guard.map(|guard| if method.shape == Shape::Stream { guard.ending_after(STREAM_BYTES_MAX) } else { guard });
        request.extensions_mut().insert(admitted);
        let most = if method.shape == Shape::Patient { PATIENT_DEADLINE } else { self.shared.unary_deadline };
        let limit = asked.map_or(most, |asked| asked.min(most));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let response = match tokio::time::timeout_at(report.started() + limit, caught(answer)).await {
                Ok(Ok(response)) => response,
                Ok(Err(_panic)) => fault_in_server().into_http(),
                Err(_elapsed) => deadline::exceeded().into_http(),
            };
            Ok(finish(oversight::end(watched, response).await, report, guard))
        })
    }
}

impl<S> CallService<S> {
    /// A call that is watched.
    fn watched(&self, method: Method, request: &Request<Body>) -> Option<Watched> {
        self.shared.oversight.as_ref()?.watch(method, request)
    }

    /// Word of who is calling, for whoever is behind this and whoever watches; an error when the call is not theirs to
    /// make, or one too many.
    fn let_in(
        &self,
        method: Method,
        request: &Request<Body>,
        watched: &mut Option<Watched>,
    ) -> Result<Admitted, Rejection> {
        let admitted = self.shared.keeper.admit(method.access, request.headers(), request.extensions());
        let admitted = admitted.map_err(|denied| self.denied(denied, request, watched.as_mut()))?;
        if let Some(oversight) = &self.shared.oversight {
            oversight.charge_call(admitted.identity(), request)?;
        }
        if let Some(watched) = watched {
            if let Some(identity) = admitted.identity() {
                watched.is_by(identity);
            }
            watched.charge()?;
        }
        Ok(admitted)
    }

    /// Counts somebody who is not let in, and charges the place that they come from. Whoever shows what is worth nothing,
    /// again and again, is soon told that alone.
    fn denied(&self, denied: Denied, request: &Request<Body>, watched: Option<&mut Watched>) -> Rejection {
        self.shared.observer.denied(match denied {
            Denied::Unknown(refused) => refused.as_str(),
            Denied::Role(_) => "wrong_role",
        });
        if let (Denied::Role(role), Some(watched)) = (denied, watched) {
            watched.is_by_some(role);
        }
        let is_worthless = match denied {
            Denied::Unknown(refused) => !matches!(refused, Refused::Missing | Refused::Expired),
            Denied::Role(_) => false,
        };
        let charged = self.shared.oversight.as_ref().map(|oversight| match is_worthless {
            true => oversight.charge_failure(request),
            false => oversight.charge_call(None, request),
        });
        match charged {
            Some(Err(over)) => over,
            Some(Ok(())) | None => denied.into(),
        }
    }

    /// A place for a stream, or none for a call that is no stream; an error when there is no place.
    fn place(&self, method: Method, request: &Request<Body>) -> Result<Option<StreamSlot>, Rejection> {
        match method.shape {
            Shape::Unary | Shape::Patient => return Ok(None),
            Shape::Stream => {}
            Shape::Conversation if self.shared.draining.is_cancelled() => return Err(Rejection::going_away()),
            Shape::Conversation => {}
        }
        let Some(peer) = request.extensions().get::<Peer>() else { return Ok(Some(StreamSlot::free())) };
        if peer.streams_max <= peer.streams.fetch_add(1, Ordering::Relaxed) {
            peer.streams.fetch_sub(1, Ordering::Relaxed);
            let text = format!("at most {} streams may be open on one connection", peer.streams_max);
            return Err(Rejection::new(Code::ResourceExhausted, ErrorReason::TooManyStreams, text));
        }
        Ok(Some(StreamSlot::taken(peer.streams.clone())))
    }

    /// What ends a stream when the server goes away; a conversation sees to that itself, after its last answers.
    fn ends_with_the_server(&self, method: Method) -> Option<CancellationToken> {
        (method.shape == Shape::Stream).then(|| self.shared.draining.clone())
    }
}

fn is_grpc(request: &Request<Body>) -> bool {
    let content_type = request.headers().get(http::header::CONTENT_TYPE);
    content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// What HTTP says to a request that names a method and is no gRPC (gRPC over HTTP/2, "Requests").
fn not_grpc() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
    response
}

fn refused(
    rejection: Rejection,
    report: Report,
    watched: Option<Watched>,
) -> BoxFuture<'static, Result<Response<CallBody>, Infallible>> {
    let response = rejection.into_status().into_http();
    Box::pin(async move { Ok(finish(oversight::end(watched, response).await, report, None)) })
}

fn finish(response: Response<Body>, mut report: Report, guard: Option<Guard>) -> Response<CallBody> {
    // A status among the headers is the whole answer.
    if let Some(status) = Status::from_header_map(response.headers()) {
        report.finish(status.code());
    }
    response.map(|body| CallBody::new(body, report, guard))
}

/// Runs a future to its end, or to its panic.
async fn caught<F>(future: F) -> Result<Response<Body>, Box<dyn Any + Send>>
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
