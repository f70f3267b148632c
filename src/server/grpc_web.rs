//! Routing on the client port: native gRPC goes straight to the call, gRPC-Web and preflights pass CORS and gRPC-Web first.
//! Pages, such as the JWKS, need neither.
//!
//! CORS and gRPC-Web are cloned per request and add headers to each response, which only browsers need.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::future::BoxFuture;
use http::header::CONTENT_TYPE;
use http::{HeaderName, Method, Request, Response, Version};
use tonic::body::Body;
use tonic::service::Routes;
use tonic_web::{GrpcWebLayer, GrpcWebService};
use tower::{Layer, Service, ServiceExt as _};
use tower_http::cors::{Any, Cors, CorsLayer};

use crate::api::layer::response_body::CallResponseBody;
use crate::api::layer::{CallLayer, CallService};

/// Time for which a browser may cache the CORS rules.
const CORS_MAX_AGE: Duration = Duration::from_secs(60 * 60);

/// Layer that puts a `GrpcOrGrpcWebRouter` in front of the routes.
#[derive(Clone)]
pub(super) struct GrpcOrGrpcWebLayer(pub(super) CallLayer);

/// Routes behind native gRPC and behind gRPC-Web.
#[derive(Clone)]
pub(super) struct GrpcOrGrpcWebRouter {
    grpc: CallService<Routes>,
    grpc_web: Arc<Cors<GrpcWebService<CallService<Routes>>>>,
}

impl Layer<Routes> for GrpcOrGrpcWebLayer {
    type Service = GrpcOrGrpcWebRouter;

    fn layer(&self, routes: Routes) -> GrpcOrGrpcWebRouter {
        let grpc = self.0.layer(routes);
        let grpc_web = Arc::new(permissive_cors_layer().layer(GrpcWebLayer::new().layer(grpc.clone())));
        GrpcOrGrpcWebRouter { grpc, grpc_web }
    }
}

impl Service<Request<Body>> for GrpcOrGrpcWebRouter {
    type Response = Response<CallResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<CallResponseBody>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.grpc.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if is_native_grpc(&request) || is_page(&request) {
            return self.grpc.call(request);
        }
        let grpc_web = Cors::clone(&self.grpc_web);
        Box::pin(async move { Ok(grpc_web.oneshot(request).await?.map(CallResponseBody::passthrough)) })
    }
}

/// Whether a request is native gRPC: over HTTP/2, with a gRPC content type. gRPC-Web content types share the prefix.
fn is_native_grpc(request: &Request<Body>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    let rest = content_type.strip_prefix(b"application/grpc");
    request.version() == Version::HTTP_2 && rest.is_some_and(|rest| !rest.starts_with(b"-web"))
}

/// Whether a request has a content type of gRPC-Web.
pub(super) fn is_grpc_web(request: &Request<Body>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    content_type.starts_with(b"application/grpc-web")
}

/// Whether a request has no gRPC content type, and is no preflight of a browser.
fn is_page(request: &Request<Body>) -> bool {
    let content_type = request.headers().get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    request.method() != Method::OPTIONS && !content_type.starts_with(b"application/grpc")
}

/// Allows all origins. The server uses no cookies, so a page gains nothing that any client does not have.
fn permissive_cors_layer() -> CorsLayer {
    let exposed = ["grpc-status", "grpc-message", "grpc-status-details-bin", "grpc-retry-pushback-ms"];
    CorsLayer::new()
        .allow_origin(Any)
        .allow_methods([Method::POST])
        .allow_headers(Any)
        .expose_headers(exposed.map(HeaderName::from_static))
        .max_age(CORS_MAX_AGE)
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
