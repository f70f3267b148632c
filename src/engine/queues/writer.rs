//! The one task that writes what queues keep: many changes, one transaction, then memory, then the answers.
//!
//! Whoever moves a match says what has happened to it, not what it is to become: the move is made here, from the match as it
//! stands when its turn comes. So twelve players who answer at once are twelve moves in one transaction, and only another
//! server's can come between.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::domain::id::{IdState, MatchId, TicketId};
use crate::domain::life::event::{Effect, Event, Heard, Step};
use crate::domain::life::rules::LifeRules;
use crate::domain::life::step::step;
use crate::domain::life::{Match, Stage};
use crate::domain::ruleset::Ruleset;
use crate::domain::time::UnixMs;
use crate::engine::fault::Fault;
use crate::engine::job::Reply;
use crate::engine::queues::enter::lapses_at;
use crate::engine::queues::hall::{Hall, RETRY_AFTER_MS};
use crate::engine::queues::roster::Roster;
use crate::engine::queues::status::nearest_region;
use crate::engine::queues::waits::Sort;
use crate::store::StoreError;
use crate::store::queues::{Ladder, QueueKey, QueueNews, QueueOutcome, QueueWrite, RatingRow, StoredTicket};

/// Changes in one transaction.
const BATCH_MAX: usize = 1_000;

/// How long an ended ticket is still shown to whoever watches it, milliseconds.
const ENDED_SHOWN_MS: u64 = 60_000;

/// What began to wait or was proposed so short a time before everything was read, milliseconds, may have come after the
/// reading. It cannot have been forgotten already: what is over is kept for much longer.
const TOO_YOUNG_MS: u64 = 10_000;

/// How often a move is made anew that another server's came before.
const ATTEMPTS_MAX: u8 = 16;

/// Something for the writer.
#[derive(Debug)]
pub(super) enum Order {
    /// A change.
    Write(Box<QueueWrite>, Reply<QueueOutcome>),
    /// Something that has happened to a match; answered with the match as it then stands.
    Happened(Box<Happened>),
    /// What other servers have changed.
    News(Box<QueueNews>),
}

/// Something that has happened to a match, and who wants to know what came of it.
#[derive(Debug)]
pub(super) struct Happened {
    id: MatchId,
    event: Event,
    reply: Reply<Came>,
    attempts: u8,
}

/// What came of something that happened to a match.
#[derive(Clone, Debug)]
pub(super) struct Came {
    /// How it was taken.
    pub(super) heard: Heard,
    /// The match as it then stands.
    pub(super) play: Arc<Match>,
}

impl Happened {
    /// `event` happens to match `id`.
    pub(super) fn new(id: MatchId, event: Event, reply: Reply<Came>) -> Self {
        Self { id, event, reply, attempts: 0 }
    }
}

/// Writes until told to stop, and then what is left.
pub(super) async fn run(hall: Arc<Hall>, mut inbox: mpsc::Receiver<Order>, stop: CancellationToken) {
    let mut orders = Vec::with_capacity(BATCH_MAX);
    loop {
        let taken = tokio::select! {
            biased;
            taken = inbox.recv_many(&mut orders, BATCH_MAX) => taken,
            () = stop.cancelled(), if !inbox.is_closed() => {
                inbox.close();
                continue;
            }
        };
        if taken == 0 {
            return;
        }
        let mut batch = Batch::default();
        for order in orders.drain(..) {
            match order {
                Order::Write(write, reply) => batch.add(*write, Waiter::Write(reply)),
                Order::Happened(happened) => batch.step(&hall, *happened),
                Order::News(news) => {
                    batch.commit(&hall).await;
                    hall.adopt(*news);
                }
            }
        }
        batch.commit(&hall).await;
    }
}

/// Who waits for what a change does.
#[derive(Debug)]
enum Waiter {
    Write(Reply<QueueOutcome>),
    Happened(Happened, Came, Vec<Effect>),
}

/// Changes that share a transaction.
#[derive(Debug, Default)]
struct Batch {
    writes: Vec<QueueWrite>,
    waiters: Vec<Waiter>,
    /// Matches as they will be when the changes before are made.
    ahead: HashMap<MatchId, Arc<Match>, IdState>,
    /// What changes nothing in a match as it will be. It is looked at again when that is what the store has.
    then: Vec<Happened>,
}

impl Batch {
    fn add(&mut self, write: QueueWrite, waiter: Waiter) {
        if let QueueWrite::Propose { proposed, .. } = &write {
            self.ahead.insert(proposed.id, Arc::clone(proposed));
        }
        self.writes.push(write);
        self.waiters.push(waiter);
    }

    /// Makes a move of what has happened, from the match as it will then stand. What changes nothing is answered at once, if
    /// the match stands so already.
    fn step(&mut self, hall: &Hall, happened: Happened) {
        let now = hall.core.clock.now();
        let ahead = self.ahead.get(&happened.id).cloned();
        let is_durable = ahead.is_none();
        let Some(play) = ahead.or_else(|| hall.roster.read().play(happened.id).cloned()) else {
            let _ = happened.reply.send(Err(Fault::NoSuchMatch));
            return;
        };
        let rules = hall.rules(play.set_id, play.hash);
        let Some(ruleset) = rules.as_deref() else {
            let _ = happened.reply.send(Err(Fault::UnknownSet(play.set_id)));
            return;
        };
        let step = {
            let roster = hall.roster.read();
            step(&LifeRules::of(ruleset), &play, happened.event.clone(), &|id| is_open(&roster, id), now)
        };
        let heard = step.heard;
        let Some(Moved { next, write, effects }) = moved(hall, ruleset, step, now) else {
            match is_durable {
                true => drop(happened.reply.send(Ok(Came { heard, play }))),
                false => self.then.push(happened),
            }
            return;
        };
        self.ahead.insert(next.id, Arc::clone(&next));
        self.add(write, Waiter::Happened(happened, Came { heard, play: next }, effects));
    }

    async fn commit(&mut self, hall: &Hall) {
        let mut batch = std::mem::take(self);
        while !batch.writes.is_empty() {
            let Batch { writes, waiters, then, .. } = std::mem::take(&mut batch);
            match hall.commit(&writes).await {
                Ok(outcomes) => {
                    let again = hall.apply(&writes, waiters, outcomes);
                    again.into_iter().chain(then).for_each(|happened| batch.step(hall, happened));
                }
                Err(error) => refuse_all(&error, waiters, then),
            }
        }
    }
}

/// A move that is to be made.
pub(super) struct Moved {
    /// The match as it is to be.
    pub(super) next: Arc<Match>,
    /// The change.
    pub(super) write: QueueWrite,
    /// What else is to be done.
    pub(super) effects: Vec<Effect>,
}

/// A step as a change for the store; `None` for one that changes nothing.
pub(super) fn moved(hall: &Hall, ruleset: &Ruleset, step: Step, now: UnixMs) -> Option<Moved> {
    let next = Arc::new(step.next?);
    let begins = step.effects.contains(&Effect::Begin);
    let believed_until = ruleset.queue.as_ref().map_or(now, |queue| lapses_at(queue, now));
    let write = QueueWrite::Move {
        fates: step.fates.into_iter().map(|(id, fate)| (id, fate, believed_until)).collect(),
        elsewhere: if begins { elsewhere(hall, &next) } else { Vec::new() },
        punished: step.punished,
        ladder: ladder(ruleset),
        forget_at: now.after(hall.core.settings.ticket_kept_ms),
        next: Arc::clone(&next),
        now,
    };
    Some(Moved { next, write, effects: step.effects })
}

impl Hall {
    /// Has the store make the changes. Where it could not be reached a moment ago it is not asked again before it has been
    /// heard of: every batch would wait as long as the first (R6).
    async fn commit(&self, writes: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        let sharing = self.core.sharing.as_ref();
        if sharing.is_some_and(|sharing| sharing.is_down()) {
            return Err(StoreError::Unavailable("it could not be reached a moment ago".into()));
        }
        let committed = self.core.store.commit_queues(writes).await;
        if let (Err(_), Some(sharing)) = (&committed, sharing) {
            sharing.failed(self.core.clock.now());
        }
        committed
    }

    /// Brings a batch to memory, and answers; gives back the moves that have to be made anew.
    fn apply(&self, writes: &[QueueWrite], waiters: Vec<Waiter>, outcomes: Vec<QueueOutcome>) -> Vec<Happened> {
        let mut keys = BTreeSet::new();
        let mut again = Vec::new();
        let now = self.core.clock.now();
        for (write, outcome) in writes.iter().zip(&outcomes) {
            self.learn(write, outcome, now, &mut keys);
        }
        for (waiter, outcome) in waiters.into_iter().zip(outcomes) {
            match (waiter, outcome) {
                (Waiter::Write(reply), outcome) => drop(reply.send(Ok(outcome))),
                (Waiter::Happened(it, ..), QueueOutcome::Stale(Some(_))) if it.attempts < ATTEMPTS_MAX => {
                    again.push(Happened { attempts: it.attempts + 1, ..it });
                }
                (Waiter::Happened(it, ..), QueueOutcome::Stale(None)) => drop(it.reply.send(Err(Fault::NoSuchMatch))),
                (Waiter::Happened(it, ..), QueueOutcome::Stale(Some(_))) => {
                    drop(it.reply.send(Err(Fault::Overloaded { retry_after_ms: RETRY_AFTER_MS })));
                }
                (Waiter::Happened(it, came, effects), _) => {
                    self.give_back_all(&came.play, &effects);
                    drop(it.reply.send(Ok(came)));
                }
            }
        }
        self.ring(keys);
        again
    }

    /// Takes what one change did to memory.
    fn learn(&self, write: &QueueWrite, outcome: &QueueOutcome, now: UnixMs, keys: &mut BTreeSet<QueueKey>) {
        match (write, outcome) {
            (QueueWrite::Rate { rows }, QueueOutcome::Rated) => self.learn_ratings(rows, keys),
            (QueueWrite::Conclude { ends, .. }, QueueOutcome::Concluded { tickets, ratings, .. }) => {
                self.learn_ratings(ratings, keys);
                if let Some(QueueWrite::Move { next, .. }) = ends.as_deref() {
                    self.know(tickets.iter().cloned(), [Arc::clone(next)], now, keys);
                }
            }
            (_, QueueOutcome::Scored(Some(row))) => self.learn_ratings(&[*row], keys),
            (QueueWrite::Propose { proposed: play, .. }, QueueOutcome::Moved { tickets })
            | (QueueWrite::Move { next: play, .. }, QueueOutcome::Moved { tickets }) => {
                self.know(tickets.iter().cloned(), [Arc::clone(play)], now, keys);
            }
            (_, QueueOutcome::Entered { stored, .. } | QueueOutcome::Ticket(stored)) => {
                self.know([stored.clone()], [], now, keys);
            }
            (_, QueueOutcome::Stale(Some(play))) => self.know([], [Arc::clone(play)], now, keys),
            _ => {}
        }
    }

    /// Takes what other servers have changed to memory.
    pub(super) fn adopt(&self, news: QueueNews) {
        let now = self.core.clock.now();
        let mut keys = BTreeSet::new();
        let there = news.whole.then(|| {
            let tickets: BTreeSet<TicketId> = news.tickets.iter().map(|stored| stored.ticket.id).collect();
            let matches: BTreeSet<MatchId> = news.matches.iter().map(|play| play.id).collect();
            (tickets, matches)
        });
        self.learn_ratings(&news.ratings, &mut keys);
        self.know(news.tickets, news.matches, now, &mut keys);
        let mut roster = self.roster.write();
        if let Some((tickets, matches)) = there {
            roster.keep_only(&tickets, &matches, UnixMs(news.at.0.saturating_sub(TOO_YOUNG_MS)));
        }
        news.gone_tickets.into_iter().for_each(|id| roster.forget_ticket(id));
        news.gone_matches.into_iter().for_each(|id| roster.forget_match(id));
        drop(roster);
        self.ring(keys);
    }

    /// Takes ratings as the store has them. Whoever waits meanwhile may be looked after from now on, or no more.
    fn learn_ratings(&self, rows: &[RatingRow], keys: &mut BTreeSet<QueueKey>) {
        if rows.is_empty() {
            return;
        }
        {
            let mut ratings = self.ratings.lock();
            rows.iter().for_each(|row| ratings.put(*row));
        }
        let mut roster = self.roster.write();
        rows.iter().for_each(|row| keys.extend(roster.stir(row.user, row.set_id)));
    }

    /// Takes tickets and matches as the store has them. Matches first: a ticket whose match is not here yet would be told of
    /// as if it had none.
    fn know(
        &self,
        tickets: impl IntoIterator<Item = StoredTicket>,
        matches: impl IntoIterator<Item = Arc<Match>>,
        now: UnixMs,
        keys: &mut BTreeSet<QueueKey>,
    ) {
        let mut begun = Vec::new();
        {
            let mut roster = self.roster.write();
            for play in matches {
                let before = roster.play(play.id).is_some_and(|known| matches!(known.stage, Stage::Playing { .. }));
                if !before && matches!(play.stage, Stage::Playing { .. }) {
                    begun.push(Arc::clone(&play));
                }
                keys.extend(roster.put_match(play));
            }
            for stored in tickets {
                keys.extend(roster.put_ticket(stored));
            }
        }
        if !begun.is_empty() {
            self.note_waits(&begun, now);
        }
    }

    /// What the tickets of matches that have begun have waited.
    fn note_waits(&self, begun: &[Arc<Match>], now: UnixMs) {
        let roster = self.roster.read();
        let mut waits = self.waits.lock();
        for play in begun {
            let Stage::Playing { began, .. } = play.stage else { continue };
            waits.note_quality(play.set_id, play.quality, now);
            for member in &play.members {
                let region = roster.ticket(member.ticket).map_or_else(|| "".into(), nearest_region);
                let party_size = u16::try_from(member.players.len()).unwrap_or(u16::MAX);
                waits.note(Sort { set_id: play.set_id, region, party_size }, began.since(member.entered), now);
            }
        }
    }

    /// Forgets in memory what nobody can be waiting to hear of any more; the store keeps it for as long as it promised.
    pub(super) fn tidy(&self, now: UnixMs) {
        let shown_for = self.core.settings.ticket_kept_ms.saturating_sub(ENDED_SHOWN_MS);
        self.roster.write().forget_ended(now.after(shown_for));
    }

    /// Gives seats back that a match no longer needs. Should that fail they lapse.
    pub(super) fn give_back_all(&self, play: &Match, effects: &[Effect]) {
        for effect in effects {
            if let Effect::GiveBack { advertisement, reservation } = effect {
                self.give_back(*advertisement, play.set_id, *reservation);
            }
        }
    }
}

/// Whether a ticket's players can be reached by anybody: an open NAT, as they know it of themselves.
pub(super) fn is_open(roster: &Roster, id: TicketId) -> bool {
    roster.ticket(id).is_some_and(|stored| stored.ticket.session.nat_type == Some(NAT_OPEN))
}

/// What an open NAT is called, as in the contract.
const NAT_OPEN: i32 = 1;

/// Tickets that end because a match begins: those that its users have waiting elsewhere.
pub(super) fn elsewhere(hall: &Hall, next: &Match) -> Vec<TicketId> {
    let roster = hall.roster.read();
    let users = next.members.iter().flat_map(|member| &member.players).map(|seat| seat.user);
    let mut others: BTreeSet<TicketId> = users.flat_map(|user| roster.waiting_of(user)).collect();
    others.retain(|id| next.members.iter().all(|member| member.ticket != *id));
    others.into_iter().collect()
}

fn ladder(ruleset: &Ruleset) -> Ladder {
    ruleset.ready_check.as_ref().map_or_else(Ladder::default, |check| Ladder {
        penalties_ms: check.penalties_ms.clone(),
        reset_after_ms: check.reset_after_ms,
    })
}

fn refuse_all(error: &StoreError, waiters: Vec<Waiter>, then: Vec<Happened>) {
    tracing::error!(%error, changes = waiters.len(), "commit a batch of queues");
    let fault = || Fault::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS };
    then.into_iter().for_each(|it| drop(it.reply.send(Err(fault()))));
    for waiter in waiters {
        match waiter {
            Waiter::Write(reply) => drop(reply.send(Err(fault()))),
            Waiter::Happened(it, ..) => drop(it.reply.send(Err(fault()))),
        }
    }
}
