//! Task that adds statistics to the store every two seconds.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::engine::common::Common;

/// Interval between batches. A process that is killed loses the counts since its last one.
const FLUSH_INTERVAL: Duration = Duration::from_secs(2);

/// Adds counts to the store until stopped. The engine adds the last ones when the writers have stopped.
pub(crate) async fn run_statistics_task(common: Arc<Common>, shutdown: CancellationToken) {
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return,
            () = tokio::time::sleep(FLUSH_INTERVAL) => {}
        }
        if let Err(error) = common.flush_statistics().await {
            tracing::warn!(%error, "statistics not written, they wait in memory");
        }
    }
}
