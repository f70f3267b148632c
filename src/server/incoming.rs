//! Accepts connections: counts them, gives each its deadlines, and rests when the machine has no more to give.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::Sleep;
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;

use crate::api::caller::Peer;
use crate::api::layer::report::RpcObserver;
use crate::clock::Clock;
use crate::server::edge::Edge;
use crate::server::gate::{Gate, Limits};
use crate::server::guarded::{Deadlines, Guarded};

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1_024;

/// How long accepting rests after the system has run out of something: file descriptors, most of all. Without a rest
/// the loop would spin (F6).
const REST: Duration = Duration::from_millis(100);

/// Connections as they come.
pub struct Incoming {
    listener: TcpListener,
    address: SocketAddr,
    gate: Arc<Gate>,
    edge: Arc<Edge>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn RpcObserver>,
    hard_stop: CancellationToken,
    resting: Option<Pin<Box<Sleep>>>,
}

impl Incoming {
    /// Listens at `address`; port 0 takes any that is free. Connections end when `hard_stop` is cancelled.
    pub fn bind(
        address: SocketAddr,
        edge: Arc<Edge>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn RpcObserver>,
        hard_stop: CancellationToken,
    ) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restarted server takes its port back at once; two servers still cannot share it.
        socket.set_reuseaddr(true)?;
        // Accepted connections inherit these.
        socket.set_keepalive(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        let gate = Gate::new(Limits {
            total: edge.connections_max,
            per_place: edge.connections_per_place_max,
            per_local_place: edge.connections_per_local_place_max,
        });
        Ok(Self { listener, address, gate, edge, clock, observer, hard_stop, resting: None })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A connection with its deadlines, or none when there are too many.
    fn admit(&self, stream: TcpStream, peer: SocketAddr) -> Option<Guarded<TcpStream>> {
        let address = peer.ip().to_canonical();
        let pass = match self.gate.admit(address) {
            Ok(pass) => pass,
            Err(why) => {
                self.observer.turned_away(why.as_str());
                return None;
            }
        };
        // A connection that is gone already will say so when it is read.
        drop(stream.set_nodelay(true));
        let streams_max = match address.is_loopback() {
            true => self.edge.streams_per_local_connection_max,
            false => self.edge.streams_per_connection_max,
        };
        let peer = Peer { address, streams: Arc::new(AtomicU32::new(0)), streams_max, certificate: None };
        let deadlines = Deadlines {
            first_bytes: self.edge.first_bytes,
            lifetime: self.edge.lifetime(self.clock.dice()),
            write_progress: self.edge.write_progress,
        };
        Some(Guarded::new(stream, peer, deadlines, &self.hard_stop, pass))
    }
}

impl Stream for Incoming {
    type Item = io::Result<Guarded<TcpStream>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(resting) = &mut this.resting {
                ready!(resting.as_mut().poll(cx));
                this.resting = None;
            }
            match ready!(this.listener.poll_accept(cx)) {
                Ok((stream, peer)) => match this.admit(stream, peer) {
                    Some(connection) => return Poll::Ready(Some(Ok(connection))),
                    None => continue,
                },
                Err(error) if is_one_connections_own(&error) => continue,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept connections; resting");
                    this.resting = Some(Box::pin(tokio::time::sleep(REST)));
                }
            }
        }
    }
}

/// Errors of a connection that went away while it waited to be accepted.
fn is_one_connections_own(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::ConnectionAborted | Kind::ConnectionReset | Kind::Interrupted)
}
