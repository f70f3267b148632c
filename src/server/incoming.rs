//! Accepts connections, has them received at the entrance, and rests when the machine has no more to give.

use std::collections::VecDeque;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::{TcpListener, TcpSocket};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::Sleep;
use tokio_stream::Stream;

use crate::server::entrance::{Begun, Entrance};
use crate::server::guarded::Guarded;
use crate::server::line::Line;
use crate::telemetry::label::TurnedAway;

/// Connections that the kernel keeps until they are accepted.
const BACKLOG: u32 = 1_024;

/// How long accepting rests after the system has run out of something: file descriptors, most of all. Without a rest
/// the loop would spin (F6).
const REST: Duration = Duration::from_millis(100);

/// Connections as they come, each ready for HTTP.
pub struct Incoming {
    listener: TcpListener,
    address: SocketAddr,
    entrance: Arc<Entrance>,
    arriving: JoinSet<Result<Guarded<Line>, TurnedAway>>,
    /// Those that arrive, the first to come first; some may have arrived already.
    queue: VecDeque<AbortHandle>,
    resting: Option<Pin<Box<Sleep>>>,
    /// The system had nothing to give when last asked.
    exhausted: bool,
}

impl Incoming {
    /// Listens at `address`; port 0 takes any that is free.
    pub fn bind(address: SocketAddr, entrance: Entrance) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restarted server takes its port back at once; two servers still cannot share it.
        socket.set_reuseaddr(true)?;
        // Accepted connections inherit these.
        socket.set_keepalive(true)?;
        socket.bind(address)?;
        let listener = socket.listen(BACKLOG)?;
        let address = listener.local_addr()?;
        Ok(Self {
            listener,
            address,
            entrance: Arc::new(entrance),
            arriving: JoinSet::new(),
            queue: VecDeque::new(),
            resting: None,
            exhausted: false,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// One that has arrived; none when none has, or none is on the way.
    fn poll_arrived(&mut self, cx: &mut Context<'_>) -> Option<Guarded<Line>> {
        while let Poll::Ready(Some(ended)) = self.arriving.poll_join_next(cx) {
            match ended {
                Ok(Ok(connection)) => return Some(connection),
                Ok(Err(why)) => self.turn_away(why),
                // Given up in favour of a newer one, and counted then; or a panic, which is in the log.
                Err(_) => {}
            }
        }
        None
    }

    /// Has a connection received. One that is on its way since longer than any other gives way to it: whoever means
    /// well is through long before, and a crowd that sends nothing cannot keep the entrance shut.
    fn receive(&mut self, begun: Begun) -> Option<Guarded<Line>> {
        let arriving = match begun {
            Begun::Ready(connection) => return Some(connection),
            Begun::Arriving(arriving) => arriving,
        };
        if self.entrance.edge.arriving_max <= self.queue.len() {
            self.queue.retain(|it| !it.is_finished());
            if self.entrance.edge.arriving_max <= self.queue.len()
                && let Some(oldest) = self.queue.pop_front()
            {
                oldest.abort();
                self.turn_away(TurnedAway::TooManyArriving);
            }
        }
        let entrance = self.entrance.clone();
        self.queue.push_back(self.arriving.spawn(async move { entrance.receive(arriving).await }));
        None
    }

    fn turn_away(&self, why: TurnedAway) {
        self.entrance.observer.turned_away(why.as_str());
    }
}

impl Stream for Incoming {
    type Item = io::Result<Guarded<Line>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(connection) = this.poll_arrived(cx) {
                return Poll::Ready(Some(Ok(connection)));
            }
            if let Some(resting) = &mut this.resting {
                ready!(resting.as_mut().poll(cx));
                this.resting = None;
            }
            match ready!(this.listener.poll_accept(cx)) {
                Ok((stream, peer)) => {
                    this.exhausted = false;
                    match this.entrance.begin(stream, peer.ip()) {
                        Ok(begun) => match this.receive(begun) {
                            Some(connection) => return Poll::Ready(Some(Ok(connection))),
                            None => continue,
                        },
                        Err(why) => this.turn_away(why),
                    }
                }
                Err(error) if is_one_connections_own(&error) => continue,
                Err(error) => {
                    if !std::mem::replace(&mut this.exhausted, true) {
                        tracing::warn!(%error, "cannot accept connections; trying again ten times a second");
                    }
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
