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

use crate::server::handshake::{ConnectionHandshaker, HandshakeState};
use crate::server::timeouts::TimedConnection;
use crate::server::transport::Transport;
use crate::telemetry::label::ConnectionRejection;

/// Connections that the kernel keeps until they are accepted.
const LISTEN_BACKLOG: u32 = 1_024;

/// How long accepting rests after the system has run out of something: file descriptors, most of all. Without a rest
/// the loop would spin (F6).
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Connections as they come, each ready for HTTP.
pub struct IncomingConnections {
    listener: TcpListener,
    address: SocketAddr,
    handshaker: Arc<ConnectionHandshaker>,
    handshakes: JoinSet<Result<TimedConnection<Transport>, ConnectionRejection>>,
    /// Those that arrive, the first to come first; some may have arrived already.
    oldest_handshakes: VecDeque<AbortHandle>,
    accept_retry: Option<Pin<Box<Sleep>>>,
    /// The system had nothing to give when last asked.
    accept_failed: bool,
}

impl IncomingConnections {
    /// Listens at `address`; port 0 takes any that is free.
    pub fn bind(address: SocketAddr, entrance: ConnectionHandshaker) -> io::Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        // A restarted server takes its port back at once; two servers still cannot share it.
        socket.set_reuseaddr(true)?;
        // Accepted connections inherit these.
        socket.set_keepalive(true)?;
        socket.bind(address)?;
        let listener = socket.listen(LISTEN_BACKLOG)?;
        let address = listener.local_addr()?;
        Ok(Self {
            listener,
            address,
            handshaker: Arc::new(entrance),
            handshakes: JoinSet::new(),
            oldest_handshakes: VecDeque::new(),
            accept_retry: None,
            accept_failed: false,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// One that has arrived; none when none has, or none is on the way.
    fn poll_handshakes(&mut self, cx: &mut Context<'_>) -> Option<TimedConnection<Transport>> {
        while let Poll::Ready(Some(ended)) = self.handshakes.poll_join_next(cx) {
            match ended {
                Ok(Ok(connection)) => return Some(connection),
                Ok(Err(why)) => self.report_rejection(why),
                // Given up in favour of a newer one, and counted then; or a panic, which is in the log.
                Err(_) => {}
            }
        }
        None
    }

    /// Has a connection received. One that is on its way since longer than any other gives way to it: whoever means
    /// well is through long before, and a crowd that sends nothing cannot keep the entrance shut.
    fn start_handshake(&mut self, begun: HandshakeState) -> Option<TimedConnection<Transport>> {
        let arriving = match begun {
            HandshakeState::Ready(connection) => return Some(connection),
            HandshakeState::Pending(arriving) => arriving,
        };
        if self.handshaker.limits.handshakes_max <= self.oldest_handshakes.len() {
            self.oldest_handshakes.retain(|it| !it.is_finished());
            if self.handshaker.limits.handshakes_max <= self.oldest_handshakes.len()
                && let Some(oldest) = self.oldest_handshakes.pop_front()
            {
                oldest.abort();
                self.report_rejection(ConnectionRejection::MaxHandshakes);
            }
        }
        let entrance = self.handshaker.clone();
        self.oldest_handshakes.push_back(self.handshakes.spawn(async move { entrance.complete(arriving).await }));
        None
    }

    fn report_rejection(&self, why: ConnectionRejection) {
        self.handshaker.observer.connection_rejected(why.as_str());
    }
}

impl Stream for IncomingConnections {
    type Item = io::Result<TimedConnection<Transport>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(connection) = this.poll_handshakes(cx) {
                return Poll::Ready(Some(Ok(connection)));
            }
            if let Some(resting) = &mut this.accept_retry {
                ready!(resting.as_mut().poll(cx));
                this.accept_retry = None;
            }
            match ready!(this.listener.poll_accept(cx)) {
                Ok((stream, peer)) => {
                    this.accept_failed = false;
                    match this.handshaker.start(stream, peer.ip()) {
                        Ok(begun) => match this.start_handshake(begun) {
                            Some(connection) => return Poll::Ready(Some(Ok(connection))),
                            None => continue,
                        },
                        Err(why) => this.report_rejection(why),
                    }
                }
                Err(error) if is_connection_error(&error) => continue,
                Err(error) => {
                    if !std::mem::replace(&mut this.accept_failed, true) {
                        tracing::warn!(%error, "cannot accept connections; trying again ten times a second");
                    }
                    this.accept_retry = Some(Box::pin(tokio::time::sleep(ACCEPT_RETRY_DELAY)));
                }
            }
        }
    }
}

/// Errors of a connection that went away while it waited to be accepted.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::ConnectionAborted | Kind::ConnectionReset | Kind::Interrupted)
}
