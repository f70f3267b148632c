//! Report of a match result: checks the reported ranks, and adds the forecast at the start of the match.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::id::UserKey;
use crate::domain::lifecycle::{Match, MatchStage, MatchTicket};
use crate::domain::match_result::{MatchForecast, ResultReport, SideRank, dense_ranks};
use crate::domain::queue::ticket::{PlayerRating, Ticket};
use crate::domain::rating::Skill;
use crate::domain::ruleset::rating::scale::KeyedRatingSpec;
use crate::domain::time::UnixMs;
use crate::engine::error::{EngineError, field_error};
use crate::engine::queues::shared_state::SharedState;
use crate::engine::ratings::command::{ReportResultCommand, ReportedRanks};
use crate::engine::ratings::rating_key_unless_first_scale;

/// Error text for an unknown player key.
const UNKNOWN_PLAYER_KEY_PROBLEM: &str = "is not a player of this match; use a player_key from its status";

/// Ranks and disconnected players of a report, checked against the match.
pub(crate) struct CheckedReport {
    /// Ranked sides.
    pub(crate) sides: Vec<SideRank>,
    /// Players who left before the end, as reported; sorted.
    pub(crate) disconnected: Vec<UserKey>,
}

/// Checks the reported ranks and player keys against the match.
pub(crate) fn check_report(
    shared: &SharedState,
    match_: &Match,
    command: &ReportResultCommand,
) -> Result<CheckedReport, EngineError> {
    let match_players = || {
        match_
            .tickets
            .iter()
            .flat_map(|match_ticket| match_ticket.players.iter().map(|player| (match_ticket.team, player.user)))
    };
    let users_by_key: BTreeMap<UserKey, (u16, UserKey)> = match_players()
        .flat_map(|(team, user)| {
            shared.common.current_and_legacy_match_player_keys(match_.id, user).map(|key| (key, (team, user)))
        })
        .collect();
    let mut teams: BTreeMap<u16, Vec<UserKey>> = BTreeMap::new();
    match_players().for_each(|(team, user)| teams.entry(team).or_default().push(user));
    let sides = match &command.ranks {
        ReportedRanks::ByTeam(ranks) => sides_from_team_ranks(&teams, ranks)?,
        ReportedRanks::ByPlayer(ranks) => sides_from_player_ranks(&teams, &users_by_key, ranks)?,
    };
    let mut disconnected = Vec::with_capacity(command.disconnected_players.len());
    for (index, key) in command.disconnected_players.iter().enumerate() {
        let path = format!("disconnected_player_keys[{index}]");
        disconnected.push(users_by_key.get(key).ok_or_else(|| field_error(path, UNKNOWN_PLAYER_KEY_PROBLEM))?.1);
    }
    disconnected.sort_unstable();
    disconnected.dedup();
    Ok(CheckedReport { sides, disconnected })
}

/// Report with the players who left by the call, the duration, and the forecast at the start of the match.
pub(crate) fn with_leavers_duration_and_forecast(
    shared: &SharedState,
    match_: &Match,
    rating: Option<&KeyedRatingSpec>,
    CheckedReport { sides, disconnected: mut left_early }: CheckedReport,
    reported_duration_ms: Option<u64>,
    now: UnixMs,
) -> Result<ResultReport, EngineError> {
    let players = match_.tickets.iter().flat_map(|match_ticket| &match_ticket.players);
    let mut left_by_call: Vec<UserKey> =
        players.filter(|player| player.left_at.is_some()).map(|player| player.user).collect();
    left_by_call.sort_unstable();
    left_early.extend(&left_by_call);
    left_early.sort_unstable();
    left_early.dedup();
    let (started_at, duration_ms) = match match_.stage {
        MatchStage::Playing { started_at, .. } => {
            (started_at, reported_duration_ms.or_else(|| Some(now.ms_since(started_at))))
        }
        MatchStage::Ended { started_at: Some(started_at), .. } => (started_at, reported_duration_ms),
        MatchStage::ReadyCheck { .. }
        | MatchStage::Placing { .. }
        | MatchStage::Confirming { .. }
        | MatchStage::Ended { started_at: None, .. } => {
            return Err(EngineError::MatchNotPlayed);
        }
    };
    let forecast = forecast_at_match_start(shared, match_, rating, &sides, started_at);
    Ok(ResultReport {
        match_id: match_.id,
        set_id: match_.set_id,
        silo: match_.silo,
        ruleset_hash: match_.ruleset_hash,
        sides,
        left_early,
        always_rated_leavers: left_by_call,
        disputing_users: Vec::new(),
        started_at,
        duration_ms,
        forecast,
    })
}

/// Expectation at the start of the match, from entry ratings of the tickets that are still cached.
fn forecast_at_match_start(
    shared: &SharedState,
    match_: &Match,
    rating: Option<&KeyedRatingSpec>,
    sides: &[SideRank],
    started_at: UnixMs,
) -> MatchForecast {
    let tickets: Vec<Option<Arc<Ticket>>> = {
        let cache = shared.cache.read();
        let ticket =
            |match_ticket: &MatchTicket| cache.ticket(match_ticket.ticket_id).map(|stored| Arc::clone(&stored.ticket));
        match_.tickets.iter().map(ticket).collect()
    };
    // A ticket that waited during a change of the scale has entry ratings on another one.
    let is_on_scale =
        |ticket: &&Arc<Ticket>| ticket.rating_digest_key == rating.copied().and_then(rating_key_unless_first_scale);
    let entry_ratings: BTreeMap<UserKey, PlayerRating> = tickets
        .iter()
        .flatten()
        .filter(is_on_scale)
        .flat_map(|ticket| {
            ticket.session.players.iter().map(|player| player.user).zip(ticket.player_ratings.iter().copied())
        })
        .collect();
    let skills: Vec<Vec<Skill>> = rating.map_or_else(Vec::new, |rating| {
        let ratings = shared.ratings.lock();
        let skill = |user: &UserKey| {
            let current = match match_.kept_skill_of_erased_user(*user, rating.key) {
                Some(skill) => rating.spec.skill_at_with_activity(
                    skill,
                    started_at,
                    ratings.match_activity_of_all_users(rating.key),
                ),
                None => ratings.skill_at(rating, *user, started_at),
            };
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
    MatchForecast {
        match_quality: match_.quality,
        win_probabilities: rating.and_then(|rating| rating.spec.win_probabilities(&skills).ok()).unwrap_or_default(),
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

/// Sides by team. Each team must be ranked once.
fn sides_from_team_ranks(
    teams: &BTreeMap<u16, Vec<UserKey>>,
    ranks: &[(u16, u32)],
) -> Result<Vec<SideRank>, EngineError> {
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
fn sides_from_player_ranks(
    teams: &BTreeMap<u16, Vec<UserKey>>,
    users_by_key: &BTreeMap<UserKey, (u16, UserKey)>,
    ranks: &[(UserKey, u32)],
) -> Result<Vec<SideRank>, EngineError> {
    let mut ranked: BTreeMap<UserKey, u32> = BTreeMap::new();
    for (index, (key, rank)) in ranks.iter().enumerate() {
        let path = || format!("player_ranks[{index}].player_key");
        let (_, user) = users_by_key.get(key).ok_or_else(|| field_error(path(), UNKNOWN_PLAYER_KEY_PROBLEM))?;
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
    sides_from_team_ranks(teams, &team_ranks)
}
