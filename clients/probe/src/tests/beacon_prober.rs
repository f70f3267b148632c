//! Prober of one beacon against a real responder: its packets, its limits, and the answers that count.

use std::net::SocketAddr;

use proptest::prelude::*;

use crate::*;

const MS: u64 = 1_000;
const NONCE: [u8; 8] = [4; 8];
const BINDING: [u8; 16] = [6; 16];
const BEACON_ID: u32 = 7;

fn endpoint() -> SocketAddr {
    "192.0.2.7:3478".parse().unwrap()
}

fn client() -> SocketAddr {
    "198.51.100.1:5000".parse().unwrap()
}

fn beacon_key() -> BeaconKey {
    FleetKey([1; 32]).beacon_key(BEACON_ID)
}

fn beacon(packets_per_s: u32) -> BeaconResponder {
    BeaconResponder::new(BEACON_ID, beacon_key(), BeaconCookieKey([2; 32]), packets_per_s)
}

fn prober() -> BeaconProber {
    BeaconProber::new(BeaconTarget { endpoint: endpoint(), beacon_id: BEACON_ID, binding: BINDING }, NONCE)
}

/// Challenge of a sender that does not know the nonce.
fn forged_challenge(random: [u8; 16], sequence: u16) -> [u8; FIXED_PACKET_BYTES] {
    let hello = Hello { sequence, nonce: *random.first_chunk().unwrap() };
    Challenge { hello, beacon_id: BEACON_ID, key_id: [0; 4], sent_us: 0, cookie: random, wait_s: Some(9) }.encode()
}

/// Receipt of a sender that does not know the binding.
fn forged_receipt(random: [u8; 16], sequence: u16) -> [u8; FIXED_PACKET_BYTES] {
    let (key, prefix) = (BeaconKey([3; 32]), AddressPrefix::of(client().ip()));
    let claims = ReceiptClaims {
        sequence,
        beacon_id: BEACON_ID,
        key_id: beacon_key().key_id(),
        issued_unix_s: 1_000,
        round_trip_us: 1,
        prefix,
        binding: random,
    };
    claims.sign(&key)
}

/// Packets of a measurement, and the time of each. The n-th packet and its answer take the n-th time together; `None` loses it.
fn run(
    prober: &mut BeaconProber,
    beacon: &mut BeaconResponder,
    times_ms: &[Option<u64>],
    mut extra: impl FnMut(&mut BeaconProber, u64),
) -> Vec<(u64, [u8; FIXED_PACKET_BYTES])> {
    let mut sent: Vec<(u64, [u8; FIXED_PACKET_BYTES])> = Vec::new();
    let mut answers: Vec<(u64, [u8; FIXED_PACKET_BYTES])> = Vec::new();
    for now_us in (0..20_000 * MS).step_by(1_000) {
        prober.expire(now_us);
        let mut questions: Vec<[u8; FIXED_PACKET_BYTES]> = Vec::new();
        let due: Vec<_> = answers.extract_if(.., |(at_us, _)| *at_us == now_us).collect();
        for (_, answer) in due {
            if let Some(BeaconAnswer::SendProof(proof)) = prober.handle(&answer, endpoint(), now_us) {
                questions.push(proof);
            }
        }
        questions.extend(prober.start_conversation(now_us));
        for question in questions {
            if let Some(ms) = times_ms.get(sent.len() % times_ms.len()).copied().flatten() {
                let arrives_us = now_us + ms * MS / 2;
                if let Some(answer) = beacon.handle(&question, client(), arrives_us, 1_000) {
                    answers.push((now_us + ms.max(1) * MS, answer));
                }
            }
            sent.push((now_us, question));
        }
        extra(prober, now_us);
        if prober.finding().is_some() {
            break;
        }
    }
    sent
}

/// LAT-6: four conversations are enough where the least two agree. All receipts are the beacon's, for this user.
#[test]
fn beacon_prober_stops_when_two_round_trips_agree() {
    let mut prober = prober();
    let sent = run(&mut prober, &mut beacon(50_000), &[Some(30)], |_, _| {});
    assert_eq!((prober.finding(), sent.len(), prober.receipts().len()), (Some(BeaconFinding::Answered), 8, 4));
    for packet in prober.receipts() {
        let receipt = Receipt::decode(packet).unwrap();
        assert!(receipt.is_signed_by(&beacon_key()));
        assert_eq!((receipt.claims.binding, receipt.claims.round_trip_us), (BINDING, 30_000));
    }
    let hellos: Vec<u64> = sent.iter().filter(|(_, it)| Hello::decode(it).is_ok()).map(|(at_us, _)| *at_us).collect();
    assert!(hellos.is_sorted_by(|one, next| one + 50 * MS <= *next), "{hellos:?}");
    assert_eq!(prober.statistics().floor_ms, Some(30.0));
}

#[test]
fn beacon_prober_sends_three_packets_to_a_silent_beacon() {
    let mut prober = prober();
    let sent = run(&mut prober, &mut beacon(50_000), &[None], |_, _| {});
    let at_ms: Vec<u64> = sent.iter().map(|(at_us, _)| at_us / MS).collect();
    assert_eq!((prober.finding(), at_ms), (Some(BeaconFinding::Silent), vec![0, 1_000, 2_000]));
    assert_eq!(prober.receipts().len(), 0);
}

/// A busy beacon gets no proof, and no other packet.
#[test]
fn beacon_prober_leaves_a_busy_beacon_alone() {
    let mut prober = prober();
    let sent = run(&mut prober, &mut beacon(1), &[Some(30)], |_, _| {});
    assert_eq!((prober.finding(), sent.len()), (Some(BeaconFinding::Busy), 1));
    assert_eq!((prober.next_start_us(), prober.next_expiry_us()), (None, None));
    for (wait_s, expected_s) in [(1, 1), (65_534, 65_534), (65_535, 3_600)] {
        let mut prober = self::prober();
        let hello = Hello::decode(&prober.start_conversation(0).unwrap()).unwrap();
        let wait_s = Some(wait_s);
        let challenge =
            Challenge { hello, beacon_id: BEACON_ID, key_id: [0; 4], sent_us: 0, cookie: [0; 16], wait_s }.encode();
        assert_eq!(prober.handle(&challenge, endpoint(), 1), Some(BeaconAnswer::Busy(expected_s)));
    }
}

/// Answers from another address, to another packet, of another beacon or for another user count for nothing, and neither does the
/// same answer a second time.
#[test]
fn beacon_prober_takes_no_answer_but_its_own() {
    let (mut prober, mut beacon) = (prober(), beacon(50_000));
    let hello = prober.start_conversation(0).unwrap();
    let challenge = beacon.handle(&hello, client(), 10 * MS, 1_000).unwrap();
    let foreign = [endpoint().to_string().replace("192", "193"), endpoint().to_string().replace("3478", "3479")];
    for from in foreign {
        assert_eq!(prober.handle(&challenge, from.parse().unwrap(), 20 * MS), None);
    }
    // Bytes of the type, sequence number, nonce and beacon.
    for at in [4, 7, 15, 19] {
        let mut other = challenge;
        other[at] ^= 1;
        assert_eq!(prober.handle(&other, endpoint(), 20 * MS), None, "byte {at}");
    }
    let mapped: SocketAddr = "[::ffff:192.0.2.7]:3478".parse().unwrap();
    let Some(BeaconAnswer::SendProof(proof)) = prober.handle(&challenge, mapped, 20 * MS) else { panic!() };
    assert_eq!(prober.handle(&challenge, endpoint(), 20 * MS), None, "one proof for one challenge");
    let receipt = beacon.handle(&proof, client(), 30 * MS, 1_000).unwrap();
    // Bytes of the type, sequence number, beacon and binding.
    for at in [4, 7, 11, 47] {
        let mut other = receipt;
        other[at] ^= 1;
        assert_eq!(prober.handle(&other, endpoint(), 40 * MS), None, "byte {at}");
    }
    assert_eq!(prober.handle(&receipt, endpoint(), 40 * MS), Some(BeaconAnswer::Receipt));
    assert_eq!(prober.handle(&receipt, endpoint(), 40 * MS), None);
    assert_eq!(prober.receipts(), [receipt]);
}

proptest! {
    /// On any path, with losses and with forged packets, a measurement ends, keeps its limits, and has true receipts alone.
    #[test]
    fn beacon_prober_keeps_its_limits(
        times_ms in prop::collection::vec(prop::option::weighted(0.8, 0..1_500_u64), 1..14),
        forged in prop::collection::vec((any::<bool>(), any::<[u8; 16]>(), 0..8_u16), 0..20),
    ) {
        let (mut prober, mut beacon) = (prober(), beacon(50_000));
        let mut forged = forged.iter().cycle();
        let mut has_forgery_counted = false;
        let sent = run(&mut prober, &mut beacon, &times_ms, |prober, now_us| {
            let Some((is_challenge, random, sequence)) = forged.next() else { return };
            let packet = if *is_challenge { forged_challenge(*random, *sequence) } else { forged_receipt(*random, *sequence) };
            has_forgery_counted |= prober.handle(&packet, endpoint(), now_us).is_some();
        });
        prop_assert!(!has_forgery_counted);
        let finding = prober.finding().expect("it ends");
        let hellos = sent.iter().filter(|(_, packet)| Hello::decode(packet).is_ok()).count();
        let answered = prober.receipts().len();
        prop_assert!(hellos <= CONVERSATIONS_MAX as usize && sent.len() - hellos <= hellos);
        prop_assert_eq!(finding == BeaconFinding::Silent, answered == 0);
        if answered == 0 {
            prop_assert_eq!(hellos, 3);
        }
        for packet in prober.receipts() {
            prop_assert!(Receipt::decode(packet).unwrap().is_signed_by(&beacon_key()));
        }
    }
}
