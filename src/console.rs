//! HTTP pages. On the operator port: `/metrics`, `/healthz`, `/livez` and `/readyz`, and the console under `/console/`. On both ports: the JWKS for match
//! credentials, and 404 for a path that does not exist.

mod page;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Data behind the pages. The closures run once per request.
#[derive(Clone)]
pub struct ConsolePages {
    /// Renders all metrics as OpenMetrics text.
    pub render_metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Decides if a request may read the metrics.
    pub check_metrics_access: CheckPageAccess,
    /// Whether load balancers should send clients to this server.
    pub is_ready: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Warnings for operators that do not make the server unready, one line each.
    pub readiness_notes: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Whether the process works. If not, it must be restarted.
    pub is_alive: Arc<dyn Fn() -> bool + Send + Sync>,
}

/// Decides from a request's headers and connection if the caller may read a page.
pub type CheckPageAccess = Arc<dyn Fn(&HeaderMap, &Extensions) -> PageAccessDecision + Send + Sync>;

/// Access decision for one request to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAccessDecision {
    /// The page is served.
    Allowed,
    /// The caller has not been identified.
    Unauthenticated,
    /// The caller is identified and is not an operator.
    Forbidden,
}

/// Well-known path of the JWKS (RFC 8615).
const JWKS_PATH: &str = "/.well-known/jwks.json";
const JWKS_CONTENT_TYPE: &str = "application/jwk-set+json";
/// Clients may cache the JWKS for five minutes, the validity of a match credential.
const JWKS_CACHE_CONTROL: &str = "public, max-age=300";
const OPENMETRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Adds the pages of both ports to `router`: the JWKS, which is public, and the answer for a path that does not exist.
pub fn add_public_pages(router: Router, jwks: Arc<str>) -> Router {
    let jwks_page = get(async move || {
        ([(header::CONTENT_TYPE, JWKS_CONTENT_TYPE), (header::CACHE_CONTROL, JWKS_CACHE_CONTROL)], jwks.to_string())
    });
    router.route(JWKS_PATH, jwks_page).fallback(unknown_path)
}

/// UNIMPLEMENTED for a gRPC call, 404 for any other request.
async fn unknown_path(request: Request) -> Response {
    let content_type = request.headers().get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    if content_type.starts_with(b"application/grpc") {
        return tonic::Status::unimplemented("").into_http::<axum::body::Body>();
    }
    (StatusCode::NOT_FOUND, "there is no such page\n").into_response()
}

/// Adds the operators' pages to `router`. `/healthz`, `/livez` and `/readyz` need no authentication, because load balancers
/// send none. `/livez` is another name of `/healthz`.
pub fn add_console_pages(router: Router, pages: ConsolePages) -> Router {
    let ConsolePages { render_metrics, check_metrics_access, is_ready, readiness_notes, is_alive } = pages;
    let liveness = async move || {
        if is_alive() {
            (StatusCode::OK, "alive\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "failed: a task has panicked; the log names it, restart the server\n")
        }
    };
    page::add_page(router)
        .route("/healthz", get(liveness.clone()))
        .route("/livez", get(liveness))
        .route(
            "/readyz",
            get(async move || {
                let (status, text) = if is_ready() {
                    (StatusCode::OK, "ready\n")
                } else {
                    let text = "not ready: starting, draining, failed, or without a working store\n";
                    (StatusCode::SERVICE_UNAVAILABLE, text)
                };
                let notes = readiness_notes().into_iter().map(|note| format!("warning: {note}\n"));
                (status, text.to_owned() + &notes.collect::<String>())
            }),
        )
        .route(
            "/metrics",
            get(async move |request: Request| match check_metrics_access(request.headers(), request.extensions()) {
                PageAccessDecision::Allowed => {
                    ([(header::CONTENT_TYPE, OPENMETRICS_CONTENT_TYPE)], render_metrics()).into_response()
                }
                PageAccessDecision::Unauthenticated => unauthenticated_response(),
                PageAccessDecision::Forbidden => {
                    (StatusCode::FORBIDDEN, "access denied; this page requires the operator role\n").into_response()
                }
            }),
        )
}

fn unauthenticated_response() -> Response {
    let text = "authentication required; send `authorization: Bearer <token>`\n";
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response()
}
