//! What a connection's bytes go over: bare TCP, or TLS. An enum and not a trait object, so that plaintext pays a branch
//! and nothing else.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

/// A connection that is ready for HTTP.
#[derive(Debug)]
pub enum Transport {
    /// As it came.
    Plain(TcpStream),
    /// Encrypted; boxed, because its state is large and most of it is seldom looked at.
    Tls(Box<TlsStream<TcpStream>>),
}

/// Asks the stream inside, whichever it is.
macro_rules! inside {
    ($line:expr, $stream:ident => $asked:expr) => {
        match $line.get_mut() {
            Transport::Plain($stream) => {
                let $stream = Pin::new($stream);
                $asked
            }
            Transport::Tls($stream) => {
                let $stream = Pin::new(&mut **$stream);
                $asked
            }
        }
    };
}

impl AsyncRead for Transport {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        inside!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        inside!(self, stream => stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        inside!(self, stream => stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Transport::Plain(stream) => stream.is_write_vectored(),
            Transport::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inside!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        inside!(self, stream => stream.poll_shutdown(cx))
    }
}
