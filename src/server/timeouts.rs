//! Connection timeouts: for the first bytes, for the whole lifetime, and for a client that does not read.
//!
//! tonic's timeouts start with the first request, so an idle connection would otherwise stay open without limit.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;
use tonic::transport::server::Connected;

use crate::api::client_address::ConnectionPeer;
use crate::server::conn_limit::ConnectionPermit;
use crate::server::h2_frame_limit::ControlFrameLimiter;
use crate::server::tcp_round_trip::{FloorObserver, ObservedStream};
use crate::telemetry::label::ConnectionRejection;

/// Bytes that a client must send within the first timeout: the length of the HTTP/2 preface.
const FIRST_BYTES_MIN: usize = 24;

/// Bytes read before the task yields. Without yielding, a connection flooded with tiny frames would be read for tens of
/// milliseconds while others wait.
const READ_BYTES_BEFORE_YIELD: usize = 16 * 1024;

/// Timeouts of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionTimeouts {
    /// For the first bytes.
    pub first_bytes: Duration,
    /// For the whole connection.
    pub lifetime: Duration,
    /// For progress in writing, while the client does not read.
    pub write_stall: Duration,
}

/// Connection that enforces its timeouts and its control frame rate.
#[derive(Debug)]
pub struct TimedConnection<S> {
    stream: S,
    peer: ConnectionPeer,
    timeouts: ConnectionTimeouts,
    opened_at: Instant,
    bytes_read: usize,
    /// Bytes read since the last yield.
    bytes_since_yield: usize,
    /// Next time limit: first for the first bytes, then for the lifetime.
    deadline: Pin<Box<Sleep>>,
    /// Timer that runs while the client does not read.
    write_stall_timer: Option<Pin<Box<Sleep>>>,
    /// The server stops, or the connection's place is needed for another one.
    stop: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Control frame limiter; `None`: a trusted peer, not limited.
    frame_limiter: Option<Box<ControlFrameLimiter>>,
    /// Samples of the least round trip; `None` where they are not used.
    floor_observer: Option<FloorObserver>,
    permit: ConnectionPermit,
}

impl<S> TimedConnection<S> {
    /// Wraps a connection that has just been opened.
    pub fn new(stream: S, peer: ConnectionPeer, timeouts: ConnectionTimeouts, permit: ConnectionPermit) -> Self {
        Self {
            stream,
            peer,
            timeouts,
            opened_at: Instant::now(),
            bytes_read: 0,
            bytes_since_yield: 0,
            deadline: Box::pin(tokio::time::sleep(timeouts.first_bytes)),
            write_stall_timer: None,
            stop: Box::pin(permit.stop_token().clone().cancelled_owned()),
            frame_limiter: None,
            floor_observer: None,
            permit,
        }
    }

    /// Closes the connection when `frame_limiter` rejects its frames.
    pub fn with_frame_limiter(self, frame_limiter: Option<ControlFrameLimiter>) -> Self {
        Self { frame_limiter: frame_limiter.map(Box::new), ..self }
    }

    /// Samples the least round trip of the connection while it is written to.
    pub fn with_floor_observer(self, floor_observer: Option<FloorObserver>) -> Self {
        Self { floor_observer, ..self }
    }

    fn poll_deadline(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.stop.as_mut().poll(cx).is_ready() || self.deadline.as_mut().poll(cx).is_ready() {
            return Poll::Ready(io::ErrorKind::TimedOut.into());
        }
        Poll::Pending
    }

    fn record_read(&mut self, bytes: usize) {
        let before = self.bytes_read;
        self.bytes_read = before.saturating_add(bytes);
        if before < FIRST_BYTES_MIN && self.bytes_read >= FIRST_BYTES_MIN {
            self.deadline.as_mut().reset(self.opened_at + self.timeouts.lifetime);
        }
    }

    /// Charges received frames. On failure none of the bytes are passed on.
    fn check_frame_rate(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(limiter) = &mut self.frame_limiter else { return Ok(()) };
        limiter.record_received(bytes, Instant::now()).map_err(|_| {
            self.permit.report_rejection(ConnectionRejection::FrameRate);
            io::ErrorKind::ConnectionAborted.into()
        })
    }

    /// Returns the result of a write; times out if the client has read nothing for too long.
    fn check_write_progress<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.write_stall_timer = None;
            return written;
        }
        let limit = self.timeouts.write_stall;
        let timer = self.write_stall_timer.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if timer.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.poll_deadline(cx).map(Err)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedConnection<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.bytes_since_yield >= READ_BYTES_BEFORE_YIELD {
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
                // A client that sends single bytes, each in time, ends here.
                if this.deadline.is_elapsed() { Poll::Ready(Err(io::ErrorKind::TimedOut.into())) } else { read }
            }
        }
    }
}

impl<S: AsyncWrite + ObservedStream + Unpin> AsyncWrite for TimedConnection<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        if let (Some(limiter), Poll::Ready(Ok(bytes))) = (&mut this.frame_limiter, &written) {
            limiter.record_sent(&buf[..*bytes]);
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
        if let (Some(limiter), Poll::Ready(Ok(bytes))) = (&mut this.frame_limiter, &written) {
            let mut left = *bytes;
            for buf in bufs {
                let length = left.min(buf.len());
                limiter.record_sent(&buf[..length]);
                left -= length;
            }
        }
        this.check_write_progress(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// TLS buffers data until it is flushed, so a client that does not read can also stall a flush.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(observer) = &mut this.floor_observer {
            observer.sample_if_due(&this.stream);
        }
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::server::conn_limit::{ConnectionLimiter, ConnectionLimits, PeerTrust};
    use crate::server::token_bucket::Rate;

    const LONG_TIMEOUT: Duration = Duration::from_secs(3_600);
    const RATE: Rate = Rate { burst: 10, interval: LONG_TIMEOUT };
    const SHORT_TIMEOUT: Duration = Duration::from_millis(5);

    /// A timed connection, its remote end, and the token that ends it.
    fn timed_connection(
        timeouts: ConnectionTimeouts,
    ) -> (TimedConnection<DuplexStream>, DuplexStream, CancellationToken) {
        let (near, far) = duplex(16);
        let (connection, stop) = timed_connection_over(near, timeouts);
        (connection, far, stop)
    }

    fn timed_connection_over(
        near: DuplexStream,
        timeouts: ConnectionTimeouts,
    ) -> (TimedConnection<DuplexStream>, CancellationToken) {
        let limits = ConnectionLimits {
            untrusted_total: 1,
            trusted_total: 1,
            per_host: 1,
            per_site: 1,
            per_network: 1,
            per_trusted_peer: 1,
            host_connect_interval: SHORT_TIMEOUT,
            network_connect_interval: SHORT_TIMEOUT,
            control_frame_rate_per_host: RATE,
            crowded_unidentified_age_max: LONG_TIMEOUT,
        };
        let address = "127.0.0.1".parse().unwrap();
        let now = Instant::now();
        let stop = CancellationToken::new();
        let limiter = ConnectionLimiter::new(limits, stop.clone());
        let permit = limiter.acquire(address, PeerTrust::Untrusted, now).unwrap();
        let peer = ConnectionPeer::new(address, 1);
        let frame_limiter = permit.prefix_frame_bucket().map(|bucket| ControlFrameLimiter::new(RATE, bucket, now));
        (TimedConnection::new(near, peer, timeouts, permit).with_frame_limiter(frame_limiter), stop)
    }

    /// HTTP/2 preface, SETTINGS and `count` PINGs.
    fn preface_and_pings(count: usize) -> Vec<u8> {
        let settings: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        [settings, &b"\0\0\x08\x06\0\0\0\0\0_is_it__".repeat(count)].concat()
    }

    /// SEC-1: control frames beyond the rate end the connection; frames that belong to responses are free.
    #[tokio::test]
    async fn control_frame_flood_ends_its_connection() {
        let (near, mut far) = duplex(4 * READ_BYTES_BEFORE_YIELD);
        let (mut near, _stop) = timed_connection_over(near, LONG_TIMEOUTS);
        let (mut read, allowed) = (vec![0; READ_BYTES_BEFORE_YIELD], preface_and_pings(9));
        far.write_all(&allowed).await.unwrap();
        near.read_exact(&mut read[..allowed.len()]).await.unwrap();
        let response = [b"\0\0\x01\x01\0\0\0\0\x01".as_slice(), b"x", b"\0\0\x01\0\0\0\0\0", b"\x01x"];
        let slices = response.map(io::IoSlice::new);
        let written = std::future::poll_fn(|cx| Pin::new(&mut near).poll_write_vectored(cx, &slices)).await.unwrap();
        assert!(written > 0);
        near.write_all(&response.concat()[written..]).await.unwrap();
        let six_more = &preface_and_pings(6)[33..];
        far.write_all(six_more).await.unwrap();
        near.read_exact(&mut read[..six_more.len()]).await.unwrap();
        far.write_all(&six_more[..17]).await.unwrap();
        assert_eq!(near.read(&mut read).await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }

    const LONG_TIMEOUTS: ConnectionTimeouts =
        ConnectionTimeouts { first_bytes: LONG_TIMEOUT, lifetime: LONG_TIMEOUT, write_stall: LONG_TIMEOUT };

    /// SEC-1: a connection that always has bytes to read yields, then continues.
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

    /// 23 bytes are too few, 24 are enough for the first timeout.
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
        let error = near.read(&mut read).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut, "the lifetime applies after the first bytes");
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
