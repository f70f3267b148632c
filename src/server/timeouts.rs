//! A connection with deadlines: for its first bytes, for its whole life, and for a client that does not read.
//!
//! tonic's timeouts begin with the first request, so a connection that never sends one would stay for ever (F3).

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use crate::api::client_address::ConnectionPeer;
use crate::server::conn_limit::ConnectionPermit;
use crate::server::h2_frame_limit::FrameLimiter;
use crate::telemetry::label::ConnectionRejection;

/// Bytes that a client must have sent by the first deadline: as many as HTTP/2's preface has.
const FIRST_BYTES_MIN: usize = 24;

/// Bytes that are read in one turn. A connection on which there is always more to read, such as one flooded with the
/// smallest frames there are, would otherwise be read for tens of milliseconds while others wait.
const READ_BYTES_BEFORE_YIELD: usize = 16 * 1024;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionTimeouts {
    /// The first bytes.
    pub first_bytes: Duration,
    /// Everything.
    pub lifetime: Duration,
    /// The next byte, when there are bytes that the client does not read.
    pub write_stall: Duration,
}

/// A connection that ends when it has taken too long.
#[derive(Debug)]
pub struct TimedConnection<S> {
    stream: S,
    peer: ConnectionPeer,
    timeouts: ConnectionTimeouts,
    opened_at: Instant,
    bytes_read: usize,
    /// Bytes read since there was last nothing to read.
    bytes_since_yield: usize,
    /// The next moment at which the connection ends: for want of first bytes, then of old age.
    deadline: Pin<Box<Sleep>>,
    /// Runs while the client does not read.
    write_stall: Option<Pin<Box<Sleep>>>,
    hard_stop: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Counts what asks for nothing; none: a neighbour, who may send what it likes.
    frame_limiter: Option<Box<FrameLimiter>>,
    permit: ConnectionPermit,
}

impl<S> TimedConnection<S> {
    /// Guards a connection that has just been opened.
    pub fn new(
        stream: S,
        peer: ConnectionPeer,
        deadlines: ConnectionTimeouts,
        hard_stop: &CancellationToken,
        pass: ConnectionPermit,
    ) -> Self {
        Self {
            stream,
            peer,
            timeouts: deadlines,
            opened_at: Instant::now(),
            bytes_read: 0,
            bytes_since_yield: 0,
            deadline: Box::pin(tokio::time::sleep(deadlines.first_bytes)),
            write_stall: None,
            hard_stop: Box::pin(hard_stop.clone().cancelled_owned()),
            frame_limiter: None,
            permit: pass,
        }
    }

    /// The same, but ended when `frames` says that they are too many.
    pub fn with_frame_limiter(self, frames: Option<FrameLimiter>) -> Self {
        Self { frame_limiter: frames.map(Box::new), ..self }
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.hard_stop.as_mut().poll(cx).is_ready() || self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(io::ErrorKind::TimedOut.into());
        }
        Poll::Pending
    }

    fn record_read(&mut self, bytes: usize) {
        let before = self.bytes_read;
        self.bytes_read = before.saturating_add(bytes);
        if before < FIRST_BYTES_MIN && FIRST_BYTES_MIN <= self.bytes_read {
            self.deadline.as_mut().reset(self.opened_at + self.timeouts.lifetime);
        }
    }

    /// Looks at what has come: none of it goes on when it has one frame too many.
    fn check_frame_rate(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(frames) = &mut self.frame_limiter else { return Ok(()) };
        frames.record_received(bytes, Instant::now()).map_err(|_| {
            self.permit.report_rejection(ConnectionRejection::FrameRate);
            io::ErrorKind::ConnectionAborted.into()
        })
    }

    /// Passes on what writing did; a client that has read nothing for too long is given up.
    fn check_write_progress<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_stall = None;
            return written;
        }
        let limit = self.timeouts.write_stall;
        let stalled = self.write_stall.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if stalled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.poll_deadline(cx).map(Err)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedConnection<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if READ_BYTES_BEFORE_YIELD <= this.bytes_since_yield {
            this.bytes_since_yield = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buf) {
            Poll::Pending => {
                this.bytes_since_yield = 0;
                this.poll_deadline(cx).map(Err)
            }
            read => {
                let bytes = buf.filled().len() - before;
                this.bytes_since_yield += bytes;
                this.record_read(bytes);
                this.check_frame_rate(&buf.filled()[before..])?;
                // Whoever sends a byte at a time, always in time, is caught here.
                match this.deadline.is_elapsed() {
                    true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                    false => read,
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedConnection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        if let (Some(frames), Poll::Ready(Ok(bytes))) = (&mut this.frame_limiter, &written) {
            frames.record_sent(&buf[..*bytes]);
        }
        this.check_write_progress(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        if let (Some(frames), Poll::Ready(Ok(bytes))) = (&mut this.frame_limiter, &written) {
            let mut left = *bytes;
            for buf in bufs {
                let of_this = left.min(buf.len());
                frames.record_sent(&buf[..of_this]);
                left -= of_this;
            }
        }
        this.check_write_progress(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// TLS keeps what it was given until it is flushed, so a client that does not read may be met here.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.check_write_progress(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.check_write_progress(cx, shut)
    }
}

impl<S> Connected for TimedConnection<S> {
    type ConnectInfo = ConnectionPeer;

    fn connect_info(&self) -> ConnectionPeer {
        self.peer.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::server::conn_limit::{ConnectionLimiter, ConnectionLimits, PeerTrust};
    use crate::server::h2_frame_limit::Rate;

    const LONG_TIMEOUT: Duration = Duration::from_secs(3_600);
    const RATE: Rate = Rate { burst: 10, interval: LONG_TIMEOUT };
    const SHORT_TIMEOUT: Duration = Duration::from_millis(5);

    /// A guarded end, the other end, and the switch that ends it.
    fn timed_connection(
        deadlines: ConnectionTimeouts,
    ) -> (TimedConnection<DuplexStream>, DuplexStream, CancellationToken) {
        let (near, far) = duplex(16);
        let (guarded, stop) = timed_connection_over(near, deadlines);
        (guarded, far, stop)
    }

    fn timed_connection_over(
        near: DuplexStream,
        deadlines: ConnectionTimeouts,
    ) -> (TimedConnection<DuplexStream>, CancellationToken) {
        let limits = ConnectionLimits {
            total: 1,
            per_prefix: 1,
            per_trusted_peer: 1,
            connect_interval: SHORT_TIMEOUT,
            control_frame_rate: RATE,
        };
        let address = "127.0.0.1".parse().unwrap();
        let now = Instant::now();
        let pass = ConnectionLimiter::new(limits).acquire(address, PeerTrust::Untrusted, now).unwrap();
        let peer = ConnectionPeer { address, open_streams: Arc::default(), streams_max: 1, certificate: None };
        let stop = CancellationToken::new();
        let frames = pass.frame_bucket().map(|purse| FrameLimiter::new(RATE, purse, now));
        (TimedConnection::new(near, peer, deadlines, &stop, pass).with_frame_limiter(frames), stop)
    }

    /// A preface, SETTINGS, and so many PINGs.
    fn preface_and_pings(count: usize) -> Vec<u8> {
        let settings: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        [settings, &b"\0\0\x08\x06\0\0\0\0\0_is_it__".repeat(count)].concat()
    }

    /// SEC-1: what asks for nothing ends the connection, and what is answered does not.
    #[tokio::test]
    async fn control_frame_flood_ends_its_connection() {
        let (near, mut far) = duplex(4 * READ_BYTES_BEFORE_YIELD);
        let (mut near, _stop) = timed_connection_over(near, LONG_TIMEOUTS);
        let (mut read, allowed) = (vec![0; READ_BYTES_BEFORE_YIELD], preface_and_pings(9));
        far.write_all(&allowed).await.unwrap();
        near.read_exact(&mut read[..allowed.len()]).await.unwrap();
        let answers = [b"\0\0\x01\x01\0\0\0\0\x01".as_slice(), b"x", b"\0\0\x01\0\0\0\0\0", b"\x01x"];
        let slices = answers.map(io::IoSlice::new);
        let written = std::future::poll_fn(|cx| Pin::new(&mut near).poll_write_vectored(cx, &slices)).await.unwrap();
        assert!(1 <= written);
        near.write_all(&answers.concat()[written..]).await.unwrap();
        let six_more = &preface_and_pings(6)[33..];
        far.write_all(six_more).await.unwrap();
        near.read_exact(&mut read[..six_more.len()]).await.unwrap();
        far.write_all(&six_more[..17]).await.unwrap();
        assert_eq!(near.read(&mut read).await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }

    const LONG_TIMEOUTS: ConnectionTimeouts =
        ConnectionTimeouts { first_bytes: LONG_TIMEOUT, lifetime: LONG_TIMEOUT, write_stall: LONG_TIMEOUT };

    /// SEC-1: whoever always has more to say is interrupted, and then goes on.
    #[tokio::test]
    async fn reading_yields_after_a_fixed_number_of_bytes() {
        let (near, mut far) = duplex(4 * READ_BYTES_BEFORE_YIELD);
        let (mut near, _stop) = timed_connection_over(near, LONG_TIMEOUTS);
        far.write_all(&vec![7; 3 * READ_BYTES_BEFORE_YIELD]).await.unwrap();
        let mut turns = Vec::new();
        let mut read = vec![0; READ_BYTES_BEFORE_YIELD / 2];
        while turns.iter().sum::<usize>() < 3 * READ_BYTES_BEFORE_YIELD {
            let mut turn = 0;
            let in_turn = std::future::poll_fn(|cx| {
                let mut buf = ReadBuf::new(&mut read);
                while Pin::new(&mut near).poll_read(cx, &mut buf).is_ready() {
                    turn += buf.filled().len();
                    buf.clear();
                }
                Poll::Ready(())
            });
            in_turn.await;
            turns.push(turn);
        }
        assert_eq!(turns, [READ_BYTES_BEFORE_YIELD; 3]);
    }

    /// F3: 23 bytes are too few, 24 are a beginning.
    #[tokio::test]
    async fn connection_without_first_bytes_in_time_is_closed() {
        let (mut near, mut far, _stop) =
            timed_connection(ConnectionTimeouts { first_bytes: SHORT_TIMEOUT, ..LONG_TIMEOUTS });
        let mut read = [0; 24];
        far.write_all(&[7; 16]).await.unwrap();
        assert_eq!(near.read(&mut read).await.unwrap(), 16);
        assert_eq!(near.read(&mut read).await.unwrap_err().kind(), io::ErrorKind::TimedOut);

        let (mut near, mut far, _stop) = timed_connection(ConnectionTimeouts {
            first_bytes: LONG_TIMEOUT,
            lifetime: SHORT_TIMEOUT,
            ..LONG_TIMEOUTS
        });
        far.write_all(&[7; 12]).await.unwrap();
        near.read_exact(&mut read[..12]).await.unwrap();
        far.write_all(&[7; 12]).await.unwrap();
        near.read_exact(&mut read[..12]).await.unwrap();
        let ended = near.read(&mut read).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut, "from here on the lifetime counts");
    }

    #[tokio::test]
    async fn connection_of_a_client_that_does_not_read_is_closed() {
        let (mut near, _far, _stop) =
            timed_connection(ConnectionTimeouts { write_stall: SHORT_TIMEOUT, ..LONG_TIMEOUTS });
        assert_eq!(near.write_all(&[0; 17]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn hard_stop_ends_reads_and_writes() {
        let (mut near, _far, stop) = timed_connection(LONG_TIMEOUTS);
        stop.cancel();
        assert!(near.read(&mut [0; 1]).await.is_err());
        assert!(near.write_all(&[0; 17]).await.is_err());
    }
}
