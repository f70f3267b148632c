//! Accept loop of a port: accepts connections, runs their handshakes, retries after failures of `accept`.

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

use crate::server::handshake::{AcceptedConnection, ConnectionHandshaker};
use crate::server::timeouts::TimedConnection;
use crate::server::transport::PlainOrTlsStream;
use crate::telemetry::label::ConnectionRejection;

/// Limit of connections that the kernel queues before `accept`. If it is full, the kernel drops the first packet of a new
/// client, which sends it again after a second.
const LISTEN_BACKLOG: u32 = 4_096;

/// Delay after a failed `accept`, most often because file descriptors have run out. Prevents a busy loop.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

fn listen_at(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted server can bind its port at once; two servers still cannot share it.
    socket.set_reuseaddr(true)?;
    // Accepted connections inherit these.
    socket.set_keepalive(true)?;
    socket.bind(address)?;
    socket.listen(LISTEN_BACKLOG)
}

/// Stream of connections, each ready for HTTP.
pub struct IncomingConnections {
    listener: TcpListener,
    address: SocketAddr,
    handshaker: Arc<ConnectionHandshaker>,
    handshakes: JoinSet<Result<Option<TimedConnection<PlainOrTlsStream>>, ConnectionRejection>>,
    /// Handshakes in order of their start; some may have finished.
    handshakes_by_age: VecDeque<AbortHandle>,
    accept_retry: Option<Pin<Box<Sleep>>>,
    /// The last `accept` failed.
    accept_failed: bool,
    /// Time at which the next connection without an identity is too old; `None` while enough places are free.
    unidentified_deadline: Option<Pin<Box<Sleep>>>,
}

impl IncomingConnections {
    /// Listens at the first of `addresses` that can be bound; port number 0 chooses a free port. Fails with the error of
    /// the last one if none can be bound.
    pub fn bind(addresses: &[SocketAddr], handshaker: ConnectionHandshaker) -> io::Result<Self> {
        let mut bound = Err(io::ErrorKind::AddrNotAvailable.into());
        for &address in addresses {
            bound = listen_at(address);
            if bound.is_ok() {
                break;
            }
        }
        let listener = bound?;
        let address = listener.local_addr()?;
        Ok(Self {
            listener,
            address,
            handshaker: Arc::new(handshaker),
            handshakes: JoinSet::new(),
            handshakes_by_age: VecDeque::new(),
            accept_retry: None,
            accept_failed: false,
            unidentified_deadline: None,
        })
    }

    /// Bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a connection whose handshake has completed, if any.
    fn poll_handshakes(&mut self, cx: &mut Context<'_>) -> Option<TimedConnection<PlainOrTlsStream>> {
        while let Poll::Ready(Some(result)) = self.handshakes.poll_join_next(cx) {
            match result {
                Ok(Ok(Some(connection))) => return Some(connection),
                Ok(Ok(None)) => {}
                Ok(Err(reason)) => self.report_rejection(reason),
                // Aborted in favor of a newer handshake and counted then, or panicked: the panic is in the log.
                Err(_) => {}
            }
        }
        None
    }

    /// Starts a handshake, unless none is needed. At the limit, aborts the oldest handshake: clients complete theirs
    /// long before, and idle connections cannot block new ones.
    fn start_handshake(&mut self, state: AcceptedConnection) -> Option<TimedConnection<PlainOrTlsStream>> {
        let pending = match state {
            AcceptedConnection::Ready(connection) => return Some(connection),
            AcceptedConnection::Pending(pending) => pending,
        };
        if self.handshakes_by_age.len() >= self.handshaker.limits.handshakes_max {
            self.handshakes_by_age.retain(|handshake| !handshake.is_finished());
            if self.handshakes_by_age.len() >= self.handshaker.limits.handshakes_max
                && let Some(oldest) = self.handshakes_by_age.pop_front()
            {
                oldest.abort();
                self.report_rejection(ConnectionRejection::MaxHandshakes);
            }
        }
        let handshaker = self.handshaker.clone();
        self.handshakes_by_age.push_back(self.handshakes.spawn(async move { handshaker.complete(pending).await }));
        None
    }

    /// Closes connections without an identity that are too old, if few places are free, and waits for the next one.
    fn poll_age_check(&mut self, cx: &mut Context<'_>) {
        loop {
            if let Some(timer) = &mut self.unidentified_deadline
                && timer.as_mut().poll(cx).is_pending()
            {
                return;
            }
            self.unidentified_deadline =
                self.handshaker.shed_unidentified_connections().map(|at| Box::pin(tokio::time::sleep_until(at)));
            if self.unidentified_deadline.is_none() {
                return;
            }
        }
    }

    fn report_rejection(&self, reason: ConnectionRejection) {
        self.handshaker.observer.connection_rejected(reason.as_str());
    }
}

impl Stream for IncomingConnections {
    type Item = io::Result<TimedConnection<PlainOrTlsStream>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        this.poll_age_check(cx);
        loop {
            if let Some(connection) = this.poll_handshakes(cx) {
                return Poll::Ready(Some(Ok(connection)));
            }
            if let Some(retry) = &mut this.accept_retry {
                ready!(retry.as_mut().poll(cx));
                this.accept_retry = None;
            }
            match ready!(this.listener.poll_accept(cx)) {
                Ok((stream, peer)) => {
                    this.accept_failed = false;
                    match this.handshaker.admit_connection(stream, peer.ip()) {
                        Ok(state) => match this.start_handshake(state) {
                            Some(connection) => return Poll::Ready(Some(Ok(connection))),
                            None => continue,
                        },
                        Err(reason) => this.report_rejection(reason),
                    }
                }
                Err(error) if is_connection_error(&error) => continue,
                Err(error) => {
                    if !std::mem::replace(&mut this.accept_failed, true) {
                        tracing::warn!(%error, retry_ms = ACCEPT_RETRY_DELAY.as_millis(), "accept failed; retrying");
                    }
                    this.accept_retry = Some(Box::pin(tokio::time::sleep(ACCEPT_RETRY_DELAY)));
                }
            }
        }
    }
}

/// Whether an error concerns one connection that closed before it was accepted.
fn is_connection_error(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(error.kind(), Kind::ConnectionAborted | Kind::ConnectionReset | Kind::Interrupted)
}
