//! Exchange of outages with the store: at startup, every second or two, and when the server stops.

use crate::domain::available_time::Outage;
use crate::domain::time::UnixMs;
use crate::engine::outage_log::SERVER_SILENT_AFTER_MS;
use crate::engine::queues::shared_state::SharedState;
use crate::engine::startup_retry::retry_at_startup;
use crate::store::StoreError;
use crate::store::outages::{LivenessReport, ServerSignOfLife, StoredOutages};

/// Retention of outages in the store, milliseconds: two days, longer than a match can take.
const OUTAGE_RETENTION_MS: u64 = 2 * 24 * 60 * 60 * 1_000;

/// Longest duration of a deadline that was set before a match, milliseconds.
const PRE_MATCH_DEADLINE_MAX_MS: u64 = 60 * 60 * 1_000;

/// Records the time since the last sign of life of any server as an outage, unless another server is alive, and reports that
/// this server is alive. Called before deadlines are processed.
pub(crate) async fn record_restart(shared: &SharedState) -> Result<(), StoreError> {
    let now = shared.common.clock.now();
    let mut report = liveness_report_at(now);
    report.alive_at = None;
    let stored = report_at_startup(shared, &report).await?;
    let is_live = |mark: &ServerSignOfLife| !mark.is_stopped && now.ms_since(mark.alive_at) <= SERVER_SILENT_AFTER_MS;
    let is_other_live = shared.has_replicas && stored.servers.iter().any(is_live);
    let last_alive_at = stored.servers.iter().map(|mark| mark.alive_at).max();
    if let Some(from) = last_alive_at.filter(|from| !is_other_live && *from < now) {
        shared.common.server_outages.add_ended(Outage { from, to: now });
        tracing::info!(duration_ms = now.ms_since(from), "no server was alive, deadlines are extended by that time");
    }
    // The mark is written before the first call is served: a server that is killed at once still leaves a sign of life.
    let saved = shared.common.server_outages.unsaved();
    let report = LivenessReport {
        alive_at: Some(now),
        ended_outages: saved.clone(),
        purges_other_servers: !is_other_live,
        ..liveness_report_at(now)
    };
    let stored = report_at_startup(shared, &report).await?;
    apply_stored_outages(shared, stored, &saved, now);
    Ok(())
}

async fn report_at_startup(shared: &SharedState, report: &LivenessReport) -> Result<StoredOutages, StoreError> {
    retry_at_startup("report outages", async || shared.common.store.apply_liveness_report(report).await).await
}

/// Reports that this server is alive, saves its outages and reads those of the others. The only server of a store has nothing
/// to do without tickets, matches and unsaved outages.
pub(crate) async fn sync_outages(shared: &SharedState) {
    report_liveness(shared, false).await;
}

/// Reports that this server stops, so that no other waits for its next sign of life.
pub(crate) async fn report_stop(shared: &SharedState) {
    report_liveness(shared, true).await;
}

async fn report_liveness(shared: &SharedState, stops: bool) {
    shared.common.server_outages.record_process_alive(shared.common.clock.now());
    let saved = shared.common.server_outages.unsaved();
    if !shared.has_replicas && saved.is_empty() && shared.cache.read().queues().next().is_none() {
        return;
    }
    let now = shared.common.clock.now();
    let report = LivenessReport { ended_outages: saved.clone(), is_stopping: stops, ..liveness_report_at(now) };
    let result = shared.common.store.apply_liveness_report(&report).await;
    shared.common.server_outages.record_commit_result(&result, shared.common.clock.now());
    match result {
        Ok(stored) => apply_stored_outages(shared, stored, &saved, now),
        Err(error) => tracing::warn!(%error, "report of outages failed"),
    }
}

fn liveness_report_at(now: UnixMs) -> LivenessReport {
    LivenessReport {
        alive_at: Some(now),
        ended_outages: Vec::new(),
        purge_before: UnixMs(now.ms_since(UnixMs(OUTAGE_RETENTION_MS))),
        purges_other_servers: false,
        is_stopping: false,
    }
}

/// Applies what the store has, and wakes all queues if that changes deadlines.
fn apply_stored_outages(shared: &SharedState, stored: StoredOutages, saved: &[Outage], now: UnixMs) {
    let oldest = shared.cache.read().oldest_deadline_start().unwrap_or(now);
    let oldest = UnixMs(oldest.ms_since(UnixMs(PRE_MATCH_DEADLINE_MAX_MS)));
    if shared.common.server_outages.apply_stored(stored, saved, oldest, now) {
        shared.queue_wakeups.lock().wake_sets(|_| true);
    }
}
