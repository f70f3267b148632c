//! Queue feed listener: reads other replicas' queue changes and sends them to the queue writer.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::writer_command::QueueWriterCommand;
use crate::store::queues::QueueFeed;

/// Reads the feed until stopped.
pub(crate) async fn follow_queue_feed(
    shared: Arc<SharedState>,
    mut feed: Box<dyn QueueFeed>,
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
        let result = tokio::select! {
            () = shutdown.cancelled() => return,
            result = feed.read_batch() => result,
        };
        match result {
            Ok(feed_batch) => {
                if !std::mem::replace(&mut is_healthy, true) {
                    tracing::info!("queue feed recovered");
                }
                wait_first = !feed_batch.has_more;
                let is_empty_batch = !feed_batch.is_snapshot
                    && feed_batch.tickets.is_empty()
                    && feed_batch.matches.is_empty()
                    && feed_batch.ratings.is_empty()
                    && feed_batch.removed_tickets.is_empty()
                    && feed_batch.removed_matches.is_empty();
                if !is_empty_batch
                    && shared.queue_writer.send(QueueWriterCommand::ApplyFeed(Box::new(feed_batch))).await.is_err()
                {
                    return;
                }
            }
            Err(error) => {
                if std::mem::replace(&mut is_healthy, false) {
                    tracing::warn!(%error, "queue feed read failed, running queues from memory");
                }
                wait_first = true;
            }
        }
    }
}
