//! Announcements to a scripted registry.

use std::net::Ipv4Addr;

use async_trait::async_trait;
use fireteam_probe::FleetKey;
use tokio::sync::mpsc;

use super::*;
use crate::beacon::registry::PeerTrip;
use crate::beacon::udp::BeaconUdp;
use crate::clock::SystemClock;
use crate::supervisor::TaskSupervisor;
use crate::telemetry::metric::beacon_packets::BeaconPacketCounters;

/// Registry that refuses the first announcement, and sends the trips of all to the test.
struct ScriptedRegistry {
    peers: Vec<PeerBeacon>,
    announced: mpsc::Sender<Vec<PeerTrip>>,
    answers: Mutex<Vec<Result<Duration, RegistryError>>>,
}

#[async_trait]
impl BeaconRegistry for ScriptedRegistry {
    async fn announce(&self, site: &BeaconSite, trips: Vec<PeerTrip>) -> Result<Duration, RegistryError> {
        assert_eq!(site.id, 7);
        self.announced.send(trips).await.unwrap();
        self.answers.lock().pop().unwrap_or(Ok(Duration::ZERO))
    }

    async fn live_beacons(&self) -> Result<Vec<PeerBeacon>, RegistryError> {
        Ok(self.peers.clone())
    }
}

/// A refused announcement is repeated; measured peers come with later ones, and the beacon itself is no peer.
#[tokio::test]
async fn announcer_repeats_and_brings_the_round_trips_to_peers() {
    let clock = Arc::new(SystemClock::start());
    let start = |id: u32| {
        let (key, any_port) = (FleetKey([1; 32]).beacon_key(id), ["127.0.0.1:0".parse().unwrap()]);
        let counters = BeaconPacketCounters::default();
        let udp = BeaconUdp::bind(&any_port, id, key, 50_000, Arc::new(SystemClock::start()), counters).unwrap();
        let endpoint = udp.local_address().unwrap();
        (udp.spawn(&TaskSupervisor::default()).unwrap(), PeerBeacon { id, endpoint })
    };
    let ((_own_thread, own), (_peer_thread, peer)) = (start(7), start(8));
    let (announced, mut announcements) = mpsc::channel(1);
    let answers = Mutex::new(vec![Err(RegistryError::Unreachable("away".into()))]);
    let registry = Arc::new(ScriptedRegistry { peers: vec![own, peer], announced, answers });
    let site = BeaconSite {
        id: 7,
        region: String::new(),
        latitude: 0.0,
        longitude: 0.0,
        address: Ipv4Addr::LOCALHOST.into(),
        port: own.endpoint.port(),
        key_id: [0; 4],
    };
    let stop = CancellationToken::new();
    let task = tokio::spawn(run_announcer(registry, site, clock, stop.clone()));
    let trips = tokio::time::timeout(Duration::from_secs(30), async {
        loop {
            let trips = announcements.recv().await.unwrap();
            if !trips.is_empty() {
                return trips;
            }
        }
    });
    let trips = trips.await.unwrap();
    assert_eq!(trips.iter().map(|trip| trip.beacon_id).collect::<Vec<_>>(), [8]);
    assert!((0.001..1_000.0).contains(&trips[0].floor_ms), "{trips:?}");
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(30), task).await.unwrap().unwrap();
}

/// The log has one line for a server that is away, also if the reason changes, and one for each refusal with another reason.
#[test]
fn announcer_warns_once_while_a_server_is_away() {
    let (away, timeout) = (RegistryError::Unreachable("refused".into()), RegistryError::Unreachable("timeout".into()));
    let (key, place) = (RegistryError::Refused("key_id".into()), RegistryError::Refused("beacon.id".into()));
    assert!(away.is_like(&timeout) && key.is_like(&key));
    assert!(!key.is_like(&place) && !key.is_like(&away) && !away.is_like(&key));
}
