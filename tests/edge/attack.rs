//! HTTP/2 attacks: first bytes, repeated bytes, and whether the attacker reads the responses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection_outcome::ConnectionOutcome;
use crate::raw_http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, FrameCounts, HEADERS, NEWEST_ENTRY, PING, PRIORITY, RST_STREAM,
    SETTINGS, UNKNOWN, WINDOW_UPDATE, call, count_frames, drain, frame, header, indexed_header, preface,
    preface_with_settings, whole_call, write,
};

/// Source address of attackers, on loopback but not a trusted peer.
pub(crate) const ATTACKER: &str = "127.0.0.66";

const CHECK: &str = "/grpc.health.v1.Health/Check";
const CONNECT: &str = "/fireteam.v1.MatchmakingService/Connect";
const CONFIGURATION: &str = "/fireteam.v1.MatchmakingService/GetConfiguration";

/// One kind of attack.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// First bytes of a connection.
    opening: fn() -> Vec<u8>,
    /// Bytes of a round, by its number.
    next_round: fn(u32) -> Vec<u8>,
    /// Pause between rounds.
    pause: Duration,
    read_mode: ReadMode,
    /// Whether the server must close the connection. Otherwise the attack is harmless.
    pub(crate) is_closed: bool,
}

/// Treatment of the server's responses.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadMode {
    /// Reads frames.
    Frames,
    /// Reads bytes, for connections without HTTP.
    Bytes,
    /// Does not read.
    Never,
}

const NO_PAUSE: Duration = Duration::ZERO;

const fn closed(name: &'static str, opening: fn() -> Vec<u8>, next_round: fn(u32) -> Vec<u8>) -> Attack {
    Attack { name, opening, next_round, pause: NO_PAUSE, read_mode: ReadMode::Frames, is_closed: true }
}

const fn harmless(name: &'static str, opening: fn() -> Vec<u8>, next_round: fn(u32) -> Vec<u8>) -> Attack {
    Attack { is_closed: false, ..closed(name, opening, next_round) }
}

/// Attacks with an immediate effect.
pub(crate) const FAST_ATTACKS: &[Attack] = &[
    BAD_HEADERS,
    closed("rapid reset", preface, |round| cancelled_calls(round, 100)),
    Attack {
        pause: Duration::from_millis(10),
        ..harmless("rapid reset under the limit", preface, |round| cancelled_calls(round, 4))
    },
    closed("CONTINUATION flood", preface, |round| {
        let (kind, stream) = (if round == 0 { HEADERS } else { CONTINUATION }, 1);
        frame(kind, 0, stream, &header("x-filler", &[b'x'; 4_000]))
    }),
    Attack {
        read_mode: ReadMode::Never,
        ..closed("SETTINGS flood", preface, |_| frame(SETTINGS, 0, 0, &[]).repeat(1_000))
    },
    Attack {
        read_mode: ReadMode::Never,
        ..closed("PING flood", preface, |_| frame(PING, 0, 0, &[7; 8]).repeat(1_000))
    },
    // The whole burst, and then fewer than the rate limit, on each connection: there is no reason to close.
    Attack {
        pause: Duration::from_millis(100),
        ..harmless("PINGs under the limit", preface, |_| frame(PING, 0, 0, &[7; 8]))
    },
    // On a stream with a closed response window, so that the handler does not read the request.
    closed("empty DATA flood", stream_with_closed_window, |_| frame(DATA, 0, 1, &[]).repeat(1_000)),
    // One message, one byte per frame.
    closed("small DATA flood", stream_with_long_message, |_| frame(DATA, 0, 1, b"x").repeat(1_000)),
    closed("WINDOW_UPDATE flood", preface, |_| frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()).repeat(1_000)),
    closed("PRIORITY flood", preface, |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 7]).repeat(1_000)),
    closed("RST_STREAM flood", cancelled_call, |_| frame(RST_STREAM, 0, 1, &8u32.to_be_bytes()).repeat(1_000)),
    closed("unknown frame types", preface, |_| frame(UNKNOWN, 0, 0, &[]).repeat(1_000)),
    closed("header list bomb", preface, |round| {
        let first = if round == 0 { indexed_header("x-bomb", &[b'x'; 3_900]) } else { Vec::new() };
        let block = [call(CHECK), first, vec![NEWEST_ENTRY; 12_000]].concat();
        frame(HEADERS, END_HEADERS | END_STREAM, stream(round), &block)
    }),
    Attack {
        pause: Duration::from_millis(100),
        ..harmless(
            "zero-window reader",
            || preface_with_settings(&[(4, 0)]),
            |round| {
                if round == 0 {
                    (0..64).flat_map(|it| whole_call(stream(it), CONFIGURATION, &[8, 1])).collect()
                } else {
                    Vec::new()
                }
            },
        )
    },
    MANY_STREAMS,
];

/// HEADERS without a path: each violates the protocol and is answered with a reset, which the attacker does not read.
pub(crate) const BAD_HEADERS: Attack = Attack {
    read_mode: ReadMode::Never,
    ..closed("bad HEADERS", preface, |round| {
        (0..500).flat_map(|it| frame(HEADERS, END_STREAM | END_HEADERS, stream(500 * round + it), &[0x82])).collect()
    })
};

/// 20,000 calls that are started and never ended.
pub(crate) const MANY_STREAMS: Attack = closed("20,000 streams", preface, |round| match round {
    0..20 => (0..1_000).flat_map(|it| frame(HEADERS, END_HEADERS, stream(1_000 * round + it), &call(CHECK))).collect(),
    _ => Vec::new(),
});

/// Attacks that wait for timeouts.
pub(crate) const SLOW_ATTACKS: &[Attack] = &[
    NO_PREFACE,
    // The call ends, which frees its resources; the connection stays.
    Attack {
        pause: Duration::from_millis(100),
        ..harmless("trickled body", preface, |round| match round {
            0 => [frame(HEADERS, END_HEADERS, 1, &call(CHECK)), frame(DATA, 0, 1, &[0, 0, 0, 255, 0])].concat(),
            _ => frame(DATA, 0, 1, b"x"),
        })
    },
];

/// A connection that sends nothing.
pub(crate) const NO_PREFACE: Attack = Attack {
    read_mode: ReadMode::Bytes,
    pause: Duration::from_millis(100),
    ..closed("no preface", Vec::new, |_| Vec::new())
};

/// A connection that starts a TLS handshake.
pub(crate) const TLS_STALL: Attack =
    Attack { name: "TLS stall", opening: || b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec(), ..NO_PREFACE };

/// Id of the client stream with this number, counted from 0.
fn stream(number: u32) -> u32 {
    2 * number + 1
}

/// `count` calls, each cancelled immediately.
fn cancelled_calls(round: u32, count: u32) -> Vec<u8> {
    let pair = |number| {
        let stream = stream(number);
        let cancel = frame(RST_STREAM, 0, stream, &8u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS | END_STREAM, stream, &call(CHECK)), cancel].concat()
    };
    (round * count..(round + 1) * count).flat_map(pair).collect()
}

/// A call on which a long message has started.
fn stream_with_long_message() -> Vec<u8> {
    let message = [&[0][..], &60_000u32.to_be_bytes(), b"first bytes"].concat();
    [preface(), frame(HEADERS, END_HEADERS, 1, &call(CONNECT)), frame(DATA, 0, 1, &message)].concat()
}

/// One cancelled call.
fn cancelled_call() -> Vec<u8> {
    [preface(), cancelled_calls(0, 1)].concat()
}

fn stream_with_closed_window() -> Vec<u8> {
    [preface_with_settings(&[(4, 0)]), frame(HEADERS, END_HEADERS, 1, &call(CONNECT))].concat()
}

impl Attack {
    /// The attack with this name.
    pub(crate) fn named(name: &str) -> Self {
        let all = FAST_ATTACKS.iter().chain(SLOW_ATTACKS).chain([&TLS_STALL]);
        *all.into_iter().find(|it| it.name == name).expect("an attack")
    }

    /// Attacks over `connections` connections until `end`. A closed connection is opened again.
    pub(crate) async fn run(self, target: SocketAddr, connections: usize, end: Instant) -> ConnectionOutcome {
        let attackers: Vec<_> = (0..connections).map(|_| tokio::spawn(self.attacker(target, end))).collect();
        let mut all = ConnectionOutcome::default();
        for attacker in attackers {
            let one = attacker.await.expect("an attacker does not panic");
            all.add(one);
        }
        all
    }

    async fn attacker(self, target: SocketAddr, end: Instant) -> ConnectionOutcome {
        let mut outcome = ConnectionOutcome::default();
        while Instant::now() < end {
            let started = Instant::now();
            match self.connection(target, end, &mut outcome).await {
                // Closed, or never connected.
                Ok(false) | Err(_) => outcome.was_closed(started.elapsed()),
                Ok(true) => outcome.open.push(started.elapsed()),
            }
            sleep(Duration::from_millis(20)).await;
        }
        outcome
    }

    /// Runs one connection until it is closed or until `end`. Returns whether it was open then.
    async fn connection(
        self,
        target: SocketAddr,
        end: Instant,
        outcome: &mut ConnectionOutcome,
    ) -> std::io::Result<bool> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::new(ATTACKER.parse().expect("an address"), 0))?;
        let (from, mut to) = socket.connect(target).await?.into_split();
        let counts = Arc::new(FrameCounts::default());
        let (closed_sender, mut closed) = watch::channel(false);
        // Kept open and unread if the attacker does not read.
        let (mut unread, mut reader) = (None, None);
        match self.read_mode {
            ReadMode::Frames => reader = Some(tokio::spawn(count_frames(from, counts.clone(), closed_sender))),
            ReadMode::Bytes => reader = Some(tokio::spawn(drain(from, closed_sender))),
            ReadMode::Never => unread = Some((from, closed_sender)),
        }
        let talk = async {
            write(&mut to, &(self.opening)()).await?;
            for round in 0.. {
                let bytes = (self.next_round)(round);
                write(&mut to, &bytes).await?;
                match self.pause {
                    NO_PAUSE => tokio::task::yield_now().await,
                    pause => sleep(pause).await,
                }
            }
            Ok::<_, std::io::Error>(())
        };
        let until_closed = async {
            // Without a reader the end is not noticed.
            if closed.wait_for(|closed| *closed).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let open = timeout_at(end, async {
            tokio::select! {
                _ = talk => {}
                () = until_closed => {}
            }
        });
        let open = open.await.is_err();
        if let Some(reader) = reader {
            // Frames that arrived before the end are counted.
            if !open {
                drop(tokio::time::timeout(Duration::from_millis(100), closed.wait_for(|closed| *closed)).await);
            }
            reader.abort();
        }
        drop(unread);
        outcome.goaways += usize::from(counts.goaway.load(Ordering::Relaxed));
        outcome.resets += counts.resets.load(Ordering::Relaxed);
        outcome.answered += counts.answered.load(Ordering::Relaxed);
        Ok(open)
    }
}
