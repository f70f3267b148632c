//! Connect protocol: calls as HTTP POST with a JSON or protobuf body, for scripts, engines and browsers without gRPC
//! (<https://connectrpc.com/docs/protocol>). The RPC `Connect` of the Matchmaking service is something else.
//!
//! A request is rewritten to a gRPC request that passes the same authentication, limits, audit, metrics and handlers as any
//! other, and the gRPC response is rewritten back. The body is read and parsed only when the handler asks for it, so a caller
//! who may not make the call is refused first.

mod error_body;
mod json_message;
pub mod methods;
mod prefixed_messages;
mod request;
mod request_head;
mod response;

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::future::BoxFuture;
use http::{Request, Response};
use tonic::body::Body;
use tower::{Layer, Service};

use crate::api::layer::response_body::CallResponseBody;

use methods::ConnectMethods;
use request_head::RequestHead;

/// Layer that puts a `ConnectProtocolService` in front of the calls of a port.
#[derive(Clone, Debug)]
pub struct ConnectProtocolLayer(pub Arc<ConnectMethods>);

/// Calls of a port, also by the Connect protocol. Requests of other protocols pass unchanged.
#[derive(Clone, Debug)]
pub struct ConnectProtocolService<S> {
    calls: S,
    methods: Arc<ConnectMethods>,
}

impl<S> Layer<S> for ConnectProtocolLayer {
    type Service = ConnectProtocolService<S>;

    fn layer(&self, calls: S) -> ConnectProtocolService<S> {
        ConnectProtocolService { calls, methods: self.0.clone() }
    }
}

/// Future of a response.
type ResponseFuture = BoxFuture<'static, Result<Response<CallResponseBody>, Infallible>>;

impl<S> Service<Request<Body>> for ConnectProtocolService<S>
where
    S: Service<Request<Body>, Response = Response<CallResponseBody>, Error = Infallible, Future = ResponseFuture>,
{
    type Response = Response<CallResponseBody>;
    type Error = Infallible;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.calls.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> ResponseFuture {
        match RequestHead::read(&self.methods, &request) {
            RequestHead::OtherProtocol => self.calls.call(request),
            RequestHead::Refused(refusal) => Box::pin(async move { Ok(refusal.into_response()) }),
            RequestHead::Call(call) => {
                let methods = self.methods.clone();
                let response = self.calls.call(request::to_grpc(request, &call, methods.request_bytes_max));
                Box::pin(async move { Ok(response::from_grpc(response.await?, &call, &methods).await) })
            }
        }
    }
}
