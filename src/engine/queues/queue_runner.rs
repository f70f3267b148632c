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
use crate::domain::lifecycle::event::{MatchEffect, MatchEvent, NewMatch};
use crate::domain::lifecycle::rules::LifecycleRules;
use crate::domain::lifecycle::transition::create_match;
use crate::domain::lifecycle::{Assignment, MatchStage, MatchTicket};
use crate::domain::queue::gate::{LastPass, should_run_pass};
use crate::domain::queue::pass::{PassOutcome, run_pass};
use crate::domain::queue::proposal::Proposal;
use crate::domain::queue::ticket::TicketEndReason;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::QueueSpec;
use crate::domain::time::UnixMs;
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::snapshot::PreparedTicketCache;
use crate::engine::queues::writer::{has_open_nat, other_waiting_tickets};
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite};

/// Tickets from which on a pass runs on a thread of its own, so that nobody's call waits for it.
const BLOCKING_THREAD_MIN_TICKETS: usize = 256;

/// Tickets and matches of which one round ends what is due.
const DUE_PER_ROUND_MAX: usize = 1_000;

/// How often a server is looked for again, for matches that found none.
const ALLOCATION_RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// What is overdue is tried again this often, where it could not be written.
const OVERDUE_RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Proposals that are written at a time: many fit into the writer's inbox beside everybody else's changes.
const PROPOSAL_BATCH_MAX: usize = 1_000;

/// A queue is looked at this often in any case: a signal that was missed costs no more than that.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// One queue as it is run here.
struct QueueRunner {
    shared: Arc<SharedState>,
    queue_key: QueueKey,
    prepared_tickets: PreparedTicketCache,
    last_pass: LastPass,
    last_pass_at: Option<Instant>,
    change_count_at_last_pass: u64,
    last_allocation_at: Option<Instant>,
    /// Matches for which a server has been looked for.
    attempted_matches: BTreeSet<MatchId>,
}

/// Runs a queue until told to stop.
pub(super) async fn run_queue(hall: Arc<SharedState>, key: QueueKey, stop: CancellationToken) {
    let mut changed = hall.queue_changes.subscribe();
    let mut run = QueueRunner {
        shared: hall,
        queue_key: key,
        prepared_tickets: PreparedTicketCache::default(),
        last_pass: LastPass::default(),
        last_pass_at: None,
        change_count_at_last_pass: 0,
        last_allocation_at: None,
        attempted_matches: BTreeSet::new(),
    };
    loop {
        changed.borrow_and_update();
        let Some(again_at) = run.run_round().await else { break };
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep_until(again_at) => {}
            _ = changed.changed() => {}
        }
    }
    run.shared.pass_reports.lock().remove(key);
    run.shared.requested_leases.lock().remove(&key);
}

impl QueueRunner {
    /// Does what there is to do, and says when to look again; `None` when the queue is empty and nobody has to run it.
    async fn run_round(&mut self) -> Option<Instant> {
        self.shared.cache.read().queue_index(self.queue_key)?;
        self.process_deadlines().await;
        let now = self.shared.core.clock.now();
        let Some(ruleset) = self.shared.core.rulesets.active_ruleset(self.queue_key.set_id) else {
            self.cancel_waiting_tickets(now).await;
            return Some(Instant::now() + POLL_INTERVAL);
        };
        let Some(queue) = &ruleset.queue else {
            self.cancel_waiting_tickets(now).await;
            return Some(Instant::now() + POLL_INTERVAL);
        };
        self.allocate_placing_matches().await;
        let every = Duration::from_millis(u64::from(queue.pass_every_ms));
        let next_pass = self.last_pass_at.map_or_else(Instant::now, |at| at + every);
        let mut again_at = Instant::now() + POLL_INTERVAL;
        let always = !queue.gate.skip_unchanged;
        if next_pass <= Instant::now() {
            if self.run_pass_if_needed(&ruleset, queue).await || always {
                again_at = again_at.min(Instant::now() + every);
            }
        } else if always || self.change_count() != self.change_count_at_last_pass {
            again_at = again_at.min(next_pass);
        }
        let now = self.shared.core.clock.now();
        let until = |at: UnixMs| Instant::now() + Duration::from_millis(at.ms_since(now).max(1));
        if let Some(at) = self.last_pass.next_change_at {
            again_at = again_at.min(until(at).max(next_pass));
        }
        let (next_due, places) = {
            let roster = self.shared.cache.read();
            let room = roster.queue_index(self.queue_key)?;
            (room.next_deadline(), !room.placing_matches().is_empty())
        };
        if let Some(at) = next_due {
            again_at = again_at.min(if now < at { until(at) } else { Instant::now() + OVERDUE_RETRY_INTERVAL });
        }
        if places {
            again_at = again_at.min(Instant::now() + ALLOCATION_RETRY_INTERVAL);
        }
        Some(again_at)
    }

    fn change_count(&self) -> u64 {
        self.shared.cache.read().queue_index(self.queue_key).map_or(0, |room| room.change_count)
    }

    /// Tickets that nobody keeps alive, and matches whose deadline has come.
    async fn process_deadlines(&self) {
        let now = self.shared.core.clock.now();
        let (lapsed, due) = {
            let roster = self.shared.cache.read();
            let Some(room) = roster.queue_index(self.queue_key) else { return };
            (room.expired_tickets(now, DUE_PER_ROUND_MAX), room.due_matches(now, DUE_PER_ROUND_MAX))
        };
        let ends = lapsed.into_iter().map(|id| self.end_ticket(id, TicketEndReason::Expired, now));
        let happens = due.into_iter().map(|id| self.shared.apply_match_event(id, MatchEvent::DeadlinePassed));
        // What could not be written is still due at the next round.
        join_all(ends).await;
        join_all(happens).await;
    }

    async fn end_ticket(&self, id: TicketId, how: TicketEndReason, now: UnixMs) {
        let forget_at = now.plus_ms(self.shared.core.settings.ended_ticket_retention_ms);
        let _ =
            self.shared.write(QueueWrite::EndTicket { ticket_id: id, end_reason: how, purge_at: forget_at, now }).await;
    }

    /// A match has begun at once: what its users had waiting elsewhere is over. Where this fails they are passed over until the
    /// match is.
    async fn end_other_tickets(&self, others: Vec<TicketId>, now: UnixMs) {
        join_all(others.into_iter().map(|id| self.end_ticket(id, TicketEndReason::MatchedElsewhere, now))).await;
    }

    /// The set no longer has a queue: nobody will be matched.
    async fn cancel_waiting_tickets(&self, now: UnixMs) {
        let waiting: Vec<TicketId> = {
            let roster = self.shared.cache.read();
            roster.queue_index(self.queue_key).map_or_else(Vec::new, |room| {
                room.waiting_tickets().take(DUE_PER_ROUND_MAX).map(|(_, id)| id).collect()
            })
        };
        join_all(waiting.into_iter().map(|id| self.end_ticket(id, TicketEndReason::Cancelled, now))).await;
    }

    /// Looks for a place for every match that wants one: at once for those that are new, and for all of them every
    /// `HOST_EVERY`.
    async fn allocate_placing_matches(&mut self) {
        let wanting =
            self.shared.cache.read().queue_index(self.queue_key).map_or_else(Vec::new, |room| room.placing_matches());
        if self.last_allocation_at.is_none_or(|at| at + ALLOCATION_RETRY_INTERVAL <= Instant::now()) {
            self.last_allocation_at = Some(Instant::now());
            self.attempted_matches.clear();
        }
        let new: Vec<MatchId> =
            wanting.into_iter().filter(|id| !self.attempted_matches.contains(id)).take(DUE_PER_ROUND_MAX).collect();
        self.attempted_matches.extend(&new);
        join_all(new.into_iter().map(|id| self.allocate_match(id))).await;
    }

    async fn allocate_match(&self, id: MatchId) {
        let Some(play) = self.shared.cache.read().match_by_id(id).cloned() else { return };
        if !matches!(play.stage, MatchStage::Placing { .. }) {
            return;
        }
        let Some(rules) = self.shared.ruleset_or_current(play.set_id, play.ruleset_hash) else { return };
        let Some(place) = self.shared.allocate(&play, &rules).await else { return };
        let came = self.shared.apply_match_event(id, MatchEvent::ServerFound(place.clone())).await;
        let taken = came.is_ok_and(
            |came| matches!(&came.match_after.stage, MatchStage::Playing { assignment: at, .. } if *at == place),
        );
        if let Assignment::GameServer { advertisement, reservation, .. } = place
            && !taken
        {
            self.shared.release_seats(advertisement, play.set_id, reservation);
        }
    }

    /// Runs a pass, if it may find anything, and proposes what it finds. Whether it proposed anything.
    async fn run_pass_if_needed(&mut self, ruleset: &Arc<Ruleset>, queue: &QueueSpec) -> bool {
        let now = self.shared.core.clock.now();
        if self.prepared_tickets.reset_if_ruleset_changed(ruleset.hash) {
            self.last_pass = LastPass::default();
        }
        let changes = self.change_count();
        let crowd = self.shared.queue_counts(self.queue_key, now);
        self.last_pass_at = Some(Instant::now());
        if !should_run_pass(&queue.gate, &self.last_pass, changes != self.change_count_at_last_pass, crowd, now) {
            return false;
        }
        self.change_count_at_last_pass = changes;
        let picture = self.shared.take_snapshot(self.queue_key, ruleset, queue, &mut self.prepared_tickets, now);
        let begun = Instant::now();
        let outcome = match picture.prepared_tickets.len() < BLOCKING_THREAD_MIN_TICKETS {
            true => picture.with_pass_input(run_pass),
            false => tokio::task::spawn_blocking(move || picture.with_pass_input(run_pass)).await.ok().flatten(),
        };
        let Some(PassOutcome { proposals, report }) = outcome else { return false };
        let took = begun.elapsed();
        self.last_pass = LastPass {
            found_nothing: proposals.is_empty() && !report.truncated,
            next_change_at: report.next_change_at,
            queue_counts: crowd,
        };
        if report.truncated {
            let (set, looks, ms) = (self.queue_key.set_id, report.pair_checks, took.as_millis());
            tracing::warn!(%set, tickets = report.ticket_count, looks, ms, "a pass ran out of looks");
        }
        self.shared.core.metrics.record_pass(took.as_secs_f64(), &report, ruleset.hard_filters.len());
        self.shared.pass_reports.lock().store_report(self.queue_key, ruleset, report, took.as_secs_f64() * 1_000.0);
        let any = !proposals.is_empty();
        let mut proposals = proposals.into_iter();
        loop {
            let some: Vec<Proposal> = proposals.by_ref().take(PROPOSAL_BATCH_MAX).collect();
            if some.is_empty() {
                return any;
            }
            join_all(some.into_iter().map(|proposal| self.propose_match(ruleset, proposal, now))).await;
        }
    }

    /// Makes a match of a proposal. That somebody has gone meanwhile is seen by the next pass.
    async fn propose_match(&self, ruleset: &Ruleset, proposal: Proposal, now: UnixMs) {
        let id = MatchId::from_bytes(self.shared.core.clock.random_bytes());
        let begun = {
            let roster = self.shared.cache.read();
            let mut members = Vec::new();
            for (team, placed) in
                proposal.teams.iter().zip(0_u16..).flat_map(|(all, team)| all.iter().map(move |it| (team, it)))
            {
                let Some(stored) = roster.ticket(placed.ticket_id) else { return };
                members.push(MatchTicket::from_ticket(&stored.ticket, team, &placed.roles));
            }
            let fresh = NewMatch {
                id,
                set_id: self.queue_key.set_id,
                silo: self.queue_key.silo,
                ruleset_hash: ruleset.hash,
                tickets: members,
                quality: proposal.quality,
                region: proposal.region,
                backfilled_session: proposal.backfilled_session,
            };
            create_match(&LifecycleRules::from_ruleset(ruleset), fresh, &|id| has_open_nat(&roster, id), now)
        };
        let begins = begun.effects.contains(&MatchEffect::StartPlay);
        let Some(play) = begun.next_match else { return };
        // Looked up before it is known that the match began: when that is known it may be over, and who comes back is not elsewhere.
        let others = if begins { other_waiting_tickets(&self.shared, &play) } else { Vec::new() };
        match self.shared.write(QueueWrite::ProposeMatch { proposed: Arc::new(play), now }).await {
            Ok(QueueOutcome::TicketsUnavailable { tickets }) => tracing::debug!(?tickets, "somebody else was faster"),
            Ok(_) => self.end_other_tickets(others, now).await,
            Err(fault) => tracing::warn!(?fault, "propose a match"),
        }
    }
}
