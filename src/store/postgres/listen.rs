//! Hears the bell that other servers ring, so that a change is read at once and not only at the next look.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Where servers ring when advertisements have changed.
pub(super) const ADVERT_CHANNEL: &str = "fireteam_change";

/// Where they ring when the queues have.
pub(super) const QUEUE_CHANNEL: &str = "fireteam_queue_change";

/// How long to wait before listening is tried again.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// Listens until dropped. A hint and no more: nothing rests on any ring being heard.
#[derive(Debug)]
pub(super) struct ListenTask {
    notified: Arc<Notify>,
    task: JoinHandle<()>,
}

impl ListenTask {
    pub(super) fn start(options: &PgConnectOptions, channel: &'static str) -> Self {
        let rung = Arc::new(Notify::new());
        let task =
            tokio::spawn(run_listener(options.clone().application_name("fireteam bell"), channel, Arc::clone(&rung)));
        Self { notified: rung, task }
    }

    /// Waits for a ring, or for one that came since the last wait; at most `most`.
    pub(super) async fn wait(&self, most: Duration) {
        let _ = tokio::time::timeout(most, self.notified.notified()).await;
    }
}

impl Drop for ListenTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run_listener(options: PgConnectOptions, channel: &'static str, rung: Arc<Notify>) {
    // A listener wants a pool; this one never has more than the listener's connection.
    let pool =
        PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_secs(2)).connect_lazy_with(options);
    loop {
        if let Ok(mut listener) = PgListener::connect_with(&pool).await
            && listener.listen(channel).await.is_ok()
        {
            while let Ok(Some(_)) = listener.try_recv().await {
                rung.notify_one();
            }
        }
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}
