//! How a connection begins on one port: who may connect, whose connection it is, and TLS. What comes out is ready for HTTP.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use crate::api::caller::Peer;
use crate::api::layer::report::RpcObserver;
use crate::clock::Clock;
use crate::server::edge::Edge;
use crate::server::frames::Frames;
use crate::server::gate::{Gate, Limits, Pass, Standing, is_this_machine};
use crate::server::guarded::{Deadlines, Guarded};
use crate::server::line::Line;
use crate::server::proxy_header;
use crate::server::tls::Tls;
use crate::telemetry::label::TurnedAway;

/// Which proxies stand before a port, and how they say for whom they come.
#[derive(Clone)]
pub struct Proxies {
    /// Whether an address is that of a proxy of ours. Such a neighbour carries the connections of many.
    pub is_trusted: Arc<dyn Fn(IpAddr) -> bool + Send + Sync>,
    /// Every connection begins with a PROXY header; whoever is not trusted has nothing to say at all.
    pub header: bool,
}

impl Proxies {
    /// There are none.
    pub fn none() -> Self {
        Self { is_trusted: Arc::new(|_| false), header: false }
    }
}

/// What every connection of a port needs.
pub struct Entrance {
    /// Limits.
    pub edge: Arc<Edge>,
    /// Dice for lifetimes.
    pub clock: Arc<dyn Clock>,
    /// Counts.
    pub observer: Arc<dyn RpcObserver>,
    /// Ends every connection.
    pub hard_stop: CancellationToken,
    /// How connections are encrypted; none: they are not.
    pub tls: Option<Arc<Tls>>,
    /// Who may speak for others.
    pub proxies: Proxies,
    gate: Arc<Gate>,
}

/// A connection, and whether it is ready.
pub(super) enum Begun {
    /// It is.
    Ready(Guarded<Line>),
    /// It has a header to send or keys to agree on first.
    Arriving(Arriving),
}

/// A connection that has yet to say something.
pub(super) struct Arriving {
    stream: TcpStream,
    address: IpAddr,
    /// None: whose connection it is will be known when its PROXY header is.
    pass: Option<Pass>,
}

impl Entrance {
    /// An entrance that nobody has passed.
    pub fn new(
        edge: Arc<Edge>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn RpcObserver>,
        hard_stop: CancellationToken,
        tls: Option<Arc<Tls>>,
        proxies: Proxies,
    ) -> Self {
        let gate = Gate::new(Limits {
            total: edge.connections_max,
            per_place: edge.connections_per_place_max,
            per_neighbour: edge.connections_per_local_place_max,
            opening_every: edge.opening_every,
            idle_frames: edge.idle_frames_per_place,
        });
        Self { edge, clock, observer, hard_stop, tls, proxies, gate }
    }

    /// A connection that has just been accepted from `peer`.
    pub(super) fn begin(&self, stream: TcpStream, peer: IpAddr) -> Result<Begun, TurnedAway> {
        let address = peer.to_canonical();
        // A connection that is gone already will say so when it is read.
        drop(stream.set_nodelay(true));
        if self.proxies.header {
            return match (self.proxies.is_trusted)(address) {
                true => Ok(Begun::Arriving(Arriving { stream, address, pass: None })),
                false => Err(TurnedAway::NoProxy),
            };
        }
        let pass = self.admit(address)?;
        Ok(match self.tls {
            None => Begun::Ready(self.guard(Line::Plain(stream), address, None, pass)),
            Some(_) => Begun::Arriving(Arriving { stream, address, pass: Some(pass) }),
        })
    }

    /// Waits for a connection's header and keys, not longer than for first bytes.
    pub(super) async fn receive(&self, arriving: Arriving) -> Result<Guarded<Line>, TurnedAway> {
        let ready = tokio::time::timeout(self.edge.first_bytes, self.introduced(arriving)).await;
        ready.unwrap_or(Err(TurnedAway::TooSlow))
    }

    async fn introduced(&self, arriving: Arriving) -> Result<Guarded<Line>, TurnedAway> {
        let Arriving { mut stream, mut address, pass } = arriving;
        let pass = match pass {
            Some(pass) => pass,
            None => {
                // What exactly is wrong concerns the proxy's operator, who is of this house.
                let told = proxy_header::read(&mut stream).await.map_err(|why| {
                    tracing::debug!(%why, "bad PROXY header");
                    TurnedAway::ProxyHeader
                })?;
                address = told.map_or(address, |told| told.to_canonical());
                self.admit(address)?
            }
        };
        let Some(tls) = &self.tls else { return Ok(self.guard(Line::Plain(stream), address, None, pass)) };
        let stream = TlsAcceptor::from(tls.current()).accept(stream).await.map_err(|_| TurnedAway::Tls)?;
        let (_, session) = stream.get_ref();
        let shown = session.peer_certificates().and_then(|chain| chain.first());
        let certificate = shown.map(|leaf| Arc::from(leaf.as_ref()));
        Ok(self.guard(Line::Tls(Box::new(stream)), address, certificate, pass))
    }

    fn standing(&self, address: IpAddr) -> Standing {
        match is_this_machine(address) || (self.proxies.is_trusted)(address) {
            true => Standing::Neighbour,
            false => Standing::Stranger,
        }
    }

    fn admit(&self, address: IpAddr) -> Result<Pass, TurnedAway> {
        let pass = self.gate.admit(address, self.standing(address), Instant::now())?;
        Ok(pass.counted_by(&self.observer))
    }

    fn guard(&self, line: Line, address: IpAddr, certificate: Option<Arc<[u8]>>, pass: Pass) -> Guarded<Line> {
        let streams_max = match self.standing(address) {
            Standing::Neighbour => self.edge.streams_per_local_connection_max,
            Standing::Stranger => self.edge.streams_per_connection_max,
        };
        let peer = Peer { address, streams: Arc::new(AtomicU32::new(0)), streams_max, certificate };
        let deadlines = Deadlines {
            first_bytes: self.edge.first_bytes,
            lifetime: self.edge.lifetime(self.clock.dice()),
            write_progress: self.edge.write_progress,
        };
        let frames = pass.purse().map(|purse| Frames::new(self.edge.idle_frames, purse, Instant::now()));
        Guarded::new(line, peer, deadlines, &self.hard_stop, pass).counting(frames)
    }
}
