//! What every call passes through: deadline, panics caught, streams ended in good order, one count and, when it fails,
//! one line in the log.

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
use http::{Request, Response};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::{Code, Status};
use tower::{Layer, Service};

use crate::api::caller::Peer;
use crate::api::drain::Drain;
use crate::api::fault_in_server;
use crate::api::method::{self, Method, Shape};
use crate::api::oversight::{self, Oversight, Watched};
use crate::api::status::Rejection;
use crate::auth::identity::Identity;

use body::{CallBody, Guard, StreamSlot};
use report::{Report, RpcObserver};

/// Puts `CallService` in front of the routes of a port.
#[derive(Clone)]
pub struct CallLayer {
    shared: Arc<Shared>,
}

struct Shared {
    observer: Arc<dyn RpcObserver>,
    unary_deadline: Duration,
    draining: CancellationToken,
    /// Watches over operators; none: nobody does.
    oversight: Option<Oversight>,
}

impl CallLayer {
    /// A layer that reports to `observer`, ends unary calls after `unary_deadline` and streams when `drain` begins.
    pub fn new(observer: Arc<dyn RpcObserver>, unary_deadline: Duration, drain: &Drain) -> Self {
        let draining = drain.token().clone();
        Self { shared: Arc::new(Shared { observer, unary_deadline, draining, oversight: None }) }
    }

    /// The same, with somebody who watches over what only operators may ask.
    pub fn with_oversight(self, oversight: Oversight) -> Self {
        let Shared { observer, unary_deadline, draining, .. } = &*self.shared;
        let (observer, unary_deadline, draining) = (observer.clone(), *unary_deadline, draining.clone());
        Self { shared: Arc::new(Shared { observer, unary_deadline, draining, oversight: Some(oversight) }) }
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

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if !is_grpc(&request) {
            let answer = self.inner.call(request);
            return Box::pin(async move { Ok(answer.await?.map(CallBody::plain)) });
        }
        let method = method::of_path(request.uri().path());
        let asked = deadline::asked(request.headers());
        let report = Report::new(method.name, self.shared.observer.clone());
        let watched = self.watched(method, &request);
        let charged = watched.as_ref().map_or(Ok(()), Watched::charge);
        let slot = match charged.and_then(|()| self.admit(method, &request)) {
            Ok(slot) => slot,
            Err(rejection) => {
                let response = rejection.into_status().into_http();
                return Box::pin(async move { Ok(finish(oversight::end(watched, response).await, report, None)) });
            }
        };
        let guard = slot.map(|slot| Guard::new(slot, asked, self.ends_with_the_server(method)));
        let limit = asked.map_or(self.shared.unary_deadline, |asked| asked.min(self.shared.unary_deadline));
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
    /// A call that is watched, as far as it is known who makes it.
    fn watched(&self, method: Method, request: &Request<Body>) -> Option<Watched> {
        let address = request.extensions().get::<Peer>().map(|peer| peer.address);
        let mut watched = self.shared.oversight.as_ref()?.watch(method, request.headers(), address)?;
        if let Some(identity) = request.extensions().get::<Arc<Identity>>() {
            watched.is_by(identity);
        }
        Some(watched)
    }

    /// A place for a stream, or none for a call that is no stream; an error when there is no place.
    fn admit(&self, method: Method, request: &Request<Body>) -> Result<Option<StreamSlot>, Rejection> {
        match method.shape {
            Shape::Unary => return Ok(None),
            Shape::Stream => {}
            Shape::Conversation if self.shared.draining.is_cancelled() => return Err(Rejection::going_away()),
            Shape::Conversation => {}
        }
        let Some(peer) = request.extensions().get::<Peer>() else { return Ok(Some(StreamSlot::free())) };
        if peer.streams_max <= peer.streams.fetch_add(1, Ordering::Relaxed) {
            peer.streams.fetch_sub(1, Ordering::Relaxed);
            let text = format!("at most {} streams may be open on one connection", peer.streams_max);
            return Err(Rejection::new(Code::ResourceExhausted, "TOO_MANY_STREAMS", text));
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
