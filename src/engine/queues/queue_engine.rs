//! Queue operations of the engine: start, tickets, ready checks and watches.

mod answer_offer;
mod block_list;
mod end_match;
mod enter_queue;
mod erase_user;
mod explain;
mod export_user;
mod host_heartbeat;
mod leave_queue;
mod list_tickets_and_matches;
mod match_results;
mod operator_actions;
mod own_tickets;
mod player_lookup;
mod player_reports;
mod rating_reads;
mod renew_vectors;
pub(crate) mod ruleset_use;
mod start_match;
mod statistics;
mod try_ruleset;
mod watch_overview;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::auth::token::WatchResumeClaim;
use crate::domain::id::TicketId;
use crate::domain::lifecycle::event::{EventResult, MatchEvent};
use crate::domain::ruleset::teams::HOST_CONFIRM_WITHOUT_STREAM_MS_MIN;
use crate::domain::time::UnixMs;
use crate::engine::adverts::adverts_for_queues::AdvertsForQueues;
use crate::engine::command::Caller;
use crate::engine::common::Common;
use crate::engine::error::EngineError;
use crate::engine::queues::backfill_wakeups::run_backfill_wakeups;
use crate::engine::queues::command::{
    ReadyCheckResponse, TicketAndUserHeartbeatCommand, TicketReference, TicketStatus,
};
use crate::engine::queues::feed_reader::follow_queue_feed;
use crate::engine::queues::leases::{purge_ratings, run_lease_task};
use crate::engine::queues::offer_task::offer_matches_to_allocators;
use crate::engine::queues::outage_sync::record_restart;
use crate::engine::queues::overview_task::run_overview_task;
use crate::engine::queues::shared_state::{FoundMatch, SharedState};
use crate::engine::queues::ticket_holder::TicketTokenHolder;
use crate::engine::queues::ticket_watch::TicketWatch;
use crate::engine::queues::writer::QueueWriter;
use crate::engine::startup_retry::retry_at_startup;
use crate::engine::writer_inbox::WRITER_INBOX_CAPACITY;
use crate::store::StoreError;
use crate::store::queues::{QueueFeed, QueueKey, StoredTicket, TicketState};
use crate::telemetry::label::TaskLabel;

/// Queue operations of the engine.
#[derive(Clone, Debug)]
pub struct QueueEngine {
    shared: Arc<SharedState>,
}

impl QueueEngine {
    /// Loads the store's data and starts the tasks.
    pub(crate) async fn start(
        common: Arc<Common>,
        adverts: AdvertsForQueues,
        shutdown: &CancellationToken,
    ) -> Result<(Self, Vec<JoinHandle<()>>), StoreError> {
        let (queue_writer, commands) = mpsc::channel(WRITER_INBOX_CAPACITY);
        let feed = common.store.open_queue_feed().await;
        let shared = Arc::new(SharedState::new(Arc::clone(&common), adverts, queue_writer, feed.is_some()));
        let supervisor = &common.supervisor;
        let run_writer = QueueWriter::new(Arc::clone(&shared)).run(commands, shutdown.clone());
        let mut tasks = vec![supervisor.spawn_critical(TaskLabel::QueueWriter, run_writer)];
        match feed {
            Some(mut feed) => {
                shared.apply_feed(retry_at_startup("read queues", async || feed.read_batch().await).await?);
                tasks.push(spawn_feed_reader(&shared, feed, shutdown));
            }
            None => {
                let stored = common.store.purge_and_load_queues(common.clock.now()).await?;
                shared.apply_feed(stored.into());
            }
        }
        record_restart(&shared).await?;
        // Sort the leaderboards at startup: a million entries would delay the first query.
        let catalog = common.rulesets.snapshot();
        let sets = catalog.active.keys().chain(catalog.retiring.keys());
        for ruleset in sets.filter_map(|set_id| catalog.ruleset_in_force(*set_id)) {
            let mut ratings = shared.ratings.lock();
            if let Some(rating) = ratings.keyed_spec_of_ruleset(ruleset) {
                ratings.leaderboard(&rating);
            }
        }
        let (leased, stop) = (Arc::clone(&shared), shutdown.clone());
        let start_leases = move || run_lease_task(Arc::clone(&leased), stop.clone());
        tasks.push(supervisor.spawn_restarting(TaskLabel::QueueLeases, shutdown, start_leases));
        let (offering, stop) = (Arc::clone(&shared), shutdown.clone());
        let start_offers = move || offer_matches_to_allocators(Arc::clone(&offering), stop.clone());
        tasks.push(supervisor.spawn_restarting(TaskLabel::Allocation, shutdown, start_offers));
        let (filling, stop) = (Arc::clone(&shared), shutdown.clone());
        let start_wakeups = move || run_backfill_wakeups(Arc::clone(&filling), stop.clone());
        tasks.push(supervisor.spawn_restarting(TaskLabel::Backfill, shutdown, start_wakeups));
        let (watched, stop) = (Arc::clone(&shared), shutdown.clone());
        let start_overview = move || run_overview_task(Arc::clone(&watched), stop.clone());
        tasks.push(supervisor.spawn_restarting(TaskLabel::Overview, shutdown, start_overview));
        Ok((Self { shared }, tasks))
    }

    /// Removes ended tickets and matches from memory, as far as their time has come.
    pub(crate) fn purge_ended_from_memory(&self) {
        self.shared.purge_ended_from_cache(self.shared.common.clock.now());
    }

    /// Removes ratings whose last rated match was too long ago, as it also happens every ten minutes.
    pub async fn remove_old_ratings(&self) {
        purge_ratings(&self.shared).await;
    }

    /// Extends tickets and returns their statuses and the shortest TTL, milliseconds; `None` for an unknown ticket.
    pub async fn heartbeat_tickets(
        &self,
        caller: &Caller,
        heartbeat: TicketAndUserHeartbeatCommand,
    ) -> Result<(Vec<Option<TicketStatus>>, u32), EngineError> {
        let now = self.shared.common.clock.now();
        if let Some(own_user) = caller.user
            && heartbeat.connected_users.iter().any(|user| *user != own_user)
        {
            return Err(EngineError::NotOwner);
        }
        let holders: Result<Vec<TicketTokenHolder>, EngineError> =
            heartbeat.tickets.iter().map(|ticket| self.verify_ticket_token(caller, ticket)).collect();
        let holders = holders?;
        self.record_connected_users(&heartbeat, now);
        self.renew_vectors_as(caller, &holders, &heartbeat.latency_token).await?;
        let extended = join_all(holders.iter().map(|holder| self.heartbeat_as(holder))).await;
        let extended: Result<Vec<_>, EngineError> = extended.into_iter().collect();
        let extended = extended?;
        let ttls_ms = extended.iter().flatten().map(|(stored, ttl_ms)| self.unary_ttl_ms(stored, *ttl_ms));
        let min_ttl_ms = ttls_ms.min();
        let status = |(holder, ticket): (&TicketTokenHolder, Option<(StoredTicket, u32)>)| {
            ticket.map(|(stored, _)| self.shared.ticket_status_for(holder, &stored, now))
        };
        let statuses = holders.iter().zip(extended).map(status).collect();
        Ok((statuses, min_ttl_ms.unwrap_or(0)))
    }

    /// Heartbeat of a holder. Its answer tells the holder of a ready check.
    async fn heartbeat_as(&self, holder: &TicketTokenHolder) -> Result<Option<(StoredTicket, u32)>, EngineError> {
        let extended = match holder.is_seat_token {
            false => self.shared.heartbeat_ticket(holder.ticket_id).await?,
            true => self.shared.record_seat_heartbeat(holder.ticket_id).await?,
        };
        let Some((stored, ttl_ms)) = extended else { return Ok(None) };
        Ok(Some((self.shared.acknowledge_ready_check(stored, holder).await, ttl_ms)))
    }

    /// TTL that a heartbeat without a watch reports. A player who may be named as host confirms with the next heartbeat.
    fn unary_ttl_ms(&self, stored: &StoredTicket, ttl_ms: u32) -> u32 {
        let ruleset = self.shared.common.rulesets.ruleset_in_force(stored.ticket.set_id);
        match (self.shared.hosting_spec_if_player_may_host(stored, ruleset.as_deref()), stored.state) {
            (None, _) | (_, TicketState::Ended { .. }) => ttl_ms,
            (Some(hosting), TicketState::Waiting) => {
                ttl_ms.min(hosting.confirm_ms.max(HOST_CONFIRM_WITHOUT_STREAM_MS_MIN))
            }
            (Some(hosting), TicketState::InMatch(id)) => {
                let cache = self.shared.cache.read();
                let is_playing = cache.match_by_id(id).is_some_and(|found| !found.stage.is_before_play());
                let limit_ms = if is_playing { hosting.host_loss_ms } else { hosting.confirm_ms };
                ttl_ms.min(limit_ms.max(HOST_CONFIRM_WITHOUT_STREAM_MS_MIN))
            }
        }
    }

    /// Counts the connected users of a heartbeat in each set that it names and that has a queue.
    fn record_connected_users(&self, heartbeat: &TicketAndUserHeartbeatCommand, now: UnixMs) {
        if heartbeat.connected_users.is_empty() {
            return;
        }
        let rulesets = &self.shared.common.rulesets;
        for &set_id in &heartbeat.connected_sets {
            if rulesets.active_ruleset(set_id).is_some_and(|ruleset| ruleset.queue.is_some()) {
                let key = QueueKey { set_id, silo: heartbeat.silo };
                let users = heartbeat.connected_users.iter().copied();
                self.shared.connected_users.lock().record_connected(key, users, now);
            }
        }
    }

    /// Accepts or declines a proposed match.
    pub async fn respond_to_ready_check(
        &self,
        caller: &Caller,
        response: ReadyCheckResponse,
    ) -> Result<TicketStatus, EngineError> {
        let holder = self.verify_ticket_token(caller, &response.ticket)?;
        let stored = self.find_ticket(holder.ticket_id).await?;
        let event = MatchEvent::Responded {
            ticket_id: holder.ticket_id,
            users: holder.named_or_all_users(&stored.ticket, &response.users)?,
            accepted: response.accept,
            answered_by: holder.user,
        };
        match self.shared.find_match(response.match_id).await? {
            Some(FoundMatch::Cached(_)) => {}
            Some(FoundMatch::EndedInStore(_)) => return Err(EngineError::NoReadyCheck),
            None => return Err(EngineError::NotOwner),
        }
        let outcome = self.shared.apply_match_event(response.match_id, event).await?;
        if outcome.result != EventResult::Changed {
            // An answer that changes nothing still is a sign of life, which counts for reports of sides during play.
            self.heartbeat_as(&holder).await?;
        }
        match outcome.result {
            EventResult::Changed | EventResult::AlreadyApplied => {}
            EventResult::WrongStage | EventResult::TooEarly | EventResult::TooLate => {
                return Err(EngineError::NoReadyCheck);
            }
            EventResult::UnknownParticipant => return Err(EngineError::NotOwner),
        }
        let stored = self.find_ticket(holder.ticket_id).await?;
        Ok(self.shared.ticket_status_for(&holder, &stored, self.shared.common.clock.now()))
    }

    /// Watches tickets. Sends each status at first, unless the resume token is current, and again on every change.
    pub fn watch_tickets(&self, caller: &Caller, tickets: &[TicketReference]) -> Result<TicketWatch, EngineError> {
        let (mut sent_versions, mut holders) = (BTreeMap::new(), BTreeMap::new());
        for ticket in tickets {
            let holder = self.verify_ticket_token(caller, ticket)?;
            holders.insert(holder.ticket_id, holder);
            let resume_claim = self
                .shared
                .common
                .token_signer
                .verify::<WatchResumeClaim>(&ticket.resume_token)
                .filter(|resume_claim| resume_claim.ticket_id == holder.ticket_id);
            sent_versions.insert(
                holder.ticket_id,
                resume_claim.map(|resume_claim| (resume_claim.ticket_version, resume_claim.match_version)),
            );
        }
        Ok(TicketWatch::new(Arc::clone(&self.shared), sent_versions, holders))
    }

    /// Holder of a token that is valid for this ticket and caller.
    fn verify_ticket_token(&self, caller: &Caller, ticket: &TicketReference) -> Result<TicketTokenHolder, EngineError> {
        let holder = TicketTokenHolder::verify(&self.shared.common.token_signer, caller, &ticket.ticket_token)?;
        if holder.ticket_id == ticket.id { Ok(holder) } else { Err(EngineError::NotOwner) }
    }

    /// Ticket from the cache or the store.
    async fn find_ticket(&self, id: TicketId) -> Result<StoredTicket, EngineError> {
        self.shared.find_ticket(id).await?.ok_or(EngineError::TicketNotFound)
    }
}

/// Spawns the feed reader. After a panic it opens the feed again, which then reads everything.
fn spawn_feed_reader(
    shared: &Arc<SharedState>,
    feed: Box<dyn QueueFeed>,
    shutdown: &CancellationToken,
) -> JoinHandle<()> {
    let (reader, stop, mut feed) = (Arc::clone(shared), shutdown.clone(), Some(feed));
    shared.common.supervisor.spawn_restarting(TaskLabel::QueueFeed, shutdown, move || {
        let (shared, stop, opened) = (Arc::clone(&reader), stop.clone(), feed.take());
        async move {
            let feed = match opened {
                Some(feed) => Some(feed),
                None => shared.common.store.open_queue_feed().await,
            };
            if let Some(feed) = feed {
                follow_queue_feed(shared, feed, stop).await;
            }
        }
    })
}
