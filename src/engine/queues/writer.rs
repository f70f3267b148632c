//! Queue writer: batches changes into transactions, applies them to memory and then answers.
//!
//! Callers send match events, not new match states. The writer computes each transition from the match as it stands
//! when the event's turn comes. So twelve simultaneous replies are twelve transitions in one transaction, and only
//! another replica's change can conflict.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::domain::id::{BuildIdHasher, MatchId};
use crate::domain::lifecycle::event::{MatchEffect, MatchEvent};
use crate::domain::lifecycle::rules::LifecycleRules;
use crate::domain::lifecycle::transition::apply_event;
use crate::domain::lifecycle::{Match, MatchEndReason};
use crate::engine::error::EngineError;
use crate::engine::open_silos::SiloUse;
use crate::engine::queues::match_round_trips::MatchRoundTrips;
use crate::engine::queues::plan_transition::{CachedTicketFacts, PlannedTransition, plan_transition};
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::writer_command::{EventOutcome, PendingEvent, QueueWriterCommand};
use crate::engine::writer_inbox::{RETRY_AFTER_MS, ReplySender};
use crate::rules::catalog::MatchRulesetLookup;
use crate::store::StoreError;
use crate::store::queues::{QueueOutcome, QueueWrite};

/// Maximum changes per transaction.
const BATCH_COMMANDS_MAX: usize = 1_000;

/// Maximum attempts of a transition that conflicts with another replica's.
const TRANSITION_ATTEMPTS_MAX: u8 = 16;

/// Task that applies all changes of the queues.
#[derive(Debug)]
pub(crate) struct QueueWriter {
    state: Arc<SharedState>,
}

impl QueueWriter {
    /// Writer for `state`.
    pub(crate) fn new(state: Arc<SharedState>) -> Self {
        Self { state }
    }

    /// Processes commands until stopped, and then the rest of the inbox.
    pub(crate) async fn run(self, mut inbox: mpsc::Receiver<QueueWriterCommand>, shutdown: CancellationToken) {
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
            #[cfg(feature = "failpoints")]
            crate::engine::fail_points::fail_in_queue_writer();
            let mut batch = QueueBatch::default();
            for command in commands.drain(..) {
                match command {
                    QueueWriterCommand::Write(write, reply, silo_use) => {
                        batch.add_write(*write, CommitWaiter::Write(reply, silo_use));
                    }
                    QueueWriterCommand::MatchEvent(pending) => batch.add_match_event(&self.state, *pending),
                    QueueWriterCommand::ApplyFeed(feed_batch) => {
                        self.commit_batch(&mut batch).await;
                        self.state.apply_feed(*feed_batch);
                    }
                }
            }
            self.commit_batch(&mut batch).await;
        }
    }

    async fn commit_batch(&self, batch: &mut QueueBatch) {
        let mut batch = std::mem::take(batch);
        while !batch.writes.is_empty() {
            let QueueBatch { writes, waiters, deferred_events, .. } = std::mem::take(&mut batch);
            match self.commit_writes(&writes).await {
                Ok(outcomes) => {
                    let retries = self.apply_commit(&writes, waiters, outcomes);
                    retries
                        .into_iter()
                        .chain(deferred_events)
                        .for_each(|pending| batch.add_match_event(&self.state, pending));
                }
                Err(error) => fail_batch(&error, waiters, deferred_events),
            }
        }
    }

    /// Commits writes. Fails fast while the store is down, so that batches do not each wait for the timeout.
    async fn commit_writes(&self, writes: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        let store_health = self.state.common.store_health.as_ref();
        if store_health.is_some_and(|health| health.is_down()) {
            self.state.common.server_outages.record_failure(self.state.common.clock.now());
            return Err(StoreError::Unavailable("the last access failed".into()));
        }
        let outcomes = self.state.common.store.commit_queues(writes).await;
        self.state.common.record_commit(&outcomes);
        if let (Err(_), Some(health)) = (&outcomes, store_health) {
            health.record_failure();
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
        let now = self.state.common.clock.now();
        for (write, outcome) in writes.iter().zip(&outcomes) {
            self.state.apply_write(write, outcome, now, &mut changed_queues);
        }
        for (waiter, outcome) in waiters.into_iter().zip(outcomes) {
            match (waiter, outcome) {
                (CommitWaiter::Write(reply, _), QueueOutcome::UnknownRow) => {
                    send_reply(reply, Err(EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }));
                }
                (CommitWaiter::MatchEvent(pending, ..), QueueOutcome::UnknownRow) => {
                    send_reply(pending.reply, Err(EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }));
                }
                (CommitWaiter::Write(reply, silo_use), outcome) => {
                    // The ticket is in memory by now and keeps its silo open itself.
                    drop(silo_use);
                    send_reply(reply, Ok(outcome));
                }
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
                    self.log_match_cancelled_without_ruleset(&event_outcome.match_after);
                    self.state.release_unneeded_seats(&event_outcome.match_after, &effects);
                    send_reply(pending.reply, Ok(event_outcome));
                }
            }
        }
        self.state.notify_queues_changed(changed_queues);
        retries
    }

    /// Logs the end of a match that was cancelled because its ruleset is unavailable.
    fn log_match_cancelled_without_ruleset(&self, ended: &Match) {
        if ended.stage.end_reason() != Some(MatchEndReason::Cancelled) {
            return;
        }
        let Match { id, set_id, ruleset_hash, .. } = *ended;
        if self.state.common.ruleset_of_match(set_id, ruleset_hash) == MatchRulesetLookup::Unrecoverable {
            let hash = ruleset_hash.0;
            tracing::error!(match_id = %id, %set_id, hash, "match cancelled, its ruleset is unavailable");
        }
    }
}

/// Caller that waits for a write.
#[derive(Debug)]
enum CommitWaiter {
    /// With the use of a silo that ends when the write is in memory.
    Write(ReplySender<QueueOutcome>, Option<SiloUse>),
    MatchEvent(PendingEvent, EventOutcome, Vec<MatchEffect>),
}

/// Writes of one transaction.
#[derive(Debug, Default)]
struct QueueBatch {
    writes: Vec<QueueWrite>,
    waiters: Vec<CommitWaiter>,
    /// Matches as they will be after the earlier writes of this batch.
    pending_match_states: HashMap<MatchId, Arc<Match>, BuildIdHasher>,
    /// Events without effect on an uncommitted match. Evaluated again after the commit.
    deferred_events: Vec<PendingEvent>,
}

impl QueueBatch {
    fn add_write(&mut self, write: QueueWrite, waiter: CommitWaiter) {
        if let QueueWrite::ProposeMatch { proposed, .. } = &write {
            self.pending_match_states.insert(proposed.id, Arc::clone(proposed));
        }
        self.writes.push(write);
        self.waiters.push(waiter);
    }

    /// Adds the transition that an event causes. An event without effect on a committed match is answered at once.
    fn add_match_event(&mut self, shared: &SharedState, pending: PendingEvent) {
        let now = shared.common.clock.now();
        let uncommitted = self.pending_match_states.get(&pending.match_id).cloned();
        let is_durable = uncommitted.is_none();
        let Some(match_) = uncommitted.or_else(|| shared.cache.read().match_by_id(pending.match_id).cloned()) else {
            send_reply(pending.reply, Err(EngineError::MatchNotFound));
            return;
        };
        let ruleset = match shared.common.ruleset_of_match(match_.set_id, match_.ruleset_hash) {
            MatchRulesetLookup::Known(ruleset) => Some(ruleset),
            MatchRulesetLookup::NotLoaded => {
                send_reply(pending.reply, Err(EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }));
                return;
            }
            MatchRulesetLookup::Unrecoverable => None,
        };
        // Without its ruleset a match cannot continue: any event cancels it.
        let (rules, event) = match &ruleset {
            Some(ruleset) => (shared.lifecycle_rules_for_event(ruleset, &pending.event), pending.event.clone()),
            None => (LifecycleRules::for_ending_without_ruleset(), MatchEvent::Cancelled),
        };
        let outages = shared.common.server_outages.outages_extending_deadlines();
        let enforced_until = shared.common.server_outages.deadlines_enforced_until(now);
        let transition = {
            let cache = shared.cache.read();
            let round_trips =
                ruleset.as_ref().and_then(|ruleset| MatchRoundTrips::of_ruleset(&shared.common, ruleset, now));
            let facts = CachedTicketFacts::new(&cache, &outages, enforced_until).with_round_trips(round_trips);
            apply_event(&rules, &match_, event, &facts, now)
        };
        let result = transition.result;
        let Some(PlannedTransition { next_match, write, effects }) =
            plan_transition(shared, ruleset.as_deref(), transition, now)
        else {
            if is_durable {
                send_reply(pending.reply, Ok(EventOutcome { result, match_after: match_ }));
            } else {
                self.deferred_events.push(pending);
            }
            return;
        };
        self.pending_match_states.insert(next_match.id, Arc::clone(&next_match));
        self.add_write(
            write,
            CommitWaiter::MatchEvent(pending, EventOutcome { result, match_after: next_match }, effects),
        );
    }
}

/// Sends a reply. The caller may be gone; the change is done regardless.
fn send_reply<T>(reply: ReplySender<T>, answer: Result<T, EngineError>) {
    let _ = reply.send(answer);
}

fn fail_batch(error: &StoreError, waiters: Vec<CommitWaiter>, deferred_events: Vec<PendingEvent>) {
    tracing::error!(%error, changes = waiters.len(), "queue batch commit failed");
    let unavailable = || EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS };
    deferred_events.into_iter().for_each(|pending| send_reply(pending.reply, Err(unavailable())));
    for waiter in waiters {
        match waiter {
            CommitWaiter::Write(reply, _) => send_reply(reply, Err(unavailable())),
            CommitWaiter::MatchEvent(pending, ..) => send_reply(pending.reply, Err(unavailable())),
        }
    }
}
