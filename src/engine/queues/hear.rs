//! Hears of what other servers have changed in the queues, and hands it to the writer.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::engine::queues::hall::Hall;
use crate::engine::queues::writer::Order;
use crate::store::queues::QueueFeed;

/// Reads until told to stop.
pub(super) async fn run(hall: Arc<Hall>, mut feed: Box<dyn QueueFeed>, stop: CancellationToken) {
    let mut wait = true;
    let mut well = true;
    loop {
        if wait {
            tokio::select! {
                () = stop.cancelled() => return,
                () = feed.wait() => {}
            }
        }
        let read = tokio::select! {
            () = stop.cancelled() => return,
            read = feed.read() => read,
        };
        match read {
            Ok(news) => {
                if !std::mem::replace(&mut well, true) {
                    tracing::info!("queues hear of other servers again");
                }
                wait = !news.more;
                let nothing = !news.whole
                    && news.tickets.is_empty()
                    && news.matches.is_empty()
                    && news.ratings.is_empty()
                    && news.gone_tickets.is_empty()
                    && news.gone_matches.is_empty();
                if !nothing && hall.orders.send(Order::News(Box::new(news))).await.is_err() {
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
