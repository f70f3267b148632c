//! Probe of the store while commits fail, so that the server notices when they succeed again.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::domain::id::AdvertisementId;
use crate::engine::common::Common;
use crate::store::AdvertWrite;

/// Interval of probes while commits fail.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Id of the advertisement that probes delete. No advertisement has it, because ids are digests.
const PROBE_ADVERTISEMENT: AdvertisementId = AdvertisementId::from_bytes([0; 16]);

/// Probes the store while commits fail, until stopped. Without a probe, a server that receives no calls because it is
/// not ready would stay so.
pub(crate) async fn run_write_probe(common: Arc<Common>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = common.write_health.wait_until_failing() => {}
        }
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(PROBE_INTERVAL) => {}
        }
        if common.store_staleness_ms(common.clock.now()).is_some() {
            common.write_health.restart_failure_period();
        } else {
            probe(&common).await;
        }
    }
}

/// Commits a write that changes a row: the tombstone of an advertisement that does not exist. It is purged like others.
async fn probe(common: &Common) {
    let delete = AdvertWrite::Delete { advertisement_id: PROBE_ADVERTISEMENT, tombstone_until: common.clock.now() };
    let result = common.store.commit_adverts(&[delete]).await;
    common.record_commit(&result);
    if let Err(error) = result {
        tracing::debug!(%error, "write probe failed");
    }
}
