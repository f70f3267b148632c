//! Queue leases: acquires a lease per queue, runs one task for each queue held, and exchanges connected-user counts.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::engine::queues::queue_runner;
use crate::engine::queues::shared_state::SharedState;
use crate::store::queues::QueueKey;
use crate::telemetry::label::TaskLabel;

/// Lease duration. After a crash, queues are unowned for at most this plus `LEASE_RENEW_INTERVAL`.
const LEASE_DURATION_MS: u32 = 2_000;

/// Interval at which leases are renewed and requested.
const LEASE_RENEW_INTERVAL: Duration = Duration::from_millis(600);

/// Interval at which replicas exchange connected-user counts.
const CONNECTED_USERS_INTERVAL: Duration = Duration::from_secs(2);

/// Rounds of `CONNECTED_USERS_INTERVAL` between purges of ended tickets and matches.
const ROUNDS_PER_PURGE: u32 = 5;

/// Running task of one queue.
struct QueueTask {
    shutdown: CancellationToken,
    /// Stops the runner if the lease task panics, so that the next one does not start a second runner beside it.
    _stop_with_lease_task: DropGuard,
    task: JoinHandle<()>,
}

/// Acquires leases and runs queues until stopped.
pub(crate) async fn run_lease_task(shared: Arc<SharedState>, shutdown: CancellationToken) {
    let mut running: BTreeMap<QueueKey, QueueTask> = BTreeMap::new();
    let mut renewed_at: Option<Instant> = None;
    let mut exchanged_at: Option<Instant> = None;
    let mut rounds = 0_u32;
    loop {
        let has_new_queue = {
            let requested = shared.requested_leases.lock();
            active_queues(&shared).iter().any(|key| !requested.contains(key))
        };
        if has_new_queue || renewed_at.is_none_or(|at| at + LEASE_RENEW_INTERVAL <= Instant::now()) {
            renewed_at = Some(Instant::now());
            renew_leases(&shared, &mut running).await;
        }
        if exchanged_at.is_none_or(|at| at + CONNECTED_USERS_INTERVAL <= Instant::now()) {
            exchanged_at = Some(Instant::now());
            rounds = rounds.wrapping_add(1);
            exchange_connected_users(&shared, rounds).await;
        }
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = shared.lease_wakeup.notified() => {}
            () = tokio::time::sleep(LEASE_RENEW_INTERVAL) => {}
        }
    }
    let keys: Vec<QueueKey> = running.keys().copied().collect();
    for (_, queue_task) in running {
        queue_task.shutdown.cancel();
        let _ = queue_task.task.await;
    }
    // Release the leases, so that another replica takes over before they expire.
    let _ = shared.common.store.release_leases(&keys).await;
}

/// Queues with a waiting ticket or a running match.
fn active_queues(shared: &SharedState) -> Vec<QueueKey> {
    shared.cache.read().queues().map(|(key, _)| key).collect()
}

/// Acquires or renews leases; starts tasks for granted queues and stops the others.
async fn renew_leases(shared: &Arc<SharedState>, running: &mut BTreeMap<QueueKey, QueueTask>) {
    running.retain(|_, queue_task| !queue_task.task.is_finished());
    let queues = active_queues(shared);
    *shared.requested_leases.lock() = queues.iter().copied().collect();
    let granted = match shared.common.store.acquire_leases(&queues, LEASE_DURATION_MS).await {
        Ok(granted) => granted,
        Err(error) => {
            tracing::warn!(%error, "queue lease acquisition failed");
            vec![false; queues.len()]
        }
    };
    let mut lost: Vec<QueueKey> = running.keys().copied().collect();
    for (key, granted) in queues.into_iter().zip(granted) {
        if !granted {
            continue;
        }
        lost.retain(|held| *held != key);
        running.entry(key).or_insert_with(|| {
            let shutdown = CancellationToken::new();
            let (run_by, stop) = (Arc::clone(shared), shutdown.clone());
            let start = move || queue_runner::run_queue(Arc::clone(&run_by), key, stop.clone());
            let task = shared.common.supervisor.spawn_restarting(TaskLabel::QueueRunner, &shutdown, start);
            QueueTask { _stop_with_lease_task: shutdown.clone().drop_guard(), shutdown, task }
        });
    }
    for key in lost {
        if let Some(queue_task) = running.remove(&key) {
            queue_task.shutdown.cancel();
        }
    }
}

/// Exchanges connected-user counts with other replicas, and purges ended tickets and matches.
async fn exchange_connected_users(shared: &SharedState, round: u32) {
    let now = shared.common.clock.now();
    let local_counts = shared.connected_users.lock().local_counts(now);
    match shared.common.store.report_connected_users(&local_counts).await {
        Ok(total_counts) => shared.connected_users.lock().set_total_counts(total_counts),
        Err(error) => tracing::debug!(%error, "connected user exchange failed"),
    }
    if round.is_multiple_of(ROUNDS_PER_PURGE) {
        shared.purge_ended(now);
        shared.forget_placed_matches();
        if let Err(error) = shared.common.store.purge_queues(now).await {
            tracing::warn!(%error, "purge of ended tickets and matches failed");
        }
    }
    let unknown_rows: u64 = shared.common.store.unknown_row_counts().iter().map(|(_, count)| count).sum();
    shared.common.metrics.store_unknown_rows.set(i64::try_from(unknown_rows).unwrap_or(i64::MAX));
    let (tickets, matches) = shared.cache.read().ticket_and_match_counts();
    shared.common.metrics.tickets.set(i64::try_from(tickets).unwrap_or(i64::MAX));
    shared.common.metrics.matches.set(i64::try_from(matches).unwrap_or(i64::MAX));
}
