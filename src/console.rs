//! The operator port's pages: metrics, whether the server is alive and ready, and the keys that game servers verify with.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// What the pages show; asked anew for each request.
#[derive(Clone)]
pub struct ConsolePages {
    /// All metrics, as OpenMetrics text.
    pub render_metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Who sees them.
    pub check_metrics_access: CheckPageAccess,
    /// Whether clients should be sent here.
    pub is_ready: Arc<dyn Fn() -> bool + Send + Sync>,
    /// The key set that players' credentials are verified with.
    pub jwks: Arc<str>,
}

/// Says from a request's headers and connection whether whoever asks may see a page.
pub type CheckPageAccess = Arc<dyn Fn(&HeaderMap, &Extensions) -> PageAccess + Send + Sync>;

/// Whether somebody may see a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAccess {
    /// Yes.
    Allowed,
    /// Nobody knows who is asking.
    Unauthenticated,
    /// It is known, and the page is for others.
    Forbidden,
}

/// Where game servers look for keys (RFC 8615).
const JWKS_PATH: &str = "/.well-known/jwks.json";
const JWKS_CONTENT_TYPE: &str = "application/jwk-set+json";
/// A key set may be kept for five minutes, as long as a credential is good.
const JWKS_CACHE_CONTROL: &str = "public, max-age=300";
const OPENMETRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Adds the pages to what else is served on the port. Balancers ask for health before anybody has shown who they are, and
/// learn nothing else from it. Keys that verify are for everybody.
pub fn add_console_pages(served: Router, pages: ConsolePages) -> Router {
    let ConsolePages { render_metrics: metrics, check_metrics_access: may_see_metrics, is_ready, jwks: match_keys } =
        pages;
    served
        .route("/healthz", get(async || "alive\n"))
        .route(
            JWKS_PATH,
            get(async move || {
                (
                    [(header::CONTENT_TYPE, JWKS_CONTENT_TYPE), (header::CACHE_CONTROL, JWKS_CACHE_CONTROL)],
                    match_keys.to_string(),
                )
            }),
        )
        .route(
            "/readyz",
            get(async move || match is_ready() {
                true => (StatusCode::OK, "ready\n"),
                false => (StatusCode::SERVICE_UNAVAILABLE, "not ready: starting, or going away\n"),
            }),
        )
        .route(
            "/metrics",
            get(async move |request: Request| match may_see_metrics(request.headers(), request.extensions()) {
                PageAccess::Allowed => ([(header::CONTENT_TYPE, OPENMETRICS_CONTENT_TYPE)], metrics()).into_response(),
                PageAccess::Unauthenticated => unauthenticated_response(),
                PageAccess::Forbidden => (StatusCode::FORBIDDEN, "this page is for operators\n").into_response(),
            }),
        )
}

fn unauthenticated_response() -> Response {
    let text = "say who is asking: send `authorization: Bearer <token>`\n";
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response()
}
