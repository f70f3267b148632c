//! Task that lets queues run another pass when a session that they could fill has appeared.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::engine::queues::shared_state::SharedState;
use crate::store::queues::QueueKey;

/// Pause between wake-ups. Sessions that open meanwhile share the next one.
const WAKE_INTERVAL: Duration = Duration::from_millis(50);

/// Wakes queues until stopped.
pub(crate) async fn run_backfill_wakeups(shared: Arc<SharedState>, shutdown: CancellationToken) {
    loop {
        let changed = tokio::select! {
            () = shutdown.cancelled() => return,
            changed = shared.common.open_session_changes.wait_and_take_all() => changed,
        };
        let keys = changed.into_iter().map(|(set_id, silo)| QueueKey { set_id, silo });
        let waiting: Vec<QueueKey> = {
            let mut cache = shared.cache.write();
            keys.filter(|key| cache.mark_queue_changed_if_tickets_wait(*key)).collect()
        };
        if !waiting.is_empty() {
            shared.notify_queues_changed(waiting);
        }
        tokio::time::sleep(WAKE_INTERVAL).await;
    }
}
