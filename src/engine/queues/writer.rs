//! The one task that writes what queues keep: many changes, one transaction, then memory, then the answers.
//!
//! Whoever moves a match says what has happened to it, not what it is to become: the move is made here, from the match as it
//! stands when its turn comes. So twelve players who answer at once are twelve moves in one transaction, and only another
//! server's can come between.

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

/// Changes in one transaction.
const BATCH_COMMANDS_MAX: usize = 1_000;

/// How long an ended ticket is still shown to whoever watches it, milliseconds.
const ENDED_TICKET_VISIBLE_MS: u64 = 60_000;

/// What began to wait or was proposed so short a time before everything was read, milliseconds, may have come after the
/// reading. It cannot have been forgotten already: what is over is kept for much longer.
const FULL_READ_MARGIN_MS: u64 = 10_000;

/// How often a move is made anew that another server's came before.
const TRANSITION_ATTEMPTS_MAX: u8 = 16;

/// Something for the writer.
#[derive(Debug)]
pub(super) enum QueueWriterCommand {
    /// A change.
    Write(Box<QueueWrite>, ReplySender<QueueOutcome>),
    /// Something that has happened to a match; answered with the match as it then stands.
    MatchEvent(Box<PendingEvent>),
    /// What other servers have changed.
    ApplyFeed(Box<QueueFeedBatch>),
}

/// Something that has happened to a match, and who wants to know what came of it.
#[derive(Debug)]
pub(super) struct PendingEvent {
    match_id: MatchId,
    event: MatchEvent,
    reply: ReplySender<EventOutcome>,
    attempts: u8,
}

/// What came of something that happened to a match.
#[derive(Clone, Debug)]
pub(super) struct EventOutcome {
    /// How it was taken.
    pub(super) result: EventResult,
    /// The match as it then stands.
    pub(super) match_after: Arc<Match>,
}

impl PendingEvent {
    /// `event` happens to match `id`.
    pub(super) fn new(id: MatchId, event: MatchEvent, reply: ReplySender<EventOutcome>) -> Self {
        Self { match_id: id, event, reply, attempts: 0 }
    }
}

/// Writes until told to stop, and then what is left.
pub(super) async fn run_queue_writer(
    hall: Arc<SharedState>,
    mut inbox: mpsc::Receiver<QueueWriterCommand>,
    stop: CancellationToken,
) {
    let mut orders = Vec::with_capacity(BATCH_COMMANDS_MAX);
    loop {
        let taken = tokio::select! {
            biased;
            taken = inbox.recv_many(&mut orders, BATCH_COMMANDS_MAX) => taken,
            () = stop.cancelled(), if !inbox.is_closed() => {
                inbox.close();
                continue;
            }
        };
        if taken == 0 {
            return;
        }
        let mut batch = QueueBatch::default();
        for order in orders.drain(..) {
            match order {
                QueueWriterCommand::Write(write, reply) => batch.add_write(*write, CommitWaiter::Write(reply)),
                QueueWriterCommand::MatchEvent(happened) => batch.add_match_event(&hall, *happened),
                QueueWriterCommand::ApplyFeed(news) => {
                    batch.commit_batch(&hall).await;
                    hall.apply_feed(*news);
                }
            }
        }
        batch.commit_batch(&hall).await;
    }
}

/// Who waits for what a change does.
#[derive(Debug)]
enum CommitWaiter {
    Write(ReplySender<QueueOutcome>),
    MatchEvent(PendingEvent, EventOutcome, Vec<MatchEffect>),
}

/// Changes that share a transaction.
#[derive(Debug, Default)]
struct QueueBatch {
    writes: Vec<QueueWrite>,
    waiters: Vec<CommitWaiter>,
    /// Matches as they will be when the changes before are made.
    uncommitted_matches: HashMap<MatchId, Arc<Match>, BuildIdHasher>,
    /// What changes nothing in a match as it will be. It is looked at again when that is what the store has.
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

    /// Makes a move of what has happened, from the match as it will then stand. What changes nothing is answered at once, if
    /// the match stands so already.
    fn add_match_event(&mut self, hall: &SharedState, happened: PendingEvent) {
        let now = hall.core.clock.now();
        let ahead = self.uncommitted_matches.get(&happened.match_id).cloned();
        let is_durable = ahead.is_none();
        let Some(play) = ahead.or_else(|| hall.cache.read().match_by_id(happened.match_id).cloned()) else {
            let _ = happened.reply.send(Err(EngineError::MatchNotFound));
            return;
        };
        let rules = hall.ruleset_or_current(play.set_id, play.ruleset_hash);
        let Some(ruleset) = rules.as_deref() else {
            let _ = happened.reply.send(Err(EngineError::UnknownSet(play.set_id)));
            return;
        };
        let step = {
            let roster = hall.cache.read();
            apply_event(
                &LifecycleRules::from_ruleset(ruleset),
                &play,
                happened.event.clone(),
                &|id| has_open_nat(&roster, id),
                now,
            )
        };
        let heard = step.result;
        let Some(PlannedTransition { next_match: next, write, effects }) = plan_transition(hall, ruleset, step, now)
        else {
            match is_durable {
                true => drop(happened.reply.send(Ok(EventOutcome { result: heard, match_after: play }))),
                false => self.deferred_events.push(happened),
            }
            return;
        };
        self.uncommitted_matches.insert(next.id, Arc::clone(&next));
        self.add_write(
            write,
            CommitWaiter::MatchEvent(happened, EventOutcome { result: heard, match_after: next }, effects),
        );
    }

    async fn commit_batch(&mut self, hall: &SharedState) {
        let mut batch = std::mem::take(self);
        while !batch.writes.is_empty() {
            let QueueBatch { writes, waiters, deferred_events: then, .. } = std::mem::take(&mut batch);
            match hall.commit_writes(&writes).await {
                Ok(outcomes) => {
                    let again = hall.apply_commit(&writes, waiters, outcomes);
                    again.into_iter().chain(then).for_each(|happened| batch.add_match_event(hall, happened));
                }
                Err(error) => fail_batch(&error, waiters, then),
            }
        }
    }
}

/// A move that is to be made.
pub(super) struct PlannedTransition {
    /// The match as it is to be.
    pub(super) next_match: Arc<Match>,
    /// The change.
    pub(super) write: QueueWrite,
    /// What else is to be done.
    pub(super) effects: Vec<MatchEffect>,
}

/// A step as a change for the store; `None` for one that changes nothing.
pub(super) fn plan_transition(
    hall: &SharedState,
    ruleset: &Ruleset,
    step: Transition,
    now: UnixMs,
) -> Option<PlannedTransition> {
    let next = Arc::new(step.next_match?);
    let begins = step.effects.contains(&MatchEffect::StartPlay);
    let believed_until = ruleset.queue.as_ref().map_or(now, |queue| ticket_expires_at(queue, now));
    let write = QueueWrite::TransitionMatch {
        ticket_fates: step.ticket_fates.into_iter().map(|(id, fate)| (id, fate, believed_until)).collect(),
        other_tickets: if begins { other_waiting_tickets(hall, &next) } else { Vec::new() },
        penalized_users: step.penalized_users,
        penalty_schedule: penalty_schedule(ruleset),
        purge_at: now.plus_ms(hall.core.settings.ended_ticket_retention_ms),
        updated_match: Arc::clone(&next),
        now,
    };
    Some(PlannedTransition { next_match: next, write, effects: step.effects })
}

impl SharedState {
    /// Has the store make the changes. Where it could not be reached a moment ago it is not asked again before it has been
    /// heard of: every batch would wait as long as the first (R6).
    async fn commit_writes(&self, writes: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        let sharing = self.core.replication.as_ref();
        if sharing.is_some_and(|sharing| sharing.is_store_down()) {
            return Err(StoreError::Unavailable("it could not be reached a moment ago".into()));
        }
        let committed = self.core.store.commit_queues(writes).await;
        if let (Err(_), Some(sharing)) = (&committed, sharing) {
            sharing.record_store_failure(self.core.clock.now());
        }
        committed
    }

    /// Brings a batch to memory, and answers; gives back the moves that have to be made anew.
    fn apply_commit(
        &self,
        writes: &[QueueWrite],
        waiters: Vec<CommitWaiter>,
        outcomes: Vec<QueueOutcome>,
    ) -> Vec<PendingEvent> {
        let mut keys = BTreeSet::new();
        let mut again = Vec::new();
        let now = self.core.clock.now();
        for (write, outcome) in writes.iter().zip(&outcomes) {
            self.apply_write(write, outcome, now, &mut keys);
        }
        for (waiter, outcome) in waiters.into_iter().zip(outcomes) {
            match (waiter, outcome) {
                (CommitWaiter::Write(reply), outcome) => drop(reply.send(Ok(outcome))),
                (CommitWaiter::MatchEvent(it, ..), QueueOutcome::StaleMatchVersion(Some(_)))
                    if it.attempts < TRANSITION_ATTEMPTS_MAX =>
                {
                    again.push(PendingEvent { attempts: it.attempts + 1, ..it });
                }
                (CommitWaiter::MatchEvent(it, ..), QueueOutcome::StaleMatchVersion(None)) => {
                    drop(it.reply.send(Err(EngineError::MatchNotFound)))
                }
                (CommitWaiter::MatchEvent(it, ..), QueueOutcome::StaleMatchVersion(Some(_))) => {
                    drop(it.reply.send(Err(EngineError::Overloaded { retry_after_ms: RETRY_AFTER_MS })));
                }
                (CommitWaiter::MatchEvent(it, came, effects), _) => {
                    self.release_unneeded_seats(&came.match_after, &effects);
                    drop(it.reply.send(Ok(came)));
                }
            }
        }
        self.notify_queues_changed(keys);
        again
    }

    /// Takes what one change did to memory.
    fn apply_write(&self, write: &QueueWrite, outcome: &QueueOutcome, now: UnixMs, keys: &mut BTreeSet<QueueKey>) {
        match (write, outcome) {
            (QueueWrite::ImportRatings { rows }, QueueOutcome::RatingsImported) => self.apply_ratings(rows, keys),
            (
                QueueWrite::RecordResult { end_transition: ends, .. },
                QueueOutcome::ResultRecorded { tickets, ratings, .. },
            ) => {
                self.apply_ratings(ratings, keys);
                if let Some(QueueWrite::TransitionMatch { updated_match: next, .. }) = ends.as_deref() {
                    self.apply_tickets_and_matches(tickets.iter().cloned(), [Arc::clone(next)], now, keys);
                }
            }
            (_, QueueOutcome::FeedbackRecorded(Some(row))) => self.apply_ratings(&[*row], keys),
            (QueueWrite::ProposeMatch { proposed: play, .. }, QueueOutcome::MatchWritten { tickets })
            | (QueueWrite::TransitionMatch { updated_match: play, .. }, QueueOutcome::MatchWritten { tickets }) => {
                self.apply_tickets_and_matches(tickets.iter().cloned(), [Arc::clone(play)], now, keys);
            }
            (_, QueueOutcome::Entered { ticket: stored, .. } | QueueOutcome::CurrentTicket(stored)) => {
                self.apply_tickets_and_matches([stored.clone()], [], now, keys);
            }
            (_, QueueOutcome::StaleMatchVersion(Some(play))) => {
                self.apply_tickets_and_matches([], [Arc::clone(play)], now, keys)
            }
            _ => {}
        }
    }

    /// Takes what other servers have changed to memory.
    pub(super) fn apply_feed(&self, news: QueueFeedBatch) {
        let now = self.core.clock.now();
        let mut keys = BTreeSet::new();
        let there = news.is_snapshot.then(|| {
            let tickets: BTreeSet<TicketId> = news.tickets.iter().map(|stored| stored.ticket.id).collect();
            let matches: BTreeSet<MatchId> = news.matches.iter().map(|play| play.id).collect();
            (tickets, matches)
        });
        self.apply_ratings(&news.ratings, &mut keys);
        self.apply_tickets_and_matches(news.tickets, news.matches, now, &mut keys);
        let mut roster = self.cache.write();
        if let Some((tickets, matches)) = there {
            roster.remove_unlisted(&tickets, &matches, UnixMs(news.read_at.0.saturating_sub(FULL_READ_MARGIN_MS)));
        }
        news.removed_tickets.into_iter().for_each(|id| roster.remove_ticket(id));
        news.removed_matches.into_iter().for_each(|id| roster.remove_match(id));
        drop(roster);
        self.notify_queues_changed(keys);
    }

    /// Takes ratings as the store has them. Whoever waits meanwhile may be looked after from now on, or no more.
    fn apply_ratings(&self, rows: &[RatingRow], keys: &mut BTreeSet<QueueKey>) {
        if rows.is_empty() {
            return;
        }
        {
            let mut ratings = self.ratings.lock();
            rows.iter().for_each(|row| ratings.upsert(*row));
        }
        let mut roster = self.cache.write();
        rows.iter().for_each(|row| keys.extend(roster.mark_user_queues_changed(row.user, row.set_id)));
    }

    /// Takes tickets and matches as the store has them. Matches first: a ticket whose match is not here yet would be told of
    /// as if it had none.
    fn apply_tickets_and_matches(
        &self,
        tickets: impl IntoIterator<Item = StoredTicket>,
        matches: impl IntoIterator<Item = Arc<Match>>,
        now: UnixMs,
        keys: &mut BTreeSet<QueueKey>,
    ) {
        let mut begun = Vec::new();
        {
            let mut roster = self.cache.write();
            for play in matches {
                let before =
                    roster.match_by_id(play.id).is_some_and(|known| matches!(known.stage, MatchStage::Playing { .. }));
                if !before && matches!(play.stage, MatchStage::Playing { .. }) {
                    begun.push(Arc::clone(&play));
                }
                keys.extend(roster.upsert_match(play));
            }
            for stored in tickets {
                keys.extend(roster.upsert_ticket(stored));
            }
        }
        if !begun.is_empty() {
            self.record_waits(&begun, now);
        }
    }

    /// What the tickets of matches that have begun have waited.
    fn record_waits(&self, begun: &[Arc<Match>], now: UnixMs) {
        let roster = self.cache.read();
        let mut waits = self.wait_estimator.lock();
        for play in begun {
            let MatchStage::Playing { started_at: began, .. } = play.stage else { continue };
            waits.record_quality(play.set_id, play.quality, now);
            for member in &play.tickets {
                let region = roster.ticket(member.ticket_id).map_or_else(|| "".into(), nearest_region);
                let party_size = u16::try_from(member.players.len()).unwrap_or(u16::MAX);
                waits.record_wait(
                    WaitClass { set_id: play.set_id, region, party_size },
                    began.ms_since(member.entered_at),
                    now,
                );
            }
        }
    }

    /// Forgets in memory what nobody can be waiting to hear of any more; the store keeps it for as long as it promised.
    pub(super) fn purge_ended(&self, now: UnixMs) {
        let shown_for = self.core.settings.ended_ticket_retention_ms.saturating_sub(ENDED_TICKET_VISIBLE_MS);
        self.cache.write().remove_ended(now.plus_ms(shown_for));
    }

    /// Gives seats back that a match no longer needs. Should that fail they lapse.
    pub(super) fn release_unneeded_seats(&self, play: &Match, effects: &[MatchEffect]) {
        for effect in effects {
            if let MatchEffect::ReleaseReservation { advertisement, reservation } = effect {
                self.release_seats(*advertisement, play.set_id, *reservation);
            }
        }
    }
}

/// Whether a ticket's players can be reached by anybody: an open NAT, as they know it of themselves.
pub(super) fn has_open_nat(roster: &TicketMatchCache, id: TicketId) -> bool {
    roster.ticket(id).is_some_and(|stored| stored.ticket.session.nat_type == Some(OPEN_NAT_TYPE))
}

/// What an open NAT is called, as in the contract.
const OPEN_NAT_TYPE: i32 = 1;

/// Tickets that end because a match begins: those that its users have waiting elsewhere.
pub(super) fn other_waiting_tickets(hall: &SharedState, next: &Match) -> Vec<TicketId> {
    let roster = hall.cache.read();
    let users = next.tickets.iter().flat_map(|member| &member.players).map(|seat| seat.user);
    let mut others: BTreeSet<TicketId> = users.flat_map(|user| roster.waiting_tickets_of(user)).collect();
    others.retain(|id| next.tickets.iter().all(|member| member.ticket_id != *id));
    others.into_iter().collect()
}

fn penalty_schedule(ruleset: &Ruleset) -> PenaltySchedule {
    ruleset.ready_check.as_ref().map_or_else(PenaltySchedule::default, |check| PenaltySchedule {
        cooldowns_ms: check.penalty_cooldowns_ms.clone(),
        reset_after_ms: check.reset_after_ms,
    })
}

fn fail_batch(error: &StoreError, waiters: Vec<CommitWaiter>, then: Vec<PendingEvent>) {
    tracing::error!(%error, changes = waiters.len(), "commit a batch of queues");
    let fault = || EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS };
    then.into_iter().for_each(|it| drop(it.reply.send(Err(fault()))));
    for waiter in waiters {
        match waiter {
            CommitWaiter::Write(reply) => drop(reply.send(Err(fault()))),
            CommitWaiter::MatchEvent(it, ..) => drop(it.reply.send(Err(fault()))),
        }
    }
}
