//! Floods come to an end, in whatever pieces they come, and those who mean well never do.

use super::*;

const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const RST_STREAM: u8 = 3;
const PRIORITY: u8 = 2;
const CONTINUATION: u8 = 9;
const UNKNOWN: u8 = 0xfa;

const SHARE: Share = Share { at_once: 10, every: Duration::from_secs(1) };

fn frame(kind: u8, length: usize) -> Vec<u8> {
    let bytes = u32::try_from(length).unwrap().to_be_bytes();
    [&bytes[1..], &[kind, 0, 0, 0, 0, 1], &vec![7; length]].concat()
}

fn place(share: Share, now: Instant) -> Arc<Mutex<Purse>> {
    Arc::new(Mutex::new(Purse::new(share, now)))
}

/// A connection that has said its preface, and nothing holds it back but its own share.
fn begun(now: Instant) -> Frames {
    let roomy = Share { at_once: 1_000_000, every: Duration::from_nanos(1) };
    let mut frames = Frames::new(SHARE, place(roomy, now), now);
    frames.sent(PREFACE, now).unwrap();
    frames
}

/// How many of `bytes` are let through one after another, up to a thousand.
fn let_through(frames: &mut Frames, bytes: &[u8], now: Instant) -> usize {
    (0..1_000).take_while(|_| frames.sent(bytes, now).is_ok()).count()
}

/// SEC-1: of every frame that asks for nothing there may be so many at once, and one more each second.
#[test]
fn frames_that_ask_for_nothing_are_counted() {
    for (kind, length) in [
        (SETTINGS, 0),
        (SETTINGS, 36),
        (PING, 8),
        (WINDOW_UPDATE, 4),
        (RST_STREAM, 4),
        (PRIORITY, 5),
        (CONTINUATION, 4_000),
        (UNKNOWN, 0),
        (DATA, 0),
        (DATA, 15),
    ] {
        let now = Instant::now();
        let (mut frames, idle) = (begun(now), frame(kind, length));
        assert_eq!(let_through(&mut frames, &idle, now), 10, "{kind} of {length} bytes");
        assert_eq!(let_through(&mut frames, &idle, now + SHARE.every), 1, "{kind} of {length} bytes");
        assert_eq!(let_through(&mut frames, &frame(DATA, 16), now), 1_000, "what holds a request is not held back");
    }
}

/// SEC-1: a flood in one piece is noticed before any of it is passed on.
#[test]
fn a_flood_is_noticed_in_one_piece() {
    let now = Instant::now();
    assert_eq!(begun(now).sent(&frame(PING, 8).repeat(10), now), Ok(()));
    assert_eq!(begun(now).sent(&frame(PING, 8).repeat(11), now), Err(TooMany));
}

/// SEC-1: who asks and is answered may send what goes with it, for ever; but not save it up without end.
#[test]
fn what_goes_with_calls_is_free() {
    let now = Instant::now();
    let mut frames = begun(now);
    let call = [frame(HEADERS, 40), frame(DATA, 5), frame(DATA, 0), frame(WINDOW_UPDATE, 4), frame(RST_STREAM, 4)];
    assert_eq!(let_through(&mut frames, &call.concat(), now), 1_000);
    for _ in 0..1_000 {
        frames.answered(&[frame(HEADERS, 14), frame(DATA, 60), frame(HEADERS, 20)].concat());
        frames.sent(&[frame(WINDOW_UPDATE, 4).repeat(6), frame(PING, 8).repeat(3)].concat(), now).unwrap();
    }
    frames.answered(&frame(DATA, 60).repeat(1_000));
    assert_eq!(let_through(&mut frames, &frame(PING, 8), now), 20, "as many as a share holds, and the share");
    frames.answered(&[frame(PING, 8), frame(SETTINGS, 0), frame(RST_STREAM, 4)].concat());
    assert_eq!(frames.sent(&frame(PING, 8), now), Err(TooMany), "what answers such frames is no answer");
}

/// SEC-1: connections of one place share what it may send, and what goes with calls is free there too.
#[test]
fn a_place_has_a_share_of_its_own() {
    let now = Instant::now();
    let place = place(Share { at_once: 15, every: Duration::from_secs(1) }, now);
    let connection = || {
        let mut frames = Frames::new(SHARE, place.clone(), now);
        frames.sent(PREFACE, now).unwrap();
        frames
    };
    let (mut one, mut other, mut third) = (connection(), connection(), connection());
    assert_eq!(let_through(&mut one, &frame(PING, 8), now), 10);
    assert_eq!(let_through(&mut other, &frame(PING, 8), now), 5);
    assert_eq!(let_through(&mut third, &[frame(HEADERS, 9), frame(PING, 8)].concat(), now), 1_000);
    let is_full = |at| place.lock().unwrap().is_full(at);
    assert!(!is_full(now + Duration::from_secs(14)) && is_full(now + Duration::from_secs(15)));
}

/// However the bytes are cut, the same frames are seen.
#[test]
fn pieces_are_put_together() {
    let now = Instant::now();
    let said = [PREFACE, &frame(SETTINGS, 6), &frame(DATA, 300), &frame(WINDOW_UPDATE, 4), &frame(PING, 8)].concat();
    for size in 1..said.len() + 1 {
        let mut frames = Frames::new(SHARE, place(SHARE, now), now);
        said.chunks(size).for_each(|piece| frames.sent(piece, now).unwrap());
        assert_eq!(let_through(&mut frames, &frame(PING, 8), now), 7, "pieces of {size}");
        let answer = [frame(HEADERS, 3), frame(DATA, 70), frame(SETTINGS, 0), frame(HEADERS, 1)].concat();
        answer.chunks(size).for_each(|piece| frames.answered(piece));
        assert_eq!(let_through(&mut frames, &frame(PING, 8), now), 9, "pieces of {size}");
    }
}

/// HTTP/1.1, and whatever else does not begin as HTTP/2 does, has no frames.
#[test]
fn other_protocols_have_no_frames() {
    for beginning in [&b"POST / HTTP/1.1\r\n"[..], b"PRI * HTTP/1.1\r\n", b"\0\0\0\x04\0\0\0\0\0"] {
        let now = Instant::now();
        let mut frames = Frames::new(SHARE, place(SHARE, now), now);
        frames.sent(beginning, now).unwrap();
        frames.answered(&frame(HEADERS, 9).repeat(9));
        assert_eq!(let_through(&mut frames, &[0; 99], now), 1_000);
        assert_eq!((frames.begins, frames.earned), (Begins::AsSomethingElse, 0));
    }
}
