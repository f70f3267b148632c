//! Exchange of connected users with the other servers of a store, for gates that require a share of them.
//!
//! Each server lists the keys of its users in the store: first all, then who has connected and disconnected. So users who are
//! connected to two servers count once. Heartbeats of users who stay connected change nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::domain::id::{SetId, UserKey};
use crate::engine::queues::shared_state::SharedState;
use crate::store::queues::QueueKey;
use crate::store::queues::connected_users_report::{ConnectedUsersReport, USER_CHANGES_PER_REPORT_MAX};

/// Shortest interval between reports.
const INTERVAL_MIN: Duration = Duration::from_secs(2);

/// Longest interval between reports. Others count the users of a server for ten seconds after its report.
const INTERVAL_MAX: Duration = Duration::from_secs(5);

/// Time since the last report from which the list may be gone from the store: it is removed a minute after it.
const RELIST_ALL_USERS_AFTER: Duration = Duration::from_secs(30);

/// Users that a server lists; with more of them, each counts once per server.
const LISTED_USERS_MAX: usize = 200_000;

/// Task of the report in progress, so that no lease waits for it.
#[derive(Debug, Default)]
pub(super) struct ConnectedUserReportTask {
    exchange: ConnectedUserExchange,
    task: Option<JoinHandle<ConnectedUserExchange>>,
}

impl ConnectedUserReportTask {
    /// Starts a report if one is due and none is in progress. `own_queues`: those whose passes this server runs.
    pub(super) async fn start_if_due(&mut self, shared: &Arc<SharedState>, own_queues: impl FnOnce() -> Vec<QueueKey>) {
        if let Some(task) = self.task.take_if(|task| task.is_finished()) {
            // After a panic all users are listed again.
            self.exchange = task.await.unwrap_or_default();
        }
        if self.task.is_none() && self.exchange.due_at.is_none_or(|due_at| due_at <= Instant::now()) {
            let (mut exchange, shared, own_queues) =
                (std::mem::take(&mut self.exchange), Arc::clone(shared), own_queues());
            self.task = Some(tokio::spawn(async move {
                exchange.run_once(&shared, own_queues).await;
                exchange
            }));
        }
    }

    /// Ends the report in progress: no user is listed afterwards.
    pub(super) async fn stop(self) {
        if let Some(task) = self.task {
            task.abort();
            let _ = task.await;
        }
    }
}

/// State of the list in the store.
#[derive(Debug, Default)]
struct ConnectedUserExchange {
    /// Changes that the store does not have yet: whether the user is connected.
    unsent: BTreeMap<(QueueKey, UserKey), bool>,
    /// Sets whose users are listed.
    sets: BTreeSet<SetId>,
    /// Time of the last report. `None`: the next one lists all users.
    last_report_at: Option<Instant>,
    /// Time of the next report.
    due_at: Option<Instant>,
}

impl ConnectedUserExchange {
    /// Reports this server's users, and takes over the totals of all servers.
    async fn run_once(&mut self, shared: &SharedState, own_queues: Vec<QueueKey>) {
        let started = Instant::now();
        let report = self.next_report(shared, own_queues);
        match shared.common.store.exchange_connected_users(&report).await {
            Ok(totals) => {
                shared.connected_users.lock().set_total_counts(totals);
                self.last_report_at = Some(started);
            }
            Err(error) => {
                tracing::debug!(%error, "connected user exchange failed");
                self.last_report_at = None;
            }
        }
        // Counting many users takes the database's time: at most a twentieth of it.
        self.due_at = Some(started + (20 * started.elapsed()).clamp(INTERVAL_MIN, INTERVAL_MAX));
    }

    fn next_report(&mut self, shared: &SharedState, own_queues: Vec<QueueKey>) -> ConnectedUsersReport {
        let sets = sets_gated_by_connected_users(shared);
        let mut report = ConnectedUsersReport::default();
        let now = shared.common.clock.now();
        let mut connected_users = shared.connected_users.lock();
        if !sets.is_empty() {
            report.queues_to_total = own_queues.into_iter().filter(|queue| sets.contains(&queue.set_id)).collect();
            let counts = connected_users.local_counts(now).iter();
            report.counts =
                counts.filter(|(key, _)| sets.contains(&key.set_id)).map(|(key, count)| (*key, *count)).collect();
        }
        let count: usize = report.counts.iter().map(|(_, count)| *count as usize).sum();
        if !shared.has_replicas || sets.is_empty() || LISTED_USERS_MAX < count {
            connected_users.stop_recording();
            report.replaces_list = !std::mem::take(&mut self.sets).is_empty() || self.last_report_at.is_none();
            self.unsent.clear();
            return report;
        }
        let is_lost = self.last_report_at.is_none_or(|listed_at| RELIST_ALL_USERS_AFTER <= listed_at.elapsed());
        let changes = connected_users.take_changes(&sets).filter(|_| !is_lost);
        report.replaces_list = changes.is_none();
        let all: Vec<_> = match changes {
            Some(_) => Vec::new(),
            None => connected_users.start_recording(&sets).collect(),
        };
        drop(connected_users);
        match changes {
            Some(changes) => self.unsent.extend(changes),
            None => self.unsent = all.into_iter().map(|entry| (entry, true)).collect(),
        }
        self.sets = sets;
        while report.newly_connected.len() + report.newly_disconnected.len() < USER_CHANGES_PER_REPORT_MAX
            && let Some(((queue, user), is_connected)) = self.unsent.pop_first()
        {
            let key = shared.common.public_user_keys.connected_user_digest_in_queue(queue.set_id, queue.silo, user);
            let users = if is_connected { &mut report.newly_connected } else { &mut report.newly_disconnected };
            users.push((queue, key));
        }
        report.is_list_complete = self.unsent.is_empty();
        report
    }
}

/// Sets whose gate requires a share of the connected users. No other set needs the counts.
fn sets_gated_by_connected_users(shared: &SharedState) -> BTreeSet<SetId> {
    let catalog = shared.common.rulesets.snapshot();
    let counts_connected = |set_id: &SetId| {
        let queue = catalog.active.get(set_id).and_then(|active| active.ruleset.queue.as_ref());
        queue.is_some_and(|queue| queue.gate.requires_share_of_connected())
    };
    catalog.active.keys().copied().filter(counts_connected).collect()
}
