//! Rate limit of HTTP/2 control frames per connection and per client prefix, against frame floods.
//!
//! Control frames here are SETTINGS, PING, WINDOW_UPDATE, PRIORITY, RST_STREAM, CONTINUATION, unknown types, and DATA
//! with almost no content. They cost the server as much as the sender. The HTTP/2 library limits the memory they use,
//! not their rate.
//!
//! Requests and responses entail control frames; those are free. The others are charged to two token buckets: one of
//! the connection, one of its client prefix. Only frame headers, nine bytes each, are read (RFC 9113, section 4.1). A
//! connection that does not start with the HTTP/2 preface is not limited.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::server::token_bucket::{Rate, RateExceeded, TokenBucket};

/// Connection preface of HTTP/2 (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Length of a frame header, bytes.
const FRAME_HEADER_BYTES: usize = 9;

const FRAME_TYPE_DATA: u8 = 0;
const FRAME_TYPE_HEADERS: u8 = 1;

/// Least length of a DATA frame that can hold a request, bytes: the 5-byte gRPC prefix and the shortest useful message.
const REQUEST_DATA_BYTES_MIN: u32 = 16;

/// Free control frames per request: an end of stream in its own frame, a short body, a cancellation, a window update.
const FREE_FRAMES_PER_REQUEST: u32 = 4;

/// Free control frames per response frame. A Go client sends a window update and a PING after each; a Dart client sends
/// two window updates.
const FREE_FRAMES_PER_RESPONSE_FRAME: u32 = 3;

/// Control frame limiter of one connection.
#[derive(Debug)]
pub struct ControlFrameLimiter {
    protocol: ConnectionProtocol,
    client_frames: FrameHeaderParser,
    server_frames: FrameHeaderParser,
    /// Free control frames left; at most `burst` of the connection's rate.
    free_frames: u32,
    connection_bucket: TokenBucket,
    prefix_bucket: Arc<Mutex<TokenBucket>>,
}

/// Protocol of a connection, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionProtocol {
    /// Number of preface bytes received so far.
    PartialPreface(usize),
    Http2,
    Other,
}

/// Incremental parser of frame headers.
#[derive(Debug, Default)]
struct FrameHeaderParser {
    header: [u8; FRAME_HEADER_BYTES],
    /// Header bytes received so far.
    header_len: usize,
    /// Payload bytes until the next header.
    payload_left: u32,
}

impl ControlFrameLimiter {
    /// Creates the limiter of a connection with its own `rate`, which shares `prefix_bucket` with its client prefix.
    pub fn new(rate: Rate, prefix_bucket: Arc<Mutex<TokenBucket>>, now: Instant) -> Self {
        Self {
            protocol: ConnectionProtocol::PartialPreface(0),
            client_frames: FrameHeaderParser::default(),
            server_frames: FrameHeaderParser::default(),
            free_frames: 0,
            connection_bucket: TokenBucket::new(rate, now),
            prefix_bucket,
        }
    }

    /// Counts frames in bytes from the client. Fails if the connection or its prefix exceeds its rate.
    pub fn record_received(&mut self, bytes: &[u8], now: Instant) -> Result<(), RateExceeded> {
        let bytes = self.strip_preface(bytes);
        let (mut control, mut requests) = (0, 0);
        self.client_frames.for_each_frame(bytes, |kind, length| match kind {
            FRAME_TYPE_HEADERS => requests += 1,
            FRAME_TYPE_DATA if length >= REQUEST_DATA_BYTES_MIN => {}
            _ => control += 1,
        });
        self.add_free_frames(requests * FREE_FRAMES_PER_REQUEST);
        let free = control.min(self.free_frames);
        self.free_frames -= free;
        match control - free {
            0 => Ok(()),
            charged => self.take_from_buckets(charged, now),
        }
    }

    /// Counts response frames in bytes to the client; they entail free control frames.
    pub fn record_sent(&mut self, bytes: &[u8]) {
        if self.protocol != ConnectionProtocol::Http2 {
            return;
        }
        let mut responses = 0;
        self.server_frames.for_each_frame(bytes, |kind, _| {
            responses += u32::from(kind == FRAME_TYPE_HEADERS || kind == FRAME_TYPE_DATA)
        });
        self.add_free_frames(responses * FREE_FRAMES_PER_RESPONSE_FRAME);
    }

    fn add_free_frames(&mut self, count: u32) {
        self.free_frames = (self.free_frames + count).min(self.connection_bucket.burst());
    }

    fn take_from_buckets(&mut self, count: u32, now: Instant) -> Result<(), RateExceeded> {
        self.connection_bucket.take(count, now)?;
        self.prefix_bucket.lock().unwrap_or_else(PoisonError::into_inner).take(count, now)
    }

    /// Removes the connection preface from `bytes`.
    fn strip_preface<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        match self.protocol {
            ConnectionProtocol::Http2 => bytes,
            ConnectionProtocol::Other => &[],
            ConnectionProtocol::PartialPreface(received) => {
                let (expected, length) = (&PREFACE[received..], bytes.len().min(PREFACE.len() - received));
                self.protocol = match received + length {
                    _ if bytes[..length] != expected[..length] => ConnectionProtocol::Other,
                    received if received < PREFACE.len() => ConnectionProtocol::PartialPreface(received),
                    _ => ConnectionProtocol::Http2,
                };
                if self.protocol == ConnectionProtocol::Http2 { &bytes[length..] } else { &[] }
            }
        }
    }
}

impl FrameHeaderParser {
    /// Calls `on_header` with type and payload length of each frame whose header ends in `bytes`.
    fn for_each_frame(&mut self, mut bytes: &[u8], mut on_header: impl FnMut(u8, u32)) {
        while !bytes.is_empty() {
            if self.payload_left > 0 {
                let skipped = bytes.len().min(self.payload_left as usize);
                self.payload_left -= skipped as u32;
                bytes = &bytes[skipped..];
                continue;
            }
            let (part, remaining) = bytes.split_at(bytes.len().min(FRAME_HEADER_BYTES - self.header_len));
            self.header[self.header_len..][..part.len()].copy_from_slice(part);
            self.header_len += part.len();
            bytes = remaining;
            if self.header_len == FRAME_HEADER_BYTES {
                self.header_len = 0;
                let [high, middle, low, kind, ..] = self.header;
                self.payload_left = u32::from_be_bytes([0, high, middle, low]);
                on_header(kind, self.payload_left);
            }
        }
    }
}

#[cfg(test)]
mod tests;
