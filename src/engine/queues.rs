//! Queues in time: parties enter and are told when their match is ready; passes are run, matches live, the store decides.

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
mod queue_runner;
mod shared_state;
mod snapshot;
mod ticket_match_cache;
mod ticket_status;
mod wait_estimator;
mod writer;

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
use crate::engine::adverts::checked_session::field_error;
use crate::engine::adverts::writer_command::AdvertWriterCommand;
use crate::engine::command::Caller;
use crate::engine::core::Core;
use crate::engine::error::EngineError;
use crate::engine::queues::command::{
    EndMatchAnswer, EndMatchCommand, EndMatchProof, EnterQueueAnswer, EnterQueueCommand, LeaveQueueAnswer,
    QueueStatistics, ReadyCheckResponse, TicketHeartbeatCommand, TicketReference, TicketStatus,
};
use crate::engine::queues::enter_queue::ticket_expires_at;
use crate::engine::queues::shared_state::{REPLICATION_DELAY_MAX, SharedState, WRITER_INBOX_CAPACITY};
use crate::engine::queues::ticket_match_cache::QueueIndex;
use crate::engine::queues::ticket_status::is_ticket_ended;
use crate::store::StoreError;
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite, StoredTicket, TicketState};

pub use self::change_notifier::ChangeNotifier;
pub use self::pass_reports::rule_name;

/// After how long a match that has begun can no longer be called a failure of its server, milliseconds.
const SERVER_FAILURE_WINDOW_MS: u64 = 60_000;

/// The queues at work.
#[derive(Clone, Debug)]
pub struct QueueEngine {
    shared: Arc<SharedState>,
}

/// Tickets that somebody watches; over when dropped.
#[derive(Debug)]
pub struct TicketWatch {
    shared: Arc<SharedState>,
    notifier: Arc<ChangeNotifier>,
    /// What was last told of each: the ticket's edition and its match's.
    sent_versions: BTreeMap<TicketId, Option<(u64, u64)>>,
    /// Changed, and not told yet.
    changed_tickets: BTreeSet<TicketId>,
    /// Until when a ticket that nobody here knows may have been made at another server.
    unknown_ticket_deadline: Instant,
}

impl QueueEngine {
    /// Loads what the store has and starts the tasks.
    pub(super) async fn start(
        core: Arc<Core>,
        jobs: mpsc::Sender<AdvertWriterCommand>,
        stop: &CancellationToken,
    ) -> Result<(Self, Vec<JoinHandle<()>>), StoreError> {
        let (orders, inbox) = mpsc::channel(WRITER_INBOX_CAPACITY);
        let feed = core.store.open_queue_feed().await;
        let hall = Arc::new(SharedState::new(Arc::clone(&core), orders, jobs, feed.is_some()));
        let mut tasks = vec![tokio::spawn(writer::run_queue_writer(Arc::clone(&hall), inbox, stop.clone()))];
        match feed {
            Some(mut feed) => {
                hall.apply_feed(feed.read_batch().await?);
                tasks.push(tokio::spawn(follow_feed::follow_queue_feed(Arc::clone(&hall), feed, stop.clone())));
            }
            None => {
                let load = core.store.load_queues(core.clock.now()).await?;
                hall.apply_feed(load.into());
            }
        }
        // Sorting a million takes a moment: better now than under the first who asks.
        let rated = core
            .rulesets
            .active_and_retired()
            .into_iter()
            .filter_map(|ruleset| Some((ruleset.set_id, ruleset.rating?)));
        for (set_id, spec) in rated {
            hall.ratings.lock().leaderboard(set_id, &spec);
        }
        tasks.push(tokio::spawn(leases::run_lease_task(Arc::clone(&hall), stop.clone())));
        Ok((Self { shared: hall }, tasks))
    }

    /// A party begins to wait.
    pub async fn enter_queue(
        &self,
        caller: &Caller,
        enter: EnterQueueCommand,
    ) -> Result<EnterQueueAnswer, EngineError> {
        self.shared.enter_queue(caller, enter).await
    }

    /// A party no longer waits, or hears that it has a match.
    pub async fn leave_queue(
        &self,
        caller: &Caller,
        ticket: &TicketReference,
    ) -> Result<LeaveQueueAnswer, EngineError> {
        let claim = self.verify_ticket_token(caller, ticket)?;
        let now = self.shared.core.clock.now();
        let forget_at = now.plus_ms(self.shared.core.settings.ended_ticket_retention_ms);
        let write = QueueWrite::EndTicket {
            ticket_id: claim.ticket_id,
            end_reason: TicketEndReason::Left,
            purge_at: forget_at,
            now,
        };
        match self.shared.write(write).await? {
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

    /// Keeps tickets alive, and says how each stands; `None` for one that nobody knows any more.
    pub async fn heartbeat_tickets(
        &self,
        caller: &Caller,
        beat: TicketHeartbeatCommand,
    ) -> Result<(Vec<Option<TicketStatus>>, u32), EngineError> {
        let now = self.shared.core.clock.now();
        if let Some(own) = caller.user
            && beat.connected_users.iter().any(|user| *user != own)
        {
            return Err(EngineError::NotOwner);
        }
        let claims: Result<Vec<TicketClaim>, EngineError> =
            beat.tickets.iter().map(|ticket| self.verify_ticket_token(caller, ticket)).collect();
        self.shared.connected_users.lock().record_connected(beat.silo, beat.connected_users, now);
        let claims = claims?;
        let kept = join_all(claims.iter().map(|claim| self.shared.heartbeat_ticket(claim.ticket_id))).await;
        let kept: Result<Vec<_>, EngineError> = kept.into_iter().collect();
        let kept = kept?;
        let least_ms = kept.iter().flatten().map(|(_, lapse_ms)| *lapse_ms).min();
        let statuses =
            kept.into_iter().map(|it| it.map(|(stored, _)| self.shared.ticket_status(&stored, now))).collect();
        Ok((statuses, least_ms.unwrap_or(0)))
    }

    /// Answers a ready check.
    pub async fn respond_to_ready_check(
        &self,
        caller: &Caller,
        respond: ReadyCheckResponse,
    ) -> Result<TicketStatus, EngineError> {
        let claim = self.verify_ticket_token(caller, &respond.ticket)?;
        let stored = self.shared.find_ticket(claim.ticket_id).await?;
        let in_it: Vec<UserKey> = stored.ticket.session.players.iter().map(|player| player.user).collect();
        let users = if respond.users.is_empty() { in_it } else { respond.users };
        let event = MatchEvent::Responded { ticket_id: claim.ticket_id, users, accepted: respond.accept };
        let heard_of = self.shared.wait_for_cached(|roster| roster.match_by_id(respond.match_id).map(|_| ())).await;
        heard_of.ok_or(EngineError::NotOwner)?;
        let came = self.shared.apply_match_event(respond.match_id, event).await?;
        match came.result {
            EventResult::Changed | EventResult::AlreadyApplied => {}
            EventResult::WrongStage | EventResult::TooEarly | EventResult::TooLate => {
                return Err(EngineError::NoReadyCheck);
            }
            EventResult::UnknownParticipant => return Err(EngineError::NotOwner),
        }
        let stored = self.shared.find_ticket(claim.ticket_id).await?;
        Ok(self.shared.ticket_status(&stored, self.shared.core.clock.now()))
    }

    /// A match is over, or its server has failed. Whoever runs it may say so while it is played, and hears afterwards how it
    /// ended, however often it asks.
    pub async fn end_match(&self, caller: &Caller, end: EndMatchCommand) -> Result<EndMatchAnswer, EngineError> {
        let play = self
            .shared
            .wait_for_cached(|roster| roster.match_by_id(end.match_id).cloned())
            .await
            .ok_or(EngineError::NotOwner)?;
        let by = self.authorize_match_end(caller, &end, &play)?;
        let young = match play.stage {
            MatchStage::Playing { started_at: began, .. } => {
                self.shared.core.clock.now().ms_since(began) < SERVER_FAILURE_WINDOW_MS
            }
            MatchStage::Ended { end_reason: outcome, .. } => return Ok(Some(outcome)),
            // Before it begins a match is ended by answering, or by leaving: whoever does is asked why by the ruleset.
            MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } => return Err(EngineError::MatchNotStarted),
        };
        let event = if end.server_failed && young {
            MatchEvent::ServerFailed
        } else {
            MatchEvent::EndReported { reported_by: by }
        };
        let came = self.shared.apply_match_event(end.match_id, event).await?;
        Ok(came.match_after.stage.end_reason())
    }

    /// Which of its players, if any, says that a match is over; fails for whoever may not.
    fn authorize_match_end(
        &self,
        caller: &Caller,
        end: &EndMatchCommand,
        play: &Match,
    ) -> Result<Option<UserKey>, EngineError> {
        let signer = &self.shared.core.token_signer;
        match &end.proof {
            EndMatchProof::GameServer(token) => {
                let claim = signer.verify::<AdvertisementClaim>(token).ok_or(EngineError::NotOwner)?;
                let here =
                    play.stage.last_assignment().is_some_and(|place| place.is_on_game_server(claim.advertisement_id));
                (claim.subject == caller.subject && here).then_some(None).ok_or(EngineError::NotOwner)
            }
            EndMatchProof::Ticket(token) => {
                let claim = signer.verify::<TicketClaim>(token).ok_or(EngineError::NotOwner)?;
                let member = play.tickets.iter().find(|member| member.ticket_id == claim.ticket_id);
                let member = member.filter(|_| claim.subject == caller.subject).ok_or(EngineError::NotOwner)?;
                match play.stage.last_assignment() {
                    Some(Assignment::GameServer { .. }) => Err(EngineError::NotOwner),
                    Some(Assignment::PeerHost { host }) => {
                        let hosts = member.players.iter().find(|seat| seat.client == *host);
                        Ok(Some(hosts.ok_or(EngineError::NotOwner)?.user))
                    }
                    Some(Assignment::Unhosted) if end.server_failed => {
                        Err(field_error("failed", "must not be set: this match has no server that could fail"))
                    }
                    Some(Assignment::Unhosted) | None => Ok(member.players.first().map(|seat| seat.user)),
                }
            }
        }
    }

    /// Watches tickets: each is told at first, unless what was last heard of it is still so, and whenever it changes.
    pub fn watch_tickets(&self, caller: &Caller, tickets: &[TicketReference]) -> Result<TicketWatch, EngineError> {
        let mut told = BTreeMap::new();
        for ticket in tickets {
            let claim = self.verify_ticket_token(caller, ticket)?;
            let heard = self
                .shared
                .core
                .token_signer
                .verify::<ResumeClaim>(&ticket.resume_token)
                .filter(|heard| heard.ticket_id == claim.ticket_id);
            told.insert(claim.ticket_id, heard.map(|heard| (heard.ticket_version, heard.match_version)));
        }
        let bell = Arc::new(ChangeNotifier::default());
        let mut roster = self.shared.cache.write();
        told.keys().for_each(|id| roster.subscribe(*id, &bell));
        drop(roster);
        let changed = told.keys().copied().collect();
        let known_by = Instant::now() + if self.shared.has_replicas { REPLICATION_DELAY_MAX } else { Duration::ZERO };
        Ok(TicketWatch {
            shared: Arc::clone(&self.shared),
            notifier: bell,
            sent_versions: told,
            changed_tickets: changed,
            unknown_ticket_deadline: known_by,
        })
    }

    /// What every queue looks like.
    pub fn statistics(&self) -> Vec<QueueStatistics> {
        self.shared.queue_statistics()
    }

    /// The claim in a ticket's token, if it is about that ticket and was given to this caller.
    fn verify_ticket_token(&self, caller: &Caller, ticket: &TicketReference) -> Result<TicketClaim, EngineError> {
        let claim =
            self.shared.core.token_signer.verify::<TicketClaim>(&ticket.ticket_token).ok_or(EngineError::NotOwner)?;
        if claim.ticket_id != ticket.id || claim.subject != caller.subject {
            return Err(EngineError::NotOwner);
        }
        Ok(claim)
    }
}

impl TicketWatch {
    /// The next news of any of its tickets; `None` when all of them are over and that has been told.
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
            self.changed_tickets = match Instant::now() < self.unknown_ticket_deadline {
                true => match timeout_at(self.unknown_ticket_deadline, self.notifier.wait_for_changes()).await {
                    Ok(changed) => changed,
                    // Whatever is not known by now is looked at once more, and let go.
                    Err(_) => self.sent_versions.keys().copied().collect(),
                },
                false => self.notifier.wait_for_changes().await,
            };
        }
    }

    /// Keeps its tickets alive; how soon again, milliseconds.
    pub async fn heartbeat_tickets(&self) -> u32 {
        let ids: Vec<TicketId> = self.sent_versions.keys().copied().collect();
        let kept = join_all(ids.into_iter().map(|id| self.shared.heartbeat_ticket(id))).await;
        let lapses = kept.into_iter().flatten().flatten().map(|(_, lapse_ms)| lapse_ms);
        lapses.min().unwrap_or(DEFAULT_HEARTBEAT_TIMEOUT_MS) / 3
    }

    /// How a ticket stands, if that has not been told.
    fn status_if_changed(&mut self, id: TicketId) -> Option<TicketStatus> {
        let stored = self.shared.cache.read().ticket(id).cloned();
        let Some(stored) = stored else {
            // Nobody knows it any more, or nobody does yet.
            if self.unknown_ticket_deadline <= Instant::now() {
                self.stop_watching(id);
            }
            return None;
        };
        let status = self.shared.ticket_status(&stored, self.shared.core.clock.now());
        let now = self
            .shared
            .core
            .token_signer
            .verify::<ResumeClaim>(&status.resume_token)
            .map(|heard| (heard.ticket_version, heard.match_version));
        let told = self.sent_versions.get_mut(&id)?;
        if now.is_some() && *told == now && !is_ticket_ended(&stored) {
            return None;
        }
        *told = now;
        if is_ticket_ended(&stored) {
            self.stop_watching(id);
        }
        Some(status)
    }

    /// There is nothing more to hear of a ticket.
    fn stop_watching(&mut self, id: TicketId) {
        self.sent_versions.remove(&id);
        self.shared.cache.write().unsubscribe(id, &self.notifier);
    }
}

/// How soon tickets are kept alive again of which none waits, milliseconds.
const DEFAULT_HEARTBEAT_TIMEOUT_MS: u32 = 60_000;

impl Drop for TicketWatch {
    fn drop(&mut self) {
        let mut roster = self.shared.cache.write();
        self.sent_versions.keys().for_each(|id| roster.unsubscribe(*id, &self.notifier));
    }
}

impl SharedState {
    /// A ticket, from memory.
    async fn find_ticket(&self, id: TicketId) -> Result<StoredTicket, EngineError> {
        self.wait_for_cached(|roster| roster.ticket(id).cloned()).await.ok_or(EngineError::TicketNotFound)
    }

    /// Keeps a ticket alive that waits; the store is told when half of the time has gone by. How it stands, and how long it is kept
    /// without another heartbeat.
    async fn heartbeat_ticket(&self, id: TicketId) -> Result<Option<(StoredTicket, u32)>, EngineError> {
        let Some(stored) = self.wait_for_cached(|roster| roster.ticket(id).cloned()).await else { return Ok(None) };
        let now = self.core.clock.now();
        let users: Vec<UserKey> = stored.ticket.session.players.iter().map(|player| player.user).collect();
        self.connected_users.lock().record_connected(stored.ticket.session.silo, users, now);
        let ruleset = self.core.rulesets.active_ruleset(stored.ticket.set_id);
        let Some(queue) = ruleset.as_ref().and_then(|ruleset| ruleset.queue.as_ref()) else {
            return Ok(Some((stored, DEFAULT_HEARTBEAT_TIMEOUT_MS)));
        };
        let lapse_ms = queue.ticket_lapse_ms;
        if stored.state != TicketState::Waiting || u64::from(lapse_ms / 2) < stored.expires_at.ms_since(now) {
            return Ok(Some((stored, lapse_ms)));
        }
        match self
            .write(QueueWrite::Heartbeat { ticket_id: id, expires_at: ticket_expires_at(queue, now), now })
            .await?
        {
            QueueOutcome::CurrentTicket(stored) => Ok(Some((stored, lapse_ms))),
            _ => Ok(None),
        }
    }

    fn queue_statistics(&self) -> Vec<QueueStatistics> {
        let now = self.core.clock.now();
        let roster = self.cache.read();
        let (waits, reports) = (self.wait_estimator.lock(), self.pass_reports.lock());
        let of = |(key, room): (QueueKey, &QueueIndex)| {
            let filed = reports.get(key);
            QueueStatistics {
                set_id: key.set_id,
                silo: key.silo,
                waiting_tickets: u32::try_from(room.waiting_ticket_count()).unwrap_or(u32::MAX),
                waiting_players: room.waiting_player_count(),
                running_matches: u32::try_from(room.running_match_count()).unwrap_or(u32::MAX),
                longest_wait_ms: room.waiting_tickets().next().map_or(0, |(entered, _)| now.ms_since(entered)),
                runs_on_this_replica: filed.is_some(),
                refusal_counts: filed.map_or_else(Vec::new, |filed| filed.refusal_counts.clone()),
                pass_count: filed.map_or(0, |filed| filed.pass_count),
                last_pass_ms: filed.map_or(0.0, |filed| filed.last_pass_ms),
                wait_percentiles_ms: waits
                    .estimate_for_set(key.set_id, now)
                    .map(|it| (it.p50_ms, it.p90_ms, it.sample_count)),
                median_quality: waits.median_quality(key.set_id, now),
                p90_estimate_met_percent: waits.p90_estimate_met_percent(key.set_id),
            }
        };
        roster.queues().map(of).collect()
    }
}
