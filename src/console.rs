//! The operator port's pages: metrics, and whether the server is alive and ready.

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;

/// What the pages show; asked anew for each request.
#[derive(Clone)]
pub struct Pages {
    /// All metrics, as OpenMetrics text.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
    /// Whether clients should be sent here.
    pub is_ready: Arc<dyn Fn() -> bool + Send + Sync>,
}

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Adds the pages to what else is served on the port.
pub fn with_pages(served: Router, pages: Pages) -> Router {
    let Pages { metrics, is_ready } = pages;
    served
        .route("/healthz", get(async || "alive\n"))
        .route(
            "/readyz",
            get(async move || match is_ready() {
                true => (StatusCode::OK, "ready\n"),
                false => (StatusCode::SERVICE_UNAVAILABLE, "not ready: starting, or going away\n"),
            }),
        )
        .route("/metrics", get(async move || ([(header::CONTENT_TYPE, OPEN_METRICS)], metrics()).into_response()))
}
