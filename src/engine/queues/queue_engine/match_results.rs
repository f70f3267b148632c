//! Match results and feedback: reports are recorded once and update the ratings.

use std::sync::Arc;

use crate::auth::token::AdvertisementClaim;
use crate::domain::id::{MatchId, TicketId, UserKey};
use crate::domain::lifecycle::event::MatchEffect;
use crate::domain::lifecycle::rules::LifecycleRules;
use crate::domain::lifecycle::transition::report::apply_authoritative_report;
use crate::domain::lifecycle::{Assignment, Match, MatchStage, MatchTicket};
use crate::domain::match_result::MatchResult;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::rating::scale::KeyedRatingSpec;
use crate::domain::time::UnixMs;
use crate::engine::command::Caller;
use crate::engine::error::{EngineError, field_error};
use crate::engine::queues::plan_transition::{PlannedTransition, plan_transition};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::queue_engine::player_reports::ReportAttemptOutcome;
use crate::engine::queues::result_report::{check_report, with_leavers_duration_and_forecast};
use crate::engine::queues::ticket_holder::TicketTokenHolder;
use crate::engine::ratings::command::{
    ReportResultAnswer, ReportResultCommand, ReportState, ResultReporter, SubmitFeedbackCommand,
};
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::rules::catalog::MatchRulesetLookup;
use crate::store::queues::{FinishedMatch, QueueOutcome, QueueWrite};

/// Maximum attempts to write a result when the match changes concurrently.
const WRITE_ATTEMPTS_MAX: usize = 16;

/// Results that are read to find one of them among those of its millisecond.
const RESULTS_OF_ONE_MILLISECOND_MAX: usize = 200;

impl QueueEngine {
    /// Records the result of a match; durable when it returns. Idempotent. Ends the match if it is still running.
    pub async fn report_result(
        &self,
        caller: &Caller,
        command: &ReportResultCommand,
    ) -> Result<ReportResultAnswer, EngineError> {
        let shared = &self.shared;
        let by_operator = matches!(command.reporter, ResultReporter::Operator);
        let match_ = self.find_match(self.reported_match_id(caller, command)?).await?;
        let mut match_ = match_.ok_or(if by_operator { EngineError::MatchNotFound } else { EngineError::NotOwner })?;
        for _ in 0..WRITE_ATTEMPTS_MAX {
            let authority = match self.authorize_reporter(caller, &match_, command) {
                Ok(authority) => authority,
                Err(refusal) => {
                    match_ = shared.wait_for_newer_match(&match_).await?.ok_or(refusal)?;
                    continue;
                }
            };
            let ruleset = self.loaded_ruleset_of_match(&match_).await?;
            let checked = check_report(shared, &match_, command)?;
            let (visible_ticket, reported_by) = match authority {
                ReportScope::Decisive { visible_ticket, reported_by } => (visible_ticket, reported_by),
                ReportScope::TicketPlayers { ticket_id, users } => {
                    match self.record_report_of_users(&match_, (ticket_id, &users), checked, command).await? {
                        ReportAttemptOutcome::Answer(answer) => return Ok(*answer),
                        ReportAttemptOutcome::Stale(current) => match_ = current,
                    }
                    continue;
                }
            };
            let rating = self.rating_spec_for_match(&match_).filter(|_| match_.bots_by_team.is_empty());
            let now = shared.common.clock.now();
            let report = with_leavers_duration_and_forecast(
                shared,
                &match_,
                rating.as_ref(),
                checked,
                command.duration_ms,
                now,
            )?;
            let report = Arc::new(report);
            let end_transition = self.plan_match_end(&match_, ruleset.as_deref(), reported_by, now);
            let effects: Vec<MatchEffect> =
                end_transition.as_ref().map_or_else(Vec::new, |end_transition| end_transition.effects.clone());
            let write = QueueWrite::RecordResult {
                report_digest: report.digest(command.duration_ms),
                match_version: match_.version,
                end_transition: end_transition.map(|end_transition| Box::new(end_transition.write)),
                rating,
                report,
                now,
            };
            match shared.submit_write(write).await? {
                QueueOutcome::ResultOnRecord { result, is_repeated_report, .. } => {
                    if !is_repeated_report {
                        shared.release_unneeded_seats(&match_, &effects);
                    }
                    return Ok(self.result_answer(&match_, result, is_repeated_report, visible_ticket));
                }
                QueueOutcome::ConflictingResult(first) => {
                    return Err(EngineError::AlreadyReported { first_report: first.report.describe_ranks() });
                }
                QueueOutcome::StaleMatchVersion(Some(current)) => match_ = current,
                QueueOutcome::RatingFailed(reason) => {
                    tracing::error!(reason, match_id = %match_.id, "rating update failed");
                    return Err(EngineError::Internal);
                }
                _ => return Err(EngineError::MatchNotFound),
            }
        }
        Err(EngineError::Overloaded { retry_after_ms: RETRY_AFTER_MS })
    }

    /// Match that a report is about: the one that it names, or the only one of the reporting host.
    fn reported_match_id(&self, caller: &Caller, command: &ReportResultCommand) -> Result<MatchId, EngineError> {
        match (command.match_id, &command.reporter) {
            (Some(match_id), _) => Ok(match_id),
            (None, ResultReporter::GameServer(token)) => self.only_match_of_host(caller, token),
            (None, ResultReporter::Ticket(_)) => Err(EngineError::NotOwner),
            (None, ResultReporter::Operator) => Err(EngineError::MatchNotFound),
        }
    }

    /// Answer with the result of a match.
    pub(super) fn result_answer(
        &self,
        match_: &Match,
        result: Arc<MatchResult>,
        is_repeated_report: bool,
        visible_ticket: Option<TicketId>,
    ) -> ReportResultAnswer {
        let common = &self.shared.common;
        let visible = result
            .rating_updates
            .iter()
            .filter(|update| visible_ticket.is_none_or(|id| is_player_of_ticket(match_, id, update.user)));
        let rating_changes = visible.map(|update| (common.match_player_key(match_.id, update.user), *update)).collect();
        let state = if result.report.disputing_users.is_empty() { ReportState::Settled } else { ReportState::Disputed };
        ReportResultAnswer { result: Some(result), is_repeated_report, rating_changes, state }
    }

    /// Records a player's feedback for a match. Idempotent.
    pub async fn submit_feedback(&self, caller: &Caller, command: &SubmitFeedbackCommand) -> Result<(), EngineError> {
        let shared = &self.shared;
        let holder = TicketTokenHolder::verify(&shared.common.token_signer, caller, &command.ticket_token)?;
        let mut match_ = self.find_match(command.match_id).await?.ok_or(EngineError::NotOwner)?;
        if match_.stage.assignment_since_play_start().is_none()
            && let Some(newer) = shared.wait_for_newer_match(&match_).await?
        {
            match_ = newer;
        }
        let match_ticket = held_ticket_in_match(&match_, &holder)?;
        let users: Vec<UserKey> = match_ticket.players.iter().map(|player| player.user).collect();
        let user = match (command.player_key, &*users) {
            (Some(key), _) => users
                .iter()
                .copied()
                .find(|user| shared.common.current_and_legacy_match_player_keys(match_.id, *user).contains(&key)),
            (None, [only_user]) => Some(*only_user),
            (None, ticket_users) => caller.user.filter(|own_user| ticket_users.contains(own_user)),
        };
        let user = user.ok_or_else(|| {
            let problem = "must name one of the ticket's own players in this match; required if the ticket has several";
            field_error("player_key", problem)
        })?;
        if caller.user.is_some_and(|own_user| own_user != user) {
            return Err(EngineError::NotOwner);
        }
        if match_.stage.assignment_since_play_start().is_none() {
            return Err(EngineError::MatchNotPlayed);
        }
        let (rating, now) = (self.rating_spec_for_match(&match_), shared.common.clock.now());
        let (match_id, ruleset) = (match_.id, (match_.set_id, match_.ruleset_hash));
        let write = QueueWrite::RecordFeedback { match_id, ruleset, user, stars: command.stars, rating, now };
        match shared.submit_write(write).await? {
            QueueOutcome::FeedbackRecorded(_) => Ok(()),
            QueueOutcome::FeedbackAlreadyGiven { stars } if stars == command.stars => Ok(()),
            QueueOutcome::FeedbackAlreadyGiven { stars } => Err(EngineError::FeedbackAlreadyGiven { stars }),
            _ => Err(EngineError::Internal),
        }
    }

    /// Finished matches after `after`, in report order.
    pub async fn finished_matches_reported_after(
        &self,
        after: (UnixMs, MatchId),
        max: usize,
    ) -> Result<Vec<FinishedMatch>, EngineError> {
        self.shared
            .common
            .store
            .list_finished_matches(after, max)
            .await
            .map_err(|error| log_and_return_unavailable(&error))
    }

    /// Finished match with its result and feedback, if it has a result.
    pub(super) async fn finished_match(&self, id: MatchId) -> Result<Option<FinishedMatch>, EngineError> {
        let store = &self.shared.common.store;
        let result = store.read_match_result(id).await.map_err(|error| log_and_return_unavailable(&error))?;
        let Some(reported_at) = result.map(|result| result.reported_at) else { return Ok(None) };
        // Several matches may have been reported in the same millisecond.
        let before = (UnixMs(reported_at.0.saturating_sub(1)), MatchId::from_bytes([u8::MAX; 16]));
        let finished = self.finished_matches_reported_after(before, RESULTS_OF_ONE_MILLISECOND_MAX).await?;
        Ok(finished.into_iter().find(|finished| finished.result.report.match_id == id))
    }

    /// Match from the cache, or from the store if it has ended and was purged.
    async fn find_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, EngineError> {
        let cached = self.shared.wait_for_cached(|cache| cache.match_by_id(id).cloned()).await;
        match cached {
            Some(match_) => Ok(Some(match_)),
            None => self.shared.common.store.read_match(id).await.map_err(|error| log_and_return_unavailable(&error)),
        }
    }

    /// Rating system for a match, if any, and its ratings: those of the ruleset that made the match. Its players were
    /// matched by them, also if the set has another scale or pool now.
    pub(super) fn rating_spec_for_match(&self, match_: &Match) -> Option<KeyedRatingSpec> {
        match self.shared.common.ruleset_of_match(match_.set_id, match_.ruleset_hash) {
            MatchRulesetLookup::Known(ruleset) => self.shared.ratings.lock().keyed_spec_of_ruleset(&ruleset),
            MatchRulesetLookup::NotLoaded | MatchRulesetLookup::Unrecoverable => None,
        }
    }

    /// Ruleset of a match; `None` if it cannot be had. Fails while it is not known whether the store has it.
    async fn loaded_ruleset_of_match(&self, match_: &Match) -> Result<Option<Arc<Ruleset>>, EngineError> {
        self.shared.wait_for_ruleset(match_.set_id, match_.ruleset_hash).await;
        match self.shared.common.ruleset_of_match(match_.set_id, match_.ruleset_hash) {
            MatchRulesetLookup::Known(ruleset) => Ok(Some(ruleset)),
            MatchRulesetLookup::Unrecoverable => Ok(None),
            MatchRulesetLookup::NotLoaded => Err(EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }),
        }
    }

    /// Transition that ends a match, if it is running, and the reports of its players.
    fn plan_match_end(
        &self,
        match_: &Match,
        ruleset: Option<&Ruleset>,
        reported_by: Option<UserKey>,
        now: UnixMs,
    ) -> Option<PlannedTransition> {
        let rules = ruleset
            .map_or_else(LifecycleRules::for_ending_without_ruleset, |ruleset| self.shared.lifecycle_rules(ruleset));
        let transition = apply_authoritative_report(&rules, match_, reported_by, now);
        plan_transition(&self.shared, ruleset, transition, now)
    }

    /// Checks that a reporter may report, alone or for its seats.
    fn authorize_reporter(
        &self,
        caller: &Caller,
        match_: &Match,
        command: &ReportResultCommand,
    ) -> Result<ReportScope, EngineError> {
        let signer = &self.shared.common.token_signer;
        let authority = match &command.reporter {
            ResultReporter::Operator => ReportScope::Decisive { visible_ticket: None, reported_by: None },
            ResultReporter::GameServer(token) => {
                let claim = signer.verify::<AdvertisementClaim>(token).ok_or(EngineError::NotOwner)?;
                let is_hosted_here = match_
                    .stage
                    .assignment_since_play_start()
                    .is_some_and(|assignment| assignment.is_on_game_server_with_id(claim.advertisement_id));
                if claim.subject != caller.subject || !is_hosted_here {
                    return Err(EngineError::NotOwner);
                }
                // A player's own session, filled by backfill, is no game server: its word is not a result.
                if caller.user.is_some() {
                    return Err(EngineError::GameServerRoleRequired);
                }
                ReportScope::Decisive { visible_ticket: None, reported_by: None }
            }
            ResultReporter::Ticket(token) => {
                let holder = TicketTokenHolder::verify(signer, caller, token)?;
                let match_ticket = held_ticket_in_match(match_, &holder)?;
                match match_.stage.assignment_since_play_start() {
                    Some(Assignment::GameServer { .. }) => return Err(EngineError::NotOwner),
                    Some(Assignment::PeerHost { .. }) => ReportScope::TicketPlayers {
                        ticket_id: match_ticket.ticket_id,
                        users: self.users_reported_for(caller, match_, match_ticket, command.player_key)?,
                    },
                    // An unhosted match is reported by the backend that entered the ticket, not by a player's game.
                    Some(Assignment::Unhosted) if caller.user.is_some() => return Err(EngineError::NotOwner),
                    Some(Assignment::Unhosted) | None => ReportScope::Decisive {
                        visible_ticket: Some(match_ticket.ticket_id),
                        reported_by: match_ticket.players.first().map(|player| player.user),
                    },
                }
            }
        };
        match match_.stage {
            MatchStage::Playing { .. } | MatchStage::Ended { assignment: Some(_), .. } => Ok(authority),
            MatchStage::ReadyCheck { .. }
            | MatchStage::Placing { .. }
            | MatchStage::Confirming { .. }
            | MatchStage::Ended { assignment: None, .. } => Err(EngineError::MatchNotPlayed),
        }
    }
}

/// Weight of a report.
enum ReportScope {
    /// The report is the result.
    Decisive {
        /// Ticket whose ratings the reporter may see; `None` for all.
        visible_ticket: Option<TicketId>,
        /// Player who reports, if it is one.
        reported_by: Option<UserKey>,
    },
    /// The report counts for these players of a ticket; the sides of the match decide together.
    TicketPlayers {
        /// Ticket of the players.
        ticket_id: TicketId,
        /// The players.
        users: Vec<UserKey>,
    },
}

/// Ticket in a match whose token, or the token of a seat in it, the caller holds.
fn held_ticket_in_match<'a>(match_: &'a Match, holder: &TicketTokenHolder) -> Result<&'a MatchTicket, EngineError> {
    let mut tickets = match_.tickets.iter();
    tickets.find(|match_ticket| match_ticket.ticket_id == holder.ticket_id).ok_or(EngineError::NotOwner)
}

fn is_player_of_ticket(match_: &Match, ticket: TicketId, user: UserKey) -> bool {
    let match_ticket = match_.tickets.iter().find(|match_ticket| match_ticket.ticket_id == ticket);
    match_ticket.is_some_and(|match_ticket| match_ticket.players.iter().any(|player| player.user == user))
}

pub(super) fn log_and_return_unavailable(error: &crate::store::StoreError) -> EngineError {
    tracing::error!(%error, "store read of match results failed");
    EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }
}
