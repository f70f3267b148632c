//! Hears of what other servers have changed in the store that they share, and hands it to the writer.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::engine::adverts::replication_state::ReplicationState;
use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::engine::core::Core;
use crate::store::{AdvertFeed, mutant};

/// Reads until told to stop. What is read goes through the writer's inbox, so that memory changes in one place.
pub(in crate::engine) async fn follow_advert_feed(
    core: Arc<Core>,
    sharing: Arc<ReplicationState>,
    mut feed: Box<dyn AdvertFeed>,
    inbox: mpsc::Sender<AdvertWriterCommand>,
    stop: CancellationToken,
) {
    let mut wait = true;
    let mut well = true;
    loop {
        if wait {
            tokio::select! {
                () = stop.cancelled() => return,
                () = feed.wait_for_changes() => {}
            }
        }
        // In this order: whatever is in memory now was in the store before the reading begins.
        let as_of = sharing.last_applied_batch();
        let again = sharing.take_reread_requests();
        let asked = core.clock.now();
        let read = tokio::select! {
            () = stop.cancelled() => return,
            read = feed.read_batch(&again) => read,
        };
        match read {
            Ok(news) => {
                if !mutant::is("expiry_by_the_local_clock") {
                    core.clock.sync_to_store_clock(news.read_at, asked);
                }
                sharing.record_store_success(core.clock.now());
                if !std::mem::replace(&mut well, true) {
                    tracing::info!(pending = sharing.unwritten_count(), "the store is back");
                }
                wait = !news.has_more;
                let nothing = !news.is_snapshot && news.changed.is_empty() && news.removed.is_empty();
                if (!nothing || 0 < sharing.unwritten_count())
                    && inbox.send(AdvertWriterCommand::ApplyFeed(Box::new(news), as_of)).await.is_err()
                {
                    return;
                }
                if wait {
                    sharing.record_completed_read();
                }
            }
            Err(error) => {
                // Whoever waits for a seat need not find out for itself.
                sharing.record_store_failure(core.clock.now());
                sharing.request_reread(again);
                if std::mem::replace(&mut well, false) {
                    tracing::warn!(%error, "cannot hear of other servers' changes: searches go on from memory");
                }
                wait = true;
            }
        }
    }
}
