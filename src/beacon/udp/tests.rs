//! The loop on loopback: it signs what it measured, and is silent to all else.

use fireteam_probe::{Challenge, FleetKey, Hello, Receipt};

use super::*;
use crate::clock::{ManualClock, SystemClock};
use crate::domain::time::UnixMs;

const HELLO: Hello = Hello { sequence: 1, nonce: [3; 8] };

fn beacon(clock: Arc<dyn Clock>) -> (BeaconUdp, BeaconKey, BeaconPacketCounters) {
    let (key, counters) = (FleetKey([1; 32]).beacon_key(7), BeaconPacketCounters::default());
    let any_port = ["127.0.0.1:0".parse().unwrap()];
    let udp = BeaconUdp::bind(&any_port, 7, key.clone(), 50_000, clock, counters.clone()).unwrap();
    (udp, key, counters)
}

/// Socket in the network 127.0.`network`.0/24, which sends to the beacon.
fn sender(network: u8, beacon: &BeaconUdp) -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::from(([127, 0, network, 1], 0))).unwrap();
    socket.connect(beacon.local_address().unwrap()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut packet = [0; 2_000];
    let length = socket.recv(&mut packet).unwrap();
    packet[..length].to_vec()
}

/// SEC-8: the receipt has the time between challenge and proof, is signed with the beacon's key, and names the sender's network.
#[test]
fn beacon_loop_signs_the_round_trip_that_it_measured() {
    let (mut udp, key, counters) = beacon(Arc::new(SystemClock::start()));
    let socket = sender(0, &udp);
    socket.send(&HELLO.encode()).unwrap();
    assert!(udp.answer_next().unwrap());
    let challenge = Challenge::decode(&receive(&socket)).unwrap();
    thread::sleep(Duration::from_millis(30));
    socket.send(&challenge.proof([5; 16]).encode()).unwrap();
    assert!(udp.answer_next().unwrap());
    let receipt = Receipt::decode(&receive(&socket)).unwrap();
    assert!(receipt.is_signed_by(&key));
    assert_eq!((receipt.claims.beacon_id, receipt.claims.binding), (7, [5; 16]));
    assert!((30_000..2_000_000).contains(&receipt.claims.round_trip_us), "{receipt:?}");
    assert_eq!((counters.answered.get(), counters.dropped.get()), (2, 0));
}

/// SEC-8: bytes that are no packet get no answer, at any length.
#[test]
fn beacon_loop_is_silent_to_other_bytes() {
    let (mut udp, _, counters) = beacon(Arc::new(SystemClock::start()));
    let hello = HELLO.encode();
    let too_long = [&hello[..], &[0]].concat();
    let mut no_packets = vec![vec![], hello[..63].to_vec(), too_long, [&hello[..], &[0; 1_400]].concat()];
    no_packets.extend((0..200_u8).map(|seed| (0..64_u8).map(|at| at.wrapping_mul(37).wrapping_add(seed)).collect()));
    for (number, packet) in no_packets.iter().enumerate() {
        sender(number as u8, &udp).send(packet).unwrap();
        assert!(!udp.answer_next().unwrap(), "{packet:?}");
    }
    assert_eq!((counters.answered.get(), counters.dropped.get()), (0, no_packets.len() as u64));
}

/// The cookie key is replaced each minute, also while no packet comes.
#[test]
fn beacon_loop_replaces_its_cookie_key_each_minute() {
    let clock = Arc::new(ManualClock::new(UnixMs(5_000), 1));
    let (mut udp, ..) = beacon(clock.clone());
    assert_eq!(udp.rotate_at_us, 65_000_000);
    clock.advance_ms(59_999);
    assert!(is_no_packet(&udp.answer_next().unwrap_err()));
    assert_eq!(udp.rotate_at_us, 65_000_000);
    clock.advance_ms(1);
    assert!(is_no_packet(&udp.answer_next().unwrap_err()));
    assert_eq!(udp.rotate_at_us, 125_000_000);
}

/// The thread answers until it is dropped; the port is free then.
#[test]
fn beacon_thread_stops_when_it_is_dropped() {
    let (udp, ..) = beacon(Arc::new(SystemClock::start()));
    let (socket, address) = (sender(0, &udp), udp.local_address().unwrap());
    let thread = udp.spawn(&TaskSupervisor::default()).unwrap();
    socket.send(&HELLO.encode()).unwrap();
    assert_eq!(Challenge::decode(&receive(&socket)).unwrap().hello, HELLO);
    drop(thread);
    assert!(UdpSocket::bind(address).is_ok());
}
