//! Queue feed: reads other replicas' queue changes from the shared store and sends them to the queue writer.

use std::ops::ControlFlow;
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::engine::follow_feed::{FollowedFeed, follow_feed};
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::writer_command::QueueWriterCommand;
use crate::store::StoreError;
use crate::store::queues::{QueueFeed, QueueFeedBatch};
use crate::telemetry::label::FeedLabel;

/// Feed of a shared store.
struct QueueFeedReader {
    shared: Arc<SharedState>,
    feed: Box<dyn QueueFeed>,
}

/// Reads the feed until stopped.
pub(crate) async fn follow_queue_feed(shared: Arc<SharedState>, feed: Box<dyn QueueFeed>, shutdown: CancellationToken) {
    let reader = QueueFeedReader { shared: Arc::clone(&shared), feed };
    let apply = move |feed_batch| send_to_writer(feed_batch, shared.queue_writer.clone());
    follow_feed(reader, apply, shutdown).await;
}

/// Sends a batch to the writer, unless it is empty. Breaks if the writer is gone.
async fn send_to_writer(feed_batch: QueueFeedBatch, writer: mpsc::Sender<QueueWriterCommand>) -> ControlFlow<()> {
    let is_empty = !feed_batch.is_snapshot
        && feed_batch.tickets.is_empty()
        && feed_batch.matches.is_empty()
        && feed_batch.ratings.is_empty()
        && feed_batch.fully_read_users.is_empty()
        && !feed_batch.has_all_ratings_and_block_lists
        && feed_batch.removed_tickets.is_empty()
        && feed_batch.removed_matches.is_empty();
    if !is_empty && writer.send(QueueWriterCommand::ApplyFeed(Box::new(feed_batch))).await.is_err() {
        return ControlFlow::Break(());
    }
    ControlFlow::Continue(())
}

impl FollowedFeed for QueueFeedReader {
    type Item = QueueFeedBatch;

    async fn wait_for_changes(&mut self) {
        self.feed.wait_for_changes().await;
    }

    async fn read_batch(&mut self) -> Result<QueueFeedBatch, StoreError> {
        let batch = self.feed.read_batch().await;
        #[cfg(feature = "failpoints")]
        crate::engine::fail_points::hold_queue_feed().await;
        if batch.is_ok() {
            let common = &self.shared.common;
            common.feed_reads.record(FeedLabel::Queues, common.clock.now());
        }
        batch
    }

    fn has_more(batch: &QueueFeedBatch) -> bool {
        batch.has_more
    }

    fn log_failure(&self, error: &StoreError) {
        tracing::warn!(%error, "queue feed read failed, running queues from memory");
    }

    fn log_recovery(&self) {
        tracing::info!("queue feed recovered");
    }
}
