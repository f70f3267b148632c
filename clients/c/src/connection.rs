//! TCP connections of a client, which never raise SIGPIPE.
//!
//! A write to a connection that the server has closed raises this signal, which ends a program that does not ignore it. Rust programs ignore
//! it, C programs often do not. A single write asks the system not to raise it. A vectored write cannot, so these connections have none.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Connection without vectored writes.
pub(crate) struct NonVectoredTcpStream(TcpStream);

/// Connector as tonic's own, for [`without_vectored_writes`].
pub(crate) fn connector(connect_timeout: Duration) -> HttpConnector {
    let mut connector = HttpConnector::new();
    // The scheme may also be https: TLS is above the connection.
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(connect_timeout));
    connector
}

/// The same connection without vectored writes.
pub(crate) fn without_vectored_writes(connection: TokioIo<TcpStream>) -> TokioIo<NonVectoredTcpStream> {
    TokioIo::new(NonVectoredTcpStream(connection.into_inner()))
}

impl AsyncRead for NonVectoredTcpStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl AsyncWrite for NonVectoredTcpStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
