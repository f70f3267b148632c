//! Frame limit tests: floods are rejected in any read sizes, normal clients never are.

use std::time::Duration;

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

fn shared_bucket(rate: Rate, now: Instant) -> Arc<Mutex<TokenBucket>> {
    Arc::new(Mutex::new(TokenBucket::new(rate, now)))
}

/// Limiter of a connection after its preface, whose prefix is practically unlimited.
fn limiter_after_preface(now: Instant) -> ControlFrameLimiter {
    let unlimited = Rate { burst: 1_000_000, interval: Duration::from_nanos(1) };
    let mut limiter = ControlFrameLimiter::new(RATE, shared_bucket(unlimited, now), now);
    limiter.record_received(PREFACE, now).unwrap();
    limiter
}

/// Number of times that `bytes` are accepted in sequence, at most 1,000.
fn accepted_count(limiter: &mut ControlFrameLimiter, bytes: &[u8], now: Instant) -> usize {
    (0..1_000).take_while(|_| limiter.record_received(bytes, now).is_ok()).count()
}

/// SEC-1: each kind of control frame has a burst of 10 and one more per second.
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
        let (mut limiter, control_frame) = (limiter_after_preface(now), frame(kind, length));
        assert_eq!(accepted_count(&mut limiter, &control_frame, now), 10, "{kind} of {length} bytes");
        assert_eq!(accepted_count(&mut limiter, &control_frame, now + RATE.interval), 1, "{kind} of {length} bytes");
        assert_eq!(
            accepted_count(&mut limiter, &frame(FRAME_TYPE_DATA, 16), now),
            1_000,
            "a frame with a request is free"
        );
    }
}

/// SEC-1: a flood in a single read is rejected as a whole.
#[test]
fn frame_limit_rejects_a_flood_in_a_single_read() {
    let now = Instant::now();
    assert_eq!(limiter_after_preface(now).record_received(&frame(PING, 8).repeat(10), now), Ok(()));
    assert_eq!(limiter_after_preface(now).record_received(&frame(PING, 8).repeat(11), now), Err(RateExceeded));
}

/// SEC-1: control frames that belong to calls are free without limit, but do not accumulate beyond the burst.
#[test]
fn frame_limit_does_not_charge_frames_that_belong_to_calls() {
    let now = Instant::now();
    let mut limiter = limiter_after_preface(now);
    let call = [
        frame(FRAME_TYPE_HEADERS, 40),
        frame(FRAME_TYPE_DATA, 5),
        frame(FRAME_TYPE_DATA, 0),
        frame(WINDOW_UPDATE, 4),
        frame(RST_STREAM, 4),
    ];
    assert_eq!(accepted_count(&mut limiter, &call.concat(), now), 1_000);
    for _ in 0..1_000 {
        limiter.record_sent(
            &[frame(FRAME_TYPE_HEADERS, 14), frame(FRAME_TYPE_DATA, 60), frame(FRAME_TYPE_HEADERS, 20)].concat(),
        );
        limiter.record_received(&[frame(WINDOW_UPDATE, 4).repeat(6), frame(PING, 8).repeat(3)].concat(), now).unwrap();
    }
    limiter.record_sent(&frame(FRAME_TYPE_DATA, 60).repeat(1_000));
    assert_eq!(
        accepted_count(&mut limiter, &frame(PING, 8), now),
        20,
        "a burst of free frames, and the bucket's burst"
    );
    limiter.record_sent(&[frame(PING, 8), frame(SETTINGS, 0), frame(RST_STREAM, 4)].concat());
    assert_eq!(
        limiter.record_received(&frame(PING, 8), now),
        Err(RateExceeded),
        "control frames from the server entail no free frames"
    );
}

/// SEC-1: connections of one prefix share a bucket; frames that belong to calls are free there too.
#[test]
fn frame_limit_is_shared_by_connections_of_one_prefix() {
    let now = Instant::now();
    let bucket = shared_bucket(Rate { burst: 15, interval: Duration::from_secs(1) }, now);
    let connection = || {
        let mut limiter = ControlFrameLimiter::new(RATE, bucket.clone(), now);
        limiter.record_received(PREFACE, now).unwrap();
        limiter
    };
    let (mut first, mut second, mut third) = (connection(), connection(), connection());
    assert_eq!(accepted_count(&mut first, &frame(PING, 8), now), 10);
    assert_eq!(accepted_count(&mut second, &frame(PING, 8), now), 5);
    assert_eq!(accepted_count(&mut third, &[frame(FRAME_TYPE_HEADERS, 9), frame(PING, 8)].concat(), now), 1_000);
    let is_full = |at| bucket.lock().unwrap().is_full(at);
    assert!(!is_full(now + Duration::from_secs(14)) && is_full(now + Duration::from_secs(15)));
}

/// SEC-1: the same frames are counted for any read size.
#[test]
fn frame_limit_counts_the_same_for_any_read_sizes() {
    let now = Instant::now();
    let sent = [PREFACE, &frame(SETTINGS, 6), &frame(FRAME_TYPE_DATA, 300), &frame(WINDOW_UPDATE, 4), &frame(PING, 8)]
        .concat();
    for size in 1..sent.len() + 1 {
        let mut limiter = ControlFrameLimiter::new(RATE, shared_bucket(RATE, now), now);
        sent.chunks(size).for_each(|chunk| limiter.record_received(chunk, now).unwrap());
        assert_eq!(accepted_count(&mut limiter, &frame(PING, 8), now), 7, "chunks of {size}");
        let response = [
            frame(FRAME_TYPE_HEADERS, 3),
            frame(FRAME_TYPE_DATA, 70),
            frame(SETTINGS, 0),
            frame(FRAME_TYPE_HEADERS, 1),
        ]
        .concat();
        response.chunks(size).for_each(|chunk| limiter.record_sent(chunk));
        assert_eq!(accepted_count(&mut limiter, &frame(PING, 8), now), 9, "chunks of {size}");
    }
}

/// SEC-1: HTTP/1.1 and other protocols have no frames to count.
#[test]
fn frame_limit_ignores_connections_that_are_not_http2() {
    for first_bytes in [&b"POST / HTTP/1.1\r\n"[..], b"PRI * HTTP/1.1\r\n", b"\0\0\0\x04\0\0\0\0\0"] {
        let now = Instant::now();
        let mut limiter = ControlFrameLimiter::new(RATE, shared_bucket(RATE, now), now);
        limiter.record_received(first_bytes, now).unwrap();
        limiter.record_sent(&frame(FRAME_TYPE_HEADERS, 9).repeat(9));
        assert_eq!(accepted_count(&mut limiter, &[0; 99], now), 1_000);
        assert_eq!((limiter.protocol, limiter.free_frames), (ConnectionProtocol::Other, 0));
    }
}
