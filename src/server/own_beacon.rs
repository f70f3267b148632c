//! Beacon of the server itself: the UDP loop, announced to the engine of this process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use async_trait::async_trait;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::auth::receipt_check::BeaconFleetKeys;
use crate::beacon::{
    BeaconRegistry, BeaconSite, BeaconThread, BeaconUdp, PeerBeacon, PeerTrip, RegistryError, run_announcer,
};
use crate::clock::Clock;
use crate::config::OwnBeacon;
use crate::engine::beacons::{ANNOUNCE_INTERVAL_MS, AnnounceBeaconCommand, BeaconEngine};
use crate::engine::error::EngineError;
use crate::supervisor::TaskSupervisor;
use crate::telemetry::label::TaskLabel;
use crate::telemetry::metric::Metrics;

/// Running beacon. It stops on drop.
#[derive(Debug)]
pub(super) struct RunningBeacon {
    _thread: BeaconThread,
    _announcer: DropGuard,
}

/// Binds the socket of the beacon. Fails if no address of `--beacon-listen` is free.
pub(super) fn bind_beacon(
    beacon: &OwnBeacon,
    keys: Option<&BeaconFleetKeys>,
    clock: Arc<dyn Clock>,
    metrics: &Metrics,
) -> anyhow::Result<BoundBeacon> {
    let keys = keys.ok_or_else(|| anyhow!("--beacon-listen needs --beacon-fleet-key-file"))?;
    let key = keys.current_beacon_key(beacon.id);
    let key_id = key.key_id();
    let (addresses, limit) = (beacon.listen.resolved_addresses(), beacon.packets_per_second);
    let udp = BeaconUdp::bind(addresses, beacon.id, key, limit, clock.clone(), metrics.beacon_packet_counters());
    let udp =
        udp.with_context(|| format!("listen at UDP address {}; choose another --beacon-listen", beacon.listen))?;
    let site = BeaconSite {
        id: beacon.id,
        region: beacon.region.clone(),
        latitude: beacon.place.latitude,
        longitude: beacon.place.longitude,
        address: beacon.announce_address,
        port: udp.local_address().context("read the address of the beacon")?.port(),
        key_id,
    };
    Ok(BoundBeacon { udp, site, clock })
}

/// Beacon whose socket is bound. It answers nothing yet.
pub(super) struct BoundBeacon {
    udp: BeaconUdp,
    site: BeaconSite,
    clock: Arc<dyn Clock>,
}

impl BoundBeacon {
    /// Answers packets, and announces the beacon to the engine.
    pub(super) fn start(self, engine: BeaconEngine, supervisor: &TaskSupervisor) -> anyhow::Result<RunningBeacon> {
        let Self { udp, site, clock } = self;
        let thread = udp.spawn(supervisor).context("start the thread of the beacon")?;
        let (stop, registry) = (CancellationToken::new(), Arc::new(InProcessBeaconRegistry { engine }));
        let stop_of_task = stop.clone();
        let start = move || run_announcer(registry.clone(), site.clone(), clock.clone(), stop_of_task.clone());
        drop(supervisor.spawn_restarting(TaskLabel::OwnBeacon, &stop, start));
        Ok(RunningBeacon { _thread: thread, _announcer: stop.drop_guard() })
    }
}

/// Engine of this process, to which the beacon announces itself without a call.
struct InProcessBeaconRegistry {
    engine: BeaconEngine,
}

#[async_trait]
impl BeaconRegistry for InProcessBeaconRegistry {
    async fn announce(&self, site: &BeaconSite, trips: Vec<PeerTrip>) -> Result<Duration, RegistryError> {
        let command = AnnounceBeaconCommand {
            id: site.id,
            region: site.region.clone(),
            address: site.address,
            port: site.port,
            latitude: site.latitude,
            longitude: site.longitude,
            key_id: site.key_id,
            round_trips: trips.iter().map(|trip| (trip.beacon_id, trip.floor_ms)).collect(),
        };
        self.engine.announce_beacon(command).await.map_err(|error| registry_error(&error))?;
        Ok(Duration::from_millis(ANNOUNCE_INTERVAL_MS.into()))
    }

    async fn live_beacons(&self) -> Result<Vec<PeerBeacon>, RegistryError> {
        Ok(self.engine.live_endpoints().into_iter().map(|(id, endpoint)| PeerBeacon { id, endpoint }).collect())
    }
}

fn registry_error(error: &EngineError) -> RegistryError {
    match error {
        EngineError::StoreUnavailable { .. } => RegistryError::Unreachable("the store is unavailable".into()),
        EngineError::InvalidFields(problems) => {
            let problems: Vec<String> = problems.iter().map(|it| format!("{} {}", it.path, it.message)).collect();
            RegistryError::Refused(problems.join("; "))
        }
        error => RegistryError::Refused(format!("{error:?}")),
    }
}
