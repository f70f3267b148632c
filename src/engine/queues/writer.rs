//! Queue writer: batches changes into transactions, applies them to memory and then answers.
//!
//! Callers send match events, not new match states. The writer computes each transition from the match as it stands
//! when the event's turn comes. So twelve simultaneous replies are twelve transitions in one transaction, and only
//! another replica's change can conflict.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::domain::id::{BuildIdHasher, MatchId, TicketId};
use crate::domain::lifecycle::event::{EventResult, MatchEffect, MatchEvent, Transition};
use crate::domain::lifecycle::rules::LifecycleRules;
use crate::domain::lifecycle::transition::apply_event;
use crate::domain::lifecycle::{Match, MatchStage};
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::engine::adverts::writer_command::ReplySender;
use crate::engine::error::EngineError;
use crate::engine::queues::enter_queue::ticket_expires_at;
use crate::engine::queues::shared_state::{RETRY_AFTER_MS, SharedState};
use crate::engine::queues::ticket_match_cache::TicketMatchCache;
use crate::engine::queues::ticket_status::nearest_region;
use crate::engine::queues::wait_estimator::WaitClass;
use crate::store::StoreError;
use crate::store::queues::{
    PenaltySchedule, QueueFeedBatch, QueueKey, QueueOutcome, QueueWrite, RatingRow, StoredTicket,
};

/// Maximum changes per transaction.
const BATCH_COMMANDS_MAX: usize = 1_000;

/// Time for which an ended ticket stays in memory for watchers, milliseconds.
const ENDED_TICKET_VISIBLE_MS: u64 = 60_000;

/// Margin for a full read, milliseconds. Newer tickets and matches may have been created after it, so they are kept.
/// Nothing that new has been purged: the retention is much longer.
const FULL_READ_MARGIN_MS: u64 = 10_000;

/// Maximum attempts of a transition that conflicts with another replica's.
const TRANSITION_ATTEMPTS_MAX: u8 = 16;

/// Command for the queue writer.
#[derive(Debug)]
pub(super) enum QueueWriterCommand {
    /// Write to commit.
    Write(Box<QueueWrite>, ReplySender<QueueOutcome>),
    /// Match event; answered with the resulting match.
    MatchEvent(Box<PendingEvent>),
    /// Changes of other replicas.
    ApplyFeed(Box<QueueFeedBatch>),
}

/// Match event and its reply channel.
#[derive(Debug)]
pub(super) struct PendingEvent {
    match_id: MatchId,
    event: MatchEvent,
    reply: ReplySender<EventOutcome>,
    attempts: u8,
}

/// Result of a match event.
#[derive(Clone, Debug)]
pub(super) struct EventOutcome {
    /// Result of the state machine.
    pub(super) result: EventResult,
    /// Match after the event.
    pub(super) match_after: Arc<Match>,
}

impl PendingEvent {
    /// Event for match `id`.
    pub(super) fn new(match_id: MatchId, event: MatchEvent, reply: ReplySender<EventOutcome>) -> Self {
        Self { match_id, event, reply, attempts: 0 }
    }
}

/// Processes commands until stopped, and then the rest of the inbox.
pub(super) async fn run_queue_writer(
    shared: Arc<SharedState>,
    mut inbox: mpsc::Receiver<QueueWriterCommand>,
    shutdown: CancellationToken,
) {
    let mut commands = Vec::with_capacity(BATCH_COMMANDS_MAX);
    loop {
        let received = tokio::select! {
            biased;
            received = inbox.recv_many(&mut commands, BATCH_COMMANDS_MAX) => received,
            () = shutdown.cancelled(), if !inbox.is_closed() => {
                inbox.close();
                continue;
            }
        };
        if received == 0 {
            return;
        }
        let mut batch = QueueBatch::default();
        for command in commands.drain(..) {
            match command {
                QueueWriterCommand::Write(write, reply) => batch.add_write(*write, CommitWaiter::Write(reply)),
                QueueWriterCommand::MatchEvent(pending) => batch.add_match_event(&shared, *pending),
                QueueWriterCommand::ApplyFeed(feed_batch) => {
                    batch.commit_batch(&shared).await;
                    shared.apply_feed(*feed_batch);
                }
            }
        }
        batch.commit_batch(&shared).await;
    }
}

/// Caller that waits for a write.
#[derive(Debug)]
enum CommitWaiter {
    Write(ReplySender<QueueOutcome>),
    MatchEvent(PendingEvent, EventOutcome, Vec<MatchEffect>),
}

/// Writes of one transaction.
#[derive(Debug, Default)]
struct QueueBatch {
    writes: Vec<QueueWrite>,
    waiters: Vec<CommitWaiter>,
    /// Matches as they will be after the earlier writes of this batch.
    uncommitted_matches: HashMap<MatchId, Arc<Match>, BuildIdHasher>,
    /// Events without effect on an uncommitted match. Evaluated again after the commit.
    deferred_events: Vec<PendingEvent>,
}

impl QueueBatch {
    fn add_write(&mut self, write: QueueWrite, waiter: CommitWaiter) {
        if let QueueWrite::ProposeMatch { proposed, .. } = &write {
            self.uncommitted_matches.insert(proposed.id, Arc::clone(proposed));
        }
        self.writes.push(write);
        self.waiters.push(waiter);
    }

    /// Adds the transition that an event causes. An event without effect on a committed match is answered at once.
    fn add_match_event(&mut self, shared: &SharedState, pending: PendingEvent) {
        let now = shared.core.clock.now();
        let uncommitted = self.uncommitted_matches.get(&pending.match_id).cloned();
        let is_durable = uncommitted.is_none();
        let Some(match_) = uncommitted.or_else(|| shared.cache.read().match_by_id(pending.match_id).cloned()) else {
            send_reply(pending.reply, Err(EngineError::MatchNotFound));
            return;
        };
        let cached_ruleset = shared.ruleset_or_current(match_.set_id, match_.ruleset_hash);
        let Some(ruleset) = cached_ruleset.as_deref() else {
            send_reply(pending.reply, Err(EngineError::UnknownSet(match_.set_id)));
            return;
        };
        let transition = {
            let cache = shared.cache.read();
            apply_event(
                &LifecycleRules::from_ruleset(ruleset),
                &match_,
                pending.event.clone(),
                &|ticket_id| has_open_nat(&cache, ticket_id),
                now,
            )
        };
        let result = transition.result;
        let Some(PlannedTransition { next_match, write, effects }) = plan_transition(shared, ruleset, transition, now)
        else {
            if is_durable {
                send_reply(pending.reply, Ok(EventOutcome { result, match_after: match_ }));
            } else {
                self.deferred_events.push(pending);
            }
            return;
        };
        self.uncommitted_matches.insert(next_match.id, Arc::clone(&next_match));
        self.add_write(
            write,
            CommitWaiter::MatchEvent(pending, EventOutcome { result, match_after: next_match }, effects),
        );
    }

    async fn commit_batch(&mut self, shared: &SharedState) {
        let mut batch = std::mem::take(self);
        while !batch.writes.is_empty() {
            let QueueBatch { writes, waiters, deferred_events, .. } = std::mem::take(&mut batch);
            match shared.commit_writes(&writes).await {
                Ok(outcomes) => {
                    let retries = shared.apply_commit(&writes, waiters, outcomes);
                    retries
                        .into_iter()
                        .chain(deferred_events)
                        .for_each(|pending| batch.add_match_event(shared, pending));
                }
                Err(error) => fail_batch(&error, waiters, deferred_events),
            }
        }
    }
}

/// Transition to write.
pub(super) struct PlannedTransition {
    /// Match after the transition.
    pub(super) next_match: Arc<Match>,
    /// Write for the store.
    pub(super) write: QueueWrite,
    /// Further actions.
    pub(super) effects: Vec<MatchEffect>,
}

/// Write for a transition; `None` if it changes nothing.
pub(super) fn plan_transition(
    shared: &SharedState,
    ruleset: &Ruleset,
    transition: Transition,
    now: UnixMs,
) -> Option<PlannedTransition> {
    let next_match = Arc::new(transition.next_match?);
    let starts_now = transition.effects.contains(&MatchEffect::StartPlay);
    let requeued_until = ruleset.queue.as_ref().map_or(now, |queue| ticket_expires_at(queue, now));
    let write = QueueWrite::TransitionMatch {
        ticket_fates: transition
            .ticket_fates
            .into_iter()
            .map(|(ticket_id, fate)| (ticket_id, fate, requeued_until))
            .collect(),
        other_tickets: if starts_now { other_waiting_tickets(shared, &next_match) } else { Vec::new() },
        penalized_users: transition.penalized_users,
        penalty_schedule: penalty_schedule(ruleset),
        purge_at: now.plus_ms(shared.core.settings.ended_ticket_retention_ms),
        updated_match: Arc::clone(&next_match),
        now,
    };
    Some(PlannedTransition { next_match, write, effects: transition.effects })
}

impl SharedState {
    /// Commits writes. Fails fast while the store is down, so that batches do not each wait for the timeout.
    async fn commit_writes(&self, writes: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        let replication = self.core.replication.as_ref();
        if replication.is_some_and(|replication| replication.is_store_down()) {
            return Err(StoreError::Unavailable("the last access failed".into()));
        }
        let outcomes = self.core.store.commit_queues(writes).await;
        if let (Err(_), Some(replication)) = (&outcomes, replication) {
            replication.record_store_failure(self.core.clock.now());
        }
        outcomes
    }

    /// Applies a committed batch to memory and answers. Returns conflicting events for another attempt.
    fn apply_commit(
        &self,
        writes: &[QueueWrite],
        waiters: Vec<CommitWaiter>,
        outcomes: Vec<QueueOutcome>,
    ) -> Vec<PendingEvent> {
        let mut changed_queues = BTreeSet::new();
        let mut retries = Vec::new();
        let now = self.core.clock.now();
        for (write, outcome) in writes.iter().zip(&outcomes) {
            self.apply_write(write, outcome, now, &mut changed_queues);
        }
        for (waiter, outcome) in waiters.into_iter().zip(outcomes) {
            match (waiter, outcome) {
                (CommitWaiter::Write(reply), QueueOutcome::UnknownRow) => {
                    send_reply(reply, Err(EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }));
                }
                (CommitWaiter::MatchEvent(pending, ..), QueueOutcome::UnknownRow) => {
                    send_reply(pending.reply, Err(EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }));
                }
                (CommitWaiter::Write(reply), outcome) => send_reply(reply, Ok(outcome)),
                (CommitWaiter::MatchEvent(pending, ..), QueueOutcome::StaleMatchVersion(Some(_)))
                    if pending.attempts < TRANSITION_ATTEMPTS_MAX =>
                {
                    retries.push(PendingEvent { attempts: pending.attempts + 1, ..pending });
                }
                (CommitWaiter::MatchEvent(pending, ..), QueueOutcome::StaleMatchVersion(None)) => {
                    send_reply(pending.reply, Err(EngineError::MatchNotFound));
                }
                (CommitWaiter::MatchEvent(pending, ..), QueueOutcome::StaleMatchVersion(Some(_))) => {
                    send_reply(pending.reply, Err(EngineError::Overloaded { retry_after_ms: RETRY_AFTER_MS }));
                }
                (CommitWaiter::MatchEvent(pending, event_outcome, effects), _) => {
                    self.release_unneeded_seats(&event_outcome.match_after, &effects);
                    send_reply(pending.reply, Ok(event_outcome));
                }
            }
        }
        self.notify_queues_changed(changed_queues);
        retries
    }

    /// Applies one committed write to memory.
    fn apply_write(
        &self,
        write: &QueueWrite,
        outcome: &QueueOutcome,
        now: UnixMs,
        changed_queues: &mut BTreeSet<QueueKey>,
    ) {
        match (write, outcome) {
            (QueueWrite::ImportRatings { rows }, QueueOutcome::RatingsImported) => {
                self.apply_ratings(rows, changed_queues)
            }
            (
                QueueWrite::RecordResult { end_transition, .. },
                QueueOutcome::ResultRecorded { tickets, ratings, .. },
            ) => {
                self.apply_ratings(ratings, changed_queues);
                if let Some(QueueWrite::TransitionMatch { updated_match: next_match, .. }) = end_transition.as_deref() {
                    self.apply_tickets_and_matches(
                        tickets.iter().cloned(),
                        [Arc::clone(next_match)],
                        now,
                        changed_queues,
                    );
                }
            }
            (_, QueueOutcome::FeedbackRecorded(Some(row))) => self.apply_ratings(&[*row], changed_queues),
            (QueueWrite::ProposeMatch { proposed: match_, .. }, QueueOutcome::MatchWritten { tickets })
            | (QueueWrite::TransitionMatch { updated_match: match_, .. }, QueueOutcome::MatchWritten { tickets }) => {
                self.apply_tickets_and_matches(tickets.iter().cloned(), [Arc::clone(match_)], now, changed_queues);
            }
            (_, QueueOutcome::Entered { ticket: stored, .. } | QueueOutcome::CurrentTicket(stored)) => {
                self.apply_tickets_and_matches([stored.clone()], [], now, changed_queues);
            }
            (_, QueueOutcome::StaleMatchVersion(Some(match_))) => {
                self.apply_tickets_and_matches([], [Arc::clone(match_)], now, changed_queues)
            }
            _ => {}
        }
    }

    /// Applies other replicas' changes to memory.
    pub(super) fn apply_feed(&self, feed_batch: QueueFeedBatch) {
        let now = self.core.clock.now();
        let mut changed_queues = BTreeSet::new();
        let listed = feed_batch.is_snapshot.then(|| {
            let tickets: BTreeSet<TicketId> = feed_batch.tickets.iter().map(|stored| stored.ticket.id).collect();
            let matches: BTreeSet<MatchId> = feed_batch.matches.iter().map(|match_| match_.id).collect();
            (tickets, matches)
        });
        self.apply_ratings(&feed_batch.ratings, &mut changed_queues);
        self.apply_tickets_and_matches(feed_batch.tickets, feed_batch.matches, now, &mut changed_queues);
        let mut cache = self.cache.write();
        if let Some((tickets, matches)) = listed {
            cache.remove_unlisted(&tickets, &matches, UnixMs(feed_batch.read_at.0.saturating_sub(FULL_READ_MARGIN_MS)));
        }
        feed_batch.removed_tickets.into_iter().for_each(|ticket_id| cache.remove_ticket(ticket_id));
        feed_batch.removed_matches.into_iter().for_each(|match_id| cache.remove_match(match_id));
        drop(cache);
        self.notify_queues_changed(changed_queues);
    }

    /// Applies stored ratings. They may change how passes treat the users' waiting tickets.
    fn apply_ratings(&self, rows: &[RatingRow], changed_queues: &mut BTreeSet<QueueKey>) {
        if rows.is_empty() {
            return;
        }
        {
            let mut ratings = self.ratings.lock();
            rows.iter().for_each(|row| ratings.upsert(*row));
        }
        let mut cache = self.cache.write();
        rows.iter().for_each(|row| changed_queues.extend(cache.mark_user_queues_changed(row.user, row.set_id)));
    }

    /// Applies stored tickets and matches. Matches first: a status must not show a ticket without its match.
    fn apply_tickets_and_matches(
        &self,
        tickets: impl IntoIterator<Item = StoredTicket>,
        matches: impl IntoIterator<Item = Arc<Match>>,
        now: UnixMs,
        changed_queues: &mut BTreeSet<QueueKey>,
    ) {
        let mut started_matches = Vec::new();
        {
            let mut cache = self.cache.write();
            for match_ in matches {
                let was_playing = cache
                    .match_by_id(match_.id)
                    .is_some_and(|existing| matches!(existing.stage, MatchStage::Playing { .. }));
                if !was_playing && matches!(match_.stage, MatchStage::Playing { .. }) {
                    started_matches.push(Arc::clone(&match_));
                }
                changed_queues.extend(cache.upsert_match(match_));
            }
            for stored in tickets {
                changed_queues.extend(cache.upsert_ticket(stored));
            }
        }
        if !started_matches.is_empty() {
            self.record_waits(&started_matches, now);
        }
    }

    /// Records the waits of tickets whose matches have started.
    fn record_waits(&self, started_matches: &[Arc<Match>], now: UnixMs) {
        let cache = self.cache.read();
        let mut wait_estimator = self.wait_estimator.lock();
        for match_ in started_matches {
            let MatchStage::Playing { started_at, .. } = match_.stage else { continue };
            wait_estimator.record_quality(match_.set_id, match_.quality, now);
            for match_ticket in &match_.tickets {
                let region = cache.ticket(match_ticket.ticket_id).map_or_else(|| "".into(), nearest_region);
                let party_size = u16::try_from(match_ticket.players.len()).unwrap_or(u16::MAX);
                wait_estimator.record_wait(
                    WaitClass { set_id: match_.set_id, region, party_size },
                    started_at.ms_since(match_ticket.entered_at),
                    now,
                );
            }
        }
    }

    /// Removes ended tickets and matches from memory once watchers have had time to see them. The store keeps them
    /// longer.
    pub(super) fn purge_ended(&self, now: UnixMs) {
        let retention_ms = self.core.settings.ended_ticket_retention_ms.saturating_sub(ENDED_TICKET_VISIBLE_MS);
        self.cache.write().remove_ended(now.plus_ms(retention_ms));
    }

    /// Releases seats that a match no longer needs. If the release fails, the hold expires.
    pub(super) fn release_unneeded_seats(&self, match_: &Match, effects: &[MatchEffect]) {
        for effect in effects {
            if let MatchEffect::ReleaseReservation { advertisement, reservation } = effect {
                self.release_seats(*advertisement, match_.set_id, *reservation);
            }
        }
    }
}

/// Whether a ticket's players report an open NAT, so that any peer can reach them.
pub(super) fn has_open_nat(cache: &TicketMatchCache, ticket_id: TicketId) -> bool {
    cache.ticket(ticket_id).is_some_and(|stored| stored.ticket.session.nat_type == Some(OPEN_NAT_TYPE))
}

/// Wire value of an open NAT.
const OPEN_NAT_TYPE: i32 = 1;

/// Other waiting tickets of the match's players; they end when the match starts.
pub(super) fn other_waiting_tickets(shared: &SharedState, next_match: &Match) -> Vec<TicketId> {
    let cache = shared.cache.read();
    let users = next_match.tickets.iter().flat_map(|match_ticket| &match_ticket.players).map(|player| player.user);
    let mut ticket_ids: BTreeSet<TicketId> = users.flat_map(|user| cache.waiting_tickets_of(user)).collect();
    ticket_ids.retain(|ticket_id| next_match.tickets.iter().all(|match_ticket| match_ticket.ticket_id != *ticket_id));
    ticket_ids.into_iter().collect()
}

/// Sends a reply. The caller may be gone; the change is done regardless.
fn send_reply<T>(reply: ReplySender<T>, answer: Result<T, EngineError>) {
    let _ = reply.send(answer);
}

fn penalty_schedule(ruleset: &Ruleset) -> PenaltySchedule {
    ruleset.ready_check.as_ref().map_or_else(PenaltySchedule::default, |check| PenaltySchedule {
        cooldowns_ms: check.penalty_cooldowns_ms.clone(),
        reset_after_ms: check.reset_after_ms,
    })
}

fn fail_batch(error: &StoreError, waiters: Vec<CommitWaiter>, deferred_events: Vec<PendingEvent>) {
    tracing::error!(%error, changes = waiters.len(), "queue batch commit failed");
    let unavailable = || EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS };
    deferred_events.into_iter().for_each(|pending| send_reply(pending.reply, Err(unavailable())));
    for waiter in waiters {
        match waiter {
            CommitWaiter::Write(reply) => send_reply(reply, Err(unavailable())),
            CommitWaiter::MatchEvent(pending, ..) => send_reply(pending.reply, Err(unavailable())),
        }
    }
}
