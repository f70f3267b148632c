//! Beacons with real packets on loopback: in a server, and as a process of their own.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use fireteam::beacon::BeaconUdp;
use fireteam::clock::{Clock, SystemClock};
use fireteam::config::{BeaconPlace, Config, OwnBeacon};
use fireteam::telemetry::metric::beacon_packets::BeaconPacketCounters;
use fireteam_probe::{BeaconCookieKey, BeaconResponder, Challenge, FIXED_PACKET_BYTES, FleetKey, Hello, Receipt};
use tonic::transport::{Channel, Endpoint};

use crate::support::generated_client::latency_service_client::LatencyServiceClient;
use crate::support::generated_client::{
    Beacon, GetBeaconsRequest, GetBeaconsResponse, ReceiptVerdict, ReportTripsRequest, ReportTripsResponse,
};
use crate::support::queue_server::wait_until;
use crate::support::server_process::{ServerProcess, StderrLog, TEST_TIMEOUT, fireteam_command};
use crate::support::test_server::TestServer;

const BEACON_ID: u32 = 7;

async fn latency_client(server: SocketAddr) -> LatencyServiceClient<Channel> {
    let endpoint = Endpoint::from_shared(format!("http://{server}")).unwrap();
    LatencyServiceClient::new(endpoint.connect().await.expect("connect"))
}

/// Beacons of the server, as soon as it lists one.
async fn wait_for_beacons(client: &LatencyServiceClient<Channel>) -> GetBeaconsResponse {
    let mut listed = GetBeaconsResponse::default();
    wait_until("a beacon is listed", async || {
        listed = client.clone().get_beacons(GetBeaconsRequest {}).await.expect("beacons").into_inner();
        !listed.beacons.is_empty()
    })
    .await;
    listed
}

/// Receipts of three conversations with a beacon.
fn measure(beacon: &Beacon, binding: &[u8]) -> Vec<Vec<u8>> {
    let [a, b, c, d] = *beacon.address else { panic!("{beacon:?}") };
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(SocketAddr::from(([a, b, c, d], beacon.port as u16))).unwrap();
    socket.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let ask = |packet: [u8; FIXED_PACKET_BYTES]| {
        socket.send(&packet).unwrap();
        let mut answer = [0; 2_000];
        let length = socket.recv(&mut answer).expect("an answer");
        answer[..length].to_vec()
    };
    let receipts = (1..=3).map(|sequence| {
        let challenge = Challenge::decode(&ask(Hello { sequence, nonce: [9; 8] }.encode())).expect("a challenge");
        ask(challenge.proof(binding.try_into().unwrap()).encode())
    });
    receipts.collect()
}

async fn report(client: &LatencyServiceClient<Channel>, receipts: Vec<Vec<u8>>) -> ReportTripsResponse {
    let request = ReportTripsRequest { receipts, claims: Vec::new() };
    client.clone().report_trips(request).await.expect("reported").into_inner()
}

fn own_beacon(config: &mut Config, folder: &Path) {
    config.beacon_fleet_key_file = Some(folder.join("fleet-key"));
    config.beacon = Some(OwnBeacon {
        listen: "127.0.0.1:0".parse().unwrap(),
        id: BEACON_ID,
        region: "eu".into(),
        place: BeaconPlace { latitude: 50.1, longitude: 8.7 },
        announce_address: [127, 0, 0, 1].into(),
        packets_per_second: 50_000,
    });
}

/// SEC-8: a client measures the beacon of a server by packets, and its receipts are proven; an altered one is not. After a restart the
/// beacon announces itself again, and older receipts still count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beacon_of_a_server_proves_round_trips_also_after_a_restart() {
    let keys = tempfile::tempdir().unwrap();
    let server = TestServer::start_with_config(|config| own_beacon(config, keys.path())).await;
    let client = latency_client(server.app.server.address).await;
    let listed = wait_for_beacons(&client).await;
    let beacon = &listed.beacons[0];
    assert_eq!((beacon.id, &*beacon.region, beacon.latitude, beacon.longitude), (BEACON_ID, "eu", 50.1, 8.7));

    let mut receipts = measure(beacon, &listed.binding);
    let mut altered = receipts[0].clone();
    altered[23] ^= 1;
    receipts.push(altered);
    let answer = report(&client, receipts.clone()).await;
    let [proven, bad_mac] = [ReceiptVerdict::Proven, ReceiptVerdict::BadMac].map(i32::from);
    assert_eq!(answer.verdicts, [proven, proven, proven, bad_mac]);
    assert!(!answer.latency_token.is_empty());
    let [region] = &*answer.regions else { panic!("{answer:?}") };
    assert!(region.region == "eu" && !region.claimed && (0.0..2_000.0).contains(&region.round_trip_ms), "{region:?}");
    let least_us = receipts[..3].iter().map(|packet| Receipt::decode(packet).unwrap().claims.round_trip_us).min();
    let difference_ms = region.round_trip_ms - least_us.unwrap() as f32 / 1_000.0;
    assert!((0.0..=0.2).contains(&difference_ms), "the least receipt counts, rounded up: {difference_ms}");
    let metrics = server.app.metrics.render();
    assert!(metrics.contains("fireteam_beacon_packets_total{outcome=\"answered\"} 6\n"), "{metrics}");

    let server = server.restart().await;
    let client = latency_client(server.app.server.address).await;
    let listed = wait_for_beacons(&client).await;
    assert_eq!(listed.beacons[0].id, BEACON_ID);
    let fresh = measure(&listed.beacons[0], &listed.binding);
    let answer = report(&client, [&receipts[..3], &fresh].concat()).await;
    assert_eq!(answer.verdicts, [proven; 6]);
    server.shut_down().await;
}

/// Packets that a beacon answers in a flood.
struct Flood {
    bytes_in: usize,
    bytes_out: usize,
    answered: u64,
    seconds: f64,
    /// Allocations of the loop while it handled the packets.
    allocations: u64,
}

/// Sends `rounds` packets of each of `networks` networks to a beacon with this limit.
fn flood(networks: u8, rounds: u16, packets_per_second: u32, packet: impl Fn(u16) -> Vec<u8>) -> Flood {
    let (clock, counters) = (Arc::new(SystemClock::start()), BeaconPacketCounters::default());
    let (key, any_port) = (FleetKey([1; 32]).beacon_key(BEACON_ID), ["127.0.0.1:0".parse().unwrap()]);
    let mut udp =
        BeaconUdp::bind(&any_port, BEACON_ID, key, packets_per_second, clock.clone(), counters.clone()).unwrap();
    let senders: Vec<UdpSocket> = (0..networks)
        .map(|network| {
            let socket = UdpSocket::bind(SocketAddr::from(([127, 1, network, 1], 0))).unwrap();
            socket.connect(udp.local_address().unwrap()).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        })
        .collect();
    let started_us = clock.monotonic_us();
    let mut flood = Flood { bytes_in: 0, bytes_out: 0, answered: 0, seconds: 0.0, allocations: 0 };
    let mut answer = [0; 2_000];
    for round in 0..rounds {
        for sender in &senders {
            let packet = packet(round);
            sender.send(&packet).unwrap();
            flood.bytes_in += packet.len();
            let counted = allocation_counter::measure(|| _ = udp.answer_next().unwrap());
            flood.allocations += counted.count_total;
            while let Ok(length) = sender.recv(&mut answer) {
                flood.bytes_out += length;
                assert!(length <= packet.len());
            }
        }
    }
    flood.seconds = (clock.monotonic_us() - started_us) as f64 / 1e6;
    flood.answered = counters.answered.get();
    let received = u64::from(networks) * u64::from(rounds);
    assert_eq!(flood.answered + counters.dropped.get(), received);
    assert_eq!(flood.bytes_out as u64, flood.answered * FIXED_PACKET_BYTES as u64);
    flood
}

/// LAT-4, SEC-8: a flood of questions from many networks is answered within the limit of each network and of all. The beacon sends no more bytes
/// than it receives, and keeps nothing of a packet.
#[test]
fn beacon_answers_a_flood_within_its_limits_and_keeps_nothing() {
    let hello = |sequence| Hello { sequence, nonce: [3; 8] }.encode().to_vec();
    let per_network = flood(100, 100, 50_000, hello);
    let most = 100.0 * (40.0 + 20.0 * per_network.seconds);
    assert!((4_000.0..=most).contains(&(per_network.answered as f64)), "{}", per_network.answered);
    let in_all = flood(200, 20, 100, hello);
    let most = 100.0 + 100.0 * in_all.seconds + 1.0;
    assert!((100.0..=most).contains(&(in_all.answered as f64)), "{}", in_all.answered);
    for flood in [per_network, in_all] {
        assert!(flood.bytes_out < flood.bytes_in);
        assert_eq!(flood.allocations, 0);
    }
}

/// LAT-4, SEC-8: a million spoofed sources at 40,000 packets per second, each in use once, cost honest clients at most one answer of a hundred. The
/// beacon allocates nothing for them, so its memory does not grow.
#[test]
fn a_million_spoofed_sources_cost_no_memory_and_hardly_an_answer() {
    const SPOOFED: u32 = 1_000_000;
    let key = FleetKey([1; 32]).beacon_key(BEACON_ID);
    let mut responder = BeaconResponder::new(BEACON_ID, key, BeaconCookieKey([2; 32]), 50_000);
    let hello = Hello { sequence: 1, nonce: [3; 8] }.encode();
    let mut ask = |address: Ipv4Addr, now_us: u64| {
        responder.handle(&hello, SocketAddr::from((address, 40_000)), now_us, 1_700_000_000).is_some()
    };
    let (mut honest, mut honest_answered) = (0_u32, 0_u32);
    let counted = allocation_counter::measure(|| {
        for number in 0..SPOOFED {
            let now_us = 1_000_000 + 25 * u64::from(number);
            // Each source once: an odd factor permutes all addresses.
            ask(Ipv4Addr::from(number.wrapping_mul(2_654_435_761)), now_us);
            // A hundred honest clients, each with four packets per second.
            if number.is_multiple_of(100) {
                honest_answered += u32::from(ask(Ipv4Addr::new(192, 0, (honest % 100) as u8, 1), now_us));
                honest += 1;
            }
        }
    });
    assert_eq!((honest, counted.count_total), (SPOOFED / 100, 0));
    assert!(honest - honest_answered <= honest / 100, "{honest_answered} of {honest}");
}

/// SEC-3: random bytes get no answer, at any length, and leave nothing in memory.
#[test]
fn beacon_drops_random_bytes_and_keeps_nothing() {
    let clock = SystemClock::start();
    let random = |round: u16| {
        let bytes: Vec<u8> = (0..8).flat_map(|_| clock.random_bytes()).collect();
        let length = if round.is_multiple_of(2) { FIXED_PACKET_BYTES } else { usize::from(round) % 129 };
        let mut packet = bytes[..length].to_vec();
        // Every fourth begins as a packet of this protocol.
        if round.is_multiple_of(4) {
            packet[..5].copy_from_slice(&[0x46, 0x54, 0x4c, 1, 0x13]);
        }
        packet
    };
    let flood = flood(100, 40, 50_000, random);
    assert_eq!((flood.answered, flood.bytes_out, flood.allocations), (0, 0, 0));
}

/// A running `fireteam beacon`. Killed on drop.
struct BeaconProcess {
    child: Child,
    log: Arc<StderrLog>,
}

impl BeaconProcess {
    fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut command = fireteam_command(folder, &["beacon"]);
        let child = command.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the binary starts");
        let log = StderrLog::capture(child.stderr.take().expect("piped"));
        Self { child, log }
    }

    /// Sends SIGTERM and returns the exit code.
    fn stop(mut self) -> Option<i32> {
        let signal = format!("kill -TERM {}", self.child.id());
        assert!(std::process::Command::new("sh").args(["-c", &signal]).status().unwrap().success());
        self.child.wait().unwrap().code()
    }
}

impl Drop for BeaconProcess {
    fn drop(&mut self) {
        // The process may have exited already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A beacon process with a key of `beacon-key` proves round trips. While the server is away it warns once, and it announces itself again
/// when another server listens there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beacon_process_proves_round_trips_and_outlives_its_server() {
    let folder = tempfile::tempdir().unwrap();
    let server = ServerProcess::start(folder.path(), &["--beacon-fleet-key-file", "fleet-key"]);
    let address = server.address;
    let make_key = ["beacon-key", "--id", "7", "--fleet-key-file", "fleet-key", "--out", "beacon-7.key"];
    let made = fireteam_command(folder.path(), &make_key).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let url = format!("http://{address}");
    let listen = ["--listen", "127.0.0.1:0", "--announce-address", "127.0.0.1", "--server", &url];
    let site = ["--id", "7", "--region", "eu", "--place", "-33.9/151.2", "--key-file", "beacon-7.key"];
    let beacon = BeaconProcess::start(folder.path(), &[&listen[..], &site[..]].concat());
    assert_eq!(beacon.log.wait_for_lines("beacon announced", 1).len(), 1, "{}", beacon.log.text());

    let client = latency_client(address).await;
    let listed = wait_for_beacons(&client).await;
    assert_eq!((listed.beacons[0].id, listed.beacons[0].latitude), (7, -33.9));
    let receipts = measure(&listed.beacons[0], &listed.binding);
    let proven = i32::from(ReceiptVerdict::Proven);
    assert_eq!(report(&client, receipts).await.verdicts, [proven; 3]);

    server.kill();
    let failed = "announcement of the beacon failed";
    assert_eq!(beacon.log.wait_for_lines(failed, 1).len(), 1, "{}", beacon.log.text());
    // Two more attempts.
    tokio::time::sleep(Duration::from_secs(5)).await;
    let again = [
        "--listen",
        &address.to_string(),
        "--operator-listen",
        "127.0.0.1:0",
        "--store",
        "memory:",
        "--beacon-fleet-key-file",
        "fleet-key",
    ];
    let server = ServerProcess::start_without_ports(folder.path(), &again);
    assert_eq!(beacon.log.wait_for_lines("beacon announced", 2).len(), 2, "{}", beacon.log.text());
    assert_eq!(beacon.log.wait_for_lines(failed, 1).len(), 1, "{}", beacon.log.text());
    let client = latency_client(address).await;
    assert_eq!(wait_for_beacons(&client).await.beacons[0].id, 7);
    let log = beacon.log.clone();
    assert_eq!(beacon.stop(), Some(0), "{}", log.text());
    server.kill();
}

/// A missing or foreign key, a place that is none, and a port in use end a beacon with a message that names the flag.
#[test]
fn beacon_process_refuses_invalid_flags() {
    let folder = tempfile::tempdir().unwrap();
    let taken_socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = taken_socket.local_addr().unwrap().to_string();
    fireteam::auth::key_file::create_secret_file(&folder.path().join("good.key"), [7; 32]).unwrap();
    let run = |listen: &str, place: &str, key: &str, server: &str| {
        let arguments = [
            "beacon",
            "--id",
            "7",
            "--announce-address",
            "127.0.0.1",
            "--listen",
            listen,
            "--place",
            place,
            "--key-file",
            key,
            "--server",
            server,
        ];
        let output = fireteam_command(folder.path(), &arguments).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (any, place, url) = ("127.0.0.1:0", "50.1/8.7", "http://127.0.0.1:1");
    for (arguments, code, expected) in [
        ([any, "91/0", "good.key", url], 2, "write LATITUDE/LONGITUDE"),
        ([any, place, "missing.key", url], 1, "missing.key"),
        ([&taken, place, "good.key", url], 1, "of --listen"),
        ([any, place, "good.key", "no url"], 1, "--server no url is not a URL"),
    ] {
        let [listen, place, key, server] = arguments;
        let (exit_code, stderr) = run(listen, place, key, server);
        assert_eq!(exit_code, Some(code), "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    }
}
