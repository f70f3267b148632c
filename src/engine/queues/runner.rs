//! Runs one queue: passes when something has changed, what is due when it is due, servers for matches that want one.
//!
//! One task for each queue, on the server that has its lease. Nothing that it does is trusted: two servers that both believe to
//! run a queue make twice the work, and the store lets each ticket be matched once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::domain::id::{MatchId, TicketId};
use crate::domain::life::event::{Effect, Event, Fresh};
use crate::domain::life::rules::LifeRules;
use crate::domain::life::step::begin;
use crate::domain::life::{Member, Place, Stage};
use crate::domain::queue::gate::{LastPass, is_worth_running};
use crate::domain::queue::pass::{PassOutcome, run as run_pass};
use crate::domain::queue::proposal::Proposal;
use crate::domain::queue::ticket::Ending;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::QueueSpec;
use crate::domain::time::UnixMs;
use crate::engine::queues::hall::Hall;
use crate::engine::queues::picture::Entrants;
use crate::engine::queues::writer::{elsewhere, is_open};
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite};

/// Tickets from which on a pass runs on a thread of its own, so that nobody's call waits for it.
const THREAD_FROM: usize = 256;

/// Tickets and matches of which one round ends what is due.
const DUE_MAX: usize = 1_000;

/// How often a server is looked for again, for matches that found none.
const HOST_EVERY: Duration = Duration::from_millis(250);

/// What is overdue is tried again this often, where it could not be written.
const OVERDUE_EVERY: Duration = Duration::from_millis(250);

/// Proposals that are written at a time: many fit into the writer's inbox beside everybody else's changes.
const PROPOSALS_MAX: usize = 1_000;

/// A queue is looked at this often in any case: a signal that was missed costs no more than that.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One queue as it is run here.
struct Run {
    hall: Arc<Hall>,
    key: QueueKey,
    entrants: Entrants,
    last: LastPass,
    last_at: Option<Instant>,
    last_changes: u64,
    hosted_at: Option<Instant>,
    /// Matches for which a server has been looked for.
    sought: BTreeSet<MatchId>,
}

/// Runs a queue until told to stop.
pub(super) async fn run(hall: Arc<Hall>, key: QueueKey, stop: CancellationToken) {
    let mut changed = hall.changed.subscribe();
    let mut run = Run {
        hall,
        key,
        entrants: Entrants::default(),
        last: LastPass::default(),
        last_at: None,
        last_changes: 0,
        hosted_at: None,
        sought: BTreeSet::new(),
    };
    loop {
        changed.borrow_and_update();
        let Some(again_at) = run.round().await else { break };
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep_until(again_at) => {}
            _ = changed.changed() => {}
        }
    }
    run.hall.reports.lock().forget(key);
    run.hall.asked.lock().remove(&key);
}

impl Run {
    /// Does what there is to do, and says when to look again; `None` when the queue is empty and nobody has to run it.
    async fn round(&mut self) -> Option<Instant> {
        self.hall.roster.read().room(self.key)?;
        self.end_what_is_due().await;
        let now = self.hall.core.clock.now();
        let Some(ruleset) = self.hall.core.catalog.current(self.key.set_id) else {
            self.dismiss(now).await;
            return Some(Instant::now() + LOOK_EVERY);
        };
        let Some(queue) = &ruleset.queue else {
            self.dismiss(now).await;
            return Some(Instant::now() + LOOK_EVERY);
        };
        self.find_servers().await;
        let every = Duration::from_millis(u64::from(queue.pass_every_ms));
        let next_pass = self.last_at.map_or_else(Instant::now, |at| at + every);
        let mut again_at = Instant::now() + LOOK_EVERY;
        let always = !queue.gate.skip_unchanged;
        if next_pass <= Instant::now() {
            if self.pass(&ruleset, queue).await || always {
                again_at = again_at.min(Instant::now() + every);
            }
        } else if always || self.changes() != self.last_changes {
            again_at = again_at.min(next_pass);
        }
        let now = self.hall.core.clock.now();
        let until = |at: UnixMs| Instant::now() + Duration::from_millis(at.since(now).max(1));
        if let Some(at) = self.last.next_change {
            again_at = again_at.min(until(at).max(next_pass));
        }
        let (next_due, places) = {
            let roster = self.hall.roster.read();
            let room = roster.room(self.key)?;
            (room.next_due(), !room.placing().is_empty())
        };
        if let Some(at) = next_due {
            again_at = again_at.min(if now < at { until(at) } else { Instant::now() + OVERDUE_EVERY });
        }
        if places {
            again_at = again_at.min(Instant::now() + HOST_EVERY);
        }
        Some(again_at)
    }

    fn changes(&self) -> u64 {
        self.hall.roster.read().room(self.key).map_or(0, |room| room.changes)
    }

    /// Tickets that nobody keeps alive, and matches whose deadline has come.
    async fn end_what_is_due(&self) {
        let now = self.hall.core.clock.now();
        let (lapsed, due) = {
            let roster = self.hall.roster.read();
            let Some(room) = roster.room(self.key) else { return };
            (room.lapsed(now, DUE_MAX), room.due(now, DUE_MAX))
        };
        let ends = lapsed.into_iter().map(|id| self.end(id, Ending::Lapsed, now));
        let happens = due.into_iter().map(|id| self.hall.happen(id, Event::DeadlinePassed));
        // What could not be written is still due at the next round.
        join_all(ends).await;
        join_all(happens).await;
    }

    async fn end(&self, id: TicketId, how: Ending, now: UnixMs) {
        let forget_at = now.after(self.hall.core.settings.ticket_kept_ms);
        let _ = self.hall.write(QueueWrite::End { id, how, forget_at, now }).await;
    }

    /// A match has begun at once: what its users had waiting elsewhere is over. Where this fails they are passed over until the
    /// match is.
    async fn end_elsewhere(&self, others: Vec<TicketId>, now: UnixMs) {
        join_all(others.into_iter().map(|id| self.end(id, Ending::PlayedElsewhere, now))).await;
    }

    /// The set no longer has a queue: nobody will be matched.
    async fn dismiss(&self, now: UnixMs) {
        let waiting: Vec<TicketId> = {
            let roster = self.hall.roster.read();
            roster.room(self.key).map_or_else(Vec::new, |room| room.waiting().take(DUE_MAX).map(|(_, id)| id).collect())
        };
        join_all(waiting.into_iter().map(|id| self.end(id, Ending::Dismissed, now))).await;
    }

    /// Looks for a place for every match that wants one: at once for those that are new, and for all of them every
    /// `HOST_EVERY`.
    async fn find_servers(&mut self) {
        let wanting = self.hall.roster.read().room(self.key).map_or_else(Vec::new, |room| room.placing());
        if self.hosted_at.is_none_or(|at| at + HOST_EVERY <= Instant::now()) {
            self.hosted_at = Some(Instant::now());
            self.sought.clear();
        }
        let new: Vec<MatchId> = wanting.into_iter().filter(|id| !self.sought.contains(id)).take(DUE_MAX).collect();
        self.sought.extend(&new);
        join_all(new.into_iter().map(|id| self.find_server(id))).await;
    }

    async fn find_server(&self, id: MatchId) {
        let Some(play) = self.hall.roster.read().play(id).cloned() else { return };
        if !matches!(play.stage, Stage::Placing { .. }) {
            return;
        }
        let Some(rules) = self.hall.rules(play.set_id, play.hash) else { return };
        let Some(place) = self.hall.host(&play, &rules).await else { return };
        let came = self.hall.happen(id, Event::ServerFound(place.clone())).await;
        let taken = came.is_ok_and(|came| matches!(&came.play.stage, Stage::Playing { place: at, .. } if *at == place));
        if let Place::Server { advertisement, reservation, .. } = place
            && !taken
        {
            self.hall.give_back(advertisement, play.set_id, reservation);
        }
    }

    /// Runs a pass, if it may find anything, and proposes what it finds. Whether it proposed anything.
    async fn pass(&mut self, ruleset: &Arc<Ruleset>, queue: &QueueSpec) -> bool {
        let now = self.hall.core.clock.now();
        if self.entrants.is_new(ruleset.hash) {
            self.last = LastPass::default();
        }
        let changes = self.changes();
        let crowd = self.hall.crowd(self.key, now);
        self.last_at = Some(Instant::now());
        if !is_worth_running(&queue.gate, &self.last, changes != self.last_changes, crowd, now) {
            return false;
        }
        self.last_changes = changes;
        let picture = self.hall.picture(self.key, ruleset, queue, &mut self.entrants, now);
        let begun = Instant::now();
        let outcome = match picture.entrants.len() < THREAD_FROM {
            true => picture.look(run_pass),
            false => tokio::task::spawn_blocking(move || picture.look(run_pass)).await.ok().flatten(),
        };
        let Some(PassOutcome { proposals, report }) = outcome else { return false };
        let took = begun.elapsed();
        self.last = LastPass {
            found_nothing: proposals.is_empty() && !report.out_of_looks,
            next_change: report.next_change,
            crowd,
        };
        if report.out_of_looks {
            let (set, looks, ms) = (self.key.set_id, report.looks, took.as_millis());
            tracing::warn!(%set, tickets = report.tickets, looks, ms, "a pass ran out of looks");
        }
        self.hall.core.metrics.record_pass(took.as_secs_f64(), &report, ruleset.hard.len());
        self.hall.reports.lock().file(self.key, ruleset, report, took.as_secs_f64() * 1_000.0);
        let any = !proposals.is_empty();
        let mut proposals = proposals.into_iter();
        loop {
            let some: Vec<Proposal> = proposals.by_ref().take(PROPOSALS_MAX).collect();
            if some.is_empty() {
                return any;
            }
            join_all(some.into_iter().map(|proposal| self.propose(ruleset, proposal, now))).await;
        }
    }

    /// Makes a match of a proposal. That somebody has gone meanwhile is seen by the next pass.
    async fn propose(&self, ruleset: &Ruleset, proposal: Proposal, now: UnixMs) {
        let id = MatchId::from_bytes(self.hall.core.clock.random_bytes());
        let begun = {
            let roster = self.hall.roster.read();
            let mut members = Vec::new();
            for (team, placed) in
                proposal.teams.iter().zip(0_u16..).flat_map(|(all, team)| all.iter().map(move |it| (team, it)))
            {
                let Some(stored) = roster.ticket(placed.ticket) else { return };
                members.push(Member::of(&stored.ticket, team, &placed.roles));
            }
            let fresh = Fresh {
                id,
                set_id: self.key.set_id,
                silo: self.key.silo,
                hash: ruleset.hash,
                members,
                quality: proposal.quality,
                region: proposal.region,
                backfills: proposal.backfills,
            };
            begin(&LifeRules::of(ruleset), fresh, &|id| is_open(&roster, id), now)
        };
        let begins = begun.effects.contains(&Effect::Begin);
        let Some(play) = begun.next else { return };
        // Looked up before it is known that the match began: when that is known it may be over, and who comes back is not elsewhere.
        let others = if begins { elsewhere(&self.hall, &play) } else { Vec::new() };
        match self.hall.write(QueueWrite::Propose { proposed: Arc::new(play), now }).await {
            Ok(QueueOutcome::Taken { tickets }) => tracing::debug!(?tickets, "somebody else was faster"),
            Ok(_) => self.end_elsewhere(others, now).await,
            Err(fault) => tracing::warn!(?fault, "propose a match"),
        }
    }
}
