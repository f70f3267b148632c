//! Matchmaking queues: tickets enter and leave, passes propose matches, players are notified; the store decides.

mod allocation;
mod change_notifier;
pub mod command;
mod connected_users;
mod enter_queue;
mod explain;
mod follow_feed;
mod leases;
mod match_results;
mod pass_reports;
mod plan_transition;
mod queue_runner;
mod shared_state;
mod snapshot;
mod stored_ticket;
mod ticket_match_cache;
mod wait_estimator;
mod writer;
mod writer_command;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::auth::token::{AdvertisementClaim, ResumeClaim, TicketClaim};
use crate::domain::id::{TicketId, UserKey};
use crate::domain::lifecycle::event::{EventResult, MatchEvent};
use crate::domain::lifecycle::{Assignment, Match, MatchStage};
use crate::domain::queue::ticket::TicketEndReason;
use crate::engine::adverts::advert_handle::AdvertHandle;
use crate::engine::command::Caller;
use crate::engine::common::Common;
use crate::engine::error::{EngineError, field_error};
use crate::engine::queues::command::{
    EndMatchAnswer, EndMatchCommand, EndMatchProof, EnterQueueAnswer, EnterQueueCommand, LeaveQueueAnswer,
    QueueStatistics, ReadyCheckResponse, TicketHeartbeatCommand, TicketReference, TicketStatus,
};
use crate::engine::queues::shared_state::{REPLICATION_DELAY_MAX, SharedState};
use crate::engine::queues::stored_ticket::{is_ticket_ended, ticket_expires_at};
use crate::engine::queues::ticket_match_cache::QueueIndex;
use crate::engine::queues::writer::QueueWriter;
use crate::engine::writer_inbox::WRITER_INBOX_CAPACITY;
use crate::store::StoreError;
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite, StoredTicket, TicketState};

pub use self::change_notifier::ChangeNotifier;
pub use self::pass_reports::rule_name;

/// Time after a match's start in which its server may report a failure, milliseconds.
const SERVER_FAILURE_WINDOW_MS: u64 = 60_000;

/// Queue operations of the engine.
#[derive(Clone, Debug)]
pub struct QueueEngine {
    shared: Arc<SharedState>,
}

/// Subscription to tickets; ends when dropped.
#[derive(Debug)]
pub struct TicketWatch {
    shared: Arc<SharedState>,
    notifier: Arc<ChangeNotifier>,
    /// Ticket version and match version last sent, per ticket.
    sent_versions: BTreeMap<TicketId, Option<(u64, u64)>>,
    /// Tickets with unsent changes.
    changed_tickets: BTreeSet<TicketId>,
    /// Deadline until which an unknown ticket may still arrive from another replica.
    unknown_ticket_deadline: Instant,
}

impl QueueEngine {
    /// Loads the store's data and starts the tasks.
    pub(crate) async fn start(
        common: Arc<Common>,
        adverts: AdvertHandle,
        shutdown: &CancellationToken,
    ) -> Result<(Self, Vec<JoinHandle<()>>), StoreError> {
        let (queue_writer, commands) = mpsc::channel(WRITER_INBOX_CAPACITY);
        let feed = common.store.open_queue_feed().await;
        let shared = Arc::new(SharedState::new(Arc::clone(&common), adverts, queue_writer, feed.is_some()));
        let mut tasks = vec![tokio::spawn(QueueWriter::new(Arc::clone(&shared)).run(commands, shutdown.clone()))];
        match feed {
            Some(mut feed) => {
                shared.apply_feed(feed.read_batch().await?);
                tasks.push(tokio::spawn(follow_feed::follow_queue_feed(Arc::clone(&shared), feed, shutdown.clone())));
            }
            None => {
                let stored = common.store.load_queues(common.clock.now()).await?;
                shared.apply_feed(stored.into());
            }
        }
        // Sort the leaderboards at startup: a million entries would delay the first query.
        let rating_specs = common
            .rulesets
            .active_and_retired()
            .into_iter()
            .filter_map(|ruleset| Some((ruleset.set_id, ruleset.rating?)));
        for (set_id, spec) in rating_specs {
            shared.ratings.lock().leaderboard(set_id, &spec);
        }
        tasks.push(tokio::spawn(leases::run_lease_task(Arc::clone(&shared), shutdown.clone())));
        Ok((Self { shared }, tasks))
    }

    /// Enters a party into a queue.
    pub async fn enter_queue(
        &self,
        caller: &Caller,
        enter: EnterQueueCommand,
    ) -> Result<EnterQueueAnswer, EngineError> {
        self.shared.enter_queue(caller, enter).await
    }

    /// Ends a waiting ticket, or returns the match that the ticket is already in.
    pub async fn leave_queue(
        &self,
        caller: &Caller,
        ticket: &TicketReference,
    ) -> Result<LeaveQueueAnswer, EngineError> {
        let claim = self.verify_ticket_token(caller, ticket)?;
        let now = self.shared.common.clock.now();
        let purge_at = now.plus_ms(self.shared.common.settings.ended_ticket_retention_ms);
        let write =
            QueueWrite::EndTicket { ticket_id: claim.ticket_id, end_reason: TicketEndReason::Left, purge_at, now };
        match self.shared.submit_write(write).await? {
            QueueOutcome::CurrentTicket(stored) => {
                let status = self.shared.ticket_status(&stored, now);
                Ok(if is_ticket_ended(&stored) {
                    LeaveQueueAnswer::Ended(status)
                } else {
                    LeaveQueueAnswer::Matched(status)
                })
            }
            _ => Err(EngineError::TicketNotFound),
        }
    }

    /// Extends tickets and returns their statuses and the shortest TTL, milliseconds; `None` for an unknown ticket.
    pub async fn heartbeat_tickets(
        &self,
        caller: &Caller,
        heartbeat: TicketHeartbeatCommand,
    ) -> Result<(Vec<Option<TicketStatus>>, u32), EngineError> {
        let now = self.shared.common.clock.now();
        if let Some(own_user) = caller.user
            && heartbeat.connected_users.iter().any(|user| *user != own_user)
        {
            return Err(EngineError::NotOwner);
        }
        let claims: Result<Vec<TicketClaim>, EngineError> =
            heartbeat.tickets.iter().map(|ticket| self.verify_ticket_token(caller, ticket)).collect();
        self.shared.connected_users.lock().record_connected(heartbeat.silo, heartbeat.connected_users, now);
        let claims = claims?;
        let extended = join_all(claims.iter().map(|claim| self.shared.heartbeat_ticket(claim.ticket_id))).await;
        let extended: Result<Vec<_>, EngineError> = extended.into_iter().collect();
        let extended = extended?;
        let min_ttl_ms = extended.iter().flatten().map(|(_, ttl_ms)| *ttl_ms).min();
        let statuses = extended
            .into_iter()
            .map(|ticket| ticket.map(|(stored, _)| self.shared.ticket_status(&stored, now)))
            .collect();
        Ok((statuses, min_ttl_ms.unwrap_or(0)))
    }

    /// Accepts or declines a proposed match.
    pub async fn respond_to_ready_check(
        &self,
        caller: &Caller,
        response: ReadyCheckResponse,
    ) -> Result<TicketStatus, EngineError> {
        let claim = self.verify_ticket_token(caller, &response.ticket)?;
        let stored = self.shared.find_ticket(claim.ticket_id).await?;
        let ticket_users: Vec<UserKey> = stored.ticket.session.players.iter().map(|player| player.user).collect();
        let users = if response.users.is_empty() { ticket_users } else { response.users };
        let event = MatchEvent::Responded { ticket_id: claim.ticket_id, users, accepted: response.accept };
        let is_known = self.shared.wait_for_cached(|cache| cache.match_by_id(response.match_id).map(|_| ())).await;
        is_known.ok_or(EngineError::NotOwner)?;
        let outcome = self.shared.apply_match_event(response.match_id, event).await?;
        match outcome.result {
            EventResult::Changed | EventResult::AlreadyApplied => {}
            EventResult::WrongStage | EventResult::TooEarly | EventResult::TooLate => {
                return Err(EngineError::NoReadyCheck);
            }
            EventResult::UnknownParticipant => return Err(EngineError::NotOwner),
        }
        let stored = self.shared.find_ticket(claim.ticket_id).await?;
        Ok(self.shared.ticket_status(&stored, self.shared.common.clock.now()))
    }

    /// Ends a match, or reports that its server failed. Idempotent: afterwards returns the end reason.
    pub async fn end_match(&self, caller: &Caller, end: EndMatchCommand) -> Result<EndMatchAnswer, EngineError> {
        let match_ = self
            .shared
            .wait_for_cached(|cache| cache.match_by_id(end.match_id).cloned())
            .await
            .ok_or(EngineError::NotOwner)?;
        let reported_by = self.authorize_match_end(caller, &end, &match_)?;
        let is_recent = match match_.stage {
            MatchStage::Playing { started_at, .. } => {
                self.shared.common.clock.now().ms_since(started_at) < SERVER_FAILURE_WINDOW_MS
            }
            MatchStage::Ended { end_reason, .. } => return Ok(Some(end_reason)),
            // Before the start, players decline or leave instead, which may carry a penalty.
            MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } => return Err(EngineError::MatchNotStarted),
        };
        let event = if end.server_failed && is_recent {
            MatchEvent::ServerFailed
        } else {
            MatchEvent::EndReported { reported_by }
        };
        let outcome = self.shared.apply_match_event(end.match_id, event).await?;
        Ok(outcome.match_after.stage.end_reason())
    }

    /// Player who reports the end; `None` for a game server. Fails for callers that may not end the match.
    fn authorize_match_end(
        &self,
        caller: &Caller,
        end: &EndMatchCommand,
        match_: &Match,
    ) -> Result<Option<UserKey>, EngineError> {
        let signer = &self.shared.common.token_signer;
        match &end.proof {
            EndMatchProof::GameServer(token) => {
                let claim = signer.verify::<AdvertisementClaim>(token).ok_or(EngineError::NotOwner)?;
                let is_hosted_here = match_
                    .stage
                    .last_assignment()
                    .is_some_and(|assignment| assignment.is_on_game_server(claim.advertisement_id));
                (claim.subject == caller.subject && is_hosted_here).then_some(None).ok_or(EngineError::NotOwner)
            }
            EndMatchProof::Ticket(token) => {
                let claim = signer.verify::<TicketClaim>(token).ok_or(EngineError::NotOwner)?;
                let match_ticket = match_.tickets.iter().find(|match_ticket| match_ticket.ticket_id == claim.ticket_id);
                let match_ticket =
                    match_ticket.filter(|_| claim.subject == caller.subject).ok_or(EngineError::NotOwner)?;
                match match_.stage.last_assignment() {
                    Some(Assignment::GameServer { .. }) => Err(EngineError::NotOwner),
                    Some(Assignment::PeerHost { host }) => {
                        let host_player = match_ticket.players.iter().find(|player| player.client == *host);
                        Ok(Some(host_player.ok_or(EngineError::NotOwner)?.user))
                    }
                    Some(Assignment::Unhosted) if end.server_failed => {
                        Err(field_error("failed", "must not be set; this match has no game server"))
                    }
                    Some(Assignment::Unhosted) | None => Ok(match_ticket.players.first().map(|player| player.user)),
                }
            }
        }
    }

    /// Watches tickets. Sends each status at first, unless the resume token is current, and again on every change.
    pub fn watch_tickets(&self, caller: &Caller, tickets: &[TicketReference]) -> Result<TicketWatch, EngineError> {
        let mut sent_versions = BTreeMap::new();
        for ticket in tickets {
            let claim = self.verify_ticket_token(caller, ticket)?;
            let resume_claim = self
                .shared
                .common
                .token_signer
                .verify::<ResumeClaim>(&ticket.resume_token)
                .filter(|resume_claim| resume_claim.ticket_id == claim.ticket_id);
            sent_versions.insert(
                claim.ticket_id,
                resume_claim.map(|resume_claim| (resume_claim.ticket_version, resume_claim.match_version)),
            );
        }
        let notifier = Arc::new(ChangeNotifier::default());
        let mut cache = self.shared.cache.write();
        sent_versions.keys().for_each(|id| cache.subscribe(*id, &notifier));
        drop(cache);
        let changed_tickets = sent_versions.keys().copied().collect();
        let unknown_ticket_deadline =
            Instant::now() + if self.shared.has_replicas { REPLICATION_DELAY_MAX } else { Duration::ZERO };
        Ok(TicketWatch {
            shared: Arc::clone(&self.shared),
            notifier,
            sent_versions,
            changed_tickets,
            unknown_ticket_deadline,
        })
    }

    /// Statistics of every queue.
    pub fn statistics(&self) -> Vec<QueueStatistics> {
        self.shared.queue_statistics()
    }

    /// Claim of a ticket token that is valid for this ticket and caller.
    fn verify_ticket_token(&self, caller: &Caller, ticket: &TicketReference) -> Result<TicketClaim, EngineError> {
        let claim =
            self.shared.common.token_signer.verify::<TicketClaim>(&ticket.ticket_token).ok_or(EngineError::NotOwner)?;
        if claim.ticket_id != ticket.id || claim.subject != caller.subject {
            return Err(EngineError::NotOwner);
        }
        Ok(claim)
    }
}

impl TicketWatch {
    /// Next changed status of any ticket; `None` when all have ended and the last status was sent.
    pub async fn next_status(&mut self) -> Option<TicketStatus> {
        loop {
            while let Some(id) = self.changed_tickets.pop_first() {
                if let Some(status) = self.status_if_changed(id) {
                    return Some(status);
                }
            }
            if self.sent_versions.is_empty() {
                return None;
            }
            self.changed_tickets = if Instant::now() < self.unknown_ticket_deadline {
                match timeout_at(self.unknown_ticket_deadline, self.notifier.wait_for_changes()).await {
                    Ok(changed_tickets) => changed_tickets,
                    // Check unknown tickets once more, then drop them.
                    Err(_) => self.sent_versions.keys().copied().collect(),
                }
            } else {
                self.notifier.wait_for_changes().await
            };
        }
    }

    /// Extends all watched tickets; returns the interval until the next heartbeat, milliseconds.
    pub async fn heartbeat_tickets(&self) -> u32 {
        let ids: Vec<TicketId> = self.sent_versions.keys().copied().collect();
        let extended = join_all(ids.into_iter().map(|id| self.shared.heartbeat_ticket(id))).await;
        let ttls_ms = extended.into_iter().flatten().flatten().map(|(_, ttl_ms)| ttl_ms);
        ttls_ms.min().unwrap_or(DEFAULT_HEARTBEAT_TIMEOUT_MS) / 3
    }

    /// Status of a ticket, if it differs from the last one sent.
    fn status_if_changed(&mut self, id: TicketId) -> Option<TicketStatus> {
        let stored = self.shared.cache.read().ticket(id).cloned();
        let Some(stored) = stored else {
            // The ticket is purged, or has not arrived from another replica yet.
            if self.unknown_ticket_deadline <= Instant::now() {
                self.stop_watching(id);
            }
            return None;
        };
        let status = self.shared.ticket_status(&stored, self.shared.common.clock.now());
        let versions = self
            .shared
            .common
            .token_signer
            .verify::<ResumeClaim>(&status.resume_token)
            .map(|resume_claim| (resume_claim.ticket_version, resume_claim.match_version));
        let sent_versions = self.sent_versions.get_mut(&id)?;
        if versions.is_some() && *sent_versions == versions && !is_ticket_ended(&stored) {
            return None;
        }
        *sent_versions = versions;
        if is_ticket_ended(&stored) {
            self.stop_watching(id);
        }
        Some(status)
    }

    /// Ends the subscription to a ticket.
    fn stop_watching(&mut self, id: TicketId) {
        self.sent_versions.remove(&id);
        self.shared.cache.write().unsubscribe(id, &self.notifier);
    }
}

/// Heartbeat timeout of tickets that are not waiting, milliseconds.
const DEFAULT_HEARTBEAT_TIMEOUT_MS: u32 = 60_000;

impl Drop for TicketWatch {
    fn drop(&mut self) {
        let mut cache = self.shared.cache.write();
        self.sent_versions.keys().for_each(|id| cache.unsubscribe(*id, &self.notifier));
    }
}

impl SharedState {
    /// Ticket from the cache.
    async fn find_ticket(&self, id: TicketId) -> Result<StoredTicket, EngineError> {
        self.wait_for_cached(|cache| cache.ticket(id).cloned()).await.ok_or(EngineError::TicketNotFound)
    }

    /// Extends a waiting ticket. Writes to the store only after half of the TTL. Returns the ticket and its TTL,
    /// milliseconds.
    async fn heartbeat_ticket(&self, id: TicketId) -> Result<Option<(StoredTicket, u32)>, EngineError> {
        let Some(stored) = self.wait_for_cached(|cache| cache.ticket(id).cloned()).await else { return Ok(None) };
        let now = self.common.clock.now();
        let users: Vec<UserKey> = stored.ticket.session.players.iter().map(|player| player.user).collect();
        self.connected_users.lock().record_connected(stored.ticket.session.silo, users, now);
        let ruleset = self.common.rulesets.active_ruleset(stored.ticket.set_id);
        let Some(queue) = ruleset.as_ref().and_then(|ruleset| ruleset.queue.as_ref()) else {
            return Ok(Some((stored, DEFAULT_HEARTBEAT_TIMEOUT_MS)));
        };
        let ttl_ms = queue.ticket_ttl_ms;
        if stored.state != TicketState::Waiting || stored.expires_at.ms_since(now) > u64::from(ttl_ms / 2) {
            return Ok(Some((stored, ttl_ms)));
        }
        match self
            .submit_write(QueueWrite::Heartbeat { ticket_id: id, expires_at: ticket_expires_at(queue, now), now })
            .await?
        {
            QueueOutcome::CurrentTicket(stored) => Ok(Some((stored, ttl_ms))),
            _ => Ok(None),
        }
    }

    fn queue_statistics(&self) -> Vec<QueueStatistics> {
        let now = self.common.clock.now();
        let cache = self.cache.read();
        let (wait_estimator, pass_reports) = (self.wait_estimator.lock(), self.pass_reports.lock());
        let statistics_of = |(key, index): (QueueKey, &QueueIndex)| {
            let report = pass_reports.get(key);
            QueueStatistics {
                set_id: key.set_id,
                silo: key.silo,
                waiting_tickets: u32::try_from(index.waiting_ticket_count()).unwrap_or(u32::MAX),
                waiting_players: index.waiting_player_count(),
                running_matches: u32::try_from(index.running_match_count()).unwrap_or(u32::MAX),
                longest_wait_ms: index.waiting_tickets().next().map_or(0, |(entered_at, _)| now.ms_since(entered_at)),
                runs_on_this_replica: report.is_some(),
                refusal_counts: report.map_or_else(Vec::new, |report| report.refusal_counts.clone()),
                pass_count: report.map_or(0, |report| report.pass_count),
                last_pass_ms: report.map_or(0.0, |report| report.last_pass_ms),
                wait_percentiles_ms: wait_estimator
                    .estimate_for_set(key.set_id, now)
                    .map(|estimate| (estimate.p50_ms, estimate.p90_ms, estimate.sample_count)),
                median_quality: wait_estimator.median_quality(key.set_id, now),
                p90_estimate_met_percent: wait_estimator.p90_estimate_met_percent(key.set_id),
            }
        };
        cache.queues().map(statistics_of).collect()
    }
}
