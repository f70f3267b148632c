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
const HEAD_BYTES: usize = 9;

const DATA: u8 = 0;
const HEADERS: u8 = 1;

/// Bytes of a frame of DATA that can hold a request: five before the message, and the shortest message that asks for something.
const REQUEST_BYTES_MIN: u32 = 16;

/// Frames that go with a request: its end in a frame of its own, a short body, it is taken back, it makes room for the answer.
const WITH_A_REQUEST: u32 = 4;

/// Frames that go with each frame of an answer. A client in Go makes room and measures the line's delay after each, one in
/// Dart makes room twice.
const WITH_AN_ANSWER: u32 = 3;

/// How many at once after a rest, and how often in the long run.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    /// At once.
    pub at_once: u32,
    /// One more is there after this long.
    pub every: Duration,
}

/// What is left of a share.
#[derive(Clone, Copy, Debug)]
pub struct Purse {
    share: Share,
    /// When all that was taken is there again.
    full: Instant,
}

/// A connection sends more than it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooMany;

/// The frames of one connection.
#[derive(Debug)]
pub struct Frames {
    begins: Begins,
    sent: Heads,
    answered: Heads,
    /// Frames that may still go with what was asked and answered; not more than a share holds.
    earned: u32,
    purse: Purse,
    place: Arc<Mutex<Purse>>,
}

/// What is known of a connection's protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begins {
    /// So many bytes of the preface.
    With(usize),
    AsHttp2,
    AsSomethingElse,
}

/// Finds where frames begin in bytes that come in pieces.
#[derive(Debug, Default)]
struct Heads {
    head: [u8; HEAD_BYTES],
    /// Bytes of the head that are there.
    there: usize,
    /// Bytes to come before the next head.
    body: u32,
}

impl Purse {
    /// A full one.
    pub fn new(share: Share, now: Instant) -> Self {
        Self { share, full: now }
    }

    /// Takes `count` out, if there are as many.
    pub fn take(&mut self, count: u32, now: Instant) -> Result<(), TooMany> {
        let Share { at_once, every } = self.share;
        let full = self.full.max(now) + every * count;
        if now + every * at_once < full {
            return Err(TooMany);
        }
        self.full = full;
        Ok(())
    }

    /// Whether it cannot be told from a new one.
    pub fn is_full(&self, now: Instant) -> bool {
        self.full <= now
    }
}

impl Frames {
    /// Of a connection that may send `share` by itself, and with the others of its place what is in `place`.
    pub fn new(share: Share, place: Arc<Mutex<Purse>>, now: Instant) -> Self {
        Self {
            begins: Begins::With(0),
            sent: Heads::default(),
            answered: Heads::default(),
            earned: 0,
            purse: Purse::new(share, now),
            place,
        }
    }

    /// The client has sent `bytes`.
    pub fn sent(&mut self, bytes: &[u8], now: Instant) -> Result<(), TooMany> {
        let bytes = self.after_preface(bytes);
        let (mut idle, mut requests) = (0, 0);
        self.sent.walk(bytes, |kind, length| match kind {
            HEADERS => requests += 1,
            DATA if REQUEST_BYTES_MIN <= length => {}
            _ => idle += 1,
        });
        self.earn(requests * WITH_A_REQUEST);
        let free = idle.min(self.earned);
        self.earned -= free;
        match idle - free {
            0 => Ok(()),
            rest => self.pay(rest, now),
        }
    }

    /// The client has been sent `bytes`.
    pub fn answered(&mut self, bytes: &[u8]) {
        if self.begins != Begins::AsHttp2 {
            return;
        }
        let mut answers = 0;
        self.answered.walk(bytes, |kind, _| answers += u32::from(kind == HEADERS || kind == DATA));
        self.earn(answers * WITH_AN_ANSWER);
    }

    fn earn(&mut self, count: u32) {
        self.earned = (self.earned + count).min(self.purse.share.at_once);
    }

    fn pay(&mut self, count: u32, now: Instant) -> Result<(), TooMany> {
        self.purse.take(count, now)?;
        self.place.lock().unwrap_or_else(PoisonError::into_inner).take(count, now)
    }

    /// What of `bytes` is frames.
    fn after_preface<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        match self.begins {
            Begins::AsHttp2 => bytes,
            Begins::AsSomethingElse => &[],
            Begins::With(there) => {
                let (expected, now) = (&PREFACE[there..], bytes.len().min(PREFACE.len() - there));
                self.begins = match there + now {
                    _ if bytes[..now] != expected[..now] => Begins::AsSomethingElse,
                    there if there < PREFACE.len() => Begins::With(there),
                    _ => Begins::AsHttp2,
                };
                if self.begins == Begins::AsHttp2 { &bytes[now..] } else { &[] }
            }
        }
    }
}

impl Heads {
    /// Calls `on_head` with type and length of each frame that begins in `bytes`.
    fn walk(&mut self, mut bytes: &[u8], mut on_head: impl FnMut(u8, u32)) {
        while !bytes.is_empty() {
            if 0 < self.body {
                let skipped = bytes.len().min(self.body as usize);
                self.body -= skipped as u32;
                bytes = &bytes[skipped..];
                continue;
            }
            let (head, rest) = bytes.split_at(bytes.len().min(HEAD_BYTES - self.there));
            self.head[self.there..][..head.len()].copy_from_slice(head);
            self.there += head.len();
            bytes = rest;
            if self.there == HEAD_BYTES {
                self.there = 0;
                let [high, middle, low, kind, ..] = self.head;
                self.body = u32::from_be_bytes([0, high, middle, low]);
                on_head(kind, self.body);
            }
        }
    }
}

#[cfg(test)]
mod tests;
