//! Queue runner: runs passes when the queue has changed, processes deadlines and allocates game servers.
//!
//! One task per queue, on the replica that holds the lease. Safety does not depend on the lease: if two replicas run a
//! queue, the store still matches each ticket once.

mod placing;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::domain::id::{MatchId, RulesetHash, TicketId};
use crate::domain::latency::beacon_fleet::BeaconFleet;
use crate::domain::lifecycle::event::{MatchEffect, MatchEvent, NewMatch};
use crate::domain::lifecycle::transition::create_match;
use crate::domain::lifecycle::{Match, MatchStage, MatchTicket};
use crate::domain::queue::gate::{GateReason, LastPass, next_pass_may_find_match};
use crate::domain::queue::pass::PassOutcome;
use crate::domain::queue::pass_timing::{PassHistory, time_to_next_pass};
use crate::domain::queue::proposal::Proposal;
use crate::domain::queue::ticket::TicketEndReason;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::QueueSpec;
use crate::domain::time::UnixMs;
use crate::engine::queues::match_round_trips::MatchRoundTrips;
use crate::engine::queues::pass_runner::{PassBackoff, PassTask, TimedPass, run_caught_pass};
use crate::engine::queues::plan_transition::{CachedTicketFacts, other_waiting_tickets};
use crate::engine::queues::queue_predictions::VectorCompleter;
use crate::engine::queues::queue_wakeups::RunnerHandle;
use crate::engine::queues::shared_state::SharedState;
use crate::engine::queues::snapshot::{PreparedTicketCache, gate_counts};
use crate::rules::catalog::MatchRulesetLookup;
use crate::store::queues::{QueueKey, QueueOutcome, QueueWrite};

/// Maximum tickets and matches processed per round.
const DUE_PER_ROUND_MAX: usize = 1_000;

/// Interval between allocation attempts for a match.
const ALLOCATION_RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Retry interval for deadlines whose write failed.
const OVERDUE_RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Proposals written at a time, so that they leave room in the writer's inbox.
const PROPOSAL_BATCH_MAX: usize = 1_000;

/// Interval between rounds while a pass may run without a change of the queue, and while a write is retried.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time between rounds. A change, a due time and a new ruleset wake the runner earlier.
const ROUND_INTERVAL_MAX: Duration = Duration::from_secs(120);

/// Basis of a pass: its outcome depends on this, besides the time. If it is the same again, the queue has not changed.
#[derive(Clone, Debug)]
struct PassBasis {
    /// Number of changes of the queue.
    change_count: u64,
    ruleset_hash: RulesetHash,
    /// Beacons by which round trips are predicted; `None` without predictions.
    beacon_fleet: Option<Arc<BeaconFleet>>,
}

impl PartialEq for PassBasis {
    /// Fleets are compared by identity: each change makes a new one.
    fn eq(&self, other: &Self) -> bool {
        let fleet = |basis: &Self| basis.beacon_fleet.as_ref().map(Arc::as_ptr);
        (self.change_count, self.ruleset_hash, fleet(self)) == (other.change_count, other.ruleset_hash, fleet(other))
    }
}

/// State of a queue that runs on this replica.
struct QueueRunner {
    shared: Arc<SharedState>,
    handle: RunnerHandle,
    queue_key: QueueKey,
    prepared_tickets: PreparedTicketCache,
    last_pass: LastPass,
    /// The last pass found too few of the connected players waiting. The gate opens when enough of them disconnect.
    gate_may_open_by_disconnects: bool,
    last_pass_at: Option<Instant>,
    last_pass_cpu_time: Duration,
    /// When the first change after the last pass was seen.
    first_change_at: Option<Instant>,
    /// When the last pass failed, or a match that it proposed could not be stored.
    failed_at: Option<Instant>,
    pass_backoff: PassBackoff,
    /// Basis of the last pass; `None` before the first one.
    last_basis: Option<PassBasis>,
    last_allocation_at: Option<Instant>,
    /// Matches with an allocation attempt since `last_allocation_at`.
    attempted_matches: BTreeSet<MatchId>,
}

/// Runs a queue until stopped or empty.
pub(crate) async fn run_queue_until_empty(shared: Arc<SharedState>, handle: RunnerHandle, shutdown: CancellationToken) {
    let (queue_key, wakeup) = (handle.key, Arc::clone(&handle.wakeup));
    let mut runner = QueueRunner {
        shared,
        handle,
        queue_key,
        prepared_tickets: PreparedTicketCache::default(),
        last_pass: LastPass::default(),
        gate_may_open_by_disconnects: false,
        last_pass_at: None,
        last_pass_cpu_time: Duration::ZERO,
        first_change_at: None,
        failed_at: None,
        pass_backoff: PassBackoff::default(),
        last_basis: None,
        last_allocation_at: None,
        attempted_matches: BTreeSet::new(),
    };
    loop {
        let Some(next_round_at) = runner.run_round().await else { break };
        tokio::select! {
            () = shutdown.cancelled() => break,
            () = sleep_until(next_round_at) => {}
            () = wakeup.notified() => {}
        }
    }
}

impl Drop for QueueRunner {
    /// Ends the registration, also after a panic.
    fn drop(&mut self) {
        self.shared.pass_reports.lock().remove(self.queue_key);
        self.shared.remove_runner(&self.handle, std::thread::panicking());
    }
}

impl QueueRunner {
    /// Runs one round and returns the time of the next; `None` when the queue is empty.
    async fn run_round(&mut self) -> Option<Instant> {
        self.shared.cache.read().queue_index(self.queue_key)?;
        #[cfg(feature = "failpoints")]
        crate::engine::fail_points::fail_in_queue_runner();
        self.shared.common.metrics.queue_rounds.inc();
        self.process_deadlines().await;
        self.cancel_matches_without_ruleset().await;
        self.allocate_placing_matches().await;
        let now = self.shared.common.clock.now();
        let Some(ruleset) = self.shared.common.rulesets.ruleset_in_force(self.queue_key.set_id) else {
            // The task that reads the store's copies finds the ruleset, or ends the tickets.
            if self.shared.cache.read().queue_index(self.queue_key)?.waiting_ticket_count() > 0 {
                self.shared.common.ruleset_sync_requests.notify_one();
            }
            return self.next_round_without_queue_spec();
        };
        let Some(queue) = &ruleset.queue else {
            self.cancel_waiting_tickets(now).await;
            return self.next_round_without_queue_spec();
        };
        let pass_interval = Duration::from_millis(u64::from(queue.pass_interval_ms));
        let basis = self.current_basis(&ruleset, now);
        let has_changed = self.last_basis.as_ref() != Some(&basis);
        let next_pass_at = self.next_pass_at(queue, has_changed);
        let next_pass_at = self.pass_backoff.retry_at().map_or(next_pass_at, |retry_at| retry_at.max(next_pass_at));
        let mut next_round_at = Instant::now() + ROUND_INTERVAL_MAX;
        let always_run = !queue.gate.skip_unchanged;
        if next_pass_at <= Instant::now() {
            if self.run_pass_if_needed(&ruleset, queue, basis).await || always_run {
                next_round_at = next_round_at.min(Instant::now() + pass_interval);
            }
        } else if always_run || has_changed {
            next_round_at = next_round_at.min(next_pass_at);
        }
        if !self.last_pass.found_nothing || self.gate_may_open_by_disconnects {
            next_round_at = next_round_at.min(Instant::now() + POLL_INTERVAL);
        }
        let now = self.shared.common.clock.now();
        let instant_of = |time: UnixMs| Instant::now() + Duration::from_millis(time.ms_since(now).max(1));
        let (next_deadline, has_placing, waiting_players) = {
            let cache = self.shared.cache.read();
            let index = cache.queue_index(self.queue_key)?;
            (index.next_deadline(), !index.placing_matches().is_empty(), index.waiting_player_count())
        };
        // No limit that grows helps fewer players than a match needs, unless they may join a session.
        let players_needed = ruleset.teams.as_ref().map_or(0, |teams| u32::from(teams.players_per_match()));
        let may_match = queue.backfill || waiting_players >= players_needed;
        let next_change_at = self.last_pass.next_change_at.filter(|_| may_match);
        if let Some(time) = next_change_at {
            next_round_at = next_round_at.min(instant_of(time).max(next_pass_at));
        }
        if let Some(time) = next_deadline {
            next_round_at =
                next_round_at.min(if now < time { instant_of(time) } else { Instant::now() + OVERDUE_RETRY_INTERVAL });
        }
        if has_placing {
            next_round_at = next_round_at.min(Instant::now() + ALLOCATION_RETRY_INTERVAL);
        }
        let due_at = next_change_at.into_iter().chain(next_deadline).min();
        self.shared.queue_wakeups.lock().set_due(&self.handle, due_at);
        Some(next_round_at)
    }

    /// Time of the next round of a set that has no queue now: its matches continue.
    fn next_round_without_queue_spec(&self) -> Option<Instant> {
        let cache = self.shared.cache.read();
        let index = cache.queue_index(self.queue_key)?;
        if !index.placing_matches().is_empty() {
            return Some(Instant::now() + ALLOCATION_RETRY_INTERVAL);
        }
        if index.waiting_ticket_count() > 0 {
            return Some(Instant::now() + POLL_INTERVAL);
        }
        let (now, next_deadline) = (self.shared.common.clock.now(), index.next_deadline());
        let due_in_ms = next_deadline.map(|deadline| deadline.ms_since(now));
        drop(cache);
        self.shared.queue_wakeups.lock().set_due(&self.handle, next_deadline);
        let wait = match due_in_ms {
            Some(0) => OVERDUE_RETRY_INTERVAL,
            Some(ms) => Duration::from_millis(ms).min(ROUND_INTERVAL_MAX),
            None => ROUND_INTERVAL_MAX,
        };
        Some(Instant::now() + wait)
    }

    /// Cancels the matches whose ruleset is unavailable.
    async fn cancel_matches_without_ruleset(&self) {
        let common = &self.shared.common;
        let catalog = common.rulesets.snapshot();
        if !catalog.unavailable.iter().any(|(set_id, _)| *set_id == self.queue_key.set_id) {
            return;
        }
        let affected: Vec<MatchId> = {
            let cache = self.shared.cache.read();
            let Some(index) = cache.queue_index(self.queue_key) else { return };
            let matches = index.live_matches().filter_map(|id| cache.match_by_id(id));
            let is_unavailable = |found: &&Arc<Match>| {
                common.ruleset_of_match(found.set_id, found.ruleset_hash) == MatchRulesetLookup::Unrecoverable
            };
            matches.filter(is_unavailable).take(DUE_PER_ROUND_MAX).map(|found| found.id).collect()
        };
        join_all(affected.into_iter().map(|id| self.shared.apply_match_event(id, MatchEvent::Cancelled))).await;
    }

    fn change_count(&self) -> u64 {
        self.shared.cache.read().queue_index(self.queue_key).map_or(0, |index| index.change_count_at_last_change)
    }

    /// Ends expired tickets, applies match deadlines, and settles matches whose report window has ended. Not while commits
    /// fail: that time does not count, and the first commit that succeeds must not be the end of a ticket. And not before all
    /// other servers are known to have lived at the deadline, or to be silent.
    async fn process_deadlines(&self) {
        if self.shared.common.server_outages.has_open_outage() {
            return;
        }
        let now = self.shared.common.clock.now();
        let outages = self.shared.common.server_outages.outages_extending_deadlines();
        self.shared.apply_outages_to_cache(&outages);
        let (expired, mut due_matches, matches_with_ended_report_window) = {
            let cache = self.shared.cache.read();
            let Some(index) = cache.queue_index(self.queue_key) else { return };
            let until = self.shared.common.server_outages.deadlines_enforced_until(now);
            let matches_with_ended_report_window = index.matches_with_ended_report_window(until, DUE_PER_ROUND_MAX);
            (
                index.expired_tickets(until, DUE_PER_ROUND_MAX),
                index.due_matches(until, DUE_PER_ROUND_MAX),
                matches_with_ended_report_window,
            )
        };
        let ends = expired.into_iter().map(|id| self.end_ticket(id, TicketEndReason::Expired, now));
        if fail_point_ignores_host_losses() {
            let cache = self.shared.cache.read();
            let is_playing = |match_: &Arc<Match>| matches!(match_.stage, MatchStage::Playing { .. });
            due_matches.retain(|id| !cache.match_by_id(*id).is_some_and(is_playing));
        }
        let transitions =
            due_matches.into_iter().map(|id| self.shared.apply_match_event(id, MatchEvent::DeadlinePassed));
        // Failed writes are retried in the next round.
        join_all(ends).await;
        join_all(transitions).await;
        join_all(matches_with_ended_report_window.into_iter().map(|id| self.shared.settle_due_reports(id))).await;
    }

    async fn end_ticket(&self, id: TicketId, end_reason: TicketEndReason, now: UnixMs) {
        let purge_at = now.plus_ms(self.shared.common.settings.ended_ticket_retention_ms);
        let _ = self.shared.submit_write(QueueWrite::EndTicket { ticket_id: id, end_reason, purge_at, now }).await;
    }

    /// Ends the other tickets of a match's players. If a write fails, those tickets stay paused until the match ends.
    async fn end_other_tickets(&self, others: Vec<TicketId>, now: UnixMs) {
        join_all(others.into_iter().map(|id| self.end_ticket(id, TicketEndReason::MatchedElsewhere, now))).await;
    }

    /// Cancels waiting tickets of a set that no longer has a queue.
    async fn cancel_waiting_tickets(&self, now: UnixMs) {
        let ticket_ids: Vec<TicketId> = {
            let cache = self.shared.cache.read();
            cache.queue_index(self.queue_key).map_or_else(Vec::new, |index| {
                index.waiting_tickets().take(DUE_PER_ROUND_MAX).map(|(_, id)| id).collect()
            })
        };
        join_all(ticket_ids.into_iter().map(|id| self.end_ticket(id, TicketEndReason::EndedByServer, now))).await;
    }

    /// Basis of a pass that would run now.
    fn current_basis(&self, ruleset: &Ruleset, now: UnixMs) -> PassBasis {
        let completer = VectorCompleter::of_ruleset(&self.shared.common, ruleset, now);
        PassBasis {
            change_count: self.change_count(),
            ruleset_hash: ruleset.hash,
            beacon_fleet: completer.map(|completer| Arc::clone(completer.beacon_fleet())),
        }
    }

    /// Time of the next pass, which may be past.
    fn next_pass_at(&mut self, queue: &QueueSpec, has_changed: bool) -> Instant {
        let now = Instant::now();
        self.first_change_at = has_changed.then(|| self.first_change_at.unwrap_or(now));
        let since = |time: Option<Instant>| time.map(|time| now.duration_since(time));
        let history = PassHistory {
            since_last_pass: since(self.last_pass_at),
            last_pass_cpu_time: self.last_pass_cpu_time,
            last_pass_found_nothing: self.last_pass.found_nothing,
            since_first_change: since(self.first_change_at),
            since_failure: since(self.failed_at),
        };
        now + time_to_next_pass(queue, &history)
    }

    /// Runs a pass if the gate allows it, and proposes its matches. Returns whether it proposed any.
    async fn run_pass_if_needed(&mut self, ruleset: &Arc<Ruleset>, queue: &QueueSpec, basis: PassBasis) -> bool {
        let now = self.shared.common.clock.now();
        // A match may only be made under a ruleset that survives a restart.
        if self.shared.common.check_ruleset_is_durable(ruleset).is_err() {
            return false;
        }
        if self.prepared_tickets.reset_if_ruleset_changed(ruleset.hash) {
            self.last_pass = LastPass::default();
        }
        let has_changed = self.last_basis.as_ref() != Some(&basis);
        let gate_counts = gate_counts(&self.shared, self.queue_key, &queue.gate, now);
        (self.last_pass_at, self.last_pass_cpu_time, self.first_change_at) =
            (Some(Instant::now()), Duration::ZERO, None);
        if !next_pass_may_find_match(&queue.gate, &self.last_pass, has_changed, gate_counts, now) {
            return false;
        }
        (self.last_basis, self.failed_at) = (Some(basis), None);
        let task = PassTask {
            shared: Arc::clone(&self.shared),
            key: self.queue_key,
            ruleset: Arc::clone(ruleset),
            ticket_cache: std::mem::take(&mut self.prepared_tickets),
            now,
        };
        let started_at = Instant::now();
        let Some(TimedPass { outcome: PassOutcome { proposals, report }, ticket_cache, cpu_time }) =
            run_caught_pass(task, &mut self.pass_backoff).await
        else {
            self.last_pass = LastPass::default();
            self.failed_at = Some(Instant::now());
            return false;
        };
        let elapsed = started_at.elapsed();
        self.last_pass_cpu_time = cpu_time;
        self.last_pass = LastPass {
            found_nothing: proposals.is_empty() && !report.truncated,
            next_change_at: report.next_change_at,
            gate_counts,
        };
        self.prepared_tickets = ticket_cache;
        self.gate_may_open_by_disconnects = matches!(report.gate_reason, Some(GateReason::TooFewWaiting { .. }));
        if report.truncated {
            let (set_id, pair_checks, duration_ms) = (self.queue_key.set_id, report.pair_checks, elapsed.as_millis());
            let tickets = report.ticket_count;
            tracing::warn!(%set_id, tickets, pair_checks, duration_ms, "pair check limit exceeded, pass truncated");
        }
        let common = &self.shared.common;
        let hard_filters = ruleset.hard_filters.len();
        common.metrics.record_pass(self.queue_key.set_id, elapsed.as_secs_f64(), &report, hard_filters);
        common.statistics.record_pass_refusals(ruleset, &report, now, &common.metrics);
        self.shared.pass_reports.lock().store_report(self.queue_key, ruleset, report, elapsed.as_secs_f64() * 1_000.0);
        let has_proposals = !proposals.is_empty();
        // Deadlines of a match begin now, not when the pass began.
        let now = self.shared.common.clock.now();
        let mut proposals = proposals.into_iter();
        loop {
            let batch: Vec<Proposal> = proposals.by_ref().take(PROPOSAL_BATCH_MAX).collect();
            if batch.is_empty() {
                return has_proposals;
            }
            let proposed = batch.into_iter().map(|proposal| self.propose_match(ruleset, proposal, now));
            if join_all(proposed).await.contains(&false) {
                self.failed_at = Some(Instant::now());
            }
        }
    }

    /// Creates a match from a proposal. If a ticket is gone, the next pass handles the rest. Returns false if the store failed.
    async fn propose_match(&self, ruleset: &Ruleset, proposal: Proposal, now: UnixMs) -> bool {
        let id = MatchId::from_bytes(self.shared.common.clock.random_bytes());
        let outages = self.shared.common.server_outages.outages_extending_deadlines();
        let transition = {
            let cache = self.shared.cache.read();
            let mut match_tickets = Vec::new();
            for (team, proposed) in proposal
                .teams
                .iter()
                .zip(0_u16..)
                .flat_map(|(team_tickets, team)| team_tickets.iter().map(move |ticket| (team, ticket)))
            {
                let Some(stored) = cache.ticket(proposed.ticket_id) else { return true };
                match_tickets.push(MatchTicket::from_ticket(&stored.ticket, team, &proposed.roles));
            }
            let round_trips = MatchRoundTrips::of_ruleset(&self.shared.common, ruleset, now);
            // A session that is filled has parties of its own.
            let predicting = round_trips.as_ref().filter(|_| proposal.backfilled_session.is_none());
            let worst_pair = predicting.and_then(|predicting| predicting.worst_pair(&cache, &match_tickets));
            let new_match = NewMatch {
                id,
                set_id: self.queue_key.set_id,
                silo: self.queue_key.silo,
                ruleset_hash: ruleset.hash,
                tickets: match_tickets,
                quality: proposal.quality,
                region: proposal.region,
                backfilled_session: proposal.backfilled_session,
                chosen_values: proposal.chosen,
                bots_by_team: proposal.bots_by_team,
                worst_pair,
            };
            create_match(
                &self.shared.lifecycle_rules(ruleset),
                new_match,
                &CachedTicketFacts::new(
                    &cache,
                    &outages,
                    self.shared.common.server_outages.deadlines_enforced_until(now),
                )
                .with_round_trips(round_trips),
                now,
            )
        };
        let starts_now = transition.effects.contains(&MatchEffect::StartPlay);
        let Some(match_) = transition.next_match else { return true };
        // Look these up before the write: afterwards the match may already have ended, and its players queued again.
        let others = if starts_now { other_waiting_tickets(&self.shared, &match_) } else { Vec::new() };
        let outcome = self.shared.submit_write(QueueWrite::ProposeMatch { proposed: Arc::new(match_), now }).await;
        match &outcome {
            Ok(QueueOutcome::TicketsUnavailable { tickets }) => {
                tracing::debug!(?tickets, "proposal rejected, tickets no longer available")
            }
            Ok(_) => self.end_other_tickets(others, now).await,
            Err(error) => tracing::warn!(?error, "match proposal write failed"),
        }
        outcome.is_ok()
    }
}

/// Whether the fail point is on that applies no deadline to matches in play, so that they wait for their hosts for ever.
fn fail_point_ignores_host_losses() -> bool {
    fail::fail_point!("ignore_host_loss", |_| true);
    false
}
