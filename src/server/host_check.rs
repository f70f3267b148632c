//! Host and Origin check of the operator port, for calls and pages, also on loopback.
//!
//! A browser on the operator's machine sends requests to loopback for any web page. The page can give its own name the address
//! of the port (DNS rebinding), and then read the answers. The `Host` header keeps the page's name, so a name that is not the
//! port's own is refused. A request from another origin is refused too.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::future::BoxFuture;
use http::header::{HOST, ORIGIN};
use http::uri::Authority;
use http::{HeaderValue, Request, Response, StatusCode};
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tonic_web::{GrpcWebLayer, GrpcWebService};
use tower::{Layer, Service, ServiceExt as _};

use crate::api::connect_protocol::{ConnectProtocolLayer, ConnectProtocolService};
use crate::api::layer::call_reporter::RpcObserver;
use crate::api::layer::response_body::CallResponseBody;
use crate::api::layer::{CallLayer, CallService, is_grpc};
use crate::server::grpc_web::is_grpc_web;

/// Names of the operator port, besides addresses and `localhost`.
#[derive(Clone, Debug)]
pub enum OperatorHosts {
    /// These names, in lower case and without ports.
    IpLocalhostOrNames(Vec<String>),
    /// Any name. For TLS: a browser has compared the name with the certificate, which a web page does not have.
    Any,
}

/// Reason why a request is refused. The texts are labels of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequestRefusalReason {
    /// The `Host` header has a name that is not the port's own.
    WrongHost,
    /// The `Origin` header has another origin than the port's own.
    CrossOrigin,
}

impl RequestRefusalReason {
    fn as_str(self) -> &'static str {
        match self {
            Self::WrongHost => "wrong_host",
            Self::CrossOrigin => "cross_origin",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::WrongHost => {
                "the Host header does not name this port; use its address, localhost, or add the name with \
                 --operator-hosts\n"
            }
            Self::CrossOrigin => "requests from another origin are refused; send no Origin header\n",
        }
    }
}

impl OperatorHosts {
    /// Checks all names of the port in a request, and its origin. A request without a name is allowed: no browser sends one.
    fn check(&self, request: &Request<Body>) -> Result<(), RequestRefusalReason> {
        let names = || {
            let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
            request.headers().get_all(HOST).iter().map(HeaderValue::as_bytes).chain(authority)
        };
        if !names().all(|name| self.is_own_name(name)) {
            return Err(RequestRefusalReason::WrongHost);
        }
        let first = names().next();
        let mut origins = request.headers().get_all(ORIGIN).iter().map(HeaderValue::as_bytes);
        if origins.all(|origin| is_same_origin(origin, first)) {
            Ok(())
        } else {
            Err(RequestRefusalReason::CrossOrigin)
        }
    }

    /// Whether `host`, with or without a port, is an address, `localhost` or a configured name.
    fn is_own_name(&self, host: &[u8]) -> bool {
        let Self::IpLocalhostOrNames(names) = self else { return true };
        let Ok(authority) = Authority::try_from(host) else { return false };
        if authority.as_str().contains('@') {
            return false;
        }
        let name = authority.host();
        let address = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
        let name = name.strip_suffix('.').unwrap_or(name);
        let is_named = || names.iter().any(|own| name.eq_ignore_ascii_case(own));
        address.parse::<IpAddr>().is_ok() || name.eq_ignore_ascii_case("localhost") || is_named()
    }
}

/// Whether an `Origin` header is that of the port itself.
fn is_same_origin(origin: &[u8], host: Option<&[u8]>) -> bool {
    let after_scheme = [&b"http://"[..], b"https://"].iter().find_map(|scheme| origin.strip_prefix(*scheme));
    match (after_scheme, host) {
        (Some(origin), Some(host)) => origin.eq_ignore_ascii_case(host),
        _ => false,
    }
}

/// Layer that puts an `HostCheckService` in front of the routes.
#[derive(Clone)]
pub(super) struct HostCheckLayer {
    pub(super) call_layer: CallLayer,
    pub(super) connect_protocol: ConnectProtocolLayer,
    pub(super) hosts: Arc<OperatorHosts>,
    pub(super) observer: Arc<dyn RpcObserver>,
}

/// Routes of the operator port behind the check.
#[derive(Clone)]
pub(super) struct HostCheckService {
    calls: ConnectProtocolService<CallService<Routes>>,
    /// The same calls for the console's page. Without CORS: a page of another origin may not call.
    grpc_web: Arc<GrpcWebService<CallService<Routes>>>,
    hosts: Arc<OperatorHosts>,
    observer: Arc<dyn RpcObserver>,
}

impl Layer<Routes> for HostCheckLayer {
    type Service = HostCheckService;

    fn layer(&self, routes: Routes) -> HostCheckService {
        let calls = self.call_layer.layer(routes);
        HostCheckService {
            grpc_web: Arc::new(GrpcWebLayer::new().layer(calls.clone())),
            calls: self.connect_protocol.layer(calls),
            hosts: self.hosts.clone(),
            observer: self.observer.clone(),
        }
    }
}

impl Service<Request<Body>> for HostCheckService {
    type Response = Response<CallResponseBody>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<CallResponseBody>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.calls.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Err(refused) = self.hosts.check(&request) else { return self.call_checked(request) };
        self.observer.auth_failed(refused.as_str());
        if is_grpc(&request) {
            let response = Status::permission_denied(refused.text().trim_end()).into_http();
            return Box::pin(async { Ok(response.map(CallResponseBody::passthrough)) });
        }
        let mut response = Response::new(CallResponseBody::passthrough(Body::new(refused.text().to_owned())));
        *response.status_mut() = StatusCode::FORBIDDEN;
        Box::pin(async { Ok(response) })
    }
}

impl HostCheckService {
    /// Serves a request that has passed the check.
    fn call_checked(&mut self, request: Request<Body>) -> <Self as Service<Request<Body>>>::Future {
        if !is_grpc_web(&request) {
            return self.calls.call(request);
        }
        let grpc_web = GrpcWebService::clone(&self.grpc_web);
        Box::pin(async move { Ok(grpc_web.oneshot(request).await?.map(CallResponseBody::passthrough)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(hosts: &[&str], origin: Option<&str>) -> Result<(), RequestRefusalReason> {
        let mut request = Request::new(Body::empty());
        for host in hosts {
            request.headers_mut().append(HOST, host.parse().unwrap());
        }
        if let Some(origin) = origin {
            request.headers_mut().insert(ORIGIN, origin.parse().unwrap());
        }
        OperatorHosts::IpLocalhostOrNames(vec!["ops.example".to_owned()]).check(&request)
    }

    #[test]
    fn host_must_be_an_address_localhost_or_a_configured_name() {
        for host in ["127.0.0.1", "127.0.0.1:50052", "[::1]:50052", "10.1.2.3:1", "LocalHost:50052", "localhost."] {
            assert_eq!(check(&[host], None), Ok(()), "{host}");
        }
        for host in ["ops.example", "OPS.example:50052"] {
            assert_eq!(check(&[host], None), Ok(()), "{host}");
        }
        let refused =
            ["evil.example", "localhost.evil.example", "x.ops.example", "a@localhost", "", "2130706433", "[::1"];
        for host in refused {
            assert_eq!(check(&[host], None), Err(RequestRefusalReason::WrongHost), "{host}");
        }
        assert_eq!(check(&["localhost", "evil.example"], None), Err(RequestRefusalReason::WrongHost));
        assert_eq!(check(&[], None), Ok(()));
        let request = Request::builder().uri("http://evil.example/readyz").body(Body::empty()).unwrap();
        assert_eq!(OperatorHosts::Any.check(&request), Ok(()));
        assert_eq!(OperatorHosts::IpLocalhostOrNames(Vec::new()).check(&request), Err(RequestRefusalReason::WrongHost));
    }

    #[test]
    fn origin_must_be_that_of_the_port() {
        let host = "127.0.0.1:50052";
        assert_eq!(check(&[host], Some("http://127.0.0.1:50052")), Ok(()));
        for origin in ["http://127.0.0.1:8080", "http://evil.example", "null", "", "file://127.0.0.1:50052"] {
            assert_eq!(check(&[host], Some(origin)), Err(RequestRefusalReason::CrossOrigin), "{origin}");
        }
        assert_eq!(check(&[], Some("http://127.0.0.1:50052")), Err(RequestRefusalReason::CrossOrigin));
    }
}
