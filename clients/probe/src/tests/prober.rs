//! Prober of one host: its packets, its limits, and the answers that count.

use std::net::SocketAddr;

use proptest::prelude::*;

use crate::*;

const MS: u64 = 1_000;
const NONCE: [u8; 8] = [4; 8];

fn endpoint() -> SocketAddr {
    "192.0.2.7:4000".parse().unwrap()
}

fn key() -> ProbeKey {
    ProbeKey::new(&[1; 16]).unwrap()
}

fn host() -> HostResponder {
    let mut host = HostResponder::new(HostCookieKey([2; 32]));
    host.set_advertisement([3; 16], key());
    host
}

fn prober(high_estimate_to_advert_ms: f64) -> HostProber {
    let target = ProbeTarget { endpoint: endpoint(), key: key(), advertisement_id_prefix: [3; 8] };
    HostProber::new(target, NONCE, high_estimate_to_advert_ms)
}

fn answer(host: &mut HostResponder, packet: &[u8], now_us: u64, verdict: Verdict) -> Option<Vec<u8>> {
    let client = "198.51.100.1:5000".parse().unwrap();
    host.handle(packet, client, ArrivalAndAnswerTime { arrived_us: now_us, now_us }, |_, _| verdict)
}

/// Runs until the end against a host whose round trip is `round_trip_ms` for the n-th packet; `None` loses it. Returns the times of sending.
fn run(
    prober: &mut HostProber,
    host: &mut HostResponder,
    start_us: u64,
    round_trip_ms: impl Fn(usize) -> Option<u64>,
) -> Vec<u64> {
    let (mut sent_us, mut answers) = (Vec::new(), Vec::<(u64, Vec<u8>)>::new());
    for now_us in (start_us..start_us + 20_000 * MS).step_by(1_000) {
        prober.expire(now_us);
        answers.retain(|(at_us, reply)| {
            let is_due = *at_us == now_us;
            if is_due {
                prober.handle(reply, endpoint(), now_us);
            }
            !is_due
        });
        while let Some(packet) = prober.next_packet(now_us) {
            if let Some(ms) = round_trip_ms(sent_us.len()) {
                let reply = answer(host, &packet, now_us, Verdict::Fits).unwrap();
                answers.push((now_us + ms * MS, reply));
            }
            sent_us.push(now_us);
        }
        if prober.finding().is_some() {
            break;
        }
    }
    sent_us
}

/// Four answers that agree are enough, 50 ms apart.
#[test]
fn prober_stops_after_four_answers_that_agree() {
    let mut prober = prober(100.0);
    let sent_us = run(&mut prober, &mut host(), MS, |_| Some(20));
    assert_eq!(sent_us, [1, 51, 101, 151].map(|ms| ms * MS));
    assert_eq!(prober.finding(), Some(ProbeFinding::Answered));
    let found = prober.statistics();
    assert_eq!((found.sent, found.answered, found.floor_ms, found.p50_ms), (4, 4, Some(20.0), Some(20.0)));
    assert_eq!(prober.last_answer_us(), Some(171 * MS));
}

/// A host that does not answer receives three packets, and counts as silent once the last is late.
#[test]
fn prober_sends_three_packets_to_silence() {
    let mut prober = prober(300.0);
    let sent_us = run(&mut prober, &mut host(), MS, |_| None);
    assert_eq!(sent_us, [1, 51, 101].map(|ms| ms * MS));
    assert_eq!(prober.finding(), Some(ProbeFinding::Silent));
    assert_eq!((prober.next_send_us(), prober.next_expiry_us()), (None, None));
    let found = prober.statistics();
    assert_eq!((found.sent, found.answered, found.floor_ms), (3, 0, None));
}

/// Answers that never agree end with ten packets; a lost packet is one that was sent.
#[test]
fn prober_sends_ten_packets_at_most() {
    let mut prober = prober(100.0);
    let sent_us = run(&mut prober, &mut host(), MS, |number| (number != 2).then_some(20 + 5 * (10 - number as u64)));
    assert_eq!(sent_us.len(), 10);
    let found = prober.statistics();
    assert_eq!((found.sent, found.answered), (10, 9));
    assert_eq!(prober.finding(), Some(ProbeFinding::Answered));
}

/// An answer counts once, in time, from the host's address and for the packet's own nonce. The others change nothing.
#[test]
fn prober_ignores_forged_late_and_repeated_answers() {
    let (mut prober, mut host) = (prober(0.0), host());
    let packet = prober.next_packet(MS).unwrap();
    let good = answer(&mut host, &packet, MS, Verdict::Fits).unwrap();
    let other = EchoRequest(ReturnedQuestionFields {
        sequence: 0,
        nonce: [9; 8],
        advertisement_id_prefix: [3; 8],
        stamp: [0; 8],
    })
    .encode(&key());
    let other = answer(&mut host, &other, MS, Verdict::Fits).unwrap();
    let mut forged = good.clone();
    forged[33] ^= 1;
    assert!(!prober.handle(&good, "192.0.2.8:4000".parse().unwrap(), 2 * MS), "another address");
    assert!(!prober.handle(&good, "192.0.2.7:4001".parse().unwrap(), 2 * MS), "another port");
    assert!(!prober.handle(&other, endpoint(), 2 * MS), "another nonce");
    assert!(!prober.handle(&forged, endpoint(), 2 * MS), "another code");
    assert!(!prober.handle(&packet, endpoint(), 2 * MS), "the question itself");
    assert!(prober.handle(&good, "[::ffff:192.0.2.7]:4000".parse().unwrap(), 2 * MS), "a socket of both families");
    assert!(!prober.handle(&good, endpoint(), 3 * MS), "again");
    assert_eq!((prober.statistics().sent, prober.statistics().answered), (1, 1));

    let packet = prober.next_packet(60 * MS).unwrap();
    let late = answer(&mut host, &packet, 60 * MS, Verdict::Fits).unwrap();
    assert_eq!(prober.next_expiry_us(), Some(310 * MS), "250 ms at least");
    assert!(!prober.handle(&late, endpoint(), 310 * MS));
    assert_eq!((prober.statistics().sent, prober.statistics().answered), (2, 1));
}

/// A host that is full ends its run, and one that asks for a pause gets it.
#[test]
fn prober_obeys_the_flags_of_the_host() {
    let reply = |packet: &[u8], flags, wait_10ms| {
        let EchoRequest(question) = EchoRequest::decode(packet, &key()).unwrap();
        EchoReply { question, flags, wait_10ms, held_10us: 0, cookie: [7; 16] }.encode(&key())
    };
    let mut busy = prober(100.0);
    let packet = busy.next_packet(MS).unwrap();
    let wait = reply(&packet, HostStateFlags { full: false, asks_to_wait: true }, 25);
    assert!(busy.handle(&wait, endpoint(), 10 * MS));
    assert_eq!(busy.next_send_us(), Some(260 * MS));
    let packet = busy.next_packet(260 * MS).unwrap();
    assert!(busy.handle(&reply(&packet, HostStateFlags { full: true, asks_to_wait: false }, 0), endpoint(), 270 * MS));
    assert_eq!(busy.finding(), Some(ProbeFinding::Full));
    assert_eq!(busy.next_packet(500 * MS), None);
}

/// The involved run uses the cookie of the quick one. Without a fresh one it asks for one first, by a packet
/// that is not in its statistics.
#[test]
fn prober_of_an_involved_run_has_a_cookie() {
    let is_involved =
        |packet: &[u8]| Involved::decode(packet, &key()).is_ok_and(|packet| packet.game_data == b"build 7");
    let (mut probed, mut host) = (prober(100.0), host());
    run(&mut probed, &mut host, MS, |_| Some(20));
    probed.start_run_with_game_data(b"build 7".to_vec());
    assert!(is_involved(&probed.clone().next_packet(5_000 * MS).unwrap()));
    assert_eq!(run(&mut probed, &mut host, 5_000 * MS, |_| Some(30)).len(), 4);
    assert_eq!((probed.statistics().sent, probed.statistics().floor_ms), (4, Some(30.0)));

    probed.start_run_with_game_data(b"build 7".to_vec());
    let late = probed.clone().next_packet(31_000 * MS).unwrap();
    assert!(EchoRequest::decode(&late, &key()).is_ok(), "the cookie is too old");
    assert_eq!(run(&mut probed, &mut host, 31_000 * MS, |_| Some(30)).len(), 5, "one packet asked for a cookie");
    assert_eq!(probed.statistics().sent, 4);

    let mut silent = prober(100.0);
    silent.start_run_with_game_data(Vec::new());
    assert_eq!(run(&mut silent, &mut host, MS, |_| None).len(), 3);
    assert_eq!(silent.finding(), Some(ProbeFinding::Silent));
}

/// The time for which the host says that it held a question is part of the round trip, in both phases: less would let a host look nearer
/// than it is.
#[test]
fn prober_does_not_subtract_the_time_that_the_host_held_a_question() {
    let (mut probed, mut host) = (prober(100.0), host());
    let client = "198.51.100.1:5000".parse().unwrap();
    for (start_us, game_data) in [(MS, None), (1_000 * MS, Some(b"build 7".to_vec()))] {
        if let Some(game_data) = game_data {
            probed.start_run_with_game_data(game_data);
        }
        let packet = probed.next_packet(start_us).unwrap();
        let time = ArrivalAndAnswerTime { arrived_us: start_us + 10 * MS, now_us: start_us + 25 * MS };
        let reply = host.handle(&packet, client, time, |_, _| Verdict::Fits).unwrap();
        assert_eq!(reply[34..36], 1_500_u16.to_be_bytes(), "held for 15 ms, in units of 10 us");
        assert!(probed.handle(&reply, endpoint(), start_us + 40 * MS));
        assert_eq!((probed.statistics().answered, probed.statistics().floor_ms), (1, Some(40.0)));
    }
}

/// The first verdict that refuses ends the run.
#[test]
fn prober_of_an_involved_run_ends_with_a_refusal() {
    for (verdict, finding) in [(Verdict::Incompatible, ProbeFinding::Incompatible), (Verdict::Full, ProbeFinding::Full)]
    {
        let (mut probed, mut host) = (prober(100.0), host());
        run(&mut probed, &mut host, MS, |_| Some(20));
        probed.start_run_with_game_data(vec![1; 2_000]);
        let packet = probed.next_packet(1_000 * MS).unwrap();
        assert_eq!(packet.len(), INVOLVED_BYTES_MAX, "no more data than a packet has room for");
        let reply = answer(&mut host, &packet, 1_000 * MS, verdict).unwrap();
        assert!(probed.handle(&reply, endpoint(), 1_020 * MS));
        assert_eq!((probed.finding(), probed.next_packet(2_000 * MS)), (Some(finding), None));
    }
}

/// A run that ends early is known only by answers: without one, fewer than three lost packets say nothing.
#[test]
fn prober_that_ends_early_says_what_it_knows() {
    let (mut probed, mut host) = (prober(100.0), host());
    assert_eq!(probed.clone().end(), None);
    let packet = probed.next_packet(MS).unwrap();
    probed.expire(600 * MS);
    assert_eq!(probed.clone().end(), None);
    let packet = probed.next_packet(700 * MS).unwrap_or(packet);
    probed.handle(&answer(&mut host, &packet, 700 * MS, Verdict::Fits).unwrap(), endpoint(), 710 * MS);
    probed.next_packet(800 * MS).unwrap();
    assert_eq!(probed.end(), Some(ProbeFinding::Answered));
    assert_eq!((probed.statistics().sent, probed.statistics().answered), (2, 1), "none of the packets underway");
}

proptest! {
    /// With any losses and delays a run ends, within its packets, each 50 ms after the one before.
    #[test]
    fn prober_ends_within_its_limits(round_trips_ms in proptest::collection::vec(proptest::option::of(0..600_u64), 10)) {
        let mut prober = prober(100.0);
        let sent_us = run(&mut prober, &mut host(), MS, |number| round_trips_ms[number]);
        prop_assert!(prober.finding().is_some());
        prop_assert!(sent_us.len() <= 10 && sent_us.windows(2).all(|pair| 50 * MS <= pair[1] - pair[0]));
        let answers_late = |ms: &Option<u64>| ms.is_none_or(|ms| 250 <= ms);
        if round_trips_ms[..3].iter().all(answers_late) {
            prop_assert_eq!(sent_us.len(), 3);
            prop_assert_eq!(prober.finding(), Some(ProbeFinding::Silent));
        }
    }
}
