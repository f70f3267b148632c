//! Hears of what other servers have changed in the store that they share, and hands it to the writer.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::engine::core::Core;
use crate::engine::job::Job;
use crate::engine::sharing::Sharing;
use crate::store::{Feed, mutant};

/// Reads until told to stop. What is read goes through the writer's inbox, so that memory changes in one place.
pub(super) async fn run(
    core: Arc<Core>,
    sharing: Arc<Sharing>,
    mut feed: Box<dyn Feed>,
    inbox: mpsc::Sender<Job>,
    stop: CancellationToken,
) {
    let mut wait = true;
    let mut well = true;
    loop {
        if wait {
            tokio::select! {
                () = stop.cancelled() => return,
                () = feed.wait() => {}
            }
        }
        // In this order: whatever is in memory now was in the store before the reading begins.
        let as_of = sharing.batches();
        let again = sharing.take_again();
        let asked = core.clock.now();
        let read = tokio::select! {
            () = stop.cancelled() => return,
            read = feed.read(&again) => read,
        };
        match read {
            Ok(news) => {
                if !mutant::is("expiry_by_the_local_clock") {
                    core.clock.follow(news.at, asked);
                }
                sharing.heard(core.clock.now());
                if !std::mem::replace(&mut well, true) {
                    tracing::info!(pending = sharing.pending(), "the store is back");
                }
                wait = !news.more;
                let nothing = !news.whole && news.changed.is_empty() && news.gone.is_empty();
                if (!nothing || 0 < sharing.pending()) && inbox.send(Job::News(Box::new(news), as_of)).await.is_err() {
                    return;
                }
                if wait {
                    sharing.has_read();
                }
            }
            Err(error) => {
                // Whoever waits for a seat need not find out for itself.
                sharing.failed(core.clock.now());
                sharing.read_again(again);
                if std::mem::replace(&mut well, false) {
                    tracing::warn!(%error, "cannot hear of other servers' changes: searches go on from memory");
                }
                wait = true;
            }
        }
    }
}
