//! Start of a connection: connection limits, PROXY header, TLS. The result is ready for HTTP.

use std::net::IpAddr;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::api::client_address::ConnectionPeer;
use crate::api::layer::call_reporter::RpcObserver;
use crate::clock::Clock;
use crate::server::conn_limit::{
    ConnectionLimiter, ConnectionLimits, ConnectionPermit, PeerTrust, is_localhost_address,
};
use crate::server::h2_frame_limit::ControlFrameLimiter;
use crate::server::limits::EdgeLimits;
use crate::server::proxy_header;
use crate::server::tcp_round_trip::FloorObserver;
use crate::server::timeouts::{ConnectionTimeouts, TimedConnection};
use crate::server::tls::ReloadableTlsConfig;
use crate::server::transport::PlainOrTlsStream;
use crate::telemetry::label::ConnectionRejection;

/// Proxies in front of a port.
#[derive(Clone)]
pub struct ProxySettings {
    /// Whether an address is a trusted proxy, which carries the connections of many clients.
    pub is_trusted_proxy: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// Each connection must start with a PROXY header; peers that are not trusted proxies are rejected.
    pub require_proxy_header: bool,
}

impl ProxySettings {
    /// Settings of a port without proxies.
    pub fn without_proxies() -> Self {
        Self { is_trusted_proxy: Arc::new(|_| false), require_proxy_header: false }
    }
}

/// Starts the connections of one port.
pub struct ConnectionHandshaker {
    /// Connection limits and timeouts.
    pub limits: Arc<EdgeLimits>,
    /// Source of jitter for connection lifetimes.
    pub jitter_source: Arc<dyn Clock>,
    /// Counts connections and rejections.
    pub observer: Arc<dyn RpcObserver>,
    /// TLS configuration; `None`: plaintext.
    pub tls: Option<Arc<ReloadableTlsConfig>>,
    /// Proxies in front of the port.
    pub proxies: ProxySettings,
    connection_limiter: Arc<ConnectionLimiter>,
    /// The least round trips of connections are sampled.
    observes_tcp_floor: bool,
}

/// Accepted connection: ready for HTTP, or with a pending handshake.
pub(super) enum AcceptedConnection {
    /// Plaintext connection without a PROXY header.
    Ready(TimedConnection<PlainOrTlsStream>),
    /// Connection that must send a PROXY header or complete TLS first.
    Pending(PendingHandshake),
}

/// Connection with a pending handshake.
pub(super) struct PendingHandshake {
    stream: TcpStream,
    address: IpAddr,
    /// `None`: the client is known only after its PROXY header.
    permit: Option<ConnectionPermit>,
}

impl ConnectionHandshaker {
    /// Creates a handshaker without connections.
    pub fn new(
        limits: Arc<EdgeLimits>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn RpcObserver>,
        hard_stop: CancellationToken,
        tls: Option<Arc<ReloadableTlsConfig>>,
        proxies: ProxySettings,
    ) -> Self {
        let connection_limits = ConnectionLimits {
            untrusted_total: limits.untrusted_connections_max,
            trusted_total: limits.trusted_connections_max,
            per_host: limits.connections_per_host_max,
            per_site: limits.connections_per_site_max,
            per_network: limits.connections_per_network_max,
            per_trusted_peer: limits.connections_per_trusted_peer_max,
            host_connect_interval: limits.connect_interval_per_host,
            network_connect_interval: limits.connect_interval_per_network,
            control_frame_rate_per_host: limits.control_frame_rate_per_host,
            crowded_unidentified_age_max: limits.crowded_unidentified_age_max,
        };
        let connection_limiter = ConnectionLimiter::new(connection_limits, hard_stop);
        Self { limits, jitter_source: clock, observer, tls, proxies, connection_limiter, observes_tcp_floor: false }
    }

    /// Samples the least round trips of connections that come from clients themselves.
    pub fn with_tcp_floors(self, observes_tcp_floor: bool) -> Self {
        Self { observes_tcp_floor, ..self }
    }

    /// If few places are free, closes the connections without an identity that are too old. Returns the time at which the
    /// next one will be.
    pub(super) fn shed_unidentified_connections(&self) -> Option<Instant> {
        self.connection_limiter.shed_unidentified_connections(Instant::now())
    }

    /// Starts a connection accepted from `peer`. Fails with the limit that it exceeds.
    pub(super) fn admit_connection(
        &self,
        stream: TcpStream,
        peer: IpAddr,
    ) -> Result<AcceptedConnection, ConnectionRejection> {
        let address = peer.to_canonical();
        // Fails only on a closed connection, which is noticed when it is read.
        let _ = stream.set_nodelay(true);
        if self.proxies.require_proxy_header {
            return if (self.proxies.is_trusted_proxy)(address) {
                Ok(AcceptedConnection::Pending(PendingHandshake { stream, address, permit: None }))
            } else {
                Err(ConnectionRejection::UntrustedPeer)
            };
        }
        let permit = self.acquire_permit(address)?;
        Ok(match self.tls {
            None => {
                AcceptedConnection::Ready(self.timed_connection(PlainOrTlsStream::Plain(stream), address, None, permit))
            }
            Some(_) => AcceptedConnection::Pending(PendingHandshake { stream, address, permit: Some(permit) }),
        })
    }

    /// Completes the PROXY header and TLS within the timeout for first bytes. Fails with the reason for the rejection;
    /// `None` if the connection was closed for others, which its permit counts.
    pub(super) async fn complete(
        &self,
        pending: PendingHandshake,
    ) -> Result<Option<TimedConnection<PlainOrTlsStream>>, ConnectionRejection> {
        let result =
            tokio::time::timeout(self.limits.first_bytes_timeout, self.read_proxy_header_and_accept_tls(pending)).await;
        result.unwrap_or(Err(ConnectionRejection::HandshakeTimeout))
    }

    async fn read_proxy_header_and_accept_tls(
        &self,
        pending: PendingHandshake,
    ) -> Result<Option<TimedConnection<PlainOrTlsStream>>, ConnectionRejection> {
        let PendingHandshake { mut stream, mut address, permit } = pending;
        let permit = match permit {
            Some(permit) => permit,
            None => {
                // Logged at debug level only: a malformed header is the proxy operator's problem.
                let client_address = proxy_header::read_client_address(&mut stream).await.map_err(|error| {
                    tracing::debug!(%error, "connection rejected: invalid PROXY header");
                    ConnectionRejection::ProxyHeader
                })?;
                address = client_address.map_or(address, |client_address| client_address.to_canonical());
                self.acquire_permit(address)?
            }
        };
        let Some(tls) = &self.tls else {
            return Ok(Some(self.timed_connection(PlainOrTlsStream::Plain(stream), address, None, permit)));
        };
        let stream = tokio::select! {
            accepted = TlsAcceptor::from(tls.current_config()).accept(stream) => {
                accepted.map_err(|_| ConnectionRejection::Tls)?
            }
            () = permit.stop_token().cancelled() => return Ok(None),
        };
        let (_, session) = stream.get_ref();
        let client_certificate = session.peer_certificates().and_then(|chain| chain.first());
        let certificate = client_certificate.map(|leaf| Arc::from(leaf.as_ref()));
        Ok(Some(self.timed_connection(PlainOrTlsStream::Tls(Box::new(stream)), address, certificate, permit)))
    }

    fn peer_trust(&self, address: IpAddr) -> PeerTrust {
        if is_localhost_address(address) || (self.proxies.is_trusted_proxy)(address) {
            PeerTrust::TrustedPeer
        } else {
            PeerTrust::Untrusted
        }
    }

    fn acquire_permit(&self, address: IpAddr) -> Result<ConnectionPermit, ConnectionRejection> {
        let permit = self.connection_limiter.acquire(address, self.peer_trust(address), Instant::now())?;
        Ok(permit.count_at_observer(&self.observer))
    }

    fn timed_connection(
        &self,
        transport: PlainOrTlsStream,
        address: IpAddr,
        certificate: Option<Arc<[u8]>>,
        permit: ConnectionPermit,
    ) -> TimedConnection<PlainOrTlsStream> {
        let (is_trusted, streams_max) = match self.peer_trust(address) {
            PeerTrust::TrustedPeer => (true, self.limits.streaming_calls_per_trusted_connection_max),
            PeerTrust::Untrusted => (false, self.limits.streaming_calls_per_untrusted_connection_max),
        };
        let has_identity = permit.has_identity().clone();
        let peer =
            ConnectionPeer { certificate, is_trusted, has_identity, ..ConnectionPeer::new(address, streams_max) };
        if peer.certificate.is_some() {
            peer.set_identified();
        }
        let timeouts = ConnectionTimeouts {
            first_bytes: self.limits.first_bytes_timeout,
            lifetime: self.limits.connection_lifetime(self.jitter_source.random_unit_f64()),
            write_stall: self.limits.write_stall_timeout,
        };
        let frame_limiter = permit.prefix_frame_bucket().map(|bucket| {
            ControlFrameLimiter::new(self.limits.control_frame_rate_per_connection, bucket, Instant::now())
        });
        // At the other end of a proxy's connection is the proxy.
        let is_of_client = !is_trusted && !self.proxies.require_proxy_header;
        let floor_observer =
            (self.observes_tcp_floor && is_of_client).then(|| FloorObserver::new(peer.tcp_floor.clone(), &transport));
        TimedConnection::new(transport, peer, timeouts, permit)
            .with_frame_limiter(frame_limiter)
            .with_floor_observer(floor_observer)
    }
}
