//! Packets against independently computed ones, and against damage.

mod beacon_prober;
mod prober;
mod responders;
mod runs;

use std::net::SocketAddr;

use proptest::prelude::*;
use serde::Deserialize;

use crate::*;

/// Bytes in hexadecimal.
fn bytes(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2));
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap()).collect()
}

fn array<const N: usize>(hex: &str) -> [u8; N] {
    bytes(hex).try_into().unwrap()
}

#[derive(Deserialize)]
struct Vectors {
    beacon_conversations: Vec<BeaconConversation>,
    host_conversations: Vec<HostConversation>,
}

#[derive(Deserialize)]
struct BeaconConversation {
    fleet_key: String,
    beacon_id: u32,
    beacon_key: String,
    key_id: String,
    cookie_key: String,
    address: std::net::IpAddr,
    port: u16,
    subject: Option<String>,
    day: u32,
    binding: String,
    seq: u16,
    nonce: String,
    sent_us: u64,
    arrived_us: u64,
    issued_unix_s: u32,
    wait_s: u16,
    hello: String,
    challenge: String,
    proof: String,
    receipt: String,
    round_trip_us: u32,
}

#[derive(Deserialize)]
struct HostConversation {
    probe_key: String,
    cookie_key: String,
    advertisement_id: String,
    address: std::net::IpAddr,
    port: u16,
    seq: u16,
    nonce: String,
    stamp: String,
    slot: u32,
    flags: u8,
    wait: u16,
    held: u16,
    echo: String,
    echo_reply: String,
    payload: String,
    involved: String,
    verdict: u8,
    reply_payload: String,
    involved_reply: String,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../../../tests/vectors/probe_packets.json")).unwrap()
}

impl HostConversation {
    fn key(&self) -> ProbeKey {
        ProbeKey::new(&bytes(&self.probe_key)).unwrap()
    }

    fn question(&self) -> ReturnedQuestionFields {
        ReturnedQuestionFields {
            sequence: self.seq,
            nonce: array(&self.nonce),
            advertisement_id_prefix: array(&self.advertisement_id[..16]),
            stamp: array(&self.stamp),
        }
    }

    fn endpoint(&self) -> SocketAddr {
        (self.address, self.port).into()
    }
}

/// SEC-8: each packet between a player and a host is that of the independent computation, written and read.
#[test]
fn host_packets_equal_the_computed_ones() {
    for case in vectors().host_conversations {
        let (key, question) = (case.key(), case.question());
        assert_eq!(EchoRequest(question).encode(&key).to_vec(), bytes(&case.echo));
        assert_eq!(EchoRequest::decode(&bytes(&case.echo), &key), Ok(EchoRequest(question)));

        let cookie = HostCookieKey(array(&case.cookie_key)).cookie(case.endpoint(), &question, case.slot);
        let flags = HostStateFlags { full: case.flags & 1 != 0, asks_to_wait: case.flags & 2 != 0 };
        let reply = EchoReply { question, flags, wait_10ms: case.wait, held_10us: case.held, cookie };
        assert_eq!(reply.encode(&key).to_vec(), bytes(&case.echo_reply));
        assert_eq!(EchoReply::decode(&bytes(&case.echo_reply), &key), Ok(reply));

        let (payload, question) = (bytes(&case.payload), ReturnedQuestionFields { sequence: case.seq + 1, ..question });
        let involved = Involved { question, quick_reply_cookie: cookie, game_data: &payload };
        assert_eq!(involved.encode(&key).unwrap(), bytes(&case.involved));
        assert_eq!(Involved::decode(&bytes(&case.involved), &key), Ok(involved));

        let payload = bytes(&case.reply_payload);
        let verdict = [Verdict::Fits, Verdict::Incompatible, Verdict::Full][usize::from(case.verdict)];
        let (wait_10ms, held_10us) = (case.wait, case.held);
        let reply = InvolvedReply { question, wait_10ms, held_10us, verdict, game_data: &payload };
        assert_eq!(reply.encode(&key, bytes(&case.involved).len()).unwrap(), bytes(&case.involved_reply));
        assert_eq!(InvolvedReply::decode(&bytes(&case.involved_reply), &key), Ok(reply));
    }
}

/// SEC-8: the same for the packets of beacons, their keys and bindings.
#[test]
fn beacon_packets_equal_the_computed_ones() {
    for case in vectors().beacon_conversations {
        let endpoint: SocketAddr = (case.address, case.port).into();
        let fleet = FleetKey(array(&case.fleet_key));
        let key = fleet.beacon_key(case.beacon_id);
        assert_eq!((key.0.to_vec(), key.key_id()), (bytes(&case.beacon_key), array(&case.key_id)));
        let binding = fleet.receipt_binding(case.subject.as_deref().map(array).as_ref(), case.day);
        assert_eq!(binding, array(&case.binding));

        let hello = Hello { sequence: case.seq, nonce: array(&case.nonce) };
        assert_eq!(hello.encode().to_vec(), bytes(&case.hello));
        assert_eq!(Hello::decode(&bytes(&case.hello)), Ok(hello));

        let cookies = BeaconCookieKey(array(&case.cookie_key));
        let challenge = Challenge {
            hello,
            beacon_id: case.beacon_id,
            key_id: key.key_id(),
            sent_us: case.sent_us,
            cookie: cookies.cookie(endpoint, &hello, case.beacon_id, case.sent_us),
            wait_s: Some(case.wait_s).filter(|wait_s| *wait_s != 0),
        };
        assert_eq!(challenge.encode().to_vec(), bytes(&case.challenge));
        assert_eq!(Challenge::decode(&bytes(&case.challenge)), Ok(challenge));

        let proof = challenge.proof(binding);
        assert_eq!(proof.encode().to_vec(), bytes(&case.proof));
        assert_eq!(ChallengeProof::decode(&bytes(&case.proof)), Ok(proof));
        assert!(cookies.has_made_cookie_of(&proof, endpoint));
        assert_eq!(proof.round_trip_us(case.arrived_us), Some(case.round_trip_us));

        let claims = ReceiptClaims {
            sequence: case.seq,
            beacon_id: case.beacon_id,
            key_id: key.key_id(),
            issued_unix_s: case.issued_unix_s,
            round_trip_us: case.round_trip_us,
            prefix: AddressPrefix::of(case.address),
            binding,
        };
        assert_eq!(claims.sign(&key).to_vec(), bytes(&case.receipt));
        let receipt = Receipt::decode(&bytes(&case.receipt)).unwrap();
        assert_eq!(receipt.claims, claims);
        assert!(receipt.is_signed_by(&key) && !receipt.is_signed_by(&fleet.beacon_key(case.beacon_id + 1)));
    }
}

/// SEC-8: each flipped bit, each cut and each added byte makes a packet that is refused. Only the fields of beacons that the client cannot
/// verify may change: then the cookie or the signature is wrong.
#[test]
fn damaged_packets_are_refused() {
    for case in vectors().host_conversations {
        let key = case.key();
        let other_key = ProbeKey::new(&[1; 16]).unwrap();
        let accepts = |packet: &[u8], key: &ProbeKey| {
            EchoRequest::decode(packet, key).is_ok()
                || EchoReply::decode(packet, key).is_ok()
                || Involved::decode(packet, key).is_ok()
                || InvolvedReply::decode(packet, key).is_ok()
        };
        for packet in [&case.echo, &case.echo_reply, &case.involved, &case.involved_reply].map(|it| bytes(it)) {
            assert!(accepts(&packet, &key) && !accepts(&packet, &other_key));
            damage(&packet, |damaged| assert!(!accepts(damaged, &key), "{damaged:02x?}"));
        }
    }
    for case in vectors().beacon_conversations {
        let endpoint: SocketAddr = (case.address, case.port).into();
        let (cookies, key) = (BeaconCookieKey(array(&case.cookie_key)), BeaconKey(array(&case.beacon_key)));
        damage(&bytes(&case.hello), |damaged| {
            assert!(
                Hello::decode(damaged)
                    .is_ok_and(|hello| damaged.len() == FIXED_PACKET_BYTES && hello.encode() == damaged)
                    || Hello::decode(damaged).is_err()
            );
        });
        let good = ChallengeProof::decode(&bytes(&case.proof)).unwrap();
        damage(&bytes(&case.proof), |damaged| {
            let read = ChallengeProof::decode(damaged);
            // The binding is not under the cookie: the server refuses the receipt.
            let is_harmless =
                |proof: &ChallengeProof| !cookies.has_made_cookie_of(proof, endpoint) || proof.binding != good.binding;
            assert!(read.is_err() || read.as_ref().is_ok_and(is_harmless), "{read:?}");
        });
        damage(&bytes(&case.receipt), |damaged| {
            assert!(!Receipt::decode(damaged).is_ok_and(|receipt| receipt.is_signed_by(&key)), "{damaged:02x?}");
        });
    }
}

/// Gives `check` the packet with each bit flipped, one byte less and one more.
fn damage(packet: &[u8], mut check: impl FnMut(&[u8])) {
    for bit in 0..packet.len() * 8 {
        let mut damaged = packet.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        check(&damaged);
    }
    check(&packet[..packet.len() - 1]);
    check(&[packet, &[0]].concat());
}

/// SEC-8: a host's cookie is good for the address, port, nonce and advertisement that received it, in its slot and the next.
#[test]
fn host_cookie_is_good_for_its_receiver_only() {
    let key = HostCookieKey([7; 32]);
    let question =
        ReturnedQuestionFields { sequence: 1, nonce: [2; 8], advertisement_id_prefix: [3; 8], stamp: [4; 8] };
    let from: SocketAddr = "198.51.100.20:40000".parse().unwrap();
    let cookie = key.cookie(from, &question, 1_000);
    let later = ReturnedQuestionFields { sequence: 9, stamp: [0; 8], ..question };
    assert!(key.is_good(&cookie, from, &later, 1_000) && key.is_good(&cookie, from, &later, 1_001));
    assert!(!key.is_good(&cookie, from, &question, 1_002) && !key.is_good(&cookie, from, &question, 999));
    for other in ["198.51.100.21:40000", "198.51.100.20:40001", "[2001:db8::1]:40000"] {
        assert!(!key.is_good(&cookie, other.parse().unwrap(), &question, 1_000), "{other}");
    }
    let mapped: SocketAddr = "[::ffff:198.51.100.20]:40000".parse().unwrap();
    assert!(key.is_good(&cookie, mapped, &question, 1_000), "the same address on a socket of both families");
    for other in [
        ReturnedQuestionFields { nonce: [0; 8], ..question },
        ReturnedQuestionFields { advertisement_id_prefix: [0; 8], ..question },
    ] {
        assert!(!key.is_good(&cookie, from, &other, 1_000), "{other:?}");
    }
}

/// A round trip that the beacon did not measure, or that is too long, has no receipt.
#[test]
fn beacon_measures_one_microsecond_to_two_seconds() {
    let proof = Challenge::decode(&bytes(&vectors().beacon_conversations[0].challenge)).unwrap().proof([0; 16]);
    let trip = |after_us: u64| proof.round_trip_us(proof.challenge_sent_us + after_us);
    assert_eq!([trip(0), trip(1), trip(2_000_000), trip(2_000_001)], [None, Some(1), Some(2_000_000), None]);
    assert_eq!(
        (proof.round_trip_us(proof.challenge_sent_us - 1), trip(u64::MAX - proof.challenge_sent_us)),
        (None, None)
    );
}

/// SEC-8: an answer with data is never longer than its question, nor longer than a packet.
#[test]
fn involved_answer_is_never_longer_than_its_question() {
    let key = ProbeKey::new(&[1; 16]).unwrap();
    let question =
        ReturnedQuestionFields { sequence: 1, nonce: [2; 8], advertisement_id_prefix: [3; 8], stamp: [4; 8] };
    let data = [5; 2_000];
    for asked in [0, 1, 100, GAME_DATA_BYTES_MAX] {
        let packet =
            Involved { question, quick_reply_cookie: [6; 16], game_data: &data[..asked] }.encode(&key).unwrap();
        assert!(packet.len() <= INVOLVED_BYTES_MAX);
        for answered in 0..1_300 {
            let game_data = &data[..answered];
            let reply = InvolvedReply { question, wait_10ms: 0, held_10us: 0, verdict: Verdict::Fits, game_data };
            let reply = reply.encode(&key, packet.len());
            assert!(reply.as_ref().is_none_or(|reply| reply.len() <= packet.len()));
            assert_eq!(reply.is_some(), answered <= asked + 18, "{answered} bytes for {asked}");
        }
    }
    let too_long = Involved { question, quick_reply_cookie: [6; 16], game_data: &data[..=GAME_DATA_BYTES_MAX] };
    assert_eq!(too_long.encode(&key), None);
}

/// SEC-9: keys are not printed.
#[test]
fn debug_output_has_no_key() {
    let printed = format!(
        "{:?} {:?} {:?} {:?} {:?}",
        ProbeKey::new(&[77; 16]),
        HostCookieKey([77; 32]),
        FleetKey([77; 32]),
        BeaconKey([77; 32]),
        BeaconCookieKey([77; 32])
    );
    assert!(!printed.contains("77") && !printed.contains("4d"), "{printed}");
    assert_eq!([15, 16, 32, 33].map(|length| ProbeKey::new(&vec![1; length]).is_some()), [false, true, true, false]);
}

proptest! {
    /// SEC-8: no bytes from the network panic, and none without the key are accepted.
    #[test]
    fn random_packets_are_refused(
        mut packet in proptest::collection::vec(any::<u8>(), 0..1_300),
        packet_type in prop_oneof![1_u8..5, 0x11_u8..0x15],
        is_fixed in any::<bool>(),
    ) {
        if is_fixed {
            packet.resize(FIXED_PACKET_BYTES, 0);
        }
        if 5 <= packet.len() {
            packet[..4].copy_from_slice(b"FTL\x01");
            packet[4] = packet_type;
        }
        let key = ProbeKey::new(&[9; 32]).unwrap();
        prop_assert!(EchoRequest::decode(&packet, &key).is_err());
        prop_assert!(EchoReply::decode(&packet, &key).is_err());
        prop_assert!(Involved::decode(&packet, &key).is_err());
        prop_assert!(InvolvedReply::decode(&packet, &key).is_err());
        prop_assert!(!Receipt::decode(&packet).is_ok_and(|receipt| receipt.is_signed_by(&BeaconKey([9; 32]))));
        // These have no key: what is read is what was written.
        if let Ok(hello) = Hello::decode(&packet) {
            prop_assert_eq!(hello.encode().to_vec(), packet.clone());
        }
        if let Ok(challenge) = Challenge::decode(&packet) {
            prop_assert_eq!(challenge.encode().to_vec(), packet.clone());
        }
        if let Ok(proof) = ChallengeProof::decode(&packet) {
            prop_assert_eq!(proof.encode().to_vec(), packet);
        }
    }
}
