//! Advertisement feed: reads other replicas' changes from the shared store and sends them to the writer.

use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::engine::adverts::replication_state::ReplicationState;
use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::engine::common::Common;
use crate::engine::follow_feed::{FollowedFeed, follow_feed};
use crate::store::{AdvertFeed, FeedBatch, StoreError};
use crate::telemetry::label::FeedLabel;

/// Feed of a shared store, with the rows to read again.
struct AdvertFeedReader {
    common: Arc<Common>,
    replication: Arc<ReplicationState>,
    feed: Box<dyn AdvertFeed>,
}

/// Changes, and the number of the local batch after which they were read.
struct AdvertFeedRead {
    feed_batch: FeedBatch,
    as_of_batch: u64,
}

/// Reads the feed until stopped. Batches go through the writer's inbox, so that only the writer changes memory.
pub(crate) async fn follow_advert_feed(
    common: Arc<Common>,
    replication: Arc<ReplicationState>,
    feed: Box<dyn AdvertFeed>,
    writer: mpsc::Sender<AdvertWriterCommand>,
    shutdown: CancellationToken,
) {
    let reader = AdvertFeedReader { common, replication: Arc::clone(&replication), feed };
    let apply = move |read| send_to_writer(read, Arc::clone(&replication), writer.clone());
    follow_feed(reader, apply, shutdown).await;
}

/// Sends a read to the writer. Also an empty one, if the writer has unwritten advertisements. Breaks if the writer is
/// gone.
async fn send_to_writer(
    read: AdvertFeedRead,
    replication: Arc<ReplicationState>,
    writer: mpsc::Sender<AdvertWriterCommand>,
) -> ControlFlow<()> {
    let AdvertFeedRead { feed_batch, as_of_batch } = read;
    let is_caught_up = !feed_batch.has_more;
    let is_empty = !feed_batch.is_snapshot && feed_batch.changed.is_empty() && feed_batch.removed.is_empty();
    if (!is_empty || replication.unwritten_count() > 0)
        && writer.send(AdvertWriterCommand::ApplyFeed(Box::new(feed_batch), as_of_batch)).await.is_err()
    {
        return ControlFlow::Break(());
    }
    if is_caught_up {
        replication.record_completed_read();
    }
    ControlFlow::Continue(())
}

impl FollowedFeed for AdvertFeedReader {
    type Item = AdvertFeedRead;

    async fn wait_for_changes(&mut self) {
        self.feed.wait_for_changes().await;
    }

    async fn read_batch(&mut self) -> Result<AdvertFeedRead, StoreError> {
        let (clock, replication) = (&self.common.clock, &self.replication);
        // Read the batch number first: all batches in memory were in the store before this read begins.
        let as_of_batch = replication.applied_batch_count();
        let reread_ids = replication.take_reread_requests();
        let read_started_at = clock.now();
        match self.feed.read_batch(&reread_ids).await {
            Ok(feed_batch) => {
                clock.sync_to_store_clock(feed_batch.read_at, read_started_at);
                replication.store_health.record_success(clock.now());
                self.common.feed_reads.record(FeedLabel::Advertisements, clock.now());
                Ok(AdvertFeedRead { feed_batch, as_of_batch })
            }
            Err(error) => {
                // Record the outage here, so that commands fail fast instead of waiting for the store.
                replication.store_health.record_failure();
                replication.request_reread(reread_ids);
                Err(error)
            }
        }
    }

    fn has_more(batch: &AdvertFeedRead) -> bool {
        batch.feed_batch.has_more
    }

    fn log_failure(&self, error: &StoreError) {
        tracing::warn!(%error, "advertisement feed read failed, serving searches from memory");
    }

    fn log_recovery(&self) {
        tracing::info!(unwritten = self.replication.unwritten_count(), "store connection recovered");
    }
}
