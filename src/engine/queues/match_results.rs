//! What came of matches: taken from whoever hosted them, written down once, followed by ratings.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::auth::token::{AdvertisementClaim, TicketClaim};
use crate::domain::attribute_values::FieldProblem;
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
use crate::engine::error::EngineError;
use crate::engine::queues::QueueEngine;
use crate::engine::queues::shared_state::{RETRY_AFTER_MS, SharedState};
use crate::engine::queues::writer::{PlannedTransition, has_open_nat, plan_transition};
use crate::engine::ratings::command::{
    LeaderboardPage, LeaderboardQuery, RatingView, ReportResultAnswer, ReportResultCommand, ReportedRanks,
    ResultReporter, SubmitFeedbackCommand,
};
use crate::store::queues::{FinishedMatch, QueueOutcome, QueueWrite};

/// How often a report is judged anew because the match has changed meanwhile.
const WRITE_ATTEMPTS_MAX: usize = 16;

impl QueueEngine {
    /// Takes what came of a match: durable when it is answered, and once, however often it is said. A match that is still
    /// played is over by it.
    pub async fn report_result(
        &self,
        caller: &Caller,
        said: &ReportResultCommand,
    ) -> Result<ReportResultAnswer, EngineError> {
        let hall = &self.shared;
        let by_operator = matches!(said.reporter, ResultReporter::Operator);
        let play = hall.find_match(said.match_id).await?;
        let mut play = play.ok_or(if by_operator { EngineError::MatchNotFound } else { EngineError::NotOwner })?;
        for _ in 0..WRITE_ATTEMPTS_MAX {
            let (shown, by) = self.authorize_reporter(caller, &play, &said.reporter)?;
            let ruleset =
                hall.ruleset_or_current(play.set_id, play.ruleset_hash).ok_or(EngineError::UnknownSet(play.set_id))?;
            let spec = hall.rating_spec_for_match(&play);
            let now = hall.core.clock.now();
            let report = Arc::new(hall.build_report(&play, spec.as_ref(), said, now)?);
            let ends = hall.plan_match_end(&play, &ruleset, by, now);
            let effects: Vec<MatchEffect> = ends.as_ref().map_or_else(Vec::new, |ends| ends.effects.clone());
            let write = QueueWrite::RecordResult {
                report_digest: report.digest(said.duration_ms),
                match_version: play.version,
                end_transition: ends.map(|ends| Box::new(ends.write)),
                rating_spec: spec,
                report,
                now,
            };
            match hall.write(write).await? {
                QueueOutcome::ResultRecorded { result, is_replay: replayed, .. } => {
                    if !replayed {
                        hall.release_unneeded_seats(&play, &effects);
                    }
                    let signer = &hall.core.token_signer;
                    let named = result
                        .rating_updates
                        .iter()
                        .filter(|it| shown.is_none_or(|id| is_player_of_ticket(&play, id, it.user)));
                    let changes = named.map(|it| (signer.derive_player_key(play.id, it.user), *it)).collect();
                    return Ok(ReportResultAnswer { result, is_replay: replayed, rating_changes: changes });
                }
                QueueOutcome::ConflictingResult(first) => {
                    return Err(EngineError::AlreadyReported { first_report: first.report.summary() });
                }
                QueueOutcome::StaleMatchVersion(Some(now_so)) => play = now_so,
                QueueOutcome::RatingFailed(why) => {
                    tracing::error!(why, play = %play.id, "rate a match");
                    return Err(EngineError::Internal);
                }
                _ => return Err(EngineError::MatchNotFound),
            }
        }
        Err(EngineError::Overloaded { retry_after_ms: RETRY_AFTER_MS })
    }

    /// Notes what a player thought of a match. Once; the same again changes nothing.
    pub async fn submit_feedback(&self, caller: &Caller, said: &SubmitFeedbackCommand) -> Result<(), EngineError> {
        let hall = &self.shared;
        let claim = hall.core.token_signer.verify::<TicketClaim>(&said.ticket_token).ok_or(EngineError::NotOwner)?;
        let play = hall.find_match(said.match_id).await?.ok_or(EngineError::NotOwner)?;
        let member = caller_ticket_in_match(&play, &claim, caller)?;
        let users: Vec<UserKey> = member.players.iter().map(|seat| seat.user).collect();
        let user = match (said.player_key, &*users) {
            (Some(key), _) => {
                users.iter().copied().find(|user| hall.core.token_signer.derive_player_key(play.id, *user) == key)
            }
            (None, [only]) => Some(*only),
            (None, several) => caller.user.filter(|own| several.contains(own)),
        };
        let user = user.ok_or_else(|| {
            let what = "must name one of the ticket's own players in this match: it has several";
            field_error("player_key", what)
        })?;
        if caller.user.is_some_and(|own| own != user) {
            return Err(EngineError::NotOwner);
        }
        if play.stage.last_assignment().is_none() {
            return Err(EngineError::MatchNotPlayed);
        }
        let (spec, now) = (hall.rating_spec_for_match(&play), hall.core.clock.now());
        let write = QueueWrite::RecordFeedback {
            match_id: play.id,
            set_id: play.set_id,
            user,
            stars: said.stars,
            rating_spec: spec,
            now,
        };
        match hall.write(write).await? {
            QueueOutcome::FeedbackRecorded(_) => Ok(()),
            QueueOutcome::FeedbackAlreadyGiven { stars: score } if score == said.stars => Ok(()),
            QueueOutcome::FeedbackAlreadyGiven { stars: score } => {
                Err(EngineError::FeedbackAlreadyGiven { stars: score })
            }
            _ => Err(EngineError::Internal),
        }
    }

    /// How good users are in a set.
    pub fn user_ratings(&self, set_id: SetId, users: &[UserKey]) -> Result<Vec<RatingView>, EngineError> {
        let (spec, now) = (self.rating_spec(set_id)?, self.shared.core.clock.now());
        let mut ratings = self.shared.ratings.lock();
        Ok(users.iter().map(|user| ratings.rating_view(set_id, &spec, *user, now)).collect())
    }

    /// A part of a set's leaderboard.
    pub fn leaderboard_page(&self, look: LeaderboardQuery) -> Result<LeaderboardPage, EngineError> {
        let spec = self.rating_spec(look.set_id)?;
        Ok(self.shared.ratings.lock().leaderboard_page(&spec, look))
    }

    /// The chances of sides of users in a match of a set that began now.
    pub fn predict_win_probabilities(&self, set_id: SetId, sides: &[Vec<UserKey>]) -> Result<Vec<f64>, EngineError> {
        let (spec, now) = (self.rating_spec(set_id)?, self.shared.core.clock.now());
        let skills = self.shared.ratings.lock().skills_of_sides(set_id, &spec, sides, now);
        spec.win_probabilities(&skills).map_err(|error| field_error("sides", error.to_string()))
    }

    /// The latest changes of a user's rating in a set, latest first.
    pub async fn rating_history(&self, set_id: SetId, user: UserKey) -> Result<Vec<RatingHistoryEntry>, EngineError> {
        self.rating_spec(set_id)?;
        self.shared.core.store.read_rating_changes(user, set_id).await.map_err(|error| store_unavailable(&error))
    }

    /// Finished matches in the order in which they were reported, after `after`.
    pub async fn finished_matches(
        &self,
        after: (UnixMs, MatchId),
        most: usize,
    ) -> Result<Vec<FinishedMatch>, EngineError> {
        self.shared.core.store.list_finished_matches(after, most).await.map_err(|error| store_unavailable(&error))
    }

    fn rating_spec(&self, set_id: SetId) -> Result<RatingSpec, EngineError> {
        self.shared.core.ruleset(set_id, None)?.rating.ok_or(EngineError::NoRatingSystem(set_id))
    }

    /// Whether a reporter may speak for the match: of whose ratings it hears, and which of the players it is.
    fn authorize_reporter(
        &self,
        caller: &Caller,
        play: &Match,
        by: &ResultReporter,
    ) -> Result<(Option<TicketId>, Option<UserKey>), EngineError> {
        let signer = &self.shared.core.token_signer;
        let told = match by {
            ResultReporter::Operator => (None, None),
            ResultReporter::GameServer(token) => {
                let claim = signer.verify::<AdvertisementClaim>(token).ok_or(EngineError::NotOwner)?;
                let here =
                    play.stage.last_assignment().is_some_and(|place| place.is_on_game_server(claim.advertisement_id));
                if claim.subject != caller.subject || !here {
                    return Err(EngineError::NotOwner);
                }
                (None, None)
            }
            ResultReporter::Ticket(token) => {
                let claim = signer.verify::<TicketClaim>(token).ok_or(EngineError::NotOwner)?;
                let member = caller_ticket_in_match(play, &claim, caller)?;
                let by = match play.stage.last_assignment() {
                    Some(Assignment::GameServer { .. }) => return Err(EngineError::NotOwner),
                    Some(Assignment::PeerHost { host }) => member.players.iter().find(|seat| seat.client == *host),
                    // Where nobody hosts, a backend that entered the ticket may say so, and no player's game.
                    Some(Assignment::Unhosted) if caller.user.is_some() => None,
                    Some(Assignment::Unhosted) | None => member.players.first(),
                };
                (Some(member.ticket_id), Some(by.ok_or(EngineError::NotOwner)?.user))
            }
        };
        match play.stage {
            MatchStage::Playing { .. }
            | MatchStage::Ended { end_reason: MatchEndReason::Played | MatchEndReason::TimedOut, .. } => Ok(told),
            MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Ended { .. } => {
                Err(EngineError::MatchNotPlayed)
            }
        }
    }
}

impl SharedState {
    /// A match, from memory, or from the store if it is over and memory has let it go.
    async fn find_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, EngineError> {
        let known = self.wait_for_cached(|roster| roster.match_by_id(id).cloned()).await;
        match known {
            Some(play) => Ok(Some(play)),
            None => self.core.store.read_match(id).await.map_err(|error| store_unavailable(&error)),
        }
    }

    /// How ratings follow a match, where they do. A match lives by the rules that made it; ratings by those in force, whose scale
    /// they are on (B-32).
    fn rating_spec_for_match(&self, play: &Match) -> Option<RatingSpec> {
        let current = self.core.rulesets.active_ruleset(play.set_id);
        current.or_else(|| self.ruleset_or_current(play.set_id, play.ruleset_hash)).and_then(|ruleset| ruleset.rating)
    }

    /// The change that ends a match, if it is still played.
    fn plan_match_end(
        &self,
        play: &Match,
        ruleset: &Ruleset,
        by: Option<UserKey>,
        now: UnixMs,
    ) -> Option<PlannedTransition> {
        if !matches!(play.stage, MatchStage::Playing { .. }) {
            return None;
        }
        let step = {
            let roster = self.cache.read();
            apply_event(
                &LifecycleRules::from_ruleset(ruleset),
                play,
                MatchEvent::EndReported { reported_by: by },
                &|id| has_open_nat(&roster, id),
                now,
            )
        };
        plan_transition(self, ruleset, step, now)
    }

    /// What is said, held against the match that it is said of.
    fn build_report(
        &self,
        play: &Match,
        spec: Option<&RatingSpec>,
        said: &ReportResultCommand,
        now: UnixMs,
    ) -> Result<ResultReport, EngineError> {
        let seats =
            || play.tickets.iter().flat_map(|member| member.players.iter().map(|seat| (member.team, seat.user)));
        let names: BTreeMap<UserKey, (u16, UserKey)> = seats()
            .map(|(team, user)| (self.core.token_signer.derive_player_key(play.id, user), (team, user)))
            .collect();
        let mut teams: BTreeMap<u16, Vec<UserKey>> = BTreeMap::new();
        seats().for_each(|(team, user)| teams.entry(team).or_default().push(user));
        let sides = match &said.ranks {
            ReportedRanks::ByTeam(ranks) => sides_by_team(&teams, ranks)?,
            ReportedRanks::ByPlayer(ranks) => sides_by_player(&teams, &names, ranks)?,
        };
        let mut disconnected = Vec::with_capacity(said.disconnected_players.len());
        for (index, key) in said.disconnected_players.iter().enumerate() {
            let path = format!("disconnected_player_keys[{index}]");
            disconnected.push(names.get(key).ok_or_else(|| field_error(path, UNKNOWN_PLAYER_KEY))?.1);
        }
        disconnected.sort_unstable();
        disconnected.dedup();
        let (began, duration_ms) = match play.stage {
            MatchStage::Playing { started_at: began, .. } => {
                (began, said.duration_ms.or_else(|| Some(now.ms_since(began))))
            }
            MatchStage::Ended { began: Some(began), .. } => (began, said.duration_ms),
            MatchStage::ReadyCheck { .. } | MatchStage::Placing { .. } | MatchStage::Ended { began: None, .. } => {
                return Err(EngineError::MatchNotPlayed);
            }
        };
        let wanted = self.build_match_expectation(play, spec, &sides, began);
        Ok(ResultReport {
            match_id: play.id,
            set_id: play.set_id,
            silo: play.silo,
            ruleset_hash: play.ruleset_hash,
            sides,
            left_early: disconnected,
            started_at: began,
            duration_ms,
            expectation: wanted,
        })
    }

    /// What was known of a match when it was made: by the ratings that its players entered with, as far as their tickets are
    /// still in memory.
    fn build_match_expectation(
        &self,
        play: &Match,
        spec: Option<&RatingSpec>,
        sides: &[SideRank],
        began: UnixMs,
    ) -> MatchExpectation {
        let tickets: Vec<Option<Arc<Ticket>>> = {
            let roster = self.cache.read();
            let ticket =
                |member: &MatchTicket| roster.ticket(member.ticket_id).map(|stored| Arc::clone(&stored.ticket));
            play.tickets.iter().map(ticket).collect()
        };
        let entered_with: BTreeMap<UserKey, PlayerRating> = tickets
            .iter()
            .flatten()
            .flat_map(|ticket| {
                ticket.session.players.iter().map(|player| player.user).zip(ticket.player_ratings.iter().copied())
            })
            .collect();
        let skills: Vec<Vec<Skill>> = spec.map_or_else(Vec::new, |spec| {
            let ratings = self.ratings.lock();
            let skill = |user: &UserKey| {
                let known = ratings.skill_at(play.set_id, spec, *user, began);
                Skill { estimate: entered_with.get(user).copied().unwrap_or(known.estimate), ..known }
            };
            sides.iter().map(|side| side.users.iter().map(skill).collect()).collect()
        });
        let mean = |side: &Vec<Skill>| side.iter().map(|it| it.estimate.rating).sum::<f64>() / side.len().max(1) as f64;
        let means = || skills.iter().map(mean);
        let gap = means().fold(f64::NEG_INFINITY, f64::max) - means().fold(f64::INFINITY, f64::min);
        let round_trip = |ticket: &Option<Arc<Ticket>>| {
            let met_at = play.region.as_deref()?;
            let regions = ticket.as_ref()?.session.region_latencies.clone();
            regions.iter().find(|it| &*it.region == met_at).map(|it| it.round_trip_ms)
        };
        MatchExpectation {
            match_quality: play.quality,
            win_probabilities: spec.and_then(|spec| spec.win_probabilities(&skills).ok()).unwrap_or_default(),
            max_rating_gap: if gap.is_finite() { gap } else { 0.0 },
            ticket_waits_ms: play.tickets.iter().map(|member| began.ms_since(member.entered_at)).collect(),
            ticket_round_trips_ms: tickets.iter().map(round_trip).collect(),
            region: play.region.clone(),
        }
    }
}

/// What is said of a name that nobody in the match has.
const UNKNOWN_PLAYER_KEY: &str = "is nobody in this match: give the player_key that the match was told with";

/// Sides of teams, each of which is ranked once.
fn sides_by_team(teams: &BTreeMap<u16, Vec<UserKey>>, ranks: &[(u16, u32)]) -> Result<Vec<SideRank>, EngineError> {
    let mut ranked = BTreeMap::new();
    for (index, (team, rank)) in ranks.iter().enumerate() {
        if !teams.contains_key(team) {
            let there = teams.keys().map(u16::to_string).collect::<Vec<_>>().join(", ");
            return Err(field_error(format!("team_ranks[{index}].team"), format!("is {team}; this match has {there}")));
        }
        if ranked.insert(*team, *rank).is_some() {
            return Err(field_error(format!("team_ranks[{index}].team"), "is here a second time: each team once"));
        }
    }
    if let Some(missing) = teams.keys().find(|team| !ranked.contains_key(*team)) {
        return Err(field_error("team_ranks", format!("lacks team {missing}: every team came in somewhere")));
    }
    let dense = dense_ranks(&ranked.values().copied().collect::<Vec<_>>());
    let side = |((team, users), rank): ((&u16, &Vec<UserKey>), u32)| SideRank {
        team_index: *team,
        users: users.clone(),
        rank,
    };
    Ok(teams.iter().zip(dense).map(side).collect())
}

/// Sides of players, each of whom is ranked once: their teams, where there are several; else every player alone.
fn sides_by_player(
    teams: &BTreeMap<u16, Vec<UserKey>>,
    names: &BTreeMap<UserKey, (u16, UserKey)>,
    ranks: &[(UserKey, u32)],
) -> Result<Vec<SideRank>, EngineError> {
    let mut ranked: BTreeMap<UserKey, u32> = BTreeMap::new();
    for (index, (key, rank)) in ranks.iter().enumerate() {
        let path = || format!("player_ranks[{index}].player_key");
        let (_, user) = names.get(key).ok_or_else(|| field_error(path(), UNKNOWN_PLAYER_KEY))?;
        if ranked.insert(*user, *rank).is_some() {
            return Err(field_error(path(), "is here a second time: each player once"));
        }
    }
    let missing = names.values().find(|(_, user)| !ranked.contains_key(user));
    if let Some((team, _)) = missing {
        return Err(field_error("player_ranks", format!("lacks a player of team {team}: everybody came in somewhere")));
    }
    if let [(team, users)] = &*teams.iter().collect::<Vec<_>>() {
        let dense = dense_ranks(&users.iter().map(|user| ranked[user]).collect::<Vec<_>>());
        let side = |(user, rank): (&UserKey, u32)| SideRank { team_index: **team, users: vec![*user], rank };
        return Ok(users.iter().zip(dense).map(side).collect());
    }
    let mut of_teams = Vec::with_capacity(teams.len());
    for (team, users) in teams {
        let mut all = users.iter().map(|user| ranked[user]);
        let first = all.next().unwrap_or(1);
        if let Some(other) = all.find(|rank| *rank != first) {
            let what = format!("say that players of team {team} came in {first} and {other}: a team comes in together");
            return Err(field_error("player_ranks", what));
        }
        of_teams.push((*team, first));
    }
    sides_by_team(teams, &of_teams)
}

/// The caller's own ticket in a match.
fn caller_ticket_in_match<'a>(
    play: &'a Match,
    claim: &TicketClaim,
    caller: &Caller,
) -> Result<&'a MatchTicket, EngineError> {
    let member = play.tickets.iter().find(|member| member.ticket_id == claim.ticket_id);
    member.filter(|_| claim.subject == caller.subject).ok_or(EngineError::NotOwner)
}

fn is_player_of_ticket(play: &Match, ticket: TicketId, user: UserKey) -> bool {
    let own = play.tickets.iter().find(|member| member.ticket_id == ticket);
    own.is_some_and(|member| member.players.iter().any(|seat| seat.user == user))
}

fn field_error(path: impl Into<String>, what: impl Into<String>) -> EngineError {
    EngineError::InvalidFields(vec![FieldProblem { path: path.into(), message: what.into() }])
}

fn store_unavailable(error: &crate::store::StoreError) -> EngineError {
    tracing::error!(%error, "read what came of matches");
    EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS }
}
