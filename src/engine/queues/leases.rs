//! Sees to it that every queue is run by somebody: takes leases, starts and stops runners, counts who is connected.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::engine::queues::queue_runner;
use crate::engine::queues::shared_state::SharedState;
use crate::store::queues::QueueKey;

/// How long a lease lasts. A server that dies leaves its queues alone for this long and `RENEW_EVERY` at most.
const LEASE_MS: u32 = 2_000;

/// How often leases are renewed, and those of others asked for.
const LEASE_RENEW_INTERVAL: Duration = Duration::from_millis(600);

/// How often servers tell each other how many users they have connected, and the store forgets what is due.
const CONNECTED_USERS_INTERVAL: Duration = Duration::from_secs(2);

/// How often what is over leaves memory, in rounds of `ATTEND_EVERY`.
const ROUNDS_PER_PURGE: u32 = 5;

/// A runner at work.
struct QueueTask {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Keeps queues running until told to stop.
pub(super) async fn run_lease_task(hall: Arc<SharedState>, stop: CancellationToken) {
    let mut running: BTreeMap<QueueKey, QueueTask> = BTreeMap::new();
    let mut renewed_at: Option<Instant> = None;
    let mut attended_at: Option<Instant> = None;
    let mut rounds = 0_u32;
    loop {
        let new = {
            let asked = hall.requested_leases.lock();
            active_queues(&hall).iter().any(|key| !asked.contains(key))
        };
        if new || renewed_at.is_none_or(|at| at + LEASE_RENEW_INTERVAL <= Instant::now()) {
            renewed_at = Some(Instant::now());
            renew_leases(&hall, &mut running).await;
        }
        if attended_at.is_none_or(|at| at + CONNECTED_USERS_INTERVAL <= Instant::now()) {
            attended_at = Some(Instant::now());
            rounds = rounds.wrapping_add(1);
            exchange_connected_users(&hall, rounds).await;
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = hall.lease_wakeup.notified() => {}
            () = tokio::time::sleep(LEASE_RENEW_INTERVAL) => {}
        }
    }
    let keys: Vec<QueueKey> = running.keys().copied().collect();
    for (_, it) in running {
        it.stop.cancel();
        let _ = it.task.await;
    }
    // Another server goes on at once rather than when the leases run out.
    let _ = hall.core.store.release_leases(&keys).await;
}

/// Queues in which anything waits or is played.
fn active_queues(hall: &SharedState) -> Vec<QueueKey> {
    hall.cache.read().queues().map(|(key, _)| key).collect()
}

/// Takes or renews leases; starts what was granted, stops what was not.
async fn renew_leases(hall: &Arc<SharedState>, running: &mut BTreeMap<QueueKey, QueueTask>) {
    running.retain(|_, it| !it.task.is_finished());
    let wanted = active_queues(hall);
    *hall.requested_leases.lock() = wanted.iter().copied().collect();
    let granted = match hall.core.store.acquire_leases(&wanted, LEASE_MS).await {
        Ok(granted) => granted,
        Err(error) => {
            tracing::warn!(%error, "take the leases of queues");
            vec![false; wanted.len()]
        }
    };
    let mut lost: Vec<QueueKey> = running.keys().copied().collect();
    for (key, granted) in wanted.into_iter().zip(granted) {
        if !granted {
            continue;
        }
        lost.retain(|known| *known != key);
        running.entry(key).or_insert_with(|| {
            let stop = CancellationToken::new();
            let task = tokio::spawn(queue_runner::run_queue(Arc::clone(hall), key, stop.clone()));
            QueueTask { stop, task }
        });
    }
    for key in lost {
        if let Some(it) = running.remove(&key) {
            it.stop.cancel();
        }
    }
}

/// Tells the others who is here, and forgets what nobody asks for any more.
async fn exchange_connected_users(hall: &SharedState, round: u32) {
    let now = hall.core.clock.now();
    let here = hall.connected_users.lock().counts_on_this_replica(now);
    match hall.core.store.report_connected_users(&here).await {
        Ok(everywhere) => hall.connected_users.lock().set_total_counts(everywhere),
        Err(error) => tracing::debug!(%error, "count who is connected"),
    }
    if round.is_multiple_of(ROUNDS_PER_PURGE) {
        hall.purge_ended(now);
        if let Err(error) = hall.core.store.purge_queues(now).await {
            tracing::warn!(%error, "forget tickets and matches that are over");
        }
    }
    let (tickets, matches) = hall.cache.read().ticket_and_match_counts();
    hall.core.metrics.tickets.set(i64::try_from(tickets).unwrap_or(i64::MAX));
    hall.core.metrics.matches.set(i64::try_from(matches).unwrap_or(i64::MAX));
}
