//! Checks of the delay line itself: its delay, its losses, and that they follow from the seed.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::report::{TestReport, until};
use crate::support::delay_line::{DelayLine, Direction, Path};
use crate::support::server_process::TEST_TIMEOUT;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Packets of a run with losses.
const PACKETS: usize = 200;

/// Host that sends each packet back, until it is dropped.
struct EchoHost {
    address: SocketAddr,
    received: Arc<AtomicUsize>,
    _task: JoinSet<()>,
}

impl EchoHost {
    async fn start() -> Self {
        let socket = UdpSocket::bind((LOOPBACK, 0)).await.expect("a free port");
        let address = socket.local_addr().expect("an address");
        let received = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&received);
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut packet = [0; 64];
            while let Ok((length, from)) = socket.recv_from(&mut packet).await {
                counter.fetch_add(1, Ordering::SeqCst);
                let _ = socket.send_to(&packet[..length], from).await;
            }
        });
        Self { address, received, _task: task }
    }
}

/// Sends `PACKETS` packets through a line and waits until all that are not lost have passed. Returns which were lost on the way to the
/// host.
async fn lost_packets(path: Path, seed: u64) -> Vec<bool> {
    let host = EchoHost::start().await;
    let line = DelayLine::start(LOOPBACK, host.address, path, seed).await;
    let client = UdpSocket::bind((LOOPBACK, 0)).await.expect("a free port");
    let lost = |direction| -> Vec<bool> {
        line.packets().iter().filter(|packet| packet.direction == direction).map(|packet| packet.is_lost).collect()
    };
    for number in 0..PACKETS {
        client.send_to(&[number as u8; 64], line.address()).await.expect("sent");
        // One after another, so that no socket drops a packet.
        until("the packet is at the line", async || number < lost(Direction::ToHost).len()).await;
    }
    let to_host = lost(Direction::ToHost);
    let passed = to_host.iter().filter(|is_lost| !**is_lost).count();
    until("the host has received what was not lost", async || host.received.load(Ordering::SeqCst) == passed).await;
    until("the host's answers are at the line", async || lost(Direction::ToClient).len() == passed).await;
    let mut packet = [0; 64];
    for _ in lost(Direction::ToClient).iter().filter(|is_lost| !**is_lost) {
        timeout(TEST_TIMEOUT, client.recv_from(&mut packet)).await.expect("an answer in time").expect("an answer");
    }
    to_host
}

/// The delay line adds no less than its delay, loses its share of packets, and repeats the same
/// losses with the same seed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delay_line_delays_and_loses_by_its_seed() {
    let mut report = TestReport::start("delay line").await;
    let round_trip = Duration::from_millis(20);
    let host = EchoHost::start().await;
    let path = Path::of_round_trip(round_trip, Duration::from_millis(5));
    let line = DelayLine::start(LOOPBACK, host.address, path, report.seed()).await;
    let client = UdpSocket::bind((LOOPBACK, 0)).await.expect("a free port");
    let mut round_trips = Vec::new();
    for number in 0..20_u8 {
        let sent_at = Instant::now();
        client.send_to(&[number; 64], line.address()).await.expect("sent");
        let mut packet = [0; 128];
        let received = timeout(TEST_TIMEOUT, client.recv_from(&mut packet)).await.expect("an answer in time");
        round_trips.push(sent_at.elapsed());
        let (length, from) = received.expect("an answer");
        assert_eq!((&packet[..length], from), (&[number; 64][..], line.address()));
    }
    round_trips.sort_unstable();
    assert!(round_trip <= round_trips[0], "{round_trips:?}");
    // Far more than the delay and the jitter of both directions, for slow machines.
    assert!(round_trips[0] < round_trip + Duration::from_secs(1), "{round_trips:?}");
    report.record("least ms", round_trips[0].as_micros() as f64 / 1_000.0);
    report.record("median ms", round_trips[10].as_micros() as f64 / 1_000.0);

    let path = Path::of_round_trip(Duration::ZERO, Duration::ZERO);
    assert!(lost_packets(path, 1).await.iter().all(|is_lost| !is_lost));
    assert!(lost_packets(path.with_loss(1.0), 1).await.iter().all(|is_lost| *is_lost));
    let lossy = path.with_loss(0.3);
    let lost = lost_packets(lossy, 2).await;
    assert_eq!(lost, lost_packets(lossy, 2).await, "the same seed");
    assert_ne!(lost, lost_packets(lossy, 3).await, "another seed");
    let count = lost.iter().filter(|is_lost| **is_lost).count();
    assert!((30..=90).contains(&count), "{count} of {PACKETS} lost at a loss of 0.3");
    report.record("lost of 200 at 0.3", count);
    report.finish();
}
