//! HTTP/2 server of one port: sets each limit, serves until stopped and until its last connection has ended.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;

use crate::api::authorization::Authorizer;
use crate::api::connect_protocol::ConnectProtocolLayer;
use crate::api::connect_protocol::methods::ConnectMethods;
use crate::api::drain::Drain;
use crate::api::layer::CallLayer;
use crate::api::layer::call_reporter::RpcObserver;
use crate::api::rate_limits_and_audit::{RateLimitsAndAudit, ServerPort};
use crate::server::accept::IncomingConnections;
use crate::server::grpc_web::{ClientPortLayer, CorsOrigins};
use crate::server::host_check::{HostCheckLayer, OperatorHosts};
use crate::server::limits::EdgeLimits;

/// Concurrent streams per connection; Envoy's default for edge proxies is 100.
const CONCURRENT_STREAMS_MAX: u32 = 64;

/// Concurrent calls per connection; more are rejected, not queued. Equal to the stream limit, so a client that obeys
/// HTTP/2, such as a game backend with one connection for all players, is never rejected.
const CONCURRENT_CALLS_MAX: usize = CONCURRENT_STREAMS_MAX as usize;

/// Resets that a connection may cause by protocol errors in its lifetime. Without this limit, one connection costs 800
/// MB in three seconds.
const LOCAL_ERROR_RESETS_MAX: usize = 256;

/// Streams that a client may open and reset before the server accepts them (rapid reset attack).
const PENDING_RESETS_MAX: usize = 20;

/// Limit of request headers, bytes; also bounds CONTINUATION frames.
const HEADER_BYTES_MAX: u32 = 8 * 1024;

/// Flow control window of a stream, bytes: one request message.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;

/// Flow control window of a connection, bytes.
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// Interval of PINGs to a silent client.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
/// Timeout for the answer to a PING.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Server of one port.
#[derive(Clone)]
pub struct PortServer {
    /// Connection limits and timeouts.
    pub limits: Arc<EdgeLimits>,
    /// Counts calls and connections.
    pub observer: Arc<dyn RpcObserver>,
    /// Checks callers.
    pub authorizer: Authorizer,
    /// Ends streams.
    pub drain: Drain,
    /// Rate limits per call and audit of operator calls.
    pub rate_limits_and_audit: RateLimitsAndAudit,
    /// Methods of the port for the Connect protocol.
    pub connect_methods: Arc<ConnectMethods>,
    /// Random part of the connection age, in [0, 1).
    pub age_jitter: f64,
}

impl PortServer {
    /// Serves gRPC to game clients, gRPC-Web to browsers, and the Connect protocol to all, until `stop_accepting` is cancelled.
    /// Pages of `cors_origins` may call.
    pub async fn serve_clients(
        self,
        connections: IncomingConnections,
        routes: Routes,
        cors_origins: CorsOrigins,
        stop_accepting: CancellationToken,
    ) {
        let connect_protocol = ConnectProtocolLayer(self.connect_methods.clone());
        let layer = ClientPortLayer { calls: self.call_layer(), connect_protocol, cors_origins };
        let mut server = self.http_server().layer(layer);
        let result =
            server.add_routes(routes).serve_with_incoming_shutdown(connections, stop_accepting.cancelled_owned());
        log_serve_error("client", result.await);
    }

    /// The same for the operator port, which has the names `hosts` and these methods.
    pub fn for_operators(&self, hosts: OperatorHosts, connect_methods: ConnectMethods) -> OperatorPortServer {
        let rate_limits_and_audit =
            RateLimitsAndAudit { port: ServerPort::Operator, ..self.rate_limits_and_audit.clone() };
        let connect_methods = Arc::new(connect_methods);
        let port_server = Self { rate_limits_and_audit, connect_methods, ..self.clone() };
        OperatorPortServer { port_server, hosts: Arc::new(hosts) }
    }

    fn call_layer(&self) -> CallLayer {
        CallLayer::new(self.observer.clone(), self.authorizer.clone(), self.limits.unary_deadline, &self.drain)
            .with_rate_limits_and_audit(self.rate_limits_and_audit.clone())
    }

    fn http_server(&self) -> Server {
        Server::builder()
            // For gRPC-Web and pages. It also lets idle connections close at once when the server stops.
            .accept_http1(true)
            .max_concurrent_streams(CONCURRENT_STREAMS_MAX)
            .http2_max_local_error_reset_streams(Some(LOCAL_ERROR_RESETS_MAX))
            .http2_max_pending_accept_reset_streams(Some(PENDING_RESETS_MAX))
            .http2_max_header_list_size(HEADER_BYTES_MAX)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            // Without tonic's grace period, which would suppress the GOAWAY. `TimedConnection` closes the connection.
            .max_connection_age(self.limits.jittered_connection_age(self.age_jitter))
            .concurrency_limit_per_connection(CONCURRENT_CALLS_MAX)
            .load_shed(true)
    }
}

/// Server of the operator port.
pub struct OperatorPortServer {
    port_server: PortServer,
    hosts: Arc<OperatorHosts>,
}

impl OperatorPortServer {
    /// Serves gRPC, the Connect protocol and HTTP pages to operators, and gRPC-Web to the console in a browser. Without CORS: pages of
    /// other origins may not call.
    pub async fn serve(self, connections: IncomingConnections, routes: Routes, stop_accepting: CancellationToken) {
        let (calls, observer) = (self.port_server.call_layer(), self.port_server.observer.clone());
        let connect_protocol = ConnectProtocolLayer(self.port_server.connect_methods.clone());
        let layer = HostCheckLayer { call_layer: calls, connect_protocol, hosts: self.hosts, observer };
        let mut server = self.port_server.http_server().layer(layer);
        let result =
            server.add_routes(routes).serve_with_incoming_shutdown(connections, stop_accepting.cancelled_owned());
        log_serve_error("operator", result.await);
    }
}

fn log_serve_error(port: &'static str, result: Result<(), tonic::transport::Error>) {
    if let Err(error) = result {
        tracing::error!(port, %error, "port server failed");
    }
}
