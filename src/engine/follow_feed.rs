//! Feed follower: reads other replicas' changes from the shared store until stopped, and applies them in order.

use std::ops::ControlFlow;

use tokio_util::sync::CancellationToken;

use crate::store::StoreError;

/// Change feed of the advertisements or of the queues.
pub(crate) trait FollowedFeed {
    /// Changes of one read.
    type Item;

    /// Waits until changes may be available, or for the poll interval.
    async fn wait_for_changes(&mut self);

    /// Reads the next changes. After an error, the same changes are read again.
    async fn read_batch(&mut self) -> Result<Self::Item, StoreError>;

    /// Whether more changes can be read at once after `batch`.
    fn has_more(batch: &Self::Item) -> bool;

    /// Logs the first failed read of an outage.
    fn log_failure(&self, error: &StoreError);

    /// Logs the first successful read after an outage.
    fn log_recovery(&self);
}

/// Reads `feed` until stopped, or until `apply` breaks. Waits for changes after each failed read.
pub(crate) async fn follow_feed<F, A>(mut feed: F, mut apply: impl FnMut(F::Item) -> A, shutdown: CancellationToken)
where
    F: FollowedFeed,
    A: Future<Output = ControlFlow<()>>,
{
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
            Ok(batch) => {
                if !std::mem::replace(&mut is_healthy, true) {
                    feed.log_recovery();
                }
                wait_first = !F::has_more(&batch);
                if apply(batch).await.is_break() {
                    return;
                }
            }
            Err(error) => {
                if std::mem::replace(&mut is_healthy, false) {
                    feed.log_failure(&error);
                }
                wait_first = true;
            }
        }
    }
}
