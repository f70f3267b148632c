//! The operator port's pages: metrics, whether the server is alive and ready, and the keys that game servers verify with.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// What the pages show; asked anew for each request.
#[derive(Clone)]
pub struct Pages {
    /// All metrics, as OpenMetrics text.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Who sees them.
    pub may_see_metrics: MaySee,
    /// Whether clients should be sent here.
    pub is_ready: Arc<dyn Fn() -> bool + Send + Sync>,
    /// The key set that players' credentials are verified with.
    pub match_keys: Arc<str>,
}

/// Says from a request's headers and connection whether whoever asks may see a page.
pub type MaySee = Arc<dyn Fn(&HeaderMap, &Extensions) -> Sight + Send + Sync>;

/// Whether somebody may see a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Yes.
    Yes,
    /// Nobody knows who is asking.
    Unknown,
    /// It is known, and the page is for others.
    No,
}

/// Where game servers look for keys (RFC 8615).
const KEYS: &str = "/.well-known/jwks.json";
const KEY_SET: &str = "application/jwk-set+json";
/// A key set may be kept for five minutes, as long as a credential is good.
const KEPT: &str = "public, max-age=300";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Adds the pages to what else is served on the port. Balancers ask for health before anybody has shown who they are, and
/// learn nothing else from it. Keys that verify are for everybody.
pub fn with_pages(served: Router, pages: Pages) -> Router {
    let Pages { metrics, may_see_metrics, is_ready, match_keys } = pages;
    served
        .route("/healthz", get(async || "alive\n"))
        .route(
            KEYS,
            get(async move || {
                ([(header::CONTENT_TYPE, KEY_SET), (header::CACHE_CONTROL, KEPT)], match_keys.to_string())
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
                Sight::Yes => ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics()).into_response(),
                Sight::Unknown => unknown(),
                Sight::No => (StatusCode::FORBIDDEN, "this page is for operators\n").into_response(),
            }),
        )
}

fn unknown() -> Response {
    let text = "say who is asking: send `authorization: Bearer <token>`\n";
    (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response()
}
