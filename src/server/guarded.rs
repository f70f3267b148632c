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

use crate::api::caller::Peer;
use crate::server::frames::Frames;
use crate::server::gate::Pass;
use crate::telemetry::label::TurnedAway;

/// Bytes that a client must have sent by the first deadline: as many as HTTP/2's preface has.
const FIRST_BYTES: usize = 24;

/// Bytes that are read in one turn. A connection on which there is always more to read, such as one flooded with the
/// smallest frames there are, would otherwise be read for tens of milliseconds while others wait.
const TURN_BYTES: usize = 16 * 1024;

/// How long things may take.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    /// The first bytes.
    pub first_bytes: Duration,
    /// Everything.
    pub lifetime: Duration,
    /// The next byte, when there are bytes that the client does not read.
    pub write_progress: Duration,
}

/// A connection that ends when it has taken too long.
#[derive(Debug)]
pub struct Guarded<S> {
    stream: S,
    peer: Peer,
    deadlines: Deadlines,
    opened: Instant,
    bytes_read: usize,
    /// Bytes read since there was last nothing to read.
    in_turn: usize,
    /// The next moment at which the connection ends: for want of first bytes, then of old age.
    end: Pin<Box<Sleep>>,
    /// Runs while the client does not read.
    stalled: Option<Pin<Box<Sleep>>>,
    hard_stop: Pin<Box<WaitForCancellationFutureOwned>>,
    /// Counts what asks for nothing; none: a neighbour, who may send what it likes.
    frames: Option<Box<Frames>>,
    pass: Pass,
}

impl<S> Guarded<S> {
    /// Guards a connection that has just been opened.
    pub fn new(stream: S, peer: Peer, deadlines: Deadlines, hard_stop: &CancellationToken, pass: Pass) -> Self {
        Self {
            stream,
            peer,
            deadlines,
            opened: Instant::now(),
            bytes_read: 0,
            in_turn: 0,
            end: Box::pin(tokio::time::sleep(deadlines.first_bytes)),
            stalled: None,
            hard_stop: Box::pin(hard_stop.clone().cancelled_owned()),
            frames: None,
            pass,
        }
    }

    /// The same, but ended when `frames` says that they are too many.
    pub fn counting(self, frames: Option<Frames>) -> Self {
        Self { frames: frames.map(Box::new), ..self }
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.hard_stop.as_mut().poll(cx).is_ready() || self.end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(io::ErrorKind::TimedOut.into());
        }
        Poll::Pending
    }

    fn note_read(&mut self, bytes: usize) {
        let before = self.bytes_read;
        self.bytes_read = before.saturating_add(bytes);
        if before < FIRST_BYTES && FIRST_BYTES <= self.bytes_read {
            self.end.as_mut().reset(self.opened + self.deadlines.lifetime);
        }
    }

    /// Looks at what has come: none of it goes on when it has one frame too many.
    fn count(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(frames) = &mut self.frames else { return Ok(()) };
        frames.sent(bytes, Instant::now()).map_err(|_| {
            self.pass.refuse(TurnedAway::TooManyFrames);
            io::ErrorKind::ConnectionAborted.into()
        })
    }

    /// Passes on what writing did; a client that has read nothing for too long is given up.
    fn note_write<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.deadlines.write_progress;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        if stalled.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.poll_end(cx).map(Err)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if TURN_BYTES <= this.in_turn {
            this.in_turn = 0;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buf.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buf) {
            Poll::Pending => {
                this.in_turn = 0;
                this.poll_end(cx).map(Err)
            }
            read => {
                let bytes = buf.filled().len() - before;
                this.in_turn += bytes;
                this.note_read(bytes);
                this.count(&buf.filled()[before..])?;
                // Whoever sends a byte at a time, always in time, is caught here.
                match this.end.is_elapsed() {
                    true => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
                    false => read,
                }
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        if let (Some(frames), Poll::Ready(Ok(bytes))) = (&mut this.frames, &written) {
            frames.answered(&buf[..*bytes]);
        }
        this.note_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        if let (Some(frames), Poll::Ready(Ok(bytes))) = (&mut this.frames, &written) {
            let mut left = *bytes;
            for buf in bufs {
                let of_this = left.min(buf.len());
                frames.answered(&buf[..of_this]);
                left -= of_this;
            }
        }
        this.note_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// TLS keeps what it was given until it is flushed, so a client that does not read may be met here.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.note_write(cx, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.note_write(cx, shut)
    }
}

impl<S> Connected for Guarded<S> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::server::frames::Share;
    use crate::server::gate::{Gate, Limits, Standing};

    const LONG: Duration = Duration::from_secs(3_600);
    const SHARE: Share = Share { at_once: 10, every: LONG };
    const SHORT: Duration = Duration::from_millis(5);

    /// A guarded end, the other end, and the switch that ends it.
    fn guarded(deadlines: Deadlines) -> (Guarded<DuplexStream>, DuplexStream, CancellationToken) {
        let (near, far) = duplex(16);
        let (guarded, stop) = guarded_over(near, deadlines);
        (guarded, far, stop)
    }

    fn guarded_over(near: DuplexStream, deadlines: Deadlines) -> (Guarded<DuplexStream>, CancellationToken) {
        let limits = Limits { total: 1, per_place: 1, per_neighbour: 1, opening_every: SHORT, idle_frames: SHARE };
        let address = "127.0.0.1".parse().unwrap();
        let now = Instant::now();
        let pass = Gate::new(limits).admit(address, Standing::Stranger, now).unwrap();
        let peer = Peer { address, streams: Arc::default(), streams_max: 1, certificate: None };
        let stop = CancellationToken::new();
        let frames = pass.purse().map(|purse| Frames::new(SHARE, purse, now));
        (Guarded::new(near, peer, deadlines, &stop, pass).counting(frames), stop)
    }

    /// A preface, SETTINGS, and so many PINGs.
    fn pings(count: usize) -> Vec<u8> {
        let settings: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        [settings, &b"\0\0\x08\x06\0\0\0\0\0_is_it__".repeat(count)].concat()
    }

    /// SEC-1: what asks for nothing ends the connection, and what is answered does not.
    #[tokio::test]
    async fn a_flood_of_frames_ends_its_connection() {
        let (near, mut far) = duplex(4 * TURN_BYTES);
        let (mut near, _stop) = guarded_over(near, PATIENT);
        let (mut read, allowed) = (vec![0; TURN_BYTES], pings(9));
        far.write_all(&allowed).await.unwrap();
        near.read_exact(&mut read[..allowed.len()]).await.unwrap();
        let answers = [b"\0\0\x01\x01\0\0\0\0\x01".as_slice(), b"x", b"\0\0\x01\0\0\0\0\0", b"\x01x"];
        let slices = answers.map(io::IoSlice::new);
        let written = std::future::poll_fn(|cx| Pin::new(&mut near).poll_write_vectored(cx, &slices)).await.unwrap();
        assert!(1 <= written);
        near.write_all(&answers.concat()[written..]).await.unwrap();
        let six_more = &pings(6)[33..];
        far.write_all(six_more).await.unwrap();
        near.read_exact(&mut read[..six_more.len()]).await.unwrap();
        far.write_all(&six_more[..17]).await.unwrap();
        assert_eq!(near.read(&mut read).await.unwrap_err().kind(), io::ErrorKind::ConnectionAborted);
    }

    const PATIENT: Deadlines = Deadlines { first_bytes: LONG, lifetime: LONG, write_progress: LONG };

    /// SEC-1: whoever always has more to say is interrupted, and then goes on.
    #[tokio::test]
    async fn a_flood_takes_turns_with_others() {
        let (near, mut far) = duplex(4 * TURN_BYTES);
        let (mut near, _stop) = guarded_over(near, PATIENT);
        far.write_all(&vec![7; 3 * TURN_BYTES]).await.unwrap();
        let mut turns = Vec::new();
        let mut read = vec![0; TURN_BYTES / 2];
        while turns.iter().sum::<usize>() < 3 * TURN_BYTES {
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
        assert_eq!(turns, [TURN_BYTES; 3]);
    }

    /// F3: 23 bytes are too few, 24 are a beginning.
    #[tokio::test]
    async fn the_first_bytes_come_in_time_or_not_at_all() {
        let (mut near, mut far, _stop) = guarded(Deadlines { first_bytes: SHORT, ..PATIENT });
        let mut read = [0; 24];
        far.write_all(&[7; 16]).await.unwrap();
        assert_eq!(near.read(&mut read).await.unwrap(), 16);
        assert_eq!(near.read(&mut read).await.unwrap_err().kind(), io::ErrorKind::TimedOut);

        let (mut near, mut far, _stop) = guarded(Deadlines { first_bytes: LONG, lifetime: SHORT, ..PATIENT });
        far.write_all(&[7; 12]).await.unwrap();
        near.read_exact(&mut read[..12]).await.unwrap();
        far.write_all(&[7; 12]).await.unwrap();
        near.read_exact(&mut read[..12]).await.unwrap();
        let ended = near.read(&mut read).await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut, "from here on the lifetime counts");
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_is_given_up() {
        let (mut near, _far, _stop) = guarded(Deadlines { write_progress: SHORT, ..PATIENT });
        assert_eq!(near.write_all(&[0; 17]).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_hard_stop_ends_a_reader_and_a_writer() {
        let (mut near, _far, stop) = guarded(PATIENT);
        stop.cancel();
        assert!(near.read(&mut [0; 1]).await.is_err());
        assert!(near.write_all(&[0; 17]).await.is_err());
    }
}
