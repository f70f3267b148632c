//! Queue leases: acquires a lease per queue, runs one task for each queue held, and exchanges connected-user counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::domain::id::SetId;
use crate::domain::limit::RATINGS_PER_TRANSACTION_MAX;
use crate::domain::ruleset::probing::LatencyEstimatePolicy;
use crate::domain::time::UnixMs;
use crate::engine::queues::connected_user_exchange::ConnectedUserReportTask;
use crate::engine::queues::outage_sync::{report_stop, sync_outages};
use crate::engine::queues::queue_runner;
use crate::engine::queues::shared_state::SharedState;
use crate::rules::catalog::CatalogState;
use crate::store::queues::{QueueKey, QueueWrite};
use crate::store::writer_version::{CONFIRMING_MATCHES_MIN_VERSION, LEASE_HOLDERS_MIN_VERSION};
use crate::telemetry::label::TaskLabel;

/// Time for which a server counts as alive. After a crash, queues are unowned for at most this plus `LEASE_RENEW_INTERVAL`.
const LEASE_HOLDER_DURATION_MS: u32 = 2_000;

/// Interval at which this server says that it lives, and requests the leases of new queues.
const LEASE_RENEW_INTERVAL: Duration = Duration::from_millis(600);

/// Lease duration while its holder lives. Servers of earlier versions know only this one: while they run, it is as short as
/// `LEASE_HOLDER_DURATION_MS`.
const LEASE_DURATION_MS: u32 = 60_000;

/// Interval at which the leases of all queues are renewed and requested, if no server came or went meanwhile.
const ALL_LEASES_INTERVAL: Duration = Duration::from_secs(30);

/// Interval of rounds of cleaning up, and at which a server that shares no store looks after outages.
const CLEAN_UP_INTERVAL: Duration = Duration::from_secs(2);

/// Interval at which servers that share a store report that they live, and read the reports of the others. Deadlines that pass
/// wait for two of them at most.
const LIVENESS_SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Rounds of `CLEAN_UP_INTERVAL` between purges of ended tickets and matches.
const ROUNDS_PER_PURGE: u32 = 5;

/// Rounds of `CLEAN_UP_INTERVAL` between removals of old ratings: ten minutes. Each reads all ratings in memory.
const ROUNDS_PER_RATING_PURGE: u32 = 300;

/// Maximum transactions of one removal of old ratings.
const RATING_PURGE_TRANSACTIONS_MAX: usize = 100;

/// Running task of one queue.
struct QueueTask {
    runner_id: u64,
    shutdown: CancellationToken,
    /// Stops the runner if the lease task panics, so that the next one does not start a second runner beside it.
    _stop_with_lease_task: DropGuard,
    task: JoinHandle<()>,
}

/// Acquires leases and runs queues until stopped.
pub(crate) async fn run_lease_task(shared: Arc<SharedState>, shutdown: CancellationToken) {
    let mut leases = Leases {
        shared,
        running: BTreeMap::new(),
        must_request_all: true,
        requested_all_at: None,
        other_holders: BTreeSet::new(),
        has_servers_of_older_version: false,
        previous_rulesets: None,
        previous_fleet_change_count: 0,
    };
    let mut renewed_at: Option<Instant> = None;
    let (mut cleaned_at, mut synced_at): (Option<Instant>, Option<Instant>) = (None, None);
    let mut connected_users = ConnectedUserReportTask::default();
    let mut rounds = 0_u32;
    loop {
        if renewed_at.is_none_or(|at| at + LEASE_RENEW_INTERVAL <= Instant::now()) {
            renewed_at = Some(Instant::now());
            leases.renew().await;
        } else {
            leases.acquire_new().await;
        }
        connected_users.start_if_due(&leases.shared, || leases.running.keys().copied().collect()).await;
        if cleaned_at.is_none_or(|at| at + CLEAN_UP_INTERVAL <= Instant::now()) {
            cleaned_at = Some(Instant::now());
            rounds = rounds.wrapping_add(1);
            purge_and_update_metrics(&leases.shared, rounds).await;
        }
        let sync_interval = if leases.shared.has_replicas { LIVENESS_SYNC_INTERVAL } else { CLEAN_UP_INTERVAL };
        if synced_at.is_none_or(|at| at + sync_interval <= Instant::now()) {
            synced_at = Some(Instant::now());
            sync_outages(&leases.shared).await;
        }
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = leases.shared.lease_wakeup.notified() => {}
            () = tokio::time::sleep(LEASE_RENEW_INTERVAL) => {}
        }
    }
    connected_users.stop().await;
    leases.stop().await;
}

/// Leases of this replica, and the tasks of the queues that it holds.
struct Leases {
    shared: Arc<SharedState>,
    running: BTreeMap<QueueKey, QueueTask>,
    /// The next renewal must request the leases of all queues, because an earlier request failed.
    must_request_all: bool,
    /// When the leases of all queues were last requested.
    requested_all_at: Option<Instant>,
    /// Other servers that were alive at the last renewal.
    other_holders: BTreeSet<u64>,
    /// Servers of earlier versions run. They know leases only, and not their holders.
    has_servers_of_older_version: bool,
    /// Ruleset catalog at the last renewal.
    previous_rulesets: Option<Arc<CatalogState>>,
    /// Number of changes of the beacons by which round trips are predicted, at the last renewal.
    previous_fleet_change_count: u64,
}

impl Leases {
    /// Renews the leases, and wakes the queues that are due, have a new ruleset, or predict by other beacons.
    ///
    /// Leases are in force while this server says that it lives, in one row. All of them are requested when another server
    /// has come or gone, and now and then. Otherwise only new queues are requested, so that idle queues cost nothing.
    async fn renew(&mut self) {
        self.remove_ended_tasks();
        let new_queues = self.shared.queue_wakeups.lock().take_new_queues();
        if self.renew_lease_holder().await {
            self.acquire_all(nonempty_queues(&self.shared)).await;
        } else {
            // Also without new queues: a store that serves one server checks whether this server may still write.
            self.acquire(new_queues.into_iter().collect()).await;
        }
        self.wake_changed_rulesets();
        self.wake_after_fleet_change();
        self.shared.queue_wakeups.lock().wake_due(self.shared.common.clock.now());
    }

    /// Renews this server's row as a holder of leases. Returns whether the leases of all queues must be requested.
    async fn renew_lease_holder(&mut self) -> bool {
        let holders = match self.shared.common.store.renew_lease_holder(LEASE_HOLDER_DURATION_MS).await {
            Ok(holders) => holders,
            Err(error) => {
                tracing::warn!(%error, "renewal as a holder of queue leases failed");
                self.must_request_all = true;
                return true;
            }
        };
        self.read_lowest_format().await;
        let is_due = self.requested_all_at.is_none_or(|at| at + ALL_LEASES_INTERVAL <= Instant::now());
        self.must_request_all |= !holders.was_this_server_live || holders.others != self.other_holders;
        self.shared.overview.record_other_live_servers(holders.others.len());
        self.other_holders = holders.others;
        self.must_request_all || (self.shared.has_replicas && (is_due || self.has_servers_of_older_version))
    }

    /// Reads the lowest store format of the live servers.
    async fn read_lowest_format(&mut self) {
        match self.shared.common.store.lowest_store_format().await {
            Ok(lowest) => {
                self.has_servers_of_older_version = lowest < LEASE_HOLDERS_MIN_VERSION;
                self.shared.set_host_confirmation_enabled(CONFIRMING_MATCHES_MIN_VERSION <= lowest);
            }
            // The last answer stays valid until the store answers again.
            Err(error) => tracing::debug!(%error, "store formats of lease holders not read"),
        }
    }

    /// Acquires the leases of queues that are new since the last renewal.
    async fn acquire_new(&mut self) {
        let new_queues = self.shared.queue_wakeups.lock().take_new_queues();
        if !new_queues.is_empty() {
            self.acquire(new_queues.into_iter().collect()).await;
        }
    }

    /// Acquires leases of further queues. If that fails, the next renewal requests all leases.
    async fn acquire(&mut self, queues: Vec<QueueKey>) {
        match self.request(&queues).await {
            Some(granted) => self.start_granted(queues.into_iter().zip(granted)),
            None => self.must_request_all = true,
        }
    }

    /// Acquires or renews the leases of all active queues, and stops the tasks of all others.
    async fn acquire_all(&mut self, queues: Vec<QueueKey>) {
        self.must_request_all = false;
        self.requested_all_at = Some(Instant::now());
        self.shared.queue_wakeups.lock().clear_held_elsewhere();
        let granted = self.request(&queues).await.unwrap_or_else(|| {
            self.must_request_all = true;
            vec![false; queues.len()]
        });
        let held: BTreeSet<QueueKey> =
            queues.iter().zip(&granted).filter(|(_, granted)| **granted).map(|(key, _)| *key).collect();
        self.running.retain(|key, queue_task| {
            let is_held = held.contains(key);
            if !is_held {
                queue_task.shutdown.cancel();
            }
            is_held
        });
        self.start_granted(queues.into_iter().zip(granted));
    }

    /// Requests leases; `None` if that failed.
    async fn request(&self, queues: &[QueueKey]) -> Option<Vec<bool>> {
        let duration_ms = if self.has_servers_of_older_version { LEASE_HOLDER_DURATION_MS } else { LEASE_DURATION_MS };
        let result = self.shared.common.store.acquire_leases(queues, duration_ms).await;
        result.inspect_err(|error| tracing::warn!(%error, "queue lease acquisition failed")).ok()
    }

    /// Starts the tasks of granted queues that have none yet.
    fn start_granted(&mut self, queues: impl Iterator<Item = (QueueKey, bool)>) {
        let mut wakeups = self.shared.queue_wakeups.lock();
        for (key, granted) in queues {
            if !granted {
                wakeups.mark_held_elsewhere(key);
                continue;
            }
            let Some(handle) = wakeups.register_runner(key) else { continue };
            let shutdown = CancellationToken::new();
            let runner_id = handle.id;
            let (shared, stop) = (Arc::clone(&self.shared), shutdown.clone());
            let task = tokio::spawn(async move {
                // After a panic, the runner has ended its registration: the next renewal starts another one.
                let supervisor = shared.common.supervisor.clone();
                let _ = supervisor
                    .catch(TaskLabel::QueueRunner, queue_runner::run_queue_until_empty(shared, handle, stop))
                    .await;
            });
            let _stop_with_lease_task = shutdown.clone().drop_guard();
            self.running.insert(key, QueueTask { runner_id, shutdown, _stop_with_lease_task, task });
        }
    }

    /// Forgets the tasks that have ended. A queue that still has tickets is listed as new.
    fn remove_ended_tasks(&mut self) {
        let ended_runners = self.shared.queue_wakeups.lock().take_ended_runners();
        for (key, runner_id) in ended_runners {
            if self.running.get(&key).is_some_and(|queue_task| queue_task.runner_id == runner_id) {
                self.running.remove(&key);
            }
        }
    }

    /// Wakes the queues of sets whose ruleset has changed since the last renewal.
    fn wake_changed_rulesets(&mut self) {
        let current = self.shared.common.rulesets.snapshot();
        if let Some(previous) = self.previous_rulesets.replace(Arc::clone(&current))
            && !Arc::ptr_eq(&previous, &current)
        {
            let hash = |catalog: &CatalogState, set: SetId| catalog.active.get(&set).map(|active| active.ruleset.hash);
            let wakeups = self.shared.queue_wakeups.lock();
            wakeups.wake_sets(|set_id| hash(&previous, set_id) != hash(&current, set_id));
        }
    }

    /// Wakes the queues that predict round trips if beacons have come or gone since the last renewal, or their round trips are new.
    fn wake_after_fleet_change(&mut self) {
        let common = &self.shared.common;
        let fleet_changes = common.beacons.fleet_change_count(common.clock.now());
        if std::mem::replace(&mut self.previous_fleet_change_count, fleet_changes) == fleet_changes {
            return;
        }
        let predicts = |set_id: SetId| {
            let ruleset = common.rulesets.ruleset_in_force(set_id);
            ruleset.is_some_and(|ruleset| ruleset.probing.latency_estimate_policy == LatencyEstimatePolicy::PredictedV1)
        };
        self.shared.queue_wakeups.lock().wake_sets(predicts);
    }

    /// Stops all tasks and releases the leases, so that another replica takes over before they expire.
    async fn stop(self) {
        for (_, queue_task) in self.running {
            queue_task.shutdown.cancel();
            let _ = queue_task.task.await;
        }
        report_stop(&self.shared).await;
        let _ = self.shared.common.store.release_leases().await;
    }
}

/// Queues with a waiting ticket or a running match.
fn nonempty_queues(shared: &SharedState) -> Vec<QueueKey> {
    shared.cache.read().queues().map(|(key, _)| key).collect()
}

/// Purges ended tickets and matches, and updates metrics.
async fn purge_and_update_metrics(shared: &Arc<SharedState>, round: u32) {
    let now = shared.common.clock.now();
    if round.is_multiple_of(ROUNDS_PER_PURGE) {
        shared.purge_ended_from_cache(now);
        shared.forget_stale_placement_problems();
        if let Err(error) = shared.common.store.purge_queues(now).await {
            tracing::warn!(%error, "purge of ended tickets and matches failed");
        }
        spawn_erasure_and_rating_clean_up(shared, round.is_multiple_of(ROUNDS_PER_RATING_PURGE));
    }
    let unknown_rows: u64 = shared.common.store.unknown_row_counts().iter().map(|(_, count)| count).sum();
    shared.common.metrics.store_unknown_rows.set(i64::try_from(unknown_rows).unwrap_or(i64::MAX));
    let ((tickets, matches), live_counts) = {
        let cache = shared.cache.read();
        (cache.ticket_and_match_counts(), cache.live_counts_by_set().collect::<Vec<_>>())
    };
    shared.common.metrics.set_queue_counts(live_counts);
    shared.common.metrics.tickets.set(i64::try_from(tickets).unwrap_or(i64::MAX));
    shared.common.metrics.matches.set(i64::try_from(matches).unwrap_or(i64::MAX));
    shared.common.metrics.open_silos.set(i64::try_from(shared.common.open_silos.count()).unwrap_or(i64::MAX));
}

/// Cleans up after erasures and, if asked for, removes old ratings; not while a user is erased. A vacuum of a large database
/// takes longer than a lease.
fn spawn_erasure_and_rating_clean_up(shared: &Arc<SharedState>, with_ratings: bool) {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let Ok(_one_at_a_time) = shared.user_data_scan_lock.try_lock() else { return };
        if let Err(error) = shared.common.store.clean_up_erasures().await {
            tracing::warn!(%error, "cleanup after an erasure failed");
        }
        if with_ratings {
            purge_ratings(&shared).await;
        }
    });
}

/// Removes ratings whose last rated match was too long ago.
pub(crate) async fn purge_ratings(shared: &SharedState) {
    let now = shared.common.clock.now();
    let Some(retention_ms) = shared.common.settings.rating_retention_ms else { return };
    let last_match_before = UnixMs(now.0.saturating_sub(retention_ms));
    for _ in 0..RATING_PURGE_TRANSACTIONS_MAX {
        let ratings = shared.ratings.lock().last_rated_before(last_match_before, RATINGS_PER_TRANSACTION_MAX);
        if ratings.is_empty() {
            return;
        }
        if let Err(error) = shared.submit_write(QueueWrite::RemoveInactiveRatings { ratings, last_match_before }).await
        {
            tracing::warn!(?error, "removal of old ratings failed");
            return;
        }
    }
}
