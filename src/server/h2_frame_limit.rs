//! Counts the frames of HTTP/2 that ask for nothing, and says when they are too many (SEC-1).
//!
//! SETTINGS, PING, WINDOW_UPDATE, PRIORITY, RST_STREAM, CONTINUATION, frames of unknown types and DATA with next to nothing in it
//! cost the server what they cost the sender, so that whoever sends nothing else takes as much of the machine as there is. The
//! library bounds what most of them make it keep, and not how often they come.
//!
//! Whoever asks something sends some of them as well, and so does whoever is answered: those go with it. Of what goes with
//! nothing, a connection may send so many at once and so many a second, and all connections of a place together. Only the
//! nine bytes that begin a frame are looked at (RFC 9113, section 4.1); the frames of a connection that does not begin as
//! HTTP/2 does are not counted.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How a connection of HTTP/2 begins (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes that begin a frame.
const FRAME_HEADER_BYTES: usize = 9;

const FRAME_TYPE_DATA: u8 = 0;
const FRAME_TYPE_HEADERS: u8 = 1;

/// Bytes of a frame of DATA that can hold a request: five before the message, and the shortest message that asks for something.
const REQUEST_DATA_BYTES_MIN: u32 = 16;

/// Frames that go with a request: its end in a frame of its own, a short body, it is taken back, it makes room for the answer.
const FREE_FRAMES_PER_REQUEST: u32 = 4;

/// Frames that go with each frame of an answer. A client in Go makes room and measures the line's delay after each, one in
/// Dart makes room twice.
const FREE_FRAMES_PER_RESPONSE_FRAME: u32 = 3;

/// How many at once after a rest, and how often in the long run.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// At once.
    pub burst: u32,
    /// One more is there after this long.
    pub interval: Duration,
}

/// What is left of a share.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    rate: Rate,
    /// When all that was taken is there again.
    full_at: Instant,
}

/// A connection sends more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateExceeded;

/// The frames of one connection.
#[derive(Debug)]
pub struct FrameLimiter {
    protocol: ConnectionProtocol,
    client_frames: FrameHeaderParser,
    server_frames: FrameHeaderParser,
    /// Frames that may still go with what was asked and answered; not more than a share holds.
    free_frames: u32,
    connection_bucket: TokenBucket,
    prefix_bucket: Arc<Mutex<TokenBucket>>,
}

/// What is known of a connection's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionProtocol {
    /// So many bytes of the preface.
    PartialPreface(usize),
    Http2,
    Other,
}

/// Finds where frames begin in bytes that come in pieces.
#[derive(Debug, Default)]
struct FrameHeaderParser {
    header: [u8; FRAME_HEADER_BYTES],
    /// Bytes of the head that are there.
    header_len: usize,
    /// Bytes to come before the next head.
    payload_left: u32,
}

impl TokenBucket {
    /// A full one.
    pub fn new(share: Rate, now: Instant) -> Self {
        Self { rate: share, full_at: now }
    }

    /// Takes `count` out, if there are as many.
    pub fn take(&mut self, count: u32, now: Instant) -> Result<(), RateExceeded> {
        let Rate { burst: at_once, interval: every } = self.rate;
        let full = self.full_at.max(now) + every * count;
        if now + every * at_once < full {
            return Err(RateExceeded);
        }
        self.full_at = full;
        Ok(())
    }

    /// Whether it cannot be told from a new one.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }
}

impl FrameLimiter {
    /// Of a connection that may send `share` by itself, and with the others of its place what is in `place`.
    pub fn new(share: Rate, place: Arc<Mutex<TokenBucket>>, now: Instant) -> Self {
        Self {
            protocol: ConnectionProtocol::PartialPreface(0),
            client_frames: FrameHeaderParser::default(),
            server_frames: FrameHeaderParser::default(),
            free_frames: 0,
            connection_bucket: TokenBucket::new(share, now),
            prefix_bucket: place,
        }
    }

    /// The client has sent `bytes`.
    pub fn record_received(&mut self, bytes: &[u8], now: Instant) -> Result<(), RateExceeded> {
        let bytes = self.strip_preface(bytes);
        let (mut idle, mut requests) = (0, 0);
        self.client_frames.for_each_frame(bytes, |kind, length| match kind {
            FRAME_TYPE_HEADERS => requests += 1,
            FRAME_TYPE_DATA if REQUEST_DATA_BYTES_MIN <= length => {}
            _ => idle += 1,
        });
        self.add_free_frames(requests * FREE_FRAMES_PER_REQUEST);
        let free = idle.min(self.free_frames);
        self.free_frames -= free;
        match idle - free {
            0 => Ok(()),
            rest => self.take_from_buckets(rest, now),
        }
    }

    /// The client has been sent `bytes`.
    pub fn record_sent(&mut self, bytes: &[u8]) {
        if self.protocol != ConnectionProtocol::Http2 {
            return;
        }
        let mut answers = 0;
        self.server_frames.for_each_frame(bytes, |kind, _| {
            answers += u32::from(kind == FRAME_TYPE_HEADERS || kind == FRAME_TYPE_DATA)
        });
        self.add_free_frames(answers * FREE_FRAMES_PER_RESPONSE_FRAME);
    }

    fn add_free_frames(&mut self, count: u32) {
        self.free_frames = (self.free_frames + count).min(self.connection_bucket.rate.burst);
    }

    fn take_from_buckets(&mut self, count: u32, now: Instant) -> Result<(), RateExceeded> {
        self.connection_bucket.take(count, now)?;
        self.prefix_bucket.lock().unwrap_or_else(PoisonError::into_inner).take(count, now)
    }

    /// What of `bytes` is frames.
    fn strip_preface<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        match self.protocol {
            ConnectionProtocol::Http2 => bytes,
            ConnectionProtocol::Other => &[],
            ConnectionProtocol::PartialPreface(there) => {
                let (expected, now) = (&PREFACE[there..], bytes.len().min(PREFACE.len() - there));
                self.protocol = match there + now {
                    _ if bytes[..now] != expected[..now] => ConnectionProtocol::Other,
                    there if there < PREFACE.len() => ConnectionProtocol::PartialPreface(there),
                    _ => ConnectionProtocol::Http2,
                };
                if self.protocol == ConnectionProtocol::Http2 { &bytes[now..] } else { &[] }
            }
        }
    }
}

impl FrameHeaderParser {
    /// Calls `on_head` with type and length of each frame that begins in `bytes`.
    fn for_each_frame(&mut self, mut bytes: &[u8], mut on_head: impl FnMut(u8, u32)) {
        while !bytes.is_empty() {
            if 0 < self.payload_left {
                let skipped = bytes.len().min(self.payload_left as usize);
                self.payload_left -= skipped as u32;
                bytes = &bytes[skipped..];
                continue;
            }
            let (head, rest) = bytes.split_at(bytes.len().min(FRAME_HEADER_BYTES - self.header_len));
            self.header[self.header_len..][..head.len()].copy_from_slice(head);
            self.header_len += head.len();
            bytes = rest;
            if self.header_len == FRAME_HEADER_BYTES {
                self.header_len = 0;
                let [high, middle, low, kind, ..] = self.header;
                self.payload_left = u32::from_be_bytes([0, high, middle, low]);
                on_head(kind, self.payload_left);
            }
        }
    }
}

#[cfg(test)]
mod tests;
