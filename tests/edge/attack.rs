//! Attacks on HTTP/2: what is said first, what is said again and again, and whether the attacker listens.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::net::TcpSocket;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use crate::connection_outcome::Fate;
use crate::raw_http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Heard, NEWEST, PING, PRIORITY, RST_STREAM, SETTINGS, UNKNOWN,
    WINDOW_UPDATE, call, drain, frame, header, header_to_remember, listen, opening, opening_with, whole_call, write,
};

/// Where attackers come from: a stranger's address, though it is of this machine.
pub(crate) const ATTACKER: &str = "127.0.0.66";

const CHECK: &str = "/grpc.health.v1.Health/Check";
const CONNECT: &str = "/fireteam.v1.MatchmakingService/Connect";
const CONFIGURATION: &str = "/fireteam.v1.MatchmakingService/GetConfiguration";

/// One kind of attack.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// What a connection begins with.
    opening: fn() -> Vec<u8>,
    /// What follows, round by round.
    more: fn(u32) -> Vec<u8>,
    /// Between rounds.
    pause: Duration,
    listens: Listens,
    /// Whether the server must close the connection; if not, it is harmless.
    pub(crate) is_closed: bool,
}

/// What an attacker does with what it is told.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listens {
    /// Reads frames.
    ToFrames,
    /// Reads whatever comes: no HTTP is spoken.
    ToBytes,
    /// Does not read.
    Never,
}

const AT_ONCE: Duration = Duration::ZERO;

const fn closed(name: &'static str, opening: fn() -> Vec<u8>, more: fn(u32) -> Vec<u8>) -> Attack {
    Attack { name, opening, more, pause: AT_ONCE, listens: Listens::ToFrames, is_closed: true }
}

const fn harmless(name: &'static str, opening: fn() -> Vec<u8>, more: fn(u32) -> Vec<u8>) -> Attack {
    Attack { is_closed: false, ..closed(name, opening, more) }
}

/// Attacks that show what they do at once.
pub(crate) const QUICK: &[Attack] = &[
    BAD_HEADERS,
    closed("rapid reset", opening, |round| pairs(round, 100)),
    Attack {
        pause: Duration::from_millis(10),
        ..harmless("rapid reset under the limit", opening, |round| pairs(round, 4))
    },
    closed("CONTINUATION flood", opening, |round| {
        let (kind, stream) = (if round == 0 { HEADERS } else { CONTINUATION }, 1);
        frame(kind, 0, stream, &header("x-filler", &[b'x'; 4_000]))
    }),
    Attack {
        listens: Listens::Never,
        ..closed("SETTINGS flood", opening, |_| frame(SETTINGS, 0, 0, &[]).repeat(1_000))
    },
    Attack { listens: Listens::Never, ..closed("PING flood", opening, |_| frame(PING, 0, 0, &[7; 8]).repeat(1_000)) },
    // As many as may come at once, and then fewer than are noticed, on every connection: nothing to be ended for.
    Attack {
        pause: Duration::from_millis(100),
        ..harmless("PINGs under the limit", opening, |_| frame(PING, 0, 0, &[7; 8]))
    },
    // On a stream whose answers have no room, so that nobody reads what it says.
    closed("empty DATA flood", stalled_conversation, |_| frame(DATA, 0, 1, &[]).repeat(1_000)),
    // A message that comes a byte a frame.
    closed("small DATA flood", conversation, |_| frame(DATA, 0, 1, b"x").repeat(1_000)),
    closed("WINDOW_UPDATE flood", opening, |_| frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()).repeat(1_000)),
    closed("PRIORITY flood", opening, |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 0, 7]).repeat(1_000)),
    closed("RST_STREAM flood", taken_back, |_| frame(RST_STREAM, 0, 1, &8u32.to_be_bytes()).repeat(1_000)),
    closed("frames that do not exist", opening, |_| frame(UNKNOWN, 0, 0, &[]).repeat(1_000)),
    closed("header list bomb", opening, |round| {
        let first = if round == 0 { header_to_remember("x-bomb", &[b'x'; 3_900]) } else { Vec::new() };
        let block = [call(CHECK), first, vec![NEWEST; 12_000]].concat();
        frame(HEADERS, END_HEADERS | END_STREAM, stream(round), &block)
    }),
    Attack {
        pause: Duration::from_millis(100),
        ..harmless(
            "zero-window reader",
            || opening_with(&[(4, 0)]),
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

/// HEADERS without a path: each breaks the rules, and each is to be answered with a reset that nobody reads.
pub(crate) const BAD_HEADERS: Attack = Attack {
    listens: Listens::Never,
    ..closed("bad HEADERS", opening, |round| {
        (0..500).flat_map(|it| frame(HEADERS, END_STREAM | END_HEADERS, stream(500 * round + it), &[0x82])).collect()
    })
};

/// 20,000 calls that are begun and not ended.
pub(crate) const MANY_STREAMS: Attack = closed("20,000 streams", opening, |round| match round {
    0..20 => (0..1_000).flat_map(|it| frame(HEADERS, END_HEADERS, stream(1_000 * round + it), &call(CHECK))).collect(),
    _ => Vec::new(),
});

/// Attacks that wait.
pub(crate) const PATIENT: &[Attack] = &[
    NO_PREFACE,
    // It is the call that ends, and with it what it held.
    Attack {
        pause: Duration::from_millis(100),
        ..harmless("trickled body", opening, |round| match round {
            0 => [frame(HEADERS, END_HEADERS, 1, &call(CHECK)), frame(DATA, 0, 1, &[0, 0, 0, 255, 0])].concat(),
            _ => frame(DATA, 0, 1, b"x"),
        })
    },
];

/// A connection that says nothing.
pub(crate) const NO_PREFACE: Attack = Attack {
    listens: Listens::ToBytes,
    pause: Duration::from_millis(100),
    ..closed("no preface", Vec::new, |_| Vec::new())
};

/// A connection that begins to greet.
pub(crate) const TLS_STALL: Attack =
    Attack { name: "TLS stall", opening: || b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03".to_vec(), ..NO_PREFACE };

/// A client's stream, counted from 0.
fn stream(number: u32) -> u32 {
    2 * number + 1
}

/// So many calls, each taken back at once.
fn pairs(round: u32, count: u32) -> Vec<u8> {
    let pair = |number| {
        let stream = stream(number);
        let cancel = frame(RST_STREAM, 0, stream, &8u32.to_be_bytes());
        [frame(HEADERS, END_HEADERS | END_STREAM, stream, &call(CHECK)), cancel].concat()
    };
    (round * count..(round + 1) * count).flat_map(pair).collect()
}

/// A stream on which a long message has begun.
fn conversation() -> Vec<u8> {
    let message = [&[0][..], &60_000u32.to_be_bytes(), b"a beginning"].concat();
    [opening(), frame(HEADERS, END_HEADERS, 1, &call(CONNECT)), frame(DATA, 0, 1, &message)].concat()
}

/// A call that is taken back.
fn taken_back() -> Vec<u8> {
    [opening(), pairs(0, 1)].concat()
}

fn stalled_conversation() -> Vec<u8> {
    [opening_with(&[(4, 0)]), frame(HEADERS, END_HEADERS, 1, &call(CONNECT))].concat()
}

impl Attack {
    /// The one of that name.
    pub(crate) fn named(name: &str) -> Self {
        let all = QUICK.iter().chain(PATIENT).chain([&TLS_STALL]);
        *all.into_iter().find(|it| it.name == name).expect("an attack")
    }

    /// Attacks with so many connections until `end`; whoever is closed comes again.
    pub(crate) async fn run(self, target: SocketAddr, connections: usize, end: Instant) -> Fate {
        let attackers: Vec<_> = (0..connections).map(|_| tokio::spawn(self.attacker(target, end))).collect();
        let mut all = Fate::default();
        for attacker in attackers {
            let one = attacker.await.expect("an attacker does not panic");
            all.add(one);
        }
        all
    }

    async fn attacker(self, target: SocketAddr, end: Instant) -> Fate {
        let mut fate = Fate::default();
        while Instant::now() < end {
            let begun = Instant::now();
            match self.connection(target, end, &mut fate).await {
                // Cut off, or not even connected.
                Ok(false) | Err(_) => fate.was_closed(begun.elapsed()),
                Ok(true) => fate.open.push(begun.elapsed()),
            }
            sleep(Duration::from_millis(20)).await;
        }
        fate
    }

    /// One connection until it is closed or the attack is over; whether it was open then.
    async fn connection(self, target: SocketAddr, end: Instant, fate: &mut Fate) -> std::io::Result<bool> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::new(ATTACKER.parse().expect("an address"), 0))?;
        let (from, mut to) = socket.connect(target).await?.into_split();
        let heard = Arc::new(Heard::default());
        let (told, mut closed) = watch::channel(false);
        // Held, unread, by who never listens.
        let (mut unread, mut listener) = (None, None);
        match self.listens {
            Listens::ToFrames => listener = Some(tokio::spawn(listen(from, heard.clone(), told))),
            Listens::ToBytes => listener = Some(tokio::spawn(drain(from, told))),
            Listens::Never => unread = Some((from, told)),
        }
        let talk = async {
            write(&mut to, &(self.opening)()).await?;
            for round in 0.. {
                let bytes = (self.more)(round);
                write(&mut to, &bytes).await?;
                match self.pause {
                    AT_ONCE => tokio::task::yield_now().await,
                    pause => sleep(pause).await,
                }
            }
            Ok::<_, std::io::Error>(())
        };
        let over = async {
            // Nobody is told of it who does not listen.
            if closed.wait_for(|closed| *closed).await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let open = timeout_at(end, async {
            tokio::select! {
                _ = talk => {}
                () = over => {}
            }
        });
        let open = open.await.is_err();
        if let Some(listener) = listener {
            // What was said before the end is heard to the end.
            if !open {
                drop(tokio::time::timeout(Duration::from_millis(100), closed.wait_for(|closed| *closed)).await);
            }
            listener.abort();
        }
        drop(unread);
        fate.goaways += usize::from(heard.goaway.load(Ordering::Relaxed));
        fate.resets += heard.resets.load(Ordering::Relaxed);
        fate.answered += heard.answered.load(Ordering::Relaxed);
        Ok(open)
    }
}
