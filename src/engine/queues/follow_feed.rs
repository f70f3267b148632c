//! Hears of what other servers have changed in the queues, and hands it to the writer.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::writer::QueueWriterCommand;
use crate::store::queues::QueueFeed;

/// Reads until told to stop.
pub(super) async fn follow_queue_feed(hall: Arc<SharedState>, mut feed: Box<dyn QueueFeed>, stop: CancellationToken) {
    let mut wait = true;
    let mut well = true;
    loop {
        if wait {
            tokio::select! {
                () = stop.cancelled() => return,
                () = feed.wait_for_changes() => {}
            }
        }
        let read = tokio::select! {
            () = stop.cancelled() => return,
            read = feed.read_batch() => read,
        };
        match read {
            Ok(news) => {
                if !std::mem::replace(&mut well, true) {
                    tracing::info!("queues hear of other servers again");
                }
                wait = !news.has_more;
                let nothing = !news.is_snapshot
                    && news.tickets.is_empty()
                    && news.matches.is_empty()
                    && news.ratings.is_empty()
                    && news.removed_tickets.is_empty()
                    && news.removed_matches.is_empty();
                if !nothing && hall.queue_writer.send(QueueWriterCommand::ApplyFeed(Box::new(news))).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                if std::mem::replace(&mut well, false) {
                    tracing::warn!(%error, "queues cannot hear of other servers' changes");
                }
                wait = true;
            }
        }
    }
}
