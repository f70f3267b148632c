//! Measurement of real beacons on loopback, and of silent ones.

use std::sync::Arc;

use fireteam_probe::FleetKey;

use super::*;
use crate::beacon::udp::{BeaconThread, BeaconUdp};
use crate::clock::SystemClock;
use crate::supervisor::TaskSupervisor;
use crate::telemetry::metric::beacon_packets::BeaconPacketCounters;

fn start_beacon(id: u32, packets_per_second: u32) -> (BeaconThread, PeerBeacon) {
    let (key, clock) = (FleetKey([1; 32]).beacon_key(id), Arc::new(SystemClock::start()));
    let any_port = ["127.0.0.1:0".parse().unwrap()];
    let counters = BeaconPacketCounters::default();
    let udp = BeaconUdp::bind(&any_port, id, key, packets_per_second, clock, counters).unwrap();
    let endpoint = udp.local_address().unwrap();
    (udp.spawn(&TaskSupervisor::default()).unwrap(), PeerBeacon { id, endpoint })
}

#[tokio::test]
async fn measurement_of_a_beacon_has_its_round_trip() {
    let (_thread, peer) = start_beacon(8, 50_000);
    let measured = measure(peer, &SystemClock::start()).await;
    assert!(measured.floor_us.is_some_and(|us| (1..1_000_000).contains(&us)), "{measured:?}");
    assert_eq!(measured.pause, Duration::ZERO);
}

/// A silent beacon, one with another id, and one that is busy have no round trip.
#[tokio::test]
async fn measurement_without_answers_has_no_round_trip() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let silent = PeerBeacon { id: 8, endpoint: silent.local_addr().unwrap() };
    let (_thread, peer) = start_beacon(8, 50_000);
    let (_busy_thread, busy) = start_beacon(9, 1);
    let clock = SystemClock::start();
    let other = PeerBeacon { id: 7, ..peer };
    let (silent, other, busy) = tokio::join!(measure(silent, &clock), measure(other, &clock), measure(busy, &clock));
    assert_eq!((silent, other), (Measured::default(), Measured::default()));
    assert_eq!(busy, Measured { floor_us: None, pause: Duration::from_secs(30) });
}

#[test]
fn measurement_pause_of_65535_is_an_hour() {
    let pauses = [None, Some(30), Some(65_534), Some(65_535)].map(|wait_s| pause_of(wait_s).as_secs());
    assert_eq!(pauses, [0, 30, 65_534, 3_600]);
}
