//! Supervisor of the long-lived tasks: a panic is logged and counted, and the task is restarted or the server stops.
//!
//! | `task` | after a panic | reason |
//! |---|---|---|
//! | `advert_writer`, `queue_writer` | the server stops | memory may be half changed |
//! | `client_port`, `operator_port` | the server stops | the port is closed |
//! | `advert_feed`, `queue_feed` | restart | the next read is a snapshot, which replaces the data in memory |
//! | `advert_expiry` | restart | a sweep only sends commands to the writer |
//! | `queue_leases` | restart | leases are acquired again; runners of the former task stop |
//! | `queue_runner` | restart | its state is rebuilt from memory |
//! | `allocation` | restart | offers are in the store, allocators in the shared state |
//! | `pass` | the queue's passes wait, with backing off; its deadlines continue | a pass changes nothing by itself |
//! | `write_probe`, `health`, `ruleset_copies`, `beacons`, `own_beacon` | restart | no state, or state that the next round reads again |
//! | `reload`, `ruleset_purge` | continues | a failed reload leaves the former files in use |
//! | `file_watcher` | continues | the next change, or the next poll, is noticed |
//! | `wal_checkpoint`, `change_listener` | restart | no state; the feed polls without a listener |
//! | `disk_space`, `counted_events`, `statistics` | restart | the next round measures again; counts are kept outside of the task |
//!
//! A panic in a call ends only that call (`api/layer.rs`), and one in a handshake only that connection.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::telemetry::label::TaskLabel;
use crate::telemetry::metric::CounterBy;

/// Delay before the first restart; doubles with each further panic.
const RESTART_DELAY_MIN: Duration = Duration::from_millis(100);

/// Longest delay before a restart.
const RESTART_DELAY_MAX: Duration = Duration::from_secs(10);

/// Time without a panic after which the delay starts at the minimum again.
const RESTART_DELAY_RESET_AFTER: Duration = Duration::from_secs(60);

/// Longest panic message in the log, bytes.
const REASON_BYTES_MAX: usize = 512;

/// Panic of a task that cannot be restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFailure {
    /// Task.
    pub task: TaskLabel,
    /// Panic message.
    pub reason: String,
}

/// Supervisor of a server's tasks; clones share their state.
#[derive(Clone, Debug, Default)]
pub struct TaskSupervisor {
    panics: CounterBy<TaskLabel>,
    failure: Arc<OnceLock<TaskFailure>>,
    failed: CancellationToken,
}

impl TaskSupervisor {
    /// Supervisor that counts panics in `panics`.
    pub fn new(panics: CounterBy<TaskLabel>) -> Self {
        Self { panics, ..Self::default() }
    }

    /// Spawns a task that may be restarted: after a panic, `start` is called again, with backing off. The task ends when
    /// its future ends, or when it has panicked and `shutdown` is cancelled.
    pub fn spawn_restarting<F, V>(&self, task: TaskLabel, shutdown: &CancellationToken, start: F) -> JoinHandle<()>
    where
        F: FnMut() -> V + Send + 'static,
        V: Future<Output = ()> + Send + 'static,
    {
        tokio::spawn(self.clone().run_restarting(task, shutdown.clone(), start))
    }

    /// Runs a task as `spawn_restarting` does, in the caller's task.
    pub async fn run_restarting<F, V>(self, task: TaskLabel, shutdown: CancellationToken, mut start: F)
    where
        F: FnMut() -> V + Send + 'static,
        V: Future<Output = ()> + Send + 'static,
    {
        let mut delay = RESTART_DELAY_MIN;
        loop {
            let started_at = Instant::now();
            if self.catch(task, async { start().await }).await.is_ok() || shutdown.is_cancelled() {
                return;
            }
            if RESTART_DELAY_RESET_AFTER <= started_at.elapsed() {
                delay = RESTART_DELAY_MIN;
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(delay) => {}
            }
            delay = (delay * 2).min(RESTART_DELAY_MAX);
            tracing::info!(task = task.as_str(), "task restarted");
        }
    }

    /// Spawns a task that cannot be restarted: its panic stops the server.
    pub fn spawn_critical(&self, task: TaskLabel, future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        let supervisor = self.clone();
        tokio::spawn(async move {
            if let Err(reason) = supervisor.catch(task, future).await {
                supervisor.fail(task, reason);
            }
        })
    }

    /// Result of `future`; the reason if it panics, which is logged and counted.
    pub async fn catch<T>(&self, task: TaskLabel, future: impl Future<Output = T>) -> Result<T, String> {
        AssertUnwindSafe(future).catch_unwind().await.map_err(|panic| self.record_panic(task, &*panic))
    }

    /// Result of `function`; the reason if it panics, which is logged and counted.
    pub fn catch_blocking<T>(&self, task: TaskLabel, function: impl FnOnce() -> T) -> Result<T, String> {
        catch_unwind(AssertUnwindSafe(function)).map_err(|panic| self.record_panic(task, &*panic))
    }

    /// Logs and counts a panic; returns its message.
    pub fn record_panic(&self, task: TaskLabel, panic: &(dyn Any + Send)) -> String {
        let reason = panic_message(panic);
        self.panics.get_or_create(&task).inc();
        tracing::error!(task = task.as_str(), reason, "task panicked");
        reason
    }

    /// Stops the server because of `task`. The first failure counts.
    pub fn fail(&self, task: TaskLabel, reason: String) {
        tracing::error!(task = task.as_str(), "task cannot be restarted, server stopped");
        let _ = self.failure.set(TaskFailure { task, reason });
        self.failed.cancel();
    }

    /// Failure because of which the server stops, if any.
    pub fn failure(&self) -> Option<&TaskFailure> {
        self.failure.get()
    }

    /// Waits until a task has failed that cannot be restarted.
    pub async fn wait_for_failure(&self) {
        self.failed.cancelled().await;
    }
}

/// Message of a panic, shortened.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("unknown panic");
    let end = (0..=text.len().min(REASON_BYTES_MAX)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    text[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    fn panic_count(supervisor: &TaskSupervisor, task: TaskLabel) -> u64 {
        supervisor.panics.get_or_create(&task).get()
    }

    /// R20: a task that panics runs again until it ends by itself.
    #[tokio::test]
    async fn supervisor_restarts_a_task_that_panicked() {
        let supervisor = TaskSupervisor::default();
        let runs = Arc::new(AtomicU32::new(0));
        let runs_of_task = Arc::clone(&runs);
        let start = move || {
            let run = runs_of_task.fetch_add(1, Ordering::SeqCst);
            async move { assert!(run >= 2, "run {run}") }
        };
        let shutdown = CancellationToken::new();
        supervisor.spawn_restarting(TaskLabel::AdvertExpiry, &shutdown, start).await.unwrap();
        assert_eq!(runs.load(Ordering::SeqCst), 3);
        assert_eq!(panic_count(&supervisor, TaskLabel::AdvertExpiry), 2);
        assert_eq!(supervisor.failure(), None);
    }

    /// R20: a task that panics is not restarted after the shutdown began.
    #[tokio::test]
    async fn supervisor_restarts_nothing_during_shutdown() {
        let supervisor = TaskSupervisor::default();
        let shutdown = CancellationToken::new();
        let cancel = shutdown.clone();
        let start = move || {
            cancel.cancel();
            async { panic!("during shutdown") }
        };
        supervisor.spawn_restarting(TaskLabel::QueueLeases, &shutdown, start).await.unwrap();
        assert_eq!(panic_count(&supervisor, TaskLabel::QueueLeases), 1);
    }

    /// R20: the panic of a task that cannot be restarted is reported with its reason.
    #[tokio::test]
    async fn supervisor_reports_the_failure_of_a_critical_task() {
        let supervisor = TaskSupervisor::default();
        supervisor.spawn_critical(TaskLabel::QueueWriter, async { panic!("row {}", 7) }).await.unwrap();
        supervisor.wait_for_failure().await;
        let expected = TaskFailure { task: TaskLabel::QueueWriter, reason: "row 7".into() };
        assert_eq!(supervisor.failure(), Some(&expected));
        assert_eq!(panic_count(&supervisor, TaskLabel::QueueWriter), 1);
    }

    #[test]
    fn panic_message_is_shortened_at_a_character() {
        let long: Box<dyn Any + Send> = Box::new("é".repeat(REASON_BYTES_MAX));
        assert_eq!(panic_message(&*long).len(), REASON_BYTES_MAX);
        assert_eq!(panic_message(&7), "unknown panic");
    }
}
