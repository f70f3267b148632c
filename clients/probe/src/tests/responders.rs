//! Hosts and beacons: whom they answer, and how often.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::*;

const SECOND_US: u64 = 1_000_000;

fn endpoint(number: u32) -> SocketAddr {
    (IpAddr::from(Ipv4Addr::from(0x0a00_0000 + number)), 40_000).into()
}

fn at(now_us: u64) -> ArrivalAndAnswerTime {
    ArrivalAndAnswerTime { arrived_us: now_us, now_us }
}

fn host() -> (HostResponder, ProbeKey) {
    let key = ProbeKey::new(&[1; 16]).unwrap();
    let mut host = HostResponder::new(HostCookieKey([2; 32]));
    host.set_advertisement([3; 16], key.clone());
    (host, key)
}

fn question(sequence: u16) -> ReturnedQuestionFields {
    ReturnedQuestionFields { sequence, nonce: [4; 8], advertisement_id_prefix: [3; 8], stamp: [5; 8] }
}

fn no_judge(_: &[u8], _: &mut Vec<u8>) -> Verdict {
    panic!("the game is not asked")
}

/// SEC-8: a host answers who knows the key of its advertisement, while it advertises. To all others it is silent.
#[test]
fn host_answers_only_who_knows_its_key() {
    let (mut host, key) = host();
    let other_key = ProbeKey::new(&[9; 16]).unwrap();
    let (good, foreign) = (EchoRequest(question(1)).encode(&key), EchoRequest(question(1)).encode(&other_key));
    let elsewhere = EchoRequest(ReturnedQuestionFields { advertisement_id_prefix: [8; 8], ..question(1) }).encode(&key);
    let answer = |host: &mut HostResponder, packet: &[u8]| host.handle(packet, endpoint(1), at(SECOND_US), no_judge);
    assert_eq!(answer(&mut host, &foreign), None);
    assert_eq!(answer(&mut host, &elsewhere), None);
    assert_eq!(answer(&mut host, b"a packet of the game"), None);
    let reply = EchoReply::decode(&answer(&mut host, &good).unwrap(), &key).unwrap();
    assert_eq!((reply.question, reply.flags, reply.held_10us), (question(1), HostStateFlags::default(), 0));
    host.set_full(true);
    let reply = EchoReply::decode(&answer(&mut host, &good).unwrap(), &key).unwrap();
    assert!(reply.flags.full);
    host.clear_advertisement();
    assert_eq!(answer(&mut host, &good), None);
}

/// An involved probe reaches the game with the cookie of a quick one, from the same address and within a minute.
#[test]
fn host_asks_its_game_only_with_a_good_cookie() {
    let (mut host, key) = host();
    let echo = EchoRequest(question(1)).encode(&key);
    let reply = host.handle(
        &echo,
        endpoint(1),
        ArrivalAndAnswerTime { arrived_us: SECOND_US, now_us: SECOND_US + 120 },
        no_judge,
    );
    let reply = EchoReply::decode(&reply.unwrap(), &key).unwrap();
    assert_eq!(reply.held_10us, 12);
    let involved = |cookie| {
        Involved { question: question(2), quick_reply_cookie: cookie, game_data: b"build 7" }.encode(&key).unwrap()
    };
    let good = involved(reply.cookie);
    assert_eq!(host.handle(&involved([0; 16]), endpoint(1), at(SECOND_US), no_judge), None);
    assert_eq!(host.handle(&good, endpoint(2), at(SECOND_US), no_judge), None);
    let answer = host.handle(&good, endpoint(1), at(2 * SECOND_US), |data, answer| {
        assert_eq!(data, b"build 7");
        answer.extend([6; 500]);
        Verdict::Incompatible
    });
    let answer = answer.unwrap();
    assert_eq!(answer.len(), good.len(), "never longer than the question");
    let answer = InvolvedReply::decode(&answer, &key).unwrap();
    assert_eq!((answer.question, answer.verdict), (question(2), Verdict::Incompatible));
    assert_eq!(host.handle(&good, endpoint(1), at(95 * SECOND_US), no_judge), None, "the cookie is too old");
}

/// SEC-8: 20 answers a second for a network and 200 in all; the game judges 20. A busy host asks clients to wait.
#[test]
fn host_answers_within_its_limits() {
    let (mut host, key) = host();
    let echo = EchoRequest(question(1)).encode(&key);
    let answers = |host: &mut HostResponder, from: &dyn Fn(u32) -> u32, now_us| {
        let mut replies = Vec::new();
        for number in 0..1_000 {
            replies.extend(host.handle(&echo, endpoint(from(number)), at(now_us), no_judge));
        }
        replies.iter().map(|reply| EchoReply::decode(reply, &key).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(answers(&mut host, &|number| number % 256, SECOND_US).len(), 20, "one network");
    let many = answers(&mut host, &|number| number * 256, 3 * SECOND_US);
    assert_eq!(many.len(), 200, "a thousand networks");
    assert_eq!(many.iter().filter(|reply| reply.flags.asks_to_wait && reply.wait_10ms == 25).count(), 40);

    let mut judged = 0;
    for number in 0..100 {
        let from = endpoint(number * 256);
        let reply = host.handle(&echo, from, at(6 * SECOND_US), no_judge).unwrap();
        let cookie = EchoReply::decode(&reply, &key).unwrap().cookie;
        let packet =
            Involved { question: question(2), quick_reply_cookie: cookie, game_data: &[] }.encode(&key).unwrap();
        let mut judge = |_: &[u8], _: &mut Vec<u8>| {
            judged += 1;
            Verdict::Fits
        };
        host.handle(&packet, from, at(6 * SECOND_US), &mut judge);
    }
    assert_eq!(judged, 20);
}

fn beacon(packets_per_s: u32) -> (BeaconResponder, BeaconKey) {
    let key = FleetKey([1; 32]).beacon_key(7);
    (BeaconResponder::new(7, key.clone(), BeaconCookieKey([2; 32]), packets_per_s), key)
}

const HELLO: Hello = Hello { sequence: 1, nonce: [3; 8] };

/// SEC-8: a beacon signs the round trip that it measured, for the address that received its challenge. A proof from elsewhere, of another
/// time, of another beacon, or under a cookie key that was replaced twice has no answer.
#[test]
fn beacon_signs_only_what_it_measured() {
    let (mut beacon, key) = beacon(50_000);
    let challenge = beacon.handle(&HELLO.encode(), endpoint(1), SECOND_US, 100).unwrap();
    let proof = Challenge::decode(&challenge).unwrap().proof([9; 16]);
    let receipt = |beacon: &mut BeaconResponder, proof: &ChallengeProof, from, after_us| {
        let packet = beacon.handle(&proof.encode(), endpoint(from), SECOND_US + after_us, 101)?;
        let receipt = Receipt::decode(&packet).unwrap();
        receipt.is_signed_by(&key).then_some(receipt.claims)
    };
    let claims = receipt(&mut beacon, &proof, 1, 30_000).unwrap();
    assert_eq!((claims.round_trip_us, claims.issued_unix_s, claims.binding), (30_000, 101, [9; 16]));
    assert_eq!(claims.prefix, AddressPrefix::of(endpoint(1).ip()));
    assert!(receipt(&mut beacon, &proof, 1, 40_000).is_some(), "later is farther");
    assert_eq!(receipt(&mut beacon, &proof, 2, 30_000), None, "another address");
    let sooner = ChallengeProof { challenge_sent_us: proof.challenge_sent_us + 20_000, ..proof };
    assert_eq!(receipt(&mut beacon, &sooner, 1, 30_000), None, "another time");
    assert_eq!(receipt(&mut beacon, &ChallengeProof { beacon_id: 8, ..proof }, 1, 30_000), None, "another beacon");
    beacon.rotate_cookie_key(BeaconCookieKey([4; 32]));
    assert!(receipt(&mut beacon, &proof, 1, 50_000).is_some());
    beacon.rotate_cookie_key(BeaconCookieKey([5; 32]));
    assert_eq!(receipt(&mut beacon, &proof, 1, 60_000), None);

    let challenge = beacon.handle(&HELLO.encode(), endpoint(1), 5 * SECOND_US, 100).unwrap();
    let proof = Challenge::decode(&challenge).unwrap().proof([9; 16]);
    assert_eq!(receipt(&mut beacon, &proof, 1, 6_000_001), None, "more than two seconds");
}

/// LAT-4, SEC-8: a flood from one network costs no other network its answers, and a flood from all is answered at the limit. From 80 % on clients
/// are asked to wait.
#[test]
fn beacon_answers_within_its_limits() {
    let (mut beacon, _) = beacon(1_000);
    let hello = HELLO.encode();
    let mut answers = |from: &dyn Fn(u32) -> u32, count: u32, now_us| {
        let replies = (0..count).filter_map(|number| beacon.handle(&hello, endpoint(from(number)), now_us, 1));
        replies.map(|reply| Challenge::decode(&reply).unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(answers(&|number| number % 256, 10_000, SECOND_US).len(), 40);
    assert_eq!(answers(&|number| 0x10_0000 + number, 10, SECOND_US).len(), 10, "another network");
    let flooded = answers(&|number| number * 256, 5_000, 10 * SECOND_US);
    assert_eq!(flooded.len(), 1_000);
    assert_eq!(flooded.iter().filter(|challenge| challenge.wait_s == Some(30)).count(), 200);
}
