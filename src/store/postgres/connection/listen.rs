//! LISTEN task: wakes the feed when another server sends a NOTIFY, so that changes are read before the next poll.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::supervisor::TaskSupervisor;
use crate::telemetry::label::TaskLabel;

/// Channel for changes of advertisements.
pub(in crate::store::postgres) const ADVERT_CHANNEL: &str = "fireteam_change";

/// Channel for changes of the queues.
pub(in crate::store::postgres) const QUEUE_CHANNEL: &str = "fireteam_queue_change";

/// Delay before a reconnect.
const RECONNECT_DELAY: Duration = Duration::from_millis(500);

/// Listens until dropped. Only a hint: no change is lost if a notification is.
#[derive(Debug)]
pub(in crate::store::postgres) struct ListenTask {
    notified: Arc<Notify>,
    task: JoinHandle<()>,
}

impl ListenTask {
    pub(in crate::store::postgres) fn start(
        options: &PgConnectOptions,
        channel: &'static str,
        supervisor: &TaskSupervisor,
    ) -> Self {
        let notified = Arc::new(Notify::new());
        let (options, of_task) = (options.clone().application_name("fireteam listen"), Arc::clone(&notified));
        let start = move || run_listener(options.clone(), channel, Arc::clone(&of_task));
        // The task is aborted with the feed, so it needs no other signal.
        let task = supervisor.spawn_restarting(TaskLabel::ChangeListener, &CancellationToken::new(), start);
        Self { notified, task }
    }

    /// Waits for a notification, or for one since the last wait.
    pub(in crate::store::postgres) async fn notified(&self) {
        self.notified.notified().await;
    }
}

impl Drop for ListenTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run_listener(options: PgConnectOptions, channel: &'static str, notified: Arc<Notify>) {
    // The listener requires a pool; this one has only the listener's connection.
    let pool =
        PgPoolOptions::new().max_connections(1).acquire_timeout(Duration::from_secs(2)).connect_lazy_with(options);
    loop {
        if let Ok(mut listener) = PgListener::connect_with(&pool).await
            && listener.listen(channel).await.is_ok()
        {
            // Changes may have been committed while nothing listened.
            notified.notify_one();
            while let Ok(Some(_)) = listener.try_recv().await {
                notified.notify_one();
            }
        }
        tokio::time::sleep(RECONNECT_DELAY).await;
    }
}
