//! Goal LAT4: time per packet of a beacon's loop against a bare loop that sends each packet back; memory and lost answers under a flood
//! from a million spoofed sources.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fireteam::beacon::BeaconUdp;
use fireteam::clock::{Clock, SystemClock};
use fireteam::domain::time::UnixMs;
use fireteam::telemetry::metric::beacon_packets::BeaconPacketCounters;
use fireteam_probe::{BeaconCookieKey, BeaconResponder, Challenge, FIXED_PACKET_BYTES, FleetKey, Hello};

use crate::harness::{Timing, clock, compare, machine, resident_bytes};

/// Senders, each in a network of its own, and packets of a batch: fewer than the receive buffer holds.
const SENDERS: u8 = 64;

/// Batches of hellos, each followed by one of proofs, in a round.
const BATCHES: u32 = 100;

/// Time that the clock moves with each packet, so that no network reaches its limit, microseconds.
const PACKET_INTERVAL_US: u64 = 1_000;

/// Spoofed sources of the flood.
const SPOOFED_SOURCES: u64 = 1_000_000;

/// Time between two packets of the flood, microseconds: 40,000 per second.
const FLOOD_INTERVAL_US: u64 = 25;

/// Each packet with such a number is followed by one of an honest client. There are 100 of them, each sends four per second.
const HONEST_INTERVAL: u64 = 100;

const HELLO: Hello = Hello { sequence: 1, nonce: [3; 8] };

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    if !wanted("LAT4") {
        return;
    }
    let mut beacon = BeaconLoop::new();
    let mut bare = BareLoop::new();
    compare(
        "LAT4",
        "answer to a hello and a proof",
        "a bare receive and send",
        || beacon.time_round(),
        || bare.time_round(),
    );
    flood();
}

/// Sockets in networks of their own, which send to `to`.
fn senders(to: SocketAddr) -> Vec<UdpSocket> {
    let sender = |network| {
        let socket = UdpSocket::bind(SocketAddr::from(([127, 1, network, 1], 0))).expect("a loopback address");
        socket.connect(to).expect("connect");
        socket
    };
    (0..SENDERS).map(sender).collect()
}

/// Sends one packet of each sender, times the answers of `answer`, and returns what the senders receive.
fn time_batch(
    senders: &[UdpSocket],
    packets: &[[u8; FIXED_PACKET_BYTES]],
    answer: &mut dyn FnMut(),
) -> (Duration, Vec<[u8; FIXED_PACKET_BYTES]>) {
    for (sender, packet) in senders.iter().zip(packets) {
        sender.send(packet).expect("sent");
    }
    let begin = clock();
    senders.iter().for_each(|_| answer());
    let time = begin.elapsed();
    let receive = |sender: &UdpSocket| {
        let mut packet = [0; FIXED_PACKET_BYTES];
        sender.recv(&mut packet).expect("an answer");
        packet
    };
    (time, senders.iter().map(receive).collect())
}

fn timing(time: Duration) -> Timing {
    let packets = f64::from(2 * BATCHES * u32::from(SENDERS));
    Timing { wall_us: time.as_secs_f64() * 1e6 / packets, cpu_us: 0.0 }
}

struct BeaconLoop {
    udp: BeaconUdp,
    senders: Vec<UdpSocket>,
}

impl BeaconLoop {
    fn new() -> Self {
        let clock = Arc::new(PacedClock { system: SystemClock::start(), ahead_us: AtomicU64::new(0) });
        let (key, any_port) = (FleetKey([1; 32]).beacon_key(7), ["127.0.0.1:0".parse().expect("an address")]);
        let counters = BeaconPacketCounters::default();
        let udp = BeaconUdp::bind(&any_port, 7, key, 1_000_000, clock, counters).expect("a free port");
        let senders = senders(udp.local_address().expect("bound"));
        Self { udp, senders }
    }

    fn time_round(&mut self) -> Timing {
        let mut answer = || assert!(self.udp.answer_next().expect("a packet"), "no answer");
        let mut time = Duration::ZERO;
        let hellos = vec![HELLO.encode(); self.senders.len()];
        for _ in 0..BATCHES {
            let (of_hellos, challenges) = time_batch(&self.senders, &hellos, &mut answer);
            let proof = |packet: &[u8; FIXED_PACKET_BYTES]| {
                Challenge::decode(packet).expect("a challenge").proof([5; 16]).encode()
            };
            let proofs: Vec<_> = challenges.iter().map(proof).collect();
            let (of_proofs, _) = time_batch(&self.senders, &proofs, &mut answer);
            time += of_hellos + of_proofs;
        }
        timing(time)
    }
}

struct BareLoop {
    socket: UdpSocket,
    senders: Vec<UdpSocket>,
}

impl BareLoop {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
        let senders = senders(socket.local_addr().expect("bound"));
        Self { socket, senders }
    }

    fn time_round(&mut self) -> Timing {
        let mut answer = || {
            let mut packet = [0; FIXED_PACKET_BYTES];
            let (length, from) = self.socket.recv_from(&mut packet).expect("a packet");
            self.socket.send_to(&packet[..length], from).expect("sent");
        };
        let packets = vec![HELLO.encode(); self.senders.len()];
        let batches = (0..2 * BATCHES).map(|_| time_batch(&self.senders, &packets, &mut answer).0);
        timing(batches.sum())
    }
}

/// The system's clock, which moves on with each packet.
struct PacedClock {
    system: SystemClock,
    ahead_us: AtomicU64,
}

impl Clock for PacedClock {
    fn now(&self) -> UnixMs {
        self.system.now()
    }

    fn monotonic_us(&self) -> u64 {
        self.system.monotonic_us() + self.ahead_us.fetch_add(PACKET_INTERVAL_US, Ordering::Relaxed)
    }

    fn random_unit_f64(&self) -> f64 {
        self.system.random_unit_f64()
    }

    fn random_bytes(&self) -> [u8; 16] {
        self.system.random_bytes()
    }
}

/// Feeds the flood to the responder, without a network, at the time that it would arrive.
fn flood() {
    let before = resident_bytes();
    let key = FleetKey([1; 32]).beacon_key(7);
    let mut responder = BeaconResponder::new(7, key, BeaconCookieKey([2; 32]), 50_000);
    let hello = HELLO.encode();
    let (mut honest, mut answered) = (0_u64, 0_u64);
    let mut ask = |address: Ipv4Addr, now_us| {
        responder.handle(&hello, SocketAddr::new(IpAddr::V4(address), 40_000), now_us, 1_700_000_000).is_some()
    };
    for number in 0..SPOOFED_SOURCES {
        let now_us = 1_000_000 + number * FLOOD_INTERVAL_US;
        // Each source once: an odd factor permutes all addresses.
        let address = Ipv4Addr::from((number as u32).wrapping_mul(2_654_435_761));
        ask(address, now_us);
        if number.is_multiple_of(HONEST_INTERVAL) {
            let client = (honest % 100) as u8;
            honest += 1;
            answered += u64::from(ask(Ipv4Addr::new(192, 0, client, 1), now_us));
        }
    }
    let grown_mib = resident_bytes().saturating_sub(before) as f64 / f64::from(1 << 20);
    let lost = (honest - answered) as f64 / honest as f64;
    for (subject, limit, ratio) in [
        (format!("memory grown by 1 M spoofed sources, {grown_mib:.2} MiB"), "8 MiB", grown_mib / 8.0),
        (format!("honest packets lost beside them, {:.3} %", lost * 100.0), "1 %", lost / 0.01),
    ] {
        println!("| LAT4 | beacon: {subject} | {limit} | {ratio:.4} | | 1 | | | | {} |", machine());
    }
}
