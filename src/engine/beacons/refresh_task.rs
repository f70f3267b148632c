//! Task that reads the beacons of the store, where other servers announce them too.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::engine::common::Common;
use crate::store::StoreError;

/// Interval of reads. A beacon is dead a minute after its last announcement.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);

/// Reads the beacons once. Without fleet keys there are none.
///
/// # Errors
///
/// The store cannot be read.
pub(crate) async fn refresh_beacon_directory(common: &Common) -> Result<(), StoreError> {
    if common.beacons.settings.fleet_keys.is_none() {
        return Ok(());
    }
    common.beacons.replace(common.store.read_beacons().await?);
    let live = common.beacons.live_count(common.clock.now());
    common.metrics.beacons.set(i64::try_from(live).unwrap_or(i64::MAX));
    Ok(())
}

/// Reads the beacons until stopped. Without fleet keys there are none.
pub(crate) async fn run_beacon_refresh(common: Arc<Common>, shutdown: CancellationToken) {
    if common.beacons.settings.fleet_keys.is_none() {
        return shutdown.cancelled().await;
    }
    loop {
        if let Err(error) = refresh_beacon_directory(&common).await {
            tracing::debug!(%error, "failed to read beacons");
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(REFRESH_INTERVAL) => {}
        }
    }
}
