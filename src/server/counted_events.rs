//! Task that writes the numbers of rejected calls that were only counted, in the log and in the audit log.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::server::metric_recorders::RpcMetrics;
use crate::supervisor::TaskSupervisor;
use crate::telemetry::audit::AuditLog;
use crate::telemetry::label::TaskLabel;

/// Interval at which ended windows are looked for.
const FLUSH_INTERVAL: Duration = Duration::from_secs(10);

/// Reporter of rejected calls that were only counted.
#[derive(Clone, Debug)]
pub(super) struct UnloggedRejectionReporter {
    pub(super) calls: Arc<RpcMetrics>,
    pub(super) audit_log: Arc<AuditLog>,
}

impl UnloggedRejectionReporter {
    /// Runs the task until `shutdown`.
    pub(super) fn spawn(&self, supervisor: &TaskSupervisor, shutdown: &CancellationToken) {
        let (events, stop) = (self.clone(), shutdown.clone());
        let start = move || events.clone().run(stop.clone());
        drop(supervisor.spawn_restarting(TaskLabel::CountedEvents, shutdown, start));
    }

    async fn run(self, shutdown: CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(FLUSH_INTERVAL) => {}
            }
            self.write(false).await;
        }
    }

    /// Writes the numbers of windows that have ended; with `all` also of the current ones.
    pub(super) async fn write(&self, all: bool) {
        self.calls.log_unlogged_failures(all);
        let audit_log = self.audit_log.clone();
        let written = tokio::task::spawn_blocking(move || audit_log.append_counted_rejections(all)).await;
        if let Err(error) = written.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
            tracing::error!(%error, "audit record write failed for counted calls");
        }
    }
}
