//! Serves one port with every limit set, until it is told to stop and its last connection has ended.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::api::audit_layer::AuditLayer;
use crate::api::authorization::Authorizer;
use crate::api::drain::Drain;
use crate::api::layer::CallLayer;
use crate::api::layer::call_report::RpcObserver;
use crate::server::accept::IncomingConnections;
use crate::server::limits::EdgeLimits;
use crate::server::routing::ClientRoutingLayer;

/// Streams and calls in flight on one connection; Envoy's edge has 100.
const CONCURRENT_STREAMS_MAX: u32 = 64;

/// Calls at work on one connection; more are refused, not queued (G5). As many as streams: whoever keeps to what HTTP/2 tells
/// him, a game's backend with one connection for all its players, is never refused.
const CONCURRENT_CALLS_MAX: usize = CONCURRENT_STREAMS_MAX as usize;

/// Resets that a connection may cause by breaking the protocol, in its life (F2: without a limit, one connection costs
/// 800 MB in three seconds).
const LOCAL_ERROR_RESETS_MAX: usize = 256;

/// Streams that a client may open and reset before the server has looked at them (rapid reset).
const PENDING_RESETS_MAX: usize = 20;

/// Bytes of a request's headers; also bounds CONTINUATION frames.
const HEADER_BYTES_MAX: u32 = 8 * 1024;

/// Bytes that one stream may have on the way to the server: one message.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;

/// Bytes that one connection may have on the way to the server.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// How often a silent client is asked whether it is still there, and how long it may take to say so.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// What every port needs.
#[derive(Clone)]
pub struct PortServer {
    /// Limits.
    pub limits: Arc<EdgeLimits>,
    /// Counts.
    pub observer: Arc<dyn RpcObserver>,
    /// Lets callers in.
    pub authorizer: Authorizer,
    /// Ends streams.
    pub drain: Drain,
    /// Watches over operators.
    pub audit_layer: AuditLayer,
    /// In [0, 1); how much is added to the age of connections.
    pub age_jitter: f64,
}

impl PortServer {
    /// gRPC for game clients, and gRPC-Web for browsers.
    pub async fn serve_clients(self, incoming: IncomingConnections, routes: Routes, stopping: CancellationToken) {
        let mut server = self.http_server().layer(ClientRoutingLayer(self.call_layer()));
        let served = server.add_routes(routes).serve_with_incoming_shutdown(incoming, stopping.cancelled_owned());
        log_serve_error("client", served.await);
    }

    /// gRPC and pages for operators. Without gRPC-Web, whose layer answers every other HTTP/1.1 request itself.
    pub async fn serve_operators(self, incoming: IncomingConnections, routes: Routes, stopping: CancellationToken) {
        let mut server = self.http_server().layer(self.call_layer());
        let served = server.add_routes(routes).serve_with_incoming_shutdown(incoming, stopping.cancelled_owned());
        log_serve_error("operator", served.await);
    }

    fn call_layer(&self) -> CallLayer {
        CallLayer::new(self.observer.clone(), self.authorizer.clone(), self.limits.unary_deadline, &self.drain)
            .with_audit_layer(self.audit_layer.clone())
    }

    fn http_server(&self) -> Server {
        Server::builder()
            // gRPC-Web and pages; and it lets a silent connection go at once when the server stops (G1).
            .accept_http1(true)
            .max_concurrent_streams(CONCURRENT_STREAMS_MAX)
            .http2_max_local_error_reset_streams(Some(LOCAL_ERROR_RESETS_MAX))
            .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS_MAX))
            .http2_max_header_list_size(HEADER_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            // Without its grace, which would suppress the GOAWAY (F4); the connection itself ends what does not go.
            .max_connection_age(self.limits.jittered_connection_age(self.age_jitter))
            .concurrency_limit_per_connection(CONCURRENT_CALLS_MAX)
            .load_shed(true)
    }
}

fn log_serve_error(port: &'static str, served: Result<(), tonic::transport::Error>) {
    if let Err(error) = served {
        tracing::error!(port, %error, "stopped serving");
    }
}
