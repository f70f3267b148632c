//! Floods come to an end, in whatever pieces they come, and those who mean well never do.

use super::*;

const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const RST_STREAM: u8 = 3;
const PRIORITY: u8 = 2;
const CONTINUATION: u8 = 9;
const UNKNOWN_FRAME_TYPE: u8 = 0xfa;

const RATE: Rate = Rate { burst: 10, interval: Duration::from_secs(1) };

fn frame(kind: u8, length: usize) -> Vec<u8> {
    let bytes = u32::try_from(length).unwrap().to_be_bytes();
    [&bytes[1..], &[kind, 0, 0, 0, 0, 1], &vec![7; length]].concat()
}

fn shared_bucket(share: Rate, now: Instant) -> Arc<Mutex<TokenBucket>> {
    Arc::new(Mutex::new(TokenBucket::new(share, now)))
}

/// A connection that has said its preface, and nothing holds it back but its own share.
fn limiter_after_preface(now: Instant) -> FrameLimiter {
    let roomy = Rate { burst: 1_000_000, interval: Duration::from_nanos(1) };
    let mut frames = FrameLimiter::new(RATE, shared_bucket(roomy, now), now);
    frames.record_received(PREFACE, now).unwrap();
    frames
}

/// How many of `bytes` are let through one after another, up to a thousand.
fn accepted_count(frames: &mut FrameLimiter, bytes: &[u8], now: Instant) -> usize {
    (0..1_000).take_while(|_| frames.record_received(bytes, now).is_ok()).count()
}

/// SEC-1: of every frame that asks for nothing there may be so many at once, and one more each second.
#[test]
fn frame_limit_allows_a_burst_and_then_one_per_interval() {
    for (kind, length) in [
        (SETTINGS, 0),
        (SETTINGS, 36),
        (PING, 8),
        (WINDOW_UPDATE, 4),
        (RST_STREAM, 4),
        (PRIORITY, 5),
        (CONTINUATION, 4_000),
        (UNKNOWN_FRAME_TYPE, 0),
        (FRAME_TYPE_DATA, 0),
        (FRAME_TYPE_DATA, 15),
    ] {
        let now = Instant::now();
        let (mut frames, idle) = (limiter_after_preface(now), frame(kind, length));
        assert_eq!(accepted_count(&mut frames, &idle, now), 10, "{kind} of {length} bytes");
        assert_eq!(accepted_count(&mut frames, &idle, now + RATE.interval), 1, "{kind} of {length} bytes");
        assert_eq!(
            accepted_count(&mut frames, &frame(FRAME_TYPE_DATA, 16), now),
            1_000,
            "what holds a request is not held back"
        );
    }
}

/// SEC-1: a flood in one piece is noticed before any of it is passed on.
#[test]
fn frame_limit_rejects_a_flood_in_a_single_read() {
    let now = Instant::now();
    assert_eq!(limiter_after_preface(now).record_received(&frame(PING, 8).repeat(10), now), Ok(()));
    assert_eq!(limiter_after_preface(now).record_received(&frame(PING, 8).repeat(11), now), Err(RateExceeded));
}

/// SEC-1: who asks and is answered may send what goes with it, for ever; but not save it up without end.
#[test]
fn frame_limit_does_not_charge_frames_that_belong_to_calls() {
    let now = Instant::now();
    let mut frames = limiter_after_preface(now);
    let call = [
        frame(FRAME_TYPE_HEADERS, 40),
        frame(FRAME_TYPE_DATA, 5),
        frame(FRAME_TYPE_DATA, 0),
        frame(WINDOW_UPDATE, 4),
        frame(RST_STREAM, 4),
    ];
    assert_eq!(accepted_count(&mut frames, &call.concat(), now), 1_000);
    for _ in 0..1_000 {
        frames.record_sent(
            &[frame(FRAME_TYPE_HEADERS, 14), frame(FRAME_TYPE_DATA, 60), frame(FRAME_TYPE_HEADERS, 20)].concat(),
        );
        frames.record_received(&[frame(WINDOW_UPDATE, 4).repeat(6), frame(PING, 8).repeat(3)].concat(), now).unwrap();
    }
    frames.record_sent(&frame(FRAME_TYPE_DATA, 60).repeat(1_000));
    assert_eq!(accepted_count(&mut frames, &frame(PING, 8), now), 20, "as many as a share holds, and the share");
    frames.record_sent(&[frame(PING, 8), frame(SETTINGS, 0), frame(RST_STREAM, 4)].concat());
    assert_eq!(
        frames.record_received(&frame(PING, 8), now),
        Err(RateExceeded),
        "what answers such frames is no answer"
    );
}

/// SEC-1: connections of one place share what it may send, and what goes with calls is free there too.
#[test]
fn frame_limit_is_shared_by_connections_of_one_prefix() {
    let now = Instant::now();
    let place = shared_bucket(Rate { burst: 15, interval: Duration::from_secs(1) }, now);
    let connection = || {
        let mut frames = FrameLimiter::new(RATE, place.clone(), now);
        frames.record_received(PREFACE, now).unwrap();
        frames
    };
    let (mut one, mut other, mut third) = (connection(), connection(), connection());
    assert_eq!(accepted_count(&mut one, &frame(PING, 8), now), 10);
    assert_eq!(accepted_count(&mut other, &frame(PING, 8), now), 5);
    assert_eq!(accepted_count(&mut third, &[frame(FRAME_TYPE_HEADERS, 9), frame(PING, 8)].concat(), now), 1_000);
    let is_full = |at| place.lock().unwrap().is_full(at);
    assert!(!is_full(now + Duration::from_secs(14)) && is_full(now + Duration::from_secs(15)));
}

/// However the bytes are cut, the same frames are seen.
#[test]
fn frame_limit_counts_the_same_for_any_read_sizes() {
    let now = Instant::now();
    let said = [PREFACE, &frame(SETTINGS, 6), &frame(FRAME_TYPE_DATA, 300), &frame(WINDOW_UPDATE, 4), &frame(PING, 8)]
        .concat();
    for size in 1..said.len() + 1 {
        let mut frames = FrameLimiter::new(RATE, shared_bucket(RATE, now), now);
        said.chunks(size).for_each(|piece| frames.record_received(piece, now).unwrap());
        assert_eq!(accepted_count(&mut frames, &frame(PING, 8), now), 7, "pieces of {size}");
        let answer = [
            frame(FRAME_TYPE_HEADERS, 3),
            frame(FRAME_TYPE_DATA, 70),
            frame(SETTINGS, 0),
            frame(FRAME_TYPE_HEADERS, 1),
        ]
        .concat();
        answer.chunks(size).for_each(|piece| frames.record_sent(piece));
        assert_eq!(accepted_count(&mut frames, &frame(PING, 8), now), 9, "pieces of {size}");
    }
}

/// HTTP/1.1, and whatever else does not begin as HTTP/2 does, has no frames.
#[test]
fn frame_limit_ignores_connections_that_are_not_http2() {
    for beginning in [&b"POST / HTTP/1.1\r\n"[..], b"PRI * HTTP/1.1\r\n", b"\0\0\0\x04\0\0\0\0\0"] {
        let now = Instant::now();
        let mut frames = FrameLimiter::new(RATE, shared_bucket(RATE, now), now);
        frames.record_received(beginning, now).unwrap();
        frames.record_sent(&frame(FRAME_TYPE_HEADERS, 9).repeat(9));
        assert_eq!(accepted_count(&mut frames, &[0; 99], now), 1_000);
        assert_eq!((frames.protocol, frames.free_frames), (ConnectionProtocol::Other, 0));
    }
}
