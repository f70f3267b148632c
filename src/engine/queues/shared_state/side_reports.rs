//! Results that the players of a match report: recorded, decided, and settled when the report window ends.

use std::sync::Arc;

use crate::domain::id::{MatchId, TicketId, UserKey};
use crate::domain::lifecycle::deadline::effective_reports_due_at;
use crate::domain::lifecycle::event::Transition;
use crate::domain::lifecycle::rules::LifecycleRules;
use crate::domain::lifecycle::side_reports::{PlayerResultClaim, ReportDecision, SideReportsOutcome};
use crate::domain::lifecycle::transition::report::{
    apply_report_window_end, apply_side_report, disconnected_by_agreement, leavers_of_sides_ranked_last,
    users_of_reporting_sides,
};
use crate::domain::lifecycle::{Assignment, Match, MatchStage, MatchTicket};
use crate::domain::match_result::{MatchResult, ResultReport, SideRank};
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::DEFAULT_TICKET_TTL_MS;
use crate::domain::ruleset::rating::scale::KeyedRatingSpec;
use crate::domain::time::UnixMs;
use crate::engine::error::EngineError;
use crate::engine::queues::plan_transition::{PlannedTransition, plan_transition};
use crate::engine::queues::result_report::{CheckedReport, with_leavers_duration_and_forecast};
use crate::engine::queues::shared_state::SharedState;
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::rules::catalog::MatchRulesetLookup;
use crate::store::queues::{QueueOutcome, QueueWrite, StoredTicket};

/// Maximum attempts to settle a match that changes concurrently. The queue runner tries again in its next round.
const SETTLE_ATTEMPTS_MAX: usize = 4;

/// Outcome of writing a report or the end of a report window.
pub(crate) enum ReportWriteOutcome {
    /// The match as it is now, and its result if there is one.
    Written(Arc<Match>, Option<Arc<MatchResult>>),
    /// Nothing was written: the match has changed to this.
    Stale(Arc<Match>),
    /// Nothing was written: this result was recorded before.
    HasResult(Arc<MatchResult>),
}

impl SharedState {
    /// Records the report of `reporters`, who are players of one ticket, and the result if it is decided.
    pub(crate) async fn write_side_report(
        &self,
        match_: &Match,
        reporters: &[UserKey],
        claim: &PlayerResultClaim,
    ) -> Result<ReportWriteOutcome, EngineError> {
        let now = self.common.clock.now();
        let ruleset = self.known_ruleset_of(match_);
        let rules = lifecycle_rules_or_defaults(ruleset.as_deref());
        let was_heard = |id: TicketId| self.was_cached_ticket_heard_since_start(match_, id);
        let outages = self.common.server_outages.outages_extending_deadlines();
        let mut decided = apply_side_report(&rules, match_, reporters, claim, &was_heard, &outages, now);
        if fail_point_trusts_first_report() {
            decided.1 = ReportDecision::Result(claim.ranks.clone());
        }
        self.write_decision(match_, ruleset.as_deref(), decided, now).await
    }

    /// Decides about the reports of a match whose report window has ended.
    pub(crate) async fn settle_due_reports(&self, id: MatchId) {
        for _ in 0..SETTLE_ATTEMPTS_MAX {
            let Some(match_) = self.cache.read().match_by_id(id).cloned() else { return };
            let now = self.common.clock.now();
            // A ruleset that is not known yet is found, or the set is ended, in a later round.
            if self.common.ruleset_of_match(match_.set_id, match_.ruleset_hash) == MatchRulesetLookup::NotLoaded {
                return;
            }
            let ruleset = self.known_ruleset_of(&match_);
            let rules = lifecycle_rules_or_defaults(ruleset.as_deref());
            let was_heard = |id: TicketId| self.was_cached_ticket_heard_since_start(&match_, id);
            let outages = self.common.server_outages.outages_extending_deadlines();
            let decided = apply_report_window_end(&rules, &match_, &was_heard, &outages, now);
            if decided.0.next_match.is_none() {
                return;
            }
            match self.write_decision(&match_, ruleset.as_deref(), decided, now).await {
                Ok(ReportWriteOutcome::Written(after, _)) => return log_outcome(&after),
                Ok(ReportWriteOutcome::Stale(_)) => {}
                Ok(ReportWriteOutcome::HasResult(_)) => {
                    self.write_outcome_without_result(&match_, SideReportsOutcome::Settled, now).await
                }
                // An operator decides about a match that cannot be rated.
                Err(EngineError::Internal) => {
                    self.write_outcome_without_result(&match_, SideReportsOutcome::Held, now).await
                }
                Err(error) => {
                    tracing::warn!(?error, match_id = %id, "match reports not settled, they are settled later");
                    return;
                }
            }
        }
    }

    /// Writes a decision with its result, if it has one.
    async fn write_decision(
        &self,
        match_: &Match,
        ruleset: Option<&Ruleset>,
        (transition, decision): (Transition, ReportDecision),
        now: UnixMs,
    ) -> Result<ReportWriteOutcome, EngineError> {
        let Some(PlannedTransition { next_match, write, .. }) = plan_transition(self, ruleset, transition, now) else {
            return Err(EngineError::MatchNotPlayed);
        };
        let rating = ruleset.and_then(|ruleset| self.ratings.lock().keyed_spec_of_ruleset(ruleset));
        let rating = rating.filter(|_| match_.bots_by_team.is_empty());
        let report = match decision {
            ReportDecision::Result(ranks) => Some(self.agreed_report(&next_match, &ranks, rating.as_ref(), now)?),
            ReportDecision::Disputed => Some(self.disputed_report(&next_match, rating.as_ref(), now)?),
            ReportDecision::Wait | ReportDecision::Held(_) | ReportDecision::Unreported => None,
        };
        let write = match report {
            None => write,
            Some(report) => QueueWrite::RecordResult {
                report_digest: report.digest(None),
                match_version: match_.version,
                end_transition: Some(Box::new(write)),
                rating,
                report: Arc::new(report),
                now,
            },
        };
        match self.submit_write(write).await? {
            QueueOutcome::MatchWritten { .. } => Ok(ReportWriteOutcome::Written(next_match, None)),
            QueueOutcome::ResultOnRecord { result, is_repeated_report: false, .. } => {
                Ok(ReportWriteOutcome::Written(next_match, Some(result)))
            }
            QueueOutcome::ResultOnRecord { result, .. } | QueueOutcome::ConflictingResult(result) => {
                Ok(ReportWriteOutcome::HasResult(result))
            }
            QueueOutcome::StaleMatchVersion(Some(current)) => Ok(ReportWriteOutcome::Stale(current)),
            QueueOutcome::RatingFailed(reason) => {
                tracing::error!(reason, match_id = %match_.id, "rating update failed");
                Err(EngineError::Internal)
            }
            _ => Err(EngineError::MatchNotFound),
        }
    }

    /// Writes an outcome without a result.
    async fn write_outcome_without_result(&self, match_: &Match, outcome: SideReportsOutcome, now: UnixMs) {
        let mut next = Match { version: match_.version + 1, ..match_.clone() };
        next.side_reports.outcome = Some(outcome);
        let write = QueueWrite::TransitionMatch {
            updated_match: Arc::new(next),
            ticket_fates: Vec::new(),
            other_tickets: Vec::new(),
            penalized_users: Vec::new(),
            penalty_schedule: Default::default(),
            leaver_rating: None,
            purge_at: now,
            now,
        };
        // A failed write is repeated in a later round.
        let _ = self.submit_write(write).await;
    }

    /// Result that the sides agree on.
    fn agreed_report(
        &self,
        match_: &Match,
        ranks: &[u32],
        rating: Option<&KeyedRatingSpec>,
        now: UnixMs,
    ) -> Result<ResultReport, EngineError> {
        let checked = CheckedReport {
            sides: sides_with_ratable_players(match_, sides_with_ranks(match_, ranks)),
            disconnected: disconnected_by_agreement(match_, ranks),
        };
        let mut agreeing = match_.side_reports.reports.iter().filter(|report| report.claim.ranks == ranks);
        let duration_ms = agreeing.find_map(|report| report.claim.duration_ms);
        with_leavers_duration_and_forecast(self, match_, rating, checked, duration_ms, now)
    }

    /// Result of contradicting reports: only players who left are rated, as last, if all reports rank them last.
    fn disputed_report(
        &self,
        match_: &Match,
        rating: Option<&KeyedRatingSpec>,
        now: UnixMs,
    ) -> Result<ResultReport, EngineError> {
        let mut leavers = leavers_of_sides_ranked_last(match_);
        leavers.retain(|user| match_.is_user_ratable_by_reports(*user));
        let mut sides = Vec::new();
        for (team_index, mut users) in match_.sides() {
            users.retain(|user| !leavers.contains(user));
            if !users.is_empty() {
                sides.push(SideRank { team_index, users, rank: 1 });
            }
        }
        for match_ticket in &match_.tickets {
            let left = match_ticket.players.iter().filter(|player| leavers.contains(&player.user));
            sides.extend(left.map(|player| SideRank {
                team_index: match_ticket.team,
                users: vec![player.user],
                rank: 2,
            }));
        }
        let checked = CheckedReport { sides, disconnected: Vec::new() };
        let report = with_leavers_duration_and_forecast(self, match_, rating, checked, None, now)?;
        let disputing_users = users_of_reporting_sides(match_);
        Ok(ResultReport { always_rated_leavers: leavers, disputing_users, ..report })
    }

    /// Notes in a session's match that a ticket was heard of which a player leaves at `now`: the ticket may be forgotten before
    /// the result is reported.
    pub(crate) fn record_tickets_heard_before_leaving(&self, next_match: &mut Match, now: UnixMs) {
        if next_match.session_match_start_by_host.is_none() {
            return;
        }
        let leaves = |ticket: &&MatchTicket| ticket.players.iter().any(|player| player.left_at == Some(now));
        let leaving: Vec<TicketId> = next_match.tickets.iter().filter(leaves).map(|ticket| ticket.ticket_id).collect();
        for id in leaving {
            if self.was_cached_ticket_heard_since_start(next_match, id) {
                next_match.side_reports.add_ticket_heard_in_play(id);
            }
        }
    }

    /// Whether a ticket was heard since its match started: the first sign of life after that is written.
    fn was_cached_ticket_heard_since_start(&self, match_: &Match, id: TicketId) -> bool {
        let cache = self.cache.read();
        cache.ticket(id).is_some_and(|stored| self.was_ticket_heard_since_start(match_, stored))
    }

    /// Whether the stored expiry of a ticket shows a sign of life after the start of its match. Always `true` for a match
    /// whose result does not depend on it.
    pub(crate) fn was_ticket_heard_since_start(&self, match_: &Match, stored: &StoredTicket) -> bool {
        let (started_at, assignment) = match &match_.stage {
            MatchStage::Playing { started_at, assignment, .. } => (*started_at, assignment),
            MatchStage::Ended { started_at: Some(started_at), assignment: Some(assignment), .. } => {
                (*started_at, assignment)
            }
            _ => return true,
        };
        if !matches!(assignment, Assignment::PeerHost { .. }) {
            return true;
        }
        let ruleset = self.common.rulesets.ruleset_in_force(match_.set_id);
        let ttl_ms = match &ruleset {
            Some(ruleset) if ruleset.queue.is_some() || match_.session_match_start_by_host.is_some() => {
                ruleset.ticket_ttl_ms()
            }
            None if match_.session_match_start_by_host.is_some() => DEFAULT_TICKET_TTL_MS,
            Some(_) | None => 0,
        };
        // A pass can take in a ticket that entered just after the time that it counts as its own.
        started_at.max(stored.ticket.entered_at).plus_ms(u64::from(ttl_ms)) < stored.expires_at
    }

    /// Time at which the report window of a match ends, if no outcome is known.
    pub(crate) fn report_window_ends_at(&self, match_: &Match) -> Option<UnixMs> {
        let rules = self.known_ruleset_of(match_).map(|ruleset| LifecycleRules::from_ruleset(&ruleset));
        effective_reports_due_at(rules.as_ref(), match_, &self.common.server_outages.outages_extending_deadlines())
    }

    fn known_ruleset_of(&self, match_: &Match) -> Option<Arc<Ruleset>> {
        match self.common.ruleset_of_match(match_.set_id, match_.ruleset_hash) {
            MatchRulesetLookup::Known(ruleset) => Some(ruleset),
            MatchRulesetLookup::NotLoaded | MatchRulesetLookup::Unrecoverable => None,
        }
    }

    /// Result of a match, read from the store.
    pub(crate) async fn read_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, EngineError> {
        self.common.store.read_match_result(id).await.map_err(|error| {
            tracing::error!(%error, "store read of a match result failed");
            EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }
        })
    }
}

fn lifecycle_rules_or_defaults(ruleset: Option<&Ruleset>) -> LifecycleRules {
    ruleset.map_or_else(LifecycleRules::for_ending_without_ruleset, LifecycleRules::from_ruleset)
}

/// Sides of a match with reported ranks. A single rank is that of a match with one team.
fn sides_with_ranks(match_: &Match, ranks: &[u32]) -> Vec<SideRank> {
    let sides = match_.sides();
    if let ([rank], Some((team_index, _))) = (ranks, sides.first()) {
        let users = sides.iter().flat_map(|(_, users)| users.iter().copied()).collect();
        return vec![SideRank { team_index: *team_index, users, rank: *rank }];
    }
    let side = |((team_index, users), rank): ((u16, Vec<UserKey>), &u32)| SideRank { team_index, users, rank: *rank };
    sides.into_iter().zip(ranks).map(side).collect()
}

/// The sides with the players whose ratings reports may change.
fn sides_with_ratable_players(match_: &Match, mut sides: Vec<SideRank>) -> Vec<SideRank> {
    for side in &mut sides {
        side.users.retain(|user| match_.is_user_ratable_by_reports(*user));
    }
    sides
}

/// Whether the fail point is on that takes the first report of a player for the result.
fn fail_point_trusts_first_report() -> bool {
    fail::fail_point!("trust_first_report", |_| true);
    false
}

fn log_outcome(after: &Match) {
    let (match_id, set_id) = (after.id, after.set_id);
    match after.side_reports.outcome {
        Some(SideReportsOutcome::Held) => {
            let reason = "the reports favour a side over one that was not heard";
            tracing::warn!(%match_id, %set_id, reason, "match result not decided, an operator must report it");
        }
        Some(SideReportsOutcome::Disputed) => {
            tracing::info!(%match_id, %set_id, "match result rejected, its sides contradict each other")
        }
        Some(SideReportsOutcome::Settled | SideReportsOutcome::Unreported) | None => {}
    }
}
