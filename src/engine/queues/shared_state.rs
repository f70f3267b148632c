//! State shared by the queue API, the queue writer and the queue runners.

mod acknowledgement;
mod apply_changes;
mod block_lists;
mod gone_tickets;
pub(crate) mod heartbeat;
pub(crate) mod host_contact;
pub(crate) mod hosted_matches;
mod match_events;
mod match_statistics;
pub(crate) mod side_reports;
mod ticket_status;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{Instant, timeout_at};

use crate::domain::available_time::OutageTimes;
use crate::domain::id::{MatchId, RulesetHash, SetId, TicketId};
use crate::domain::lifecycle::event::MatchEvent;
use crate::domain::lifecycle::rules::LifecycleRules;
use crate::domain::lifecycle::{Assignment, Match};
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::teams::HOST_CONFIRM_WITHOUT_STREAM_MS_MIN;
use crate::engine::adverts::adverts_for_queues::AdvertsForQueues;
use crate::engine::common::Common;
use crate::engine::error::EngineError;
use crate::engine::open_silos::SiloUse;
use crate::engine::queues::allocators::Allocators;
use crate::engine::queues::connected_users::ConnectedUsers;
use crate::engine::queues::overview::OverviewChannel;
use crate::engine::queues::pass_reports::PassReports;
use crate::engine::queues::placement_problems::PlacementProblems;
use crate::engine::queues::queue_wakeups::{QueueWakeups, RunnerHandle};
use crate::engine::queues::shared_state::gone_tickets::GoneTickets;
use crate::engine::queues::ticket_match_cache::TicketMatchCache;
use crate::engine::queues::wait_estimator::WaitEstimator;
use crate::engine::queues::writer_command::{EventOutcome, PendingEvent, QueueWriterCommand};
use crate::engine::ratings::RatingCache;
use crate::engine::writer_inbox::{RETRY_AFTER_MS, submit_command, wait_for_commit};
use crate::rules::catalog::MatchRulesetLookup;
use crate::store::StoreError;
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite, StoredTicket};

/// Maximum delay until another replica's acknowledged change is visible here.
pub(crate) const REPLICATION_DELAY_MAX: Duration = Duration::from_secs(1);

/// Shared queue state. Each lock is held for a lookup or a few changes, never across an await.
pub(crate) struct SharedState {
    pub(crate) common: Arc<Common>,
    /// Advertisements: game servers and sessions to backfill.
    pub(crate) adverts: AdvertsForQueues,
    pub(crate) cache: RwLock<TicketMatchCache>,
    pub(crate) wait_estimator: Mutex<WaitEstimator>,
    /// Ratings; the same as in `common`.
    pub(crate) ratings: Arc<Mutex<RatingCache>>,
    pub(crate) connected_users: Mutex<ConnectedUsers>,
    pub(crate) pass_reports: Mutex<PassReports>,
    pub(crate) placement_problems: Mutex<PlacementProblems>,
    /// Overviews for operators who watch.
    pub(crate) overview: OverviewChannel,
    /// Allocators that are connected to this server.
    pub(crate) allocators: Mutex<Allocators>,
    /// Held while a user is erased or exported: one reads whole tables at a time.
    pub(crate) user_data_scan_lock: tokio::sync::Mutex<()>,
    /// Held while a ruleset is tried.
    pub(crate) ruleset_trial_lock: Arc<tokio::sync::Mutex<()>>,
    /// Wakes the task that offers matches to allocators.
    pub(crate) allocation_offer_wakeup: Notify,
    pub(crate) queue_writer: mpsc::Sender<QueueWriterCommand>,
    /// Replicas share the store, so their acknowledged changes may not be visible here yet.
    pub(crate) has_replicas: bool,
    /// Runners of this replica, and queues that are new to the lease task.
    pub(crate) queue_wakeups: Mutex<QueueWakeups>,
    /// Whether hosts must confirm matches, and sessions may start them: each server that runs queues must be able to read such
    /// matches.
    is_host_confirmation_enabled: AtomicBool,
    /// Wakes the lease task when a queue is new.
    pub(crate) lease_wakeup: Notify,
    /// Tickets that the store did not have.
    gone_tickets: Mutex<GoneTickets>,
    /// Change counter of the cache, for callers that wait for a ticket or a match.
    cache_changes: watch::Sender<u64>,
}

/// A match that a call is about.
#[derive(Debug)]
pub(crate) enum FoundMatch {
    /// In the cache: events can be applied to it.
    Cached(Arc<Match>),
    /// It has ended, and the feed has not brought it.
    EndedInStore(Arc<Match>),
}

impl FoundMatch {
    /// The match, wherever it was found.
    pub(crate) fn into_match(self) -> Arc<Match> {
        match self {
            Self::Cached(found) | Self::EndedInStore(found) => found,
        }
    }
}

/// Row that was read. A row that this server cannot decode counts as absent, as in the feed.
fn readable_row<T>(read: Result<Option<T>, StoreError>) -> Result<Option<T>, EngineError> {
    match read {
        Ok(row) => Ok(row),
        Err(error) if error.is_of_one_row() => {
            tracing::debug!(%error, "row of a ticket or match not decoded");
            Ok(None)
        }
        Err(error) => {
            tracing::debug!(%error, "ticket or match not read");
            Err(EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS })
        }
    }
}

impl SharedState {
    pub(crate) fn new(
        common: Arc<Common>,
        adverts: AdvertsForQueues,
        queue_writer: mpsc::Sender<QueueWriterCommand>,
        has_replicas: bool,
    ) -> Self {
        let (open_silos, past_matches) = (Arc::clone(&common.open_silos), Arc::clone(&common.past_matches));
        Self {
            ratings: Arc::clone(&common.ratings),
            common,
            adverts,
            cache: RwLock::new(TicketMatchCache::new(open_silos, past_matches)),
            wait_estimator: Mutex::default(),
            connected_users: Mutex::default(),
            pass_reports: Mutex::default(),
            placement_problems: Mutex::default(),
            overview: OverviewChannel::default(),
            allocators: Mutex::default(),
            user_data_scan_lock: tokio::sync::Mutex::default(),
            ruleset_trial_lock: Arc::default(),
            allocation_offer_wakeup: Notify::new(),
            queue_writer,
            has_replicas,
            queue_wakeups: Mutex::default(),
            is_host_confirmation_enabled: AtomicBool::new(!has_replicas),
            lease_wakeup: Notify::new(),
            gone_tickets: Mutex::default(),
            cache_changes: watch::Sender::new(0),
        }
    }

    /// Settings of the lifecycle for the matches of `ruleset`.
    pub(crate) fn lifecycle_rules(&self, ruleset: &Ruleset) -> LifecycleRules {
        let rules = LifecycleRules::from_ruleset(ruleset);
        let hosts_confirm =
            self.is_host_confirmation_enabled.load(Ordering::Acquire) && !fail_point_skips_confirmation();
        LifecycleRules { hosts_confirm: rules.hosts_confirm && hosts_confirm, ..rules }
    }

    /// Settings of the lifecycle for an event. A host without a stream learns of its match with its next heartbeat, so it
    /// has a minimum of time to confirm.
    pub(crate) fn lifecycle_rules_for_event(&self, ruleset: &Ruleset, event: &MatchEvent) -> LifecycleRules {
        let mut rules = self.lifecycle_rules(ruleset);
        let has_stream = match event {
            MatchEvent::ServerFound(Assignment::GameServer { advertisement, .. }) => {
                self.adverts.has_listener(*advertisement)
            }
            _ => false,
        };
        if !has_stream {
            rules.hosting.confirm_ms = rules.hosting.confirm_ms.max(HOST_CONFIRM_WITHOUT_STREAM_MS_MIN);
        }
        rules
    }

    /// Whether each server that runs queues reads matches of sessions. Servers of version 0.2.0 would never end them.
    pub(crate) fn all_servers_support_start_match(&self) -> bool {
        self.is_host_confirmation_enabled.load(Ordering::Acquire)
    }

    /// Lets hosts confirm matches, or not: as long as a server that cannot read such matches runs queues.
    pub(crate) fn set_host_confirmation_enabled(&self, hosts_confirm: bool) {
        if self.is_host_confirmation_enabled.swap(hosts_confirm, Ordering::AcqRel) != hosts_confirm {
            tracing::info!(hosts_confirm, "confirmation of matches by their hosts changed");
        }
    }

    /// Result of `find` on the cache. With replicas, waits up to `REPLICATION_DELAY_MAX` for it to appear.
    pub(crate) async fn wait_for_cached<T>(&self, find: impl Fn(&TicketMatchCache) -> Option<T>) -> Option<T> {
        let mut changes = self.cache_changes.subscribe();
        let deadline = Instant::now() + if self.has_replicas { REPLICATION_DELAY_MAX } else { Duration::ZERO };
        loop {
            changes.borrow_and_update();
            if let Some(found) = find(&self.cache.read()) {
                return Some(found);
            }
            if timeout_at(deadline, changes.changed()).await.is_err() {
                return None;
            }
        }
    }

    /// Ticket from the cache; from the store if another server may have written it and the feed has not brought it yet. `None` as for
    /// [`Self::read_unfed_ticket`].
    pub(crate) async fn find_ticket(&self, id: TicketId) -> Result<Option<StoredTicket>, EngineError> {
        match self.wait_for_cached(|cache| cache.ticket(id).cloned()).await {
            Some(cached) => Ok(Some(cached)),
            None => self.read_unfed_ticket(id).await,
        }
    }

    /// Ticket in the store that the feed has not brought. `None` if it does not exist, was purged, is of a silo that this server does
    /// not serve, or cannot be decoded here. Then the store is not asked again for some seconds: clients may go on to send heartbeats of
    /// purged tickets.
    pub(crate) async fn read_unfed_ticket(&self, id: TicketId) -> Result<Option<StoredTicket>, EngineError> {
        let now = self.common.clock.now();
        if !self.has_replicas || self.gone_tickets.lock().is_gone(id, now) {
            return Ok(None);
        }
        let stored = readable_row(self.common.store.read_ticket(id).await)?;
        let served = stored.filter(|stored| self.common.serves_silo(stored.ticket.session.silo));
        if served.is_none() {
            self.gone_tickets.lock().insert(id, now);
        }
        Ok(served)
    }

    /// Match in the cache; if the feed is late, one that has ended in the store. Fails if the store has it and it has not ended: the
    /// call is to be repeated. `None` as for [`Self::read_unfed_match`].
    pub(crate) async fn find_match(&self, id: MatchId) -> Result<Option<FoundMatch>, EngineError> {
        if let Some(cached) = self.wait_for_cached(|cache| cache.match_by_id(id).cloned()).await {
            return Ok(Some(FoundMatch::Cached(cached)));
        }
        match self.read_unfed_match(id).await? {
            None => Ok(None),
            Some(stored) if stored.stage.end_reason().is_some() => Ok(Some(FoundMatch::EndedInStore(stored))),
            Some(_) => Err(EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }),
        }
    }

    /// Match in the store that the feed has not brought. `None` if it does not exist, was purged, is of a silo that this server does
    /// not serve, or cannot be decoded here.
    pub(crate) async fn read_unfed_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, EngineError> {
        if !self.has_replicas {
            return Ok(None);
        }
        let stored = readable_row(self.common.store.read_match(id).await)?;
        Ok(stored.filter(|stored| self.common.serves_silo(stored.silo)))
    }

    /// A match as it is now, if another server has changed it since `known`. Reads the store, so it is only asked before a
    /// call is refused because of the state of the match, which another server may have told the caller, and for operators.
    pub(crate) async fn wait_for_newer_match(&self, known: &Match) -> Result<Option<Arc<Match>>, EngineError> {
        if !self.has_replicas {
            return Ok(None);
        }
        let unavailable = EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS };
        let stored = self.common.store.read_match(known.id).await.map_err(|error| {
            tracing::debug!(%error, match_id = %known.id, "match not read");
            unavailable.clone()
        })?;
        let Some(stored) = stored.filter(|stored| known.version < stored.version) else { return Ok(None) };
        let is_current = |match_: &&Arc<Match>| stored.version <= match_.version;
        let newer = self.wait_for_cached(|cache| cache.match_by_id(known.id).filter(is_current).cloned()).await;
        newer.map(Some).ok_or(unavailable)
    }

    /// Writes a change; returns when it is durable. Dropping the future does not cancel the write.
    pub(crate) async fn submit_write(&self, write: QueueWrite) -> Result<QueueOutcome, EngineError> {
        self.submit_write_keeping_silo_open(write, None).await
    }

    /// Writes a change like `submit_write`, and keeps a silo open until the change is in memory.
    pub(crate) async fn submit_write_keeping_silo_open(
        &self,
        write: QueueWrite,
        silo_use: Option<SiloUse>,
    ) -> Result<QueueOutcome, EngineError> {
        let (reply, answer) = oneshot::channel();
        self.send_to_queue_writer(QueueWriterCommand::Write(Box::new(write), reply, silo_use))?;
        wait_for_commit(answer).await
    }

    /// Applies an event to a match; returns when the result is durable. Dropping the future does not cancel it.
    pub(crate) async fn apply_match_event(
        &self,
        match_id: MatchId,
        event: MatchEvent,
    ) -> Result<EventOutcome, EngineError> {
        self.wait_for_match_ruleset(match_id).await;
        let (reply, answer) = oneshot::channel();
        self.send_to_queue_writer(QueueWriterCommand::MatchEvent(Box::new(PendingEvent::new(match_id, event, reply))))?;
        wait_for_commit(answer).await
    }

    /// Waits until the ruleset of a match is loaded, at most `REPLICATION_DELAY_MAX`: another replica may have made the
    /// match under a ruleset that this server does not have.
    async fn wait_for_match_ruleset(&self, match_id: MatchId) {
        let Some(found) = self.cache.read().match_by_id(match_id).cloned() else { return };
        self.wait_for_ruleset(found.set_id, found.ruleset_hash).await;
    }

    /// Waits until the ruleset of a match is loaded or is known to be unavailable, at most `REPLICATION_DELAY_MAX`.
    pub(crate) async fn wait_for_ruleset(&self, set_id: SetId, hash: RulesetHash) {
        let mut syncs = self.common.ruleset_syncs.subscribe();
        let deadline = Instant::now() + REPLICATION_DELAY_MAX;
        while self.common.ruleset_of_match(set_id, hash) == MatchRulesetLookup::NotLoaded {
            if timeout_at(deadline, syncs.changed()).await.is_err() {
                return;
            }
        }
    }

    /// Updates the deadlines in memory if `outages` differ from those that they were computed with.
    pub(crate) fn apply_outages_to_cache(&self, outages: &Arc<OutageTimes>) {
        if !self.cache.read().are_deadlines_computed_with(outages) {
            self.cache.write().recompute_deadlines_with(outages, &self.common.rulesets);
        }
    }

    /// Puts a command in the queue writer's inbox.
    pub(crate) fn send_to_queue_writer(&self, command: QueueWriterCommand) -> Result<(), EngineError> {
        submit_command(&self.queue_writer, command)
    }

    /// Wakes the runners of changed queues, the callers that wait for a change, and the lease task if a queue is new.
    pub(crate) fn notify_queues_changed(&self, keys: impl IntoIterator<Item = QueueKey>) {
        let has_new = self.queue_wakeups.lock().wake_changed_queues(keys);
        self.cache_changes.send_modify(|count| *count = count.wrapping_add(1));
        if has_new {
            self.lease_wakeup.notify_one();
        }
    }

    /// Removes a runner that has ended. If its queue still has tickets, the lease task starts another one: at once, or at
    /// its next renewal after a panic, so that a runner that panics each time does not occupy a core.
    pub(crate) fn remove_runner(&self, handle: &RunnerHandle, has_panicked: bool) {
        let was_registered = self.queue_wakeups.lock().remove_runner(handle);
        // Look after the removal: a change before it has only woken this runner.
        if !was_registered || self.cache.read().queue_index(handle.key).is_none() {
            return;
        }
        let has_new = self.queue_wakeups.lock().wake_changed_queues([handle.key]);
        if has_new && !has_panicked {
            self.lease_wakeup.notify_one();
        }
    }
}

impl std::fmt::Debug for SharedState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedState").finish_non_exhaustive()
    }
}

/// Whether the fail point is on that starts play without the confirmation of the host.
fn fail_point_skips_confirmation() -> bool {
    fail::fail_point!("skip_confirmation", |_| true);
    false
}
