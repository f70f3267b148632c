//! Serves one port with every limit set, until it is told to stop and its last connection has ended.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::api::admission::Keeper;
use crate::api::drain::Drain;
use crate::api::layer::CallLayer;
use crate::api::layer::report::RpcObserver;
use crate::api::oversight::Oversight;
use crate::server::edge::Edge;
use crate::server::front::FrontLayer;
use crate::server::incoming::Incoming;

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
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_ANSWER: Duration = Duration::from_secs(10);

/// What every port needs.
#[derive(Clone)]
pub struct Port {
    /// Limits.
    pub edge: Arc<Edge>,
    /// Counts.
    pub observer: Arc<dyn RpcObserver>,
    /// Lets callers in.
    pub keeper: Keeper,
    /// Ends streams.
    pub drain: Drain,
    /// Watches over operators.
    pub oversight: Oversight,
    /// In [0, 1); how much is added to the age of connections.
    pub dice: f64,
}

impl Port {
    /// gRPC for game clients, and gRPC-Web for browsers.
    pub async fn serve_clients(self, incoming: Incoming, routes: Routes, stopping: CancellationToken) {
        let mut server = self.builder().layer(FrontLayer(self.calls()));
        let served = server.add_routes(routes).serve_with_incoming_shutdown(incoming, stopping.cancelled_owned());
        log_failure("client", served.await);
    }

    /// gRPC and pages for operators. Without gRPC-Web, whose layer answers every other HTTP/1.1 request itself.
    pub async fn serve_operators(self, incoming: Incoming, routes: Routes, stopping: CancellationToken) {
        let mut server = self.builder().layer(self.calls());
        let served = server.add_routes(routes).serve_with_incoming_shutdown(incoming, stopping.cancelled_owned());
        log_failure("operator", served.await);
    }

    fn calls(&self) -> CallLayer {
        CallLayer::new(self.observer.clone(), self.keeper.clone(), self.edge.unary_deadline, &self.drain)
            .with_oversight(self.oversight.clone())
    }

    fn builder(&self) -> Server {
        Server::builder()
            // gRPC-Web and pages; and it lets a silent connection go at once when the server stops (G1).
            .accept_http1(true)
            .max_concurrent_streams(CONCURRENT_STREAMS_MAX)
            .http2_max_local_error_reset_streams(Some(LOCAL_ERROR_RESETS_MAX))
            .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS_MAX))
            .http2_max_header_list_size(HEADER_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keepalive_interval(Some(PING_EVERY))
            .http2_keepalive_timeout(Some(PING_ANSWER))
            // Without its grace, which would suppress the GOAWAY (F4); the connection itself ends what does not go.
            .max_connection_age(self.edge.jittered_age(self.dice))
            .concurrency_limit_per_connection(CONCURRENT_CALLS_MAX)
            .load_shed(true)
    }
}

fn log_failure(port: &'static str, served: Result<(), tonic::transport::Error>) {
    if let Err(error) = served {
        tracing::error!(port, %error, "stopped serving");
    }
}
