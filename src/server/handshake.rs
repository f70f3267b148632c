//! How a connection begins on one port: who may connect, whose connection it is, and TLS. What comes out is ready for HTTP.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::api::client_address::ConnectionPeer;
use crate::api::layer::call_report::RpcObserver;
use crate::clock::Clock;
use crate::server::conn_limit::{
    ConnectionLimiter, ConnectionLimits, ConnectionPermit, PeerTrust, is_loopback_address,
};
use crate::server::h2_frame_limit::FrameLimiter;
use crate::server::limits::EdgeLimits;
use crate::server::proxy_header;
use crate::server::timeouts::{ConnectionTimeouts, TimedConnection};
use crate::server::tls::TlsAcceptorSource;
use crate::server::transport::Transport;
use crate::telemetry::label::ConnectionRejection;

/// Which proxies stand before a port, and how they say for whom they come.
#[derive(Clone)]
pub struct ProxySettings {
    /// Whether an address is that of a proxy of ours. Such a neighbour carries the connections of many.
    pub is_trusted: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// Every connection begins with a PROXY header; whoever is not trusted has nothing to say at all.
    pub require_proxy_header: bool,
}

impl ProxySettings {
    /// There are none.
    pub fn none() -> Self {
        Self { is_trusted: Arc::new(|_| false), require_proxy_header: false }
    }
}

/// What every connection of a port needs.
pub struct ConnectionHandshaker {
    /// Limits.
    pub limits: Arc<EdgeLimits>,
    /// Dice for lifetimes.
    pub clock: Arc<dyn Clock>,
    /// Counts.
    pub observer: Arc<dyn RpcObserver>,
    /// Ends every connection.
    pub hard_stop: CancellationToken,
    /// How connections are encrypted; none: they are not.
    pub tls: Option<Arc<TlsAcceptorSource>>,
    /// Who may speak for others.
    pub proxies: ProxySettings,
    connection_limiter: Arc<ConnectionLimiter>,
}

/// A connection, and whether it is ready.
pub(super) enum HandshakeState {
    /// It is.
    Ready(TimedConnection<Transport>),
    /// It has a header to send or keys to agree on first.
    Pending(PendingHandshake),
}

/// A connection that has yet to say something.
pub(super) struct PendingHandshake {
    stream: TcpStream,
    address: IpAddr,
    /// None: whose connection it is will be known when its PROXY header is.
    permit: Option<ConnectionPermit>,
}

impl ConnectionHandshaker {
    /// An entrance that nobody has passed.
    pub fn new(
        edge: Arc<EdgeLimits>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn RpcObserver>,
        hard_stop: CancellationToken,
        tls: Option<Arc<TlsAcceptorSource>>,
        proxies: ProxySettings,
    ) -> Self {
        let gate = ConnectionLimiter::new(ConnectionLimits {
            total: edge.connections_max,
            per_prefix: edge.connections_per_prefix_max,
            per_trusted_peer: edge.connections_per_trusted_peer_max,
            connect_interval: edge.connect_interval_per_prefix,
            control_frame_rate: edge.control_frame_rate_per_prefix,
        });
        Self { limits: edge, clock, observer, hard_stop, tls, proxies, connection_limiter: gate }
    }

    /// A connection that has just been accepted from `peer`.
    pub(super) fn start(&self, stream: TcpStream, peer: IpAddr) -> Result<HandshakeState, ConnectionRejection> {
        let address = peer.to_canonical();
        // A connection that is gone already will say so when it is read.
        drop(stream.set_nodelay(true));
        if self.proxies.require_proxy_header {
            return match (self.proxies.is_trusted)(address) {
                true => Ok(HandshakeState::Pending(PendingHandshake { stream, address, permit: None })),
                false => Err(ConnectionRejection::UntrustedPeer),
            };
        }
        let pass = self.acquire_permit(address)?;
        Ok(match self.tls {
            None => HandshakeState::Ready(self.timed_connection(Transport::Plain(stream), address, None, pass)),
            Some(_) => HandshakeState::Pending(PendingHandshake { stream, address, permit: Some(pass) }),
        })
    }

    /// Waits for a connection's header and keys, not longer than for first bytes.
    pub(super) async fn complete(
        &self,
        arriving: PendingHandshake,
    ) -> Result<TimedConnection<Transport>, ConnectionRejection> {
        let ready =
            tokio::time::timeout(self.limits.first_bytes_timeout, self.read_proxy_header_and_accept_tls(arriving))
                .await;
        ready.unwrap_or(Err(ConnectionRejection::HandshakeTimeout))
    }

    async fn read_proxy_header_and_accept_tls(
        &self,
        arriving: PendingHandshake,
    ) -> Result<TimedConnection<Transport>, ConnectionRejection> {
        let PendingHandshake { mut stream, mut address, permit: pass } = arriving;
        let pass = match pass {
            Some(pass) => pass,
            None => {
                // What exactly is wrong concerns the proxy's operator, who is of this house.
                let told = proxy_header::read_client_address(&mut stream).await.map_err(|why| {
                    tracing::debug!(%why, "bad PROXY header");
                    ConnectionRejection::ProxyHeader
                })?;
                address = told.map_or(address, |told| told.to_canonical());
                self.acquire_permit(address)?
            }
        };
        let Some(tls) = &self.tls else {
            return Ok(self.timed_connection(Transport::Plain(stream), address, None, pass));
        };
        let stream =
            TlsAcceptor::from(tls.current_config()).accept(stream).await.map_err(|_| ConnectionRejection::Tls)?;
        let (_, session) = stream.get_ref();
        let shown = session.peer_certificates().and_then(|chain| chain.first());
        let certificate = shown.map(|leaf| Arc::from(leaf.as_ref()));
        Ok(self.timed_connection(Transport::Tls(Box::new(stream)), address, certificate, pass))
    }

    fn peer_trust(&self, address: IpAddr) -> PeerTrust {
        match is_loopback_address(address) || (self.proxies.is_trusted)(address) {
            true => PeerTrust::TrustedPeer,
            false => PeerTrust::Untrusted,
        }
    }

    fn acquire_permit(&self, address: IpAddr) -> Result<ConnectionPermit, ConnectionRejection> {
        let pass = self.connection_limiter.acquire(address, self.peer_trust(address), Instant::now())?;
        Ok(pass.with_observer(&self.observer))
    }

    fn timed_connection(
        &self,
        line: Transport,
        address: IpAddr,
        certificate: Option<Arc<[u8]>>,
        pass: ConnectionPermit,
    ) -> TimedConnection<Transport> {
        let streams_max = match self.peer_trust(address) {
            PeerTrust::TrustedPeer => self.limits.streams_per_trusted_connection_max,
            PeerTrust::Untrusted => self.limits.streams_per_connection_max,
        };
        let peer = ConnectionPeer { address, open_streams: Arc::new(AtomicU32::new(0)), streams_max, certificate };
        let deadlines = ConnectionTimeouts {
            first_bytes: self.limits.first_bytes_timeout,
            lifetime: self.limits.connection_lifetime(self.clock.random_unit_f64()),
            write_stall: self.limits.write_stall_timeout,
        };
        let frames =
            pass.frame_bucket().map(|purse| FrameLimiter::new(self.limits.control_frame_rate, purse, Instant::now()));
        TimedConnection::new(line, peer, deadlines, &self.hard_stop, pass).with_frame_limiter(frames)
    }
}
