//! Hand-written HTTP/2: frames and header blocks that no library would send, and a count of the server's frames.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::watch;

/// Frame types (RFC 9113, section 6).
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
pub(crate) const UNKNOWN: u8 = 0xfa;

/// Frame flags.
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;

/// Start of a connection: the preface and an empty SETTINGS frame.
pub(crate) fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[])].concat()
}

/// Start of a connection with settings: identifiers and values.
pub(crate) fn preface_with_settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let mut body = Vec::new();
    for (name, value) in settings {
        body.extend(name.to_be_bytes());
        body.extend(value.to_be_bytes());
    }
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &body)].concat()
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}

/// A literal header without indexing (RFC 7541, section 6.2.2).
pub(crate) fn header(name: &str, value: &[u8]) -> Vec<u8> {
    [&[0], &string(name.as_bytes())[..], &string(value)].concat()
}

/// A literal header that is added to the dynamic table as its newest entry (section 6.2.1).
pub(crate) fn indexed_header(name: &str, value: &[u8]) -> Vec<u8> {
    [&[0x40], &string(name.as_bytes())[..], &string(value)].concat()
}

/// Reference to the newest entry of the dynamic table, in one byte (section 6.1).
pub(crate) const NEWEST_ENTRY: u8 = 0x80 | 62;

fn string(text: &[u8]) -> Vec<u8> {
    let mut length = Vec::new();
    match text.len() {
        short @ 0..127 => length.push(short as u8),
        long => {
            length.push(127);
            let mut rest = long - 127;
            while 127 < rest {
                length.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            length.push(rest as u8);
        }
    }
    [length, text.to_vec()].concat()
}

/// The headers of a gRPC call.
pub(crate) fn call(path: &str) -> Vec<u8> {
    [
        header(":method", b"POST"),
        header(":scheme", b"http"),
        header(":path", path.as_bytes()),
        header(":authority", b"fireteam"),
        header("content-type", b"application/grpc"),
        header("te", b"trailers"),
    ]
    .concat()
}

/// A whole unary call on `stream`.
pub(crate) fn whole_call(stream: u32, path: &str, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let body = [&[0], &length[..], message].concat();
    [frame(HEADERS, END_HEADERS, stream, &call(path)), frame(DATA, END_STREAM, stream, &body)].concat()
}

/// Number of frames received from the server.
#[derive(Debug, Default)]
pub(crate) struct FrameCounts {
    /// Whether a GOAWAY was received.
    pub(crate) goaway: AtomicBool,
    /// Streams that the server has reset.
    pub(crate) resets: AtomicUsize,
    /// Streams with a complete response.
    pub(crate) answered: AtomicUsize,
}

/// Counts frames until the connection ends, and then sets `closed`.
pub(crate) async fn count_frames(mut from: OwnedReadHalf, counts: Arc<FrameCounts>, closed: watch::Sender<bool>) {
    // Any error is the end of the connection.
    drop(read_frames(&mut from, &counts).await);
    closed.send_replace(true);
}

async fn read_frames(from: &mut OwnedReadHalf, counts: &FrameCounts) -> io::Result<()> {
    let mut body = vec![0; 1 << 24];
    loop {
        let mut head = [0; 9];
        from.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        from.read_exact(&mut body[..length]).await?;
        let (kind, flags) = (head[3], head[4]);
        match kind {
            RST_STREAM => drop(counts.resets.fetch_add(1, Ordering::Relaxed)),
            GOAWAY => counts.goaway.store(true, Ordering::Relaxed),
            DATA | HEADERS if flags & END_STREAM != 0 => drop(counts.answered.fetch_add(1, Ordering::Relaxed)),
            _ => {}
        }
    }
}

/// Reads and discards bytes until the connection ends, and then sets `closed`: for connections without HTTP.
pub(crate) async fn drain(mut from: OwnedReadHalf, closed: watch::Sender<bool>) {
    let mut buffer = [0; 1024];
    while matches!(from.read(&mut buffer).await, Ok(1..)) {}
    closed.send_replace(true);
}

/// Writes all bytes; fails if the other side has closed.
pub(crate) async fn write(to: &mut OwnedWriteHalf, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes).await
}
