//! Operator HTTP endpoints: `/metrics`, `/healthz`, `/livez`, `/readyz`, and the JWKS for match credentials.

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
    /// Whether the process works. If not, it must be restarted.
    pub is_alive: Arc<dyn Fn() -> bool + Send + Sync>,
    /// JWKS with the public keys for verifying players' match credentials.
    pub jwks: Arc<str>,
}

/// Decides from a request's headers and connection if the caller may read a page.
pub type CheckPageAccess = Arc<dyn Fn(&HeaderMap, &Extensions) -> PageAccess + Send + Sync>;

/// Access decision for one request to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAccess {
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

/// Adds the pages to `router`. `/healthz`, `/livez` and `/readyz` need no authentication, because load balancers send
/// none; the JWKS is public. `/livez` is another name of `/healthz`.
pub fn add_console_pages(router: Router, pages: ConsolePages) -> Router {
    let ConsolePages { render_metrics, check_metrics_access, is_ready, is_alive, jwks } = pages;
    let liveness = async move || {
        if is_alive() {
            (StatusCode::OK, "alive\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "failed: a task has panicked; the log names it, restart the server\n")
        }
    };
    router
        .route("/healthz", get(liveness.clone()))
        .route("/livez", get(liveness))
        .route(
            JWKS_PATH,
            get(async move || {
                (
                    [(header::CONTENT_TYPE, JWKS_CONTENT_TYPE), (header::CACHE_CONTROL, JWKS_CACHE_CONTROL)],
                    jwks.to_string(),
                )
            }),
        )
        .route(
            "/readyz",
            get(async move || {
                if is_ready() {
                    (StatusCode::OK, "ready\n")
                } else {
                    (
                        StatusCode::SERVICE_UNAVAILABLE,
                        "not ready: starting, draining, failed, or without a working store\n",
                    )
                }
            }),
        )
        .route(
            "/metrics",
            get(async move |request: Request| match check_metrics_access(request.headers(), request.extensions()) {
                PageAccess::Allowed => {
                    ([(header::CONTENT_TYPE, OPENMETRICS_CONTENT_TYPE)], render_metrics()).into_response()
                }
                PageAccess::Unauthenticated => unauthenticated_response(),
                PageAccess::Forbidden => {
                    (StatusCode::FORBIDDEN, "access denied; this page requires the operator role\n").into_response()
                }
            }),
        )
}

fn unauthenticated_response() -> Response {
    let text = "authentication required; send `authorization: Bearer <token>`\n";
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response()
}
