//! Advertisement feed listener: reads other replicas' changes from the shared store and sends them to the writer.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::engine::adverts::replication_state::ReplicationState;
use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::engine::core::Core;
use crate::store::AdvertFeed;

/// Reads the feed until stopped. Batches go through the writer's inbox, so that only the writer changes memory.
pub(in crate::engine) async fn follow_advert_feed(
    core: Arc<Core>,
    replication: Arc<ReplicationState>,
    mut feed: Box<dyn AdvertFeed>,
    advert_writer: mpsc::Sender<AdvertWriterCommand>,
    shutdown: CancellationToken,
) {
    let mut wait_first = true;
    let mut is_healthy = true;
    loop {
        if wait_first {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = feed.wait_for_changes() => {}
            }
        }
        // Read the batch number first: all batches in memory were in the store before this read begins.
        let as_of = replication.last_applied_batch();
        let reread_ids = replication.take_reread_requests();
        let read_started_at = core.clock.now();
        let result = tokio::select! {
            () = shutdown.cancelled() => return,
            result = feed.read_batch(&reread_ids) => result,
        };
        match result {
            Ok(feed_batch) => {
                core.clock.sync_to_store_clock(feed_batch.read_at, read_started_at);
                replication.record_store_success(core.clock.now());
                if !std::mem::replace(&mut is_healthy, true) {
                    tracing::info!(unwritten = replication.unwritten_count(), "store connection recovered");
                }
                wait_first = !feed_batch.has_more;
                let is_empty_batch =
                    !feed_batch.is_snapshot && feed_batch.changed.is_empty() && feed_batch.removed.is_empty();
                if (!is_empty_batch || replication.unwritten_count() > 0)
                    && advert_writer.send(AdvertWriterCommand::ApplyFeed(Box::new(feed_batch), as_of)).await.is_err()
                {
                    return;
                }
                if wait_first {
                    replication.record_completed_read();
                }
            }
            Err(error) => {
                // Record the outage here, so that commands fail fast instead of waiting for the store.
                replication.record_store_failure(core.clock.now());
                replication.request_reread(reread_ids);
                if std::mem::replace(&mut is_healthy, false) {
                    tracing::warn!(%error, "advertisement feed read failed, serving searches from memory");
                }
                wait_first = true;
            }
        }
    }
}
