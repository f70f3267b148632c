//! Task that announces a beacon, and that measures the other beacons for its announcements.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::beacon::measurement::{Measured, measure};
use crate::beacon::peer_trips::PeerTrips;
use crate::beacon::registry::{BeaconRegistry, BeaconSite, PeerBeacon, RegistryError};
use crate::clock::Clock;

/// Time to the next attempt after an announcement that failed.
const RETRY_AFTER: Duration = Duration::from_secs(2);

/// Least and longest time between two announcements, for a server that asks for another one. A beacon is dead after a minute without.
const ANNOUNCE_INTERVALS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(20)];

/// Time between two measurements of the other beacons.
const MEASURE_INTERVAL: Duration = Duration::from_secs(60);

/// Time to the first measurement after a list of the other beacons that could not be had.
const LIST_RETRY_AFTER: Duration = Duration::from_secs(10);

/// Beacons that are measured at the same time: more would delay each other's packets.
const MEASURED_AT_ONCE: usize = 4;

/// Announces a beacon, and measures the others each minute, until `stop`. A server that is away is one warning, and one line when it
/// is back.
pub async fn run_announcer(
    registry: Arc<dyn BeaconRegistry>,
    site: BeaconSite,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) {
    let trips = Mutex::new(PeerTrips::default());
    let announcing = announce_until_cancelled(&*registry, &site, &*clock, &trips);
    let measuring = measure_until_cancelled(&*registry, site.id, &*clock, &trips);
    tokio::select! {
        () = stop.cancelled() => {}
        () = announcing => {}
        () = measuring => {}
    }
}

/// Announces again and again.
async fn announce_until_cancelled(
    registry: &dyn BeaconRegistry,
    site: &BeaconSite,
    clock: &dyn Clock,
    trips: &Mutex<PeerTrips>,
) {
    let mut last_problem: Option<RegistryError> = None;
    let mut is_announced = false;
    loop {
        let least = trips.lock().least(clock.monotonic_us());
        let pause = match registry.announce(site, least).await {
            Ok(pause) => {
                last_problem = None;
                if !is_announced {
                    tracing::info!(beacon_id = site.id, "beacon announced");
                }
                is_announced = true;
                let [least, longest] = ANNOUNCE_INTERVALS;
                pause.clamp(least, longest)
            }
            Err(problem) => {
                if !last_problem.as_ref().is_some_and(|last| problem.is_like(last)) {
                    tracing::warn!(beacon_id = site.id, %problem, "announcement of the beacon failed; it is retried");
                }
                is_announced = false;
                last_problem = Some(problem);
                RETRY_AFTER
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Measures the other beacons again and again.
async fn measure_until_cancelled(
    registry: &dyn BeaconRegistry,
    own_id: u32,
    clock: &dyn Clock,
    trips: &Mutex<PeerTrips>,
) {
    loop {
        let pause = match registry.live_beacons().await {
            Ok(peers) => {
                measure_peers(&peers, own_id, clock, trips).await;
                MEASURE_INTERVAL
            }
            Err(problem) => {
                // The announcement has the same problem, and warns.
                tracing::debug!(%problem, "failed to read the other beacons");
                LIST_RETRY_AFTER
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Measures each beacon once that has not asked for a pause.
async fn measure_peers(peers: &[PeerBeacon], own_id: u32, clock: &dyn Clock, trips: &Mutex<PeerTrips>) {
    let now_us = clock.monotonic_us();
    let mut due: Vec<PeerBeacon> = peers.iter().filter(|peer| peer.id != own_id).copied().collect();
    due.retain(|peer| trips.lock().may_measure(peer.id, now_us));
    let measurements = due.into_iter().map(|peer| async move { (peer.id, measure(peer, clock).await) });
    let mut measured = stream::iter(measurements).buffer_unordered(MEASURED_AT_ONCE);
    while let Some((id, Measured { floor_us, pause })) = measured.next().await {
        trips.lock().record(id, clock.monotonic_us(), floor_us, pause);
    }
}

#[cfg(test)]
mod tests;
