//! Task that reads the beacons of the store, where other servers announce them too.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::engine::common::Common;

/// Interval of reads. A beacon is dead a minute after its last announcement.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// Reads the beacons until stopped. Without fleet keys there are none.
pub(crate) async fn run_beacon_refresh(common: Arc<Common>, shutdown: CancellationToken) {
    if common.beacons.settings.fleet_keys.is_none() {
        return shutdown.cancelled().await;
    }
    loop {
        match common.store.read_beacons().await {
            Ok(rows) => {
                common.beacons.replace(rows);
                let live = common.beacons.live_count(common.clock.now());
                common.metrics.beacons.set(i64::try_from(live).unwrap_or(i64::MAX));
            }
            Err(error) => tracing::debug!(%error, "failed to read beacons"),
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(REFRESH_INTERVAL) => {}
        }
    }
}
