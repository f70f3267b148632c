//! Match results, feedback, ratings and leaderboards: reports are recorded once and update the ratings.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::auth::token::{AdvertisementClaim, TicketClaim};
use crate::domain::id::{MatchId, SetId, TicketId, UserKey};
use crate::domain::lifecycle::event::{MatchEffect, MatchEvent};
use crate::domain::lifecycle::rules::LifecycleRules;
use crate::domain::lifecycle::transition::apply_event;
use crate::domain::lifecycle::{Assignment, Match, MatchEndReason, MatchStage, MatchTicket};
use crate::domain::match_result::{MatchExpectation, RatingHistoryEntry, ResultReport, SideRank, dense_ranks};
use crate::domain::queue::ticket::{PlayerRating, Ticket};
use crate::domain::rating::Skill;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::time::UnixMs;
use crate::engine::command::Caller;
use crate::engine::error::{EngineError, field_error};
use crate::engine::queues::QueueEngine;
use crate::engine::queues::plan_transition::{PlannedTransition, has_open_nat, plan_transition};
use crate::engine::queues::shared_state::SharedState;
use crate::engine::ratings::command::{
    LeaderboardPage, LeaderboardQuery, RatingView, ReportResultAnswer, ReportResultCommand, ReportedRanks,
    ResultReporter, SubmitFeedbackCommand,
};
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::store::queues::{FinishedMatch, QueueOutcome, QueueWrite};

/// Maximum attempts to write a result when the match changes concurrently.
const WRITE_ATTEMPTS_MAX: usize = 16;

impl QueueEngine {
    /// Records the result of a match; durable when it returns. Idempotent. Ends the match if it is still running.
    pub async fn report_result(
        &self,
        caller: &Caller,
        command: &ReportResultCommand,
    ) -> Result<ReportResultAnswer, EngineError> {
        let shared = &self.shared;
        let by_operator = matches!(command.reporter, ResultReporter::Operator);
        let match_ = shared.find_match(command.match_id).await?;
        let mut match_ = match_.ok_or(if by_operator { EngineError::MatchNotFound } else { EngineError::NotOwner })?;
        for _ in 0..WRITE_ATTEMPTS_MAX {
            let (visible_ticket, reported_by) = self.authorize_reporter(caller, &match_, &command.reporter)?;
            let ruleset = shared
                .common
                .ruleset_or_current(match_.set_id, match_.ruleset_hash)
                .ok_or(EngineError::UnknownSet(match_.set_id))?;
            let rating_spec = shared.rating_spec_for_match(&match_);
            let now = shared.common.clock.now();
            let report = Arc::new(shared.build_report(&match_, rating_spec.as_ref(), command, now)?);
            let end_transition = shared.plan_match_end(&match_, &ruleset, reported_by, now);
            let effects: Vec<MatchEffect> =
                end_transition.as_ref().map_or_else(Vec::new, |end_transition| end_transition.effects.clone());
            let write = QueueWrite::RecordResult {
                report_digest: report.digest(command.duration_ms),
                match_version: match_.version,
                end_transition: end_transition.map(|end_transition| Box::new(end_transition.write)),
                rating_spec,
                report,
                now,
            };
            match shared.submit_write(write).await? {
                QueueOutcome::ResultRecorded { result, is_replay, .. } => {
                    if !is_replay {
                        shared.release_unneeded_seats(&match_, &effects);
                    }
                    let signer = &shared.common.token_signer;
                    let visible = result
                        .rating_updates
                        .iter()
                        .filter(|update| visible_ticket.is_none_or(|id| is_player_of_ticket(&match_, id, update.user)));
                    let rating_changes =
                        visible.map(|update| (signer.derive_player_key(match_.id, update.user), *update)).collect();
                    return Ok(ReportResultAnswer { result, is_replay, rating_changes });
                }
                QueueOutcome::ConflictingResult(first) => {
                    return Err(EngineError::AlreadyReported { first_report: first.report.summary() });
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

    /// Records a player's feedback for a match. Idempotent.
    pub async fn submit_feedback(&self, caller: &Caller, command: &SubmitFeedbackCommand) -> Result<(), EngineError> {
        let shared = &self.shared;
        let claim =
            shared.common.token_signer.verify::<TicketClaim>(&command.ticket_token).ok_or(EngineError::NotOwner)?;
        let match_ = shared.find_match(command.match_id).await?.ok_or(EngineError::NotOwner)?;
        let match_ticket = caller_ticket_in_match(&match_, &claim, caller)?;
        let users: Vec<UserKey> = match_ticket.players.iter().map(|player| player.user).collect();
        let user = match (command.player_key, &*users) {
            (Some(key), _) => {
                users.iter().copied().find(|user| shared.common.token_signer.derive_player_key(match_.id, *user) == key)
            }
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
        if match_.stage.last_assignment().is_none() {
            return Err(EngineError::MatchNotPlayed);
        }
        let (rating_spec, now) = (shared.rating_spec_for_match(&match_), shared.common.clock.now());
        let write = QueueWrite::RecordFeedback {
            match_id: match_.id,
            set_id: match_.set_id,
            user,
            stars: command.stars,
            rating_spec,
            now,
        };
        match shared.submit_write(write).await? {
            QueueOutcome::FeedbackRecorded(_) => Ok(()),
            QueueOutcome::FeedbackAlreadyGiven { stars } if stars == command.stars => Ok(()),
            QueueOutcome::FeedbackAlreadyGiven { stars } => Err(EngineError::FeedbackAlreadyGiven { stars }),
            _ => Err(EngineError::Internal),
        }
    }

    /// Ratings of users in a set.
    pub fn user_ratings(&self, set_id: SetId, users: &[UserKey]) -> Result<Vec<RatingView>, EngineError> {
        let (rating_spec, now) = (self.rating_spec(set_id)?, self.shared.common.clock.now());
        let mut ratings = self.shared.ratings.lock();
        Ok(users.iter().map(|user| ratings.rating_view(set_id, &rating_spec, *user, now)).collect())
    }

    /// Page of a set's leaderboard.
    pub fn leaderboard_page(&self, query: LeaderboardQuery) -> Result<LeaderboardPage, EngineError> {
        let rating_spec = self.rating_spec(query.set_id)?;
        Ok(self.shared.ratings.lock().leaderboard_page(&rating_spec, query))
    }

    /// Win probability of each side, in a match that starts now.
    pub fn predict_win_probabilities(&self, set_id: SetId, sides: &[Vec<UserKey>]) -> Result<Vec<f64>, EngineError> {
        let (rating_spec, now) = (self.rating_spec(set_id)?, self.shared.common.clock.now());
        let skills = self.shared.ratings.lock().skills_of_sides(set_id, &rating_spec, sides, now);
        rating_spec.win_probabilities(&skills).map_err(|error| field_error("sides", error.to_string()))
    }

    /// Latest changes of a user's rating in a set, latest first.
    pub async fn rating_history(&self, set_id: SetId, user: UserKey) -> Result<Vec<RatingHistoryEntry>, EngineError> {
        self.rating_spec(set_id)?;
        self.shared.common.store.read_rating_changes(user, set_id).await.map_err(|error| store_unavailable(&error))
    }

    /// Finished matches after `after`, in report order.
    pub async fn finished_matches(
        &self,
        after: (UnixMs, MatchId),
        max: usize,
    ) -> Result<Vec<FinishedMatch>, EngineError> {
        self.shared.common.store.list_finished_matches(after, max).await.map_err(|error| store_unavailable(&error))
    }

    fn rating_spec(&self, set_id: SetId) -> Result<RatingSpec, EngineError> {
        self.shared.common.ruleset(set_id, None)?.rating.ok_or(EngineError::NoRatingSystem(set_id))
    }

    /// Checks that a reporter may report. Returns the ticket whose ratings it may see (`None` for all) and the
    /// reporting user.
    fn authorize_reporter(
        &self,
        caller: &Caller,
        match_: &Match,
        reporter: &ResultReporter,
    ) -> Result<(Option<TicketId>, Option<UserKey>), EngineError> {
        let signer = &self.shared.common.token_signer;
        let permission = match reporter {
            ResultReporter::Operator => (None, None),
            ResultReporter::GameServer(token) => {
                let claim = signer.verify::<AdvertisementClaim>(token).ok_or(EngineError::NotOwner)?;
                let is_hosted_here = match_
                    .stage
                    .last_assignment()
                    .is_some_and(|assignment| assignment.is_on_game_server(claim.advertisement_id));
                if claim.subject != caller.subject || !is_hosted_here {
                    return Err(EngineError::NotOwner);
                }
                (None, None)
            }
            ResultReporter::Ticket(token) => {
                let claim = signer.verify::<TicketClaim>(token).ok_or(EngineError::NotOwner)?;
                let match_ticket = caller_ticket_in_match(match_, &claim, caller)?;
                let reporting_player = match match_.stage.last_assignment() {
                    Some(Assignment::GameServer { .. }) => return Err(EngineError::NotOwner),
                    Some(Assignment::PeerHost { host }) => {
                        match_ticket.players.iter().find(|player| player.client == *host)
                    }
                    // An unhosted match is reported by the backend that entered the ticket, not by a player's game.
                    Some(Assignment::Unhosted) if caller.user.is_some() => None,
                    Some(Assignment::Unhosted) | None => match_ticket.players.first(),
                };
                (Some(match_ticket.ticket_id), Some(reporting_player.ok_or(EngineError::NotOwner)?.user))
            }
        };
        match match_.stage {
            MatchStage::Playing { .. }
            | MatchStage::Ended { end_reason: MatchEndReason::Played | MatchEndReason::TimedOut, .. } => Ok(permission),
            MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Ended { .. } => {
                Err(EngineError::MatchNotPlayed)
            }
        }
    }
}

impl SharedState {
    /// Match from the cache, or from the store if it has ended and was purged.
    async fn find_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, EngineError> {
        let cached = self.wait_for_cached(|cache| cache.match_by_id(id).cloned()).await;
        match cached {
            Some(match_) => Ok(Some(match_)),
            None => self.common.store.read_match(id).await.map_err(|error| store_unavailable(&error)),
        }
    }

    /// Rating system for a match, if any. Uses the current ruleset, because stored ratings are on its scale.
    fn rating_spec_for_match(&self, match_: &Match) -> Option<RatingSpec> {
        let current = self.common.rulesets.active_ruleset(match_.set_id);
        current
            .or_else(|| self.common.ruleset_or_current(match_.set_id, match_.ruleset_hash))
            .and_then(|ruleset| ruleset.rating)
    }

    /// Transition that ends a match, if it is running.
    fn plan_match_end(
        &self,
        match_: &Match,
        ruleset: &Ruleset,
        reported_by: Option<UserKey>,
        now: UnixMs,
    ) -> Option<PlannedTransition> {
        if !matches!(match_.stage, MatchStage::Playing { .. }) {
            return None;
        }
        let transition = {
            let cache = self.cache.read();
            apply_event(
                &LifecycleRules::from_ruleset(ruleset),
                match_,
                MatchEvent::EndReported { reported_by },
                &|id| has_open_nat(&cache, id),
                now,
            )
        };
        plan_transition(self, ruleset, transition, now)
    }

    /// Validated report: checks the reported ranks against the match.
    fn build_report(
        &self,
        match_: &Match,
        rating_spec: Option<&RatingSpec>,
        command: &ReportResultCommand,
        now: UnixMs,
    ) -> Result<ResultReport, EngineError> {
        let match_players = || {
            match_
                .tickets
                .iter()
                .flat_map(|match_ticket| match_ticket.players.iter().map(|player| (match_ticket.team, player.user)))
        };
        let users_by_key: BTreeMap<UserKey, (u16, UserKey)> = match_players()
            .map(|(team, user)| (self.common.token_signer.derive_player_key(match_.id, user), (team, user)))
            .collect();
        let mut teams: BTreeMap<u16, Vec<UserKey>> = BTreeMap::new();
        match_players().for_each(|(team, user)| teams.entry(team).or_default().push(user));
        let sides = match &command.ranks {
            ReportedRanks::ByTeam(ranks) => sides_by_team(&teams, ranks)?,
            ReportedRanks::ByPlayer(ranks) => sides_by_player(&teams, &users_by_key, ranks)?,
        };
        let mut left_early = Vec::with_capacity(command.disconnected_players.len());
        for (index, key) in command.disconnected_players.iter().enumerate() {
            let path = format!("disconnected_player_keys[{index}]");
            left_early.push(users_by_key.get(key).ok_or_else(|| field_error(path, UNKNOWN_PLAYER_KEY))?.1);
        }
        left_early.sort_unstable();
        left_early.dedup();
        let (started_at, duration_ms) = match match_.stage {
            MatchStage::Playing { started_at, .. } => {
                (started_at, command.duration_ms.or_else(|| Some(now.ms_since(started_at))))
            }
            MatchStage::Ended { started_at: Some(started_at), .. } => (started_at, command.duration_ms),
            MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Ended { started_at: None, .. } => {
                return Err(EngineError::MatchNotPlayed);
            }
        };
        let expectation = self.build_match_expectation(match_, rating_spec, &sides, started_at);
        Ok(ResultReport {
            match_id: match_.id,
            set_id: match_.set_id,
            silo: match_.silo,
            ruleset_hash: match_.ruleset_hash,
            sides,
            left_early,
            started_at,
            duration_ms,
            expectation,
        })
    }

    /// Expectation at the start of the match, from entry ratings of the tickets that are still cached.
    fn build_match_expectation(
        &self,
        match_: &Match,
        rating_spec: Option<&RatingSpec>,
        sides: &[SideRank],
        started_at: UnixMs,
    ) -> MatchExpectation {
        let tickets: Vec<Option<Arc<Ticket>>> = {
            let cache = self.cache.read();
            let ticket = |match_ticket: &MatchTicket| {
                cache.ticket(match_ticket.ticket_id).map(|stored| Arc::clone(&stored.ticket))
            };
            match_.tickets.iter().map(ticket).collect()
        };
        let entry_ratings: BTreeMap<UserKey, PlayerRating> = tickets
            .iter()
            .flatten()
            .flat_map(|ticket| {
                ticket.session.players.iter().map(|player| player.user).zip(ticket.player_ratings.iter().copied())
            })
            .collect();
        let skills: Vec<Vec<Skill>> = rating_spec.map_or_else(Vec::new, |rating_spec| {
            let ratings = self.ratings.lock();
            let skill = |user: &UserKey| {
                let current = ratings.skill_at(match_.set_id, rating_spec, *user, started_at);
                Skill { estimate: entry_ratings.get(user).copied().unwrap_or(current.estimate), ..current }
            };
            sides.iter().map(|side| side.users.iter().map(skill).collect()).collect()
        });
        let mean =
            |side: &Vec<Skill>| side.iter().map(|skill| skill.estimate.rating).sum::<f64>() / side.len().max(1) as f64;
        let means = || skills.iter().map(mean);
        let rating_gap = means().fold(f64::NEG_INFINITY, f64::max) - means().fold(f64::INFINITY, f64::min);
        let round_trip = |ticket: &Option<Arc<Ticket>>| {
            let match_region = match_.region.as_deref()?;
            let regions = ticket.as_ref()?.session.region_latencies.clone();
            regions.iter().find(|latency| &*latency.region == match_region).map(|latency| latency.round_trip_ms)
        };
        MatchExpectation {
            match_quality: match_.quality,
            win_probabilities: rating_spec
                .and_then(|rating_spec| rating_spec.win_probabilities(&skills).ok())
                .unwrap_or_default(),
            max_rating_gap: if rating_gap.is_finite() { rating_gap } else { 0.0 },
            ticket_waits_ms: match_
                .tickets
                .iter()
                .map(|match_ticket| started_at.ms_since(match_ticket.entered_at))
                .collect(),
            ticket_round_trips_ms: tickets.iter().map(round_trip).collect(),
            region: match_.region.clone(),
        }
    }
}

/// Error text for an unknown player key.
const UNKNOWN_PLAYER_KEY: &str = "is not a player of this match; use a player_key from its status";

/// Sides by team. Each team must be ranked once.
fn sides_by_team(teams: &BTreeMap<u16, Vec<UserKey>>, ranks: &[(u16, u32)]) -> Result<Vec<SideRank>, EngineError> {
    let mut ranked = BTreeMap::new();
    for (index, (team, rank)) in ranks.iter().enumerate() {
        if !teams.contains_key(team) {
            let valid_teams = teams.keys().map(u16::to_string).collect::<Vec<_>>().join(", ");
            return Err(field_error(
                format!("team_ranks[{index}].team"),
                format!("is {team}; use one of this match's teams: {valid_teams}"),
            ));
        }
        if ranked.insert(*team, *rank).is_some() {
            return Err(field_error(format!("team_ranks[{index}].team"), "is a duplicate; rank each team once"));
        }
    }
    if let Some(unranked) = teams.keys().find(|team| !ranked.contains_key(*team)) {
        return Err(field_error("team_ranks", format!("has no rank for team {unranked}; rank every team")));
    }
    let side_ranks = dense_ranks(&ranked.values().copied().collect::<Vec<_>>());
    let to_side = |((team, users), rank): ((&u16, &Vec<UserKey>), u32)| SideRank {
        team_index: *team,
        users: users.clone(),
        rank,
    };
    Ok(teams.iter().zip(side_ranks).map(to_side).collect())
}

/// Sides by player. Each player must be ranked once. With several teams, a side is a team; otherwise a player.
fn sides_by_player(
    teams: &BTreeMap<u16, Vec<UserKey>>,
    users_by_key: &BTreeMap<UserKey, (u16, UserKey)>,
    ranks: &[(UserKey, u32)],
) -> Result<Vec<SideRank>, EngineError> {
    let mut ranked: BTreeMap<UserKey, u32> = BTreeMap::new();
    for (index, (key, rank)) in ranks.iter().enumerate() {
        let path = || format!("player_ranks[{index}].player_key");
        let (_, user) = users_by_key.get(key).ok_or_else(|| field_error(path(), UNKNOWN_PLAYER_KEY))?;
        if ranked.insert(*user, *rank).is_some() {
            return Err(field_error(path(), "is a duplicate; rank each player once"));
        }
    }
    let unranked = users_by_key.values().find(|(_, user)| !ranked.contains_key(user));
    if let Some((team, _)) = unranked {
        return Err(field_error("player_ranks", format!("has no rank for a player of team {team}; rank every player")));
    }
    if let [(team, users)] = &*teams.iter().collect::<Vec<_>>() {
        let side_ranks = dense_ranks(&users.iter().map(|user| ranked[user]).collect::<Vec<_>>());
        let to_side = |(user, rank): (&UserKey, u32)| SideRank { team_index: **team, users: vec![*user], rank };
        return Ok(users.iter().zip(side_ranks).map(to_side).collect());
    }
    let mut team_ranks = Vec::with_capacity(teams.len());
    for (team, users) in teams {
        let mut all = users.iter().map(|user| ranked[user]);
        let first = all.next().unwrap_or(1);
        if let Some(other) = all.find(|rank| *rank != first) {
            let problem =
                format!("team {team} has ranks {first} and {other}; give all players of a team the same rank");
            return Err(field_error("player_ranks", problem));
        }
        team_ranks.push((*team, first));
    }
    sides_by_team(teams, &team_ranks)
}

/// Caller's own ticket in a match.
fn caller_ticket_in_match<'a>(
    match_: &'a Match,
    claim: &TicketClaim,
    caller: &Caller,
) -> Result<&'a MatchTicket, EngineError> {
    let match_ticket = match_.tickets.iter().find(|match_ticket| match_ticket.ticket_id == claim.ticket_id);
    match_ticket.filter(|_| claim.subject == caller.subject).ok_or(EngineError::NotOwner)
}

fn is_player_of_ticket(match_: &Match, ticket: TicketId, user: UserKey) -> bool {
    let match_ticket = match_.tickets.iter().find(|match_ticket| match_ticket.ticket_id == ticket);
    match_ticket.is_some_and(|match_ticket| match_ticket.players.iter().any(|player| player.user == user))
}

fn store_unavailable(error: &crate::store::StoreError) -> EngineError {
    tracing::error!(%error, "store read of match results failed");
    EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }
}
