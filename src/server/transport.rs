//! Byte transport of a connection: TCP or TLS. An enum instead of a trait object, so that plaintext costs one branch.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::server::tcp_round_trip::ObservedStream;

/// Connection that is ready for HTTP.
#[derive(Debug)]
pub enum PlainOrTlsStream {
    /// Plaintext TCP.
    Plain(TcpStream),
    /// TLS over TCP; boxed because its state is large.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Evaluates `$call` with `$stream` bound to the pinned stream of either variant.
macro_rules! with_stream {
    ($transport:expr, $stream:ident => $call:expr) => {
        match $transport.get_mut() {
            PlainOrTlsStream::Plain($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            PlainOrTlsStream::Tls($stream) => {
                let $stream = Pin::new(&mut **$stream);
                $call
            }
        }
    };
}

impl ObservedStream for PlainOrTlsStream {
    fn min_round_trip_us(&self) -> Option<u32> {
        match self {
            Self::Plain(stream) => stream.min_round_trip_us(),
            Self::Tls(stream) => stream.get_ref().0.min_round_trip_us(),
        }
    }
}

impl AsyncRead for PlainOrTlsStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        with_stream!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for PlainOrTlsStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        with_stream!(self, stream => stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        with_stream!(self, stream => stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            PlainOrTlsStream::Plain(stream) => stream.is_write_vectored(),
            PlainOrTlsStream::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        with_stream!(self, stream => stream.poll_shutdown(cx))
    }
}
