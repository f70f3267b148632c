//! Reports of a match result by its players: each counts for its seats, and the sides decide together.

use std::sync::Arc;

use crate::domain::id::{TicketId, UserKey};
use crate::domain::lifecycle::side_reports::{PlayerResultClaim, SideReportsOutcome};
use crate::domain::lifecycle::{Match, MatchTicket};
use crate::domain::match_result::MatchResult;
use crate::engine::command::Caller;
use crate::engine::error::{EngineError, field_error};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::result_report::CheckedReport;
use crate::engine::queues::shared_state::side_reports::ReportWriteOutcome;
use crate::engine::ratings::command::{ReportResultAnswer, ReportResultCommand, ReportState};

/// Outcome of one attempt to record a report.
pub(super) enum ReportAttemptOutcome {
    /// Answer for the caller.
    Answer(Box<ReportResultAnswer>),
    /// The match has changed; try again.
    Stale(Arc<Match>),
}

impl QueueEngine {
    /// Records a report for `users` of a ticket.
    pub(super) async fn record_report_of_users(
        &self,
        match_: &Arc<Match>,
        (ticket_id, users): (TicketId, &[UserKey]),
        checked: CheckedReport,
        command: &ReportResultCommand,
    ) -> Result<ReportAttemptOutcome, EngineError> {
        let shared = &self.shared;
        let ranks: Vec<u32> = checked.sides.iter().map(|side| side.rank).collect();
        let reports = &match_.side_reports;
        let mut earlier = users.iter().filter_map(|user| reports.claim_of_user(*user));
        if let Some(first) = earlier.find(|claim| claim.ranks != ranks) {
            return Err(EngineError::AlreadyReported { first_report: summary_of_ranks(&first.ranks) });
        }
        let new_users: Vec<UserKey> =
            users.iter().copied().filter(|user| reports.claim_of_user(*user).is_none()).collect();
        let due_at = shared.report_window_ends_at(match_);
        let is_window_over = due_at.is_some_and(|due_at| due_at <= shared.common.clock.now());
        if is_window_over {
            // The report is too late. What the earlier ones are worth is decided now.
            shared.settle_due_reports(match_.id).await;
            let current = shared.cache.read().match_by_id(match_.id).cloned().ok_or(EngineError::MatchNotFound)?;
            return Ok(ReportAttemptOutcome::Stale(current));
        }
        match reports.outcome {
            Some(SideReportsOutcome::Disputed) if !new_users.is_empty() => return Err(EngineError::ReportWindowEnded),
            Some(SideReportsOutcome::Settled | SideReportsOutcome::Disputed) => {
                let result = shared.read_result(match_.id).await?.ok_or(EngineError::MatchNotFound)?;
                let is_repeated_report = new_users.is_empty() || has_same_ranks(&result, &ranks);
                if !is_repeated_report {
                    return Err(EngineError::AlreadyReported { first_report: result.report.describe_ranks() });
                }
                return Ok(self.answer_with_result(match_, result, true, ticket_id));
            }
            Some(SideReportsOutcome::Held | SideReportsOutcome::Unreported) if !new_users.is_empty() => {
                return Err(EngineError::ReportWindowEnded);
            }
            Some(SideReportsOutcome::Held | SideReportsOutcome::Unreported) => {
                return Ok(self.answer_with_state(match_, true));
            }
            None if new_users.is_empty() => return Ok(self.answer_with_state(match_, true)),
            None => {}
        }
        let claim = PlayerResultClaim { ranks, disconnected: checked.disconnected, duration_ms: command.duration_ms };
        match shared.write_side_report(match_, &new_users, &claim).await? {
            ReportWriteOutcome::Written(after, None) => Ok(self.answer_with_state(&after, false)),
            ReportWriteOutcome::Written(after, Some(result)) => {
                Ok(self.answer_with_result(&after, result, false, ticket_id))
            }
            ReportWriteOutcome::Stale(current) => Ok(ReportAttemptOutcome::Stale(current)),
            ReportWriteOutcome::HasResult(result) if has_same_ranks(&result, &claim.ranks) => {
                Ok(self.answer_with_result(match_, result, true, ticket_id))
            }
            // Another server may have recorded these very reports as a dispute.
            ReportWriteOutcome::HasResult(result) => match shared.wait_for_newer_match(match_).await? {
                Some(newer) => Ok(ReportAttemptOutcome::Stale(newer)),
                None => Err(EngineError::AlreadyReported { first_report: result.report.describe_ranks() }),
            },
        }
    }

    /// Players of a ticket for whom a report counts: the caller's own user, the named one, or for a backend all who have
    /// not left.
    pub(super) fn users_reported_for(
        &self,
        caller: &Caller,
        match_: &Match,
        match_ticket: &MatchTicket,
        player_key: Option<UserKey>,
    ) -> Result<Vec<UserKey>, EngineError> {
        let present = match_ticket.players.iter().filter(|player| player.left_at.is_none());
        let mut users: Vec<UserKey> = present.map(|player| player.user).collect();
        if let Some(key) = player_key {
            users.retain(|user| {
                self.shared.common.current_and_legacy_match_player_keys(match_.id, *user).contains(&key)
            });
            if users.is_empty() {
                let problem = "is not one of the ticket's players who are still in the match";
                return Err(field_error("player_key", problem));
            }
        }
        users.retain(|user| caller.user.is_none_or(|own_user| own_user == *user));
        if users.is_empty() { Err(EngineError::NotOwner) } else { Ok(users) }
    }

    fn answer_with_result(
        &self,
        match_: &Match,
        result: Arc<MatchResult>,
        is_repeated_report: bool,
        ticket_id: TicketId,
    ) -> ReportAttemptOutcome {
        ReportAttemptOutcome::Answer(Box::new(self.result_answer(match_, result, is_repeated_report, Some(ticket_id))))
    }

    fn answer_with_state(&self, match_: &Match, is_repeated_report: bool) -> ReportAttemptOutcome {
        let now = self.shared.common.clock.now();
        let due_at = self.shared.report_window_ends_at(match_);
        let state = ReportState::of_match(match_, due_at, now).unwrap_or(ReportState::Unreported);
        let answer = ReportResultAnswer { result: None, state, is_repeated_report, rating_changes: Vec::new() };
        ReportAttemptOutcome::Answer(Box::new(answer))
    }
}

fn has_same_ranks(result: &MatchResult, ranks: &[u32]) -> bool {
    result.report.sides.iter().map(|side| side.rank).eq(ranks.iter().copied())
}

/// Text for the error about a different second report of a player.
fn summary_of_ranks(ranks: &[u32]) -> String {
    let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
    format!("the sides have ranks {}", ranks.join(", "))
}
