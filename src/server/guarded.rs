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
use crate::server::gate::Pass;

/// Bytes that a client must have sent by the first deadline: as many as HTTP/2's preface has.
const FIRST_BYTES: usize = 24;

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
    /// The next moment at which the connection ends: for want of first bytes, then of old age.
    end: Pin<Box<Sleep>>,
    /// Runs while the client does not read.
    stalled: Option<Pin<Box<Sleep>>>,
    hard_stop: Pin<Box<WaitForCancellationFutureOwned>>,
    _pass: Pass,
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
            end: Box::pin(tokio::time::sleep(deadlines.first_bytes)),
            stalled: None,
            hard_stop: Box::pin(hard_stop.clone().cancelled_owned()),
            _pass: pass,
        }
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
        let before = buf.filled().len();
        match Pin::new(&mut this.stream).poll_read(cx, buf) {
            Poll::Pending => this.poll_end(cx).map(Err),
            read => {
                this.note_read(buf.filled().len() - before);
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
        this.note_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.note_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl<S> Connected for Guarded<S> {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}
