//! Conversion of Rating service requests: match results, ratings, leaderboards, history, feedback, match export.

mod paging;
mod to_proto;

pub use self::paging::RatingHistoryQuery;
pub use self::to_proto::{
    export_matches_response, finished_match, leaderboard_response, rating_history_response, ratings_response,
    report_result_response, report_state_and_time_left,
};
pub(super) use self::to_proto::{rating_change, rating_value};

use crate::api::convert::rating::paging::decode_page_token;
use crate::api::convert::{FieldErrors, RequestReader, field_checks};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::auth::public_user_keys::{KeyPurpose, PublicUserKeySecret};
use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::limit;
use crate::domain::rating::SIDES_MAX;
use crate::domain::rating::leaderboard::LeaderboardEntry;
use crate::domain::time::UnixMs;
use crate::engine::ratings::command::{
    LeaderboardQuery, LeaderboardRange, ReportResultCommand, ReportedRanks, ResultReporter, SubmitFeedbackCommand,
};

/// Default page size of leaderboards and rating histories.
const PAGE_SIZE_DEFAULT: usize = 20;

/// Default page size of ExportMatches.
const EXPORT_PAGE_SIZE_DEFAULT: usize = 100;

impl RequestReader {
    /// Reads a match result reported by its host: a game server or a peer.
    pub fn host_report_result_command(
        &self,
        mut wire: pb::ReportResultRequest,
    ) -> Result<ReportResultCommand, Rejection> {
        let mut problems = self.new_field_errors();
        let advertisement_token = field_checks::size_checked_token(
            std::mem::take(&mut wire.advertisement_token),
            "advertisement_token",
            &mut problems,
        );
        let ticket_token =
            field_checks::size_checked_token(std::mem::take(&mut wire.ticket_token), "ticket_token", &mut problems);
        let reporter = match (advertisement_token.is_empty(), ticket_token.is_empty()) {
            (false, true) => ResultReporter::GameServer(advertisement_token),
            (true, false) => ResultReporter::Ticket(ticket_token),
            (both_missing, _) => {
                let message = if both_missing {
                    "is missing, and so is ticket_token"
                } else {
                    "is set together with ticket_token"
                };
                problems.add("advertisement_token", format!("{message}; send one of the two"));
                ResultReporter::GameServer(Vec::new())
            }
        };
        result_report(wire, reporter, problems)
    }

    /// Reads a match result reported by an operator.
    pub fn operator_report_result_command(
        &self,
        wire: pb::ReportResultRequest,
    ) -> Result<ReportResultCommand, Rejection> {
        let mut problems = self.new_field_errors();
        for (token, path) in [(&wire.advertisement_token, "advertisement_token"), (&wire.ticket_token, "ticket_token")]
        {
            if !token.is_empty() {
                problems.add(path, "is set; operators report results without a host's token");
            }
        }
        result_report(wire, ResultReporter::Operator, problems)
    }

    /// Reads the set and the users whose ratings are requested.
    pub fn ratings_query(&self, wire: &pb::GetRatingsRequest) -> Result<(SetId, Vec<UserKey>), Rejection> {
        let mut problems = self.new_field_errors();
        let set_id = self.required_own_or_envelope_set_id(wire.matchmaking_set_id, &mut problems);
        if wire.user_ids.is_empty() {
            problems.add("user_ids", "is empty; name at least one user");
        }
        let users = field_checks::checked_user_keys_from_ids(
            &wire.user_ids,
            limit::RATING_USERS_PER_CALL_MAX,
            "user_ids",
            &mut problems,
        );
        problems.into_result((set_id, users))
    }

    /// Reads the requested part of a leaderboard.
    pub fn leaderboard_query(
        &self,
        wire: &pb::GetLeaderboardRequest,
        keys: &PublicUserKeySecret,
    ) -> Result<LeaderboardQuery, Rejection> {
        let mut problems = self.new_field_errors();
        let set_id = self.required_own_or_envelope_set_id(wire.matchmaking_set_id, &mut problems);
        let page_size = checked_page_size(wire.page_size, PAGE_SIZE_DEFAULT, &mut problems);
        let starts = [wire.from_rank.is_some(), !wire.page_token.is_empty(), !wire.around_user_id.is_empty()];
        if starts.into_iter().filter(|is_set| *is_set).count() > 1 {
            problems.add("from_rank", "is set together with page_token or around_user_id; set one of the three");
        }
        let range = match wire.from_rank {
            Some(0) => {
                problems.add("from_rank", "is 0; ranks start at 1");
                LeaderboardRange::FromIndex(0)
            }
            Some(rank) => LeaderboardRange::FromIndex(rank as usize - 1),
            None if !wire.page_token.is_empty() => match decode_page_token(&wire.page_token) {
                Some((bits, user)) => LeaderboardRange::AfterEntry(LeaderboardEntry {
                    conservative_rating: f64::from_bits(bits),
                    user: keys.user_of(KeyPurpose::Leaderboard, UserKey::from_bytes(user)),
                }),
                None => {
                    problems.add("page_token", INVALID_PAGE_TOKEN);
                    LeaderboardRange::FromIndex(0)
                }
            },
            None if !wire.around_user_id.is_empty() => {
                field_checks::check_required_text(&wire.around_user_id, "around_user_id", &mut problems);
                LeaderboardRange::AroundUser(UserKey::from_name(&wire.around_user_id), (page_size - 1) / 2)
            }
            None => LeaderboardRange::FromIndex(0),
        };
        problems.into_result(LeaderboardQuery { set_id, range, max_entries: page_size })
    }

    /// Reads the sides whose match is predicted.
    pub fn predict_outcome_query(
        &self,
        wire: &pb::PredictOutcomeRequest,
    ) -> Result<(SetId, Vec<Vec<UserKey>>), Rejection> {
        let mut problems = self.new_field_errors();
        let set_id = self.required_own_or_envelope_set_id(wire.matchmaking_set_id, &mut problems);
        if wire.sides.len() < 2 {
            problems.add("sides", format!("has {} entries; at least 2 are required", wire.sides.len()));
        }
        let user_count: usize = wire.sides.iter().map(|side| side.user_ids.len()).sum();
        let fits = field_checks::check_list_len(wire.sides.len(), SIDES_MAX, "sides", &mut problems)
            && field_checks::check_list_len(
                user_count,
                limit::RATING_USERS_PER_CALL_MAX,
                "sides.user_ids",
                &mut problems,
            );
        let mut sides = Vec::with_capacity(wire.sides.len());
        let mut seen = std::collections::BTreeSet::new();
        for (index, side) in wire.sides.iter().enumerate().filter(|_| fits) {
            let path = format!("sides[{index}].user_ids");
            if side.user_ids.is_empty() {
                problems.add(&path, "is empty; name at least one user");
            }
            let users = field_checks::checked_user_keys_from_ids(
                &side.user_ids,
                limit::RATING_USERS_PER_CALL_MAX,
                &path,
                &mut problems,
            );
            for (position, user) in users.iter().enumerate() {
                if !seen.insert(*user) {
                    problems
                        .add(format_args!("{path}[{position}]"), "is listed twice in this match; list each user once");
                }
            }
            sides.push(users);
        }
        problems.into_result((set_id, sides))
    }

    /// Reads the requested page of a rating history.
    pub fn rating_history_query(&self, wire: &pb::GetRatingHistoryRequest) -> Result<RatingHistoryQuery, Rejection> {
        let mut problems = self.new_field_errors();
        let set_id = self.required_own_or_envelope_set_id(wire.matchmaking_set_id, &mut problems);
        field_checks::check_required_text(&wire.user_id, "user_id", &mut problems);
        let page_size = checked_page_size(wire.page_size, PAGE_SIZE_DEFAULT, &mut problems);
        let before = (!wire.page_token.is_empty()).then(|| {
            let (reported_at, number) = wire.page_token.split_at_checked(8)?;
            Some((
                UnixMs(u64::from_be_bytes(reported_at.try_into().ok()?)),
                u32::from_be_bytes(number.try_into().ok()?),
            ))
        });
        if before == Some(None) {
            problems.add("page_token", INVALID_PAGE_TOKEN);
        }
        problems.into_result(RatingHistoryQuery {
            set_id,
            user: UserKey::from_name(&wire.user_id),
            page_size,
            before: before.flatten(),
        })
    }

    /// Reads a player's feedback, 1 to 5 stars, on a match.
    pub fn submit_feedback_command(&self, wire: pb::SubmitFeedbackRequest) -> Result<SubmitFeedbackCommand, Rejection> {
        let mut problems = self.new_field_errors();
        let feedback = SubmitFeedbackCommand {
            match_id: parse_match_id(&wire.match_id, &mut problems),
            ticket_token: field_checks::size_checked_token(wire.ticket_token, "ticket_token", &mut problems),
            player_key: (!wire.player_key.is_empty())
                .then(|| parse_player_key(&wire.player_key, "player_key", &mut problems)),
            stars: match wire.stars {
                stars @ 1..=5 => stars as u8,
                other => {
                    problems.add("stars", format!("is {other}; must be from 1 to 5"));
                    1
                }
            },
        };
        problems.into_result(feedback)
    }

    /// Reads the end of the previous page, as time and match id, and the page size.
    pub fn export_matches_query(
        &self,
        wire: &pb::ExportMatchesRequest,
    ) -> Result<((UnixMs, MatchId), usize), Rejection> {
        let mut problems = self.new_field_errors();
        let page_size = checked_page_size(wire.page_size, EXPORT_PAGE_SIZE_DEFAULT, &mut problems);
        let after = match &*wire.page_token {
            [] => Some((0, [0; 16])),
            token => decode_page_token(token),
        };
        if after.is_none() {
            problems.add("page_token", INVALID_PAGE_TOKEN);
        }
        let (reported_at, id) = after.unwrap_or_default();
        problems.into_result(((UnixMs(reported_at), MatchId::from_bytes(id)), page_size))
    }
}

/// Message for a page token that the server did not issue.
const INVALID_PAGE_TOKEN: &str = "is not a page token; send next_page_token unchanged";

fn result_report(
    wire: pb::ReportResultRequest,
    reporter: ResultReporter,
    mut problems: FieldErrors,
) -> Result<ReportResultCommand, Rejection> {
    let errors = &mut problems;
    let is_only_match = wire.match_id.is_empty() && matches!(reporter, ResultReporter::GameServer(_));
    let match_id = (!is_only_match).then(|| parse_match_id(&wire.match_id, errors));
    let fits =
        field_checks::check_list_len(wire.team_ranks.len(), limit::PLAYERS_PER_SESSION_MAX, "team_ranks", errors)
            & field_checks::check_list_len(wire.player_ranks.len(), MATCH_PLAYERS_MAX, "player_ranks", errors)
            & field_checks::check_list_len(
                wire.disconnected_player_keys.len(),
                MATCH_PLAYERS_MAX,
                "disconnected_player_keys",
                errors,
            );
    let ranks = match (wire.team_ranks.is_empty(), wire.player_ranks.is_empty()) {
        _ if !fits => ReportedRanks::ByTeam(Vec::new()),
        (false, true) => {
            let team = |(index, team_rank): (usize, &pb::TeamRank)| {
                let team = u16::try_from(team_rank.team).unwrap_or(u16::MAX);
                (team, checked_rank(team_rank.rank, format!("team_ranks[{index}].rank"), errors))
            };
            ReportedRanks::ByTeam(wire.team_ranks.iter().enumerate().map(team).collect())
        }
        (true, false) => {
            let ranked = |(index, player_rank): (usize, &pb::PlayerRank)| {
                let key =
                    parse_player_key(&player_rank.player_key, &format!("player_ranks[{index}].player_key"), errors);
                (key, checked_rank(player_rank.rank, format!("player_ranks[{index}].rank"), errors))
            };
            ReportedRanks::ByPlayer(wire.player_ranks.iter().enumerate().map(ranked).collect())
        }
        (both_missing, _) => {
            let message =
                if both_missing { "is empty, and so is player_ranks" } else { "is set together with player_ranks" };
            errors.add("team_ranks", format!("{message}; rank each team or each player"));
            ReportedRanks::ByTeam(Vec::new())
        }
    };
    let disconnected = wire.disconnected_player_keys.iter().enumerate().filter(|_| fits);
    let disconnected_players = disconnected
        .map(|(index, key)| parse_player_key(key, &format!("disconnected_player_keys[{index}]"), errors))
        .collect();
    if wire.duration_ms.is_some_and(|ms| ms > limit::RULESET_DURATION_MS_MAX) {
        errors.add(
            "duration_ms",
            format!("exceeds {} ms (30 days); send a shorter duration", limit::RULESET_DURATION_MS_MAX),
        );
    }
    let player_key =
        (!wire.player_key.is_empty()).then(|| parse_player_key(&wire.player_key, "player_key", &mut problems));
    problems.into_result(ReportResultCommand {
        match_id,
        player_key,
        ranks,
        disconnected_players,
        duration_ms: wire.duration_ms,
        reporter,
    })
}

/// Limit of players in one match.
const MATCH_PLAYERS_MAX: usize = 1_024;

fn checked_rank(rank: i32, path: String, problems: &mut FieldErrors) -> u32 {
    match u32::try_from(rank) {
        Ok(rank) if rank > 0 => rank,
        _ => {
            problems.add(path, format!("is {rank}; must be at least 1, the best, and equal ranks are a draw"));
            1
        }
    }
}

pub(super) fn checked_page_size(size: Option<u32>, default: usize, problems: &mut FieldErrors) -> usize {
    let Some(size) = size else { return default };
    let max = limit::PAGE_ENTRIES_MAX;
    if !(1..=max).contains(&(size as usize)) {
        problems.add("page_size", format!("is {size}; must be from 1 to {max}"));
    }
    (size as usize).clamp(1, max)
}

fn parse_match_id(text: &str, problems: &mut FieldErrors) -> MatchId {
    MatchId::parse(text).unwrap_or_else(|| {
        problems.add("match_id", field_checks::invalid_id_message(text, field_checks::MATCH_ID_OBTAINED_FROM));
        MatchId::from_bytes([0; 16])
    })
}

fn parse_player_key(text: &str, path: &str, problems: &mut FieldErrors) -> UserKey {
    UserKey::parse(text).unwrap_or_else(|| {
        problems.add(path, field_checks::invalid_id_message(text, field_checks::PLAYER_KEY_OBTAINED_FROM));
        UserKey::from_bytes([0; 16])
    })
}
