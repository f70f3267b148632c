//! Routing on the client port: native gRPC goes straight to the call. All others pass CORS, if origins are allowed, and then
//! gRPC-Web or the Connect protocol, which also lets pages through.
//!
//! CORS and gRPC-Web are cloned per request and add headers to each response, which only browsers need.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::future::BoxFuture;
use http::header::{CONTENT_TYPE, ORIGIN};
use http::{HeaderName, HeaderValue, Method, Request, Response, Version};
use tonic::body::Body;
use tonic::service::Routes;
use tonic_web::{GrpcWebLayer, GrpcWebService};
use tower::{Layer, Service, ServiceExt as _};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::api::connect_protocol::{ConnectProtocolLayer, ConnectProtocolService};
use crate::api::layer::response_body::CallResponseBody;
use crate::api::layer::{CallLayer, CallService};

/// Time for which a browser may cache the CORS rules.
const CORS_MAX_AGE: Duration = Duration::from_secs(60 * 60);

/// Response headers that a web page may read.
const EXPOSED_HEADERS: [&str; 6] = [
    "grpc-status",
    "grpc-message",
    "grpc-status-details-bin",
    "grpc-retry-pushback-ms",
    "trailer-grpc-retry-pushback-ms",
    "x-request-id",
];

/// Origins whose web pages may call the client port.
#[derive(Clone, Debug, Default)]
pub enum CorsOrigins {
    /// None: browsers let only pages of the port's own origin call it.
    #[default]
    None,
    /// These origins.
    Listed(Vec<HeaderValue>),
    /// All origins.
    Any,
}

impl CorsOrigins {
    /// CORS of the port; `None` without allowed origins. Credentials of the browser, such as cookies, are never allowed.
    fn layer(&self) -> Option<CorsLayer> {
        let origin = match self {
            Self::None => return None,
            Self::Listed(origins) => AllowOrigin::list(origins.iter().cloned()),
            Self::Any => AllowOrigin::any(),
        };
        let layer = CorsLayer::new()
            .allow_origin(origin)
            .allow_methods([Method::POST])
            // The wildcard of CORS does not cover `authorization`, so the headers that were asked for are repeated.
            .allow_headers(AllowHeaders::mirror_request())
            .expose_headers(EXPOSED_HEADERS.map(HeaderName::from_static))
            .max_age(CORS_MAX_AGE);
        Some(layer)
    }
}

/// Layer that puts a `ClientPortRouter` in front of the routes.
#[derive(Clone)]
pub(super) struct ClientPortLayer {
    pub(super) calls: CallLayer,
    pub(super) connect_protocol: ConnectProtocolLayer,
    pub(super) cors_origins: CorsOrigins,
}

/// Routes behind native gRPC, and behind the protocols of browsers and scripts.
#[derive(Clone)]
pub(super) struct ClientPortRouter {
    grpc: CallService<Routes>,
    others: OtherProtocols,
    cors: Option<CorsLayer>,
}

/// Routes behind gRPC-Web and behind the Connect protocol.
#[derive(Clone)]
struct OtherProtocols {
    grpc_web: Arc<GrpcWebService<CallService<Routes>>>,
    connect_protocol: ConnectProtocolService<CallService<Routes>>,
}

impl Layer<Routes> for ClientPortLayer {
    type Service = ClientPortRouter;

    fn layer(&self, routes: Routes) -> ClientPortRouter {
        let grpc = self.calls.layer(routes);
        let others = OtherProtocols {
            grpc_web: Arc::new(GrpcWebLayer::new().layer(grpc.clone())),
            connect_protocol: self.connect_protocol.layer(grpc.clone()),
        };
        ClientPortRouter { grpc, others, cors: self.cors_origins.layer() }
    }
}

impl Service<Request<Body>> for ClientPortRouter {
    type Response = Response<CallResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<CallResponseBody>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.grpc.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if is_native_grpc(&request) {
            return self.grpc.call(request);
        }
        match &self.cors {
            // Only browsers send an origin.
            Some(cors) if request.headers().contains_key(ORIGIN) => {
                let cors = cors.layer(self.others.clone());
                Box::pin(cors.oneshot(request))
            }
            _ => self.others.call(request),
        }
    }
}

impl Service<Request<Body>> for OtherProtocols {
    type Response = Response<CallResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<CallResponseBody>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.connect_protocol.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if !has_grpc_content_type(&request) {
            return self.connect_protocol.call(request);
        }
        let grpc_web = GrpcWebService::clone(&self.grpc_web);
        Box::pin(async move { Ok(grpc_web.oneshot(request).await?.map(CallResponseBody::passthrough)) })
    }
}

/// Whether a request is native gRPC: over HTTP/2, with a gRPC content type. gRPC-Web content types share the prefix.
fn is_native_grpc(request: &Request<Body>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let rest = content_type.strip_prefix(b"application/grpc");
    request.version() == Version::HTTP_2 && rest.is_some_and(|rest| !rest.starts_with(b"-web"))
}

/// Whether a request is gRPC or gRPC-Web.
fn has_grpc_content_type(request: &Request<Body>) -> bool {
    request.headers().get(CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

/// Whether a request has a content type of gRPC-Web.
pub(super) fn is_grpc_web(request: &Request<Body>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    content_type.starts_with(b"application/grpc-web")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn native_grpc_needs_http2_and_its_content_type() {
        let check = |version, content_type: &str, expected| {
            let request = Request::builder().version(version).header(CONTENT_TYPE, content_type);
            assert_eq!(is_native_grpc(&request.body(Body::empty()).unwrap()), expected, "{version:?} {content_type}");
        };
        check(Version::HTTP_2, "application/grpc", true);
        check(Version::HTTP_2, "application/grpc+proto", true);
        check(Version::HTTP_11, "application/grpc", false);
        check(Version::HTTP_2, "application/grpc-web", false);
        check(Version::HTTP_2, "application/grpc-web-text+proto", false);
        check(Version::HTTP_2, "text/html", false);
        check(Version::HTTP_2, "", false);
    }
}
