//! Results and ratings: requests from the wire.

mod to_proto;

pub use self::to_proto::{
    export_matches_response, leaderboard_response, rating_history_response, ratings_response, report_result_response,
};

use crate::api::convert::{EntryPoint, FieldErrors, field_checks};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::limit;
use crate::domain::rating::SIDES_MAX;
use crate::domain::rating::leaderboard::LeaderboardEntry;
use crate::domain::time::UnixMs;
use crate::engine::ratings::command::{
    LeaderboardQuery, LeaderboardRange, ReportResultCommand, ReportedRanks, ResultReporter, SubmitFeedbackCommand,
};

/// Entries of a page where nobody says how many.
const PAGE_SIZE_DEFAULT: usize = 20;

/// Finished matches of a page where nobody says how many.
const EXPORT_PAGE_SIZE_DEFAULT: usize = 100;

/// Which changes of whose rating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RatingHistoryQuery {
    /// The set.
    pub set_id: SetId,
    /// Whose.
    pub user: UserKey,
    /// At most.
    pub page_size: usize,
    /// Those before this moment, or at it with a lower number.
    pub before: Option<(UnixMs, u32)>,
}

impl EntryPoint {
    /// What came of a match, by whoever hosted it.
    pub fn report_result_command(&self, mut wire: pb::ReportResultRequest) -> Result<ReportResultCommand, Rejection> {
        let mut problems = self.field_errors();
        let server = field_checks::checked_token(
            std::mem::take(&mut wire.advertisement_token),
            "advertisement_token",
            &mut problems,
        );
        let ticket = field_checks::checked_token(std::mem::take(&mut wire.ticket_token), "ticket_token", &mut problems);
        let by = match (server.is_empty(), ticket.is_empty()) {
            (false, true) => ResultReporter::GameServer(server),
            (true, false) => ResultReporter::Ticket(ticket),
            (both_missing, _) => {
                let what = if both_missing { "is missing, and so is ticket_token" } else { "is not the only proof" };
                problems.add("advertisement_token", format!("{what}: show one of the two"));
                ResultReporter::GameServer(Vec::new())
            }
        };
        result_report(wire, by, problems)
    }

    /// What came of a match, by an operator.
    pub fn operator_report_result_command(
        &self,
        wire: pb::ReportResultRequest,
    ) -> Result<ReportResultCommand, Rejection> {
        let mut problems = self.field_errors();
        for (proof, path) in [(&wire.advertisement_token, "advertisement_token"), (&wire.ticket_token, "ticket_token")]
        {
            if !proof.is_empty() {
                problems.add(path, "is for hosts: an operator need not show one");
            }
        }
        result_report(wire, ResultReporter::Operator, problems)
    }

    /// Whose ratings.
    pub fn ratings_query(&self, wire: &pb::GetRatingsRequest) -> Result<(SetId, Vec<UserKey>), Rejection> {
        let mut problems = self.field_errors();
        let set_id = self.resolve_required_set_id(wire.matchmaking_set_id, &mut problems);
        if wire.user_ids.is_empty() {
            problems.add("user_ids", "is empty: name at least one account");
        }
        let users = user_keys(&wire.user_ids, "user_ids", &mut problems);
        problems.into_result((set_id, users))
    }

    /// Which part of a leaderboard.
    pub fn leaderboard_query(&self, wire: &pb::GetLeaderboardRequest) -> Result<LeaderboardQuery, Rejection> {
        let mut problems = self.field_errors();
        let set_id = self.resolve_required_set_id(wire.matchmaking_set_id, &mut problems);
        let most = checked_page_size(wire.page_size, PAGE_SIZE_DEFAULT, &mut problems);
        let asked = [wire.from_rank.is_some(), !wire.page_token.is_empty(), !wire.around_user_id.is_empty()];
        if 1 < asked.into_iter().filter(|it| *it).count() {
            problems.add("from_place", "is not alone: from a place, after a page or around a user, one of the three");
        }
        let part = match wire.from_rank {
            Some(0) => {
                problems.add("from_place", "is 0: the best is at place 1");
                LeaderboardRange::FromRank(0)
            }
            Some(place) => LeaderboardRange::FromRank(place as usize - 1),
            None if !wire.page_token.is_empty() => match decode_page_token(&wire.page_token) {
                Some((bits, user)) => LeaderboardRange::AfterEntry(LeaderboardEntry {
                    conservative_rating: f64::from_bits(bits),
                    user: UserKey::from_bytes(user),
                }),
                None => {
                    problems.add("page_token", INVALID_PAGE_TOKEN);
                    LeaderboardRange::FromRank(0)
                }
            },
            None if !wire.around_user_id.is_empty() => {
                field_checks::check_required_text(&wire.around_user_id, "around_user_id", &mut problems);
                LeaderboardRange::AroundUser(UserKey::from_name(&wire.around_user_id), (most - 1) / 2)
            }
            None => LeaderboardRange::FromRank(0),
        };
        problems.into_result(LeaderboardQuery { set_id, range: part, max_entries: most })
    }

    /// Sides that would meet.
    pub fn predict_outcome_query(
        &self,
        wire: &pb::PredictOutcomeRequest,
    ) -> Result<(SetId, Vec<Vec<UserKey>>), Rejection> {
        let mut problems = self.field_errors();
        let set_id = self.resolve_required_set_id(wire.matchmaking_set_id, &mut problems);
        if wire.sides.len() < 2 {
            problems.add("sides", format!("has {} entries, at least 2 are needed", wire.sides.len()));
        }
        let all: usize = wire.sides.iter().map(|side| side.user_ids.len()).sum();
        let fits = field_checks::check_list_len(wire.sides.len(), SIDES_MAX, "sides", &mut problems)
            && field_checks::check_list_len(all, limit::RATING_USERS_PER_CALL_MAX, "sides.user_ids", &mut problems);
        let mut sides = Vec::with_capacity(wire.sides.len());
        let mut seen = std::collections::BTreeSet::new();
        for (index, side) in wire.sides.iter().enumerate().filter(|_| fits) {
            let path = format!("sides[{index}].user_ids");
            if side.user_ids.is_empty() {
                problems.add(&path, "is empty: name at least one account");
            }
            let users = user_keys(&side.user_ids, &path, &mut problems);
            for (at, user) in users.iter().enumerate() {
                if !seen.insert(*user) {
                    problems.add(format_args!("{path}[{at}]"), "is in this match already: each account once");
                }
            }
            sides.push(users);
        }
        problems.into_result((set_id, sides))
    }

    /// Which changes of whose rating.
    pub fn rating_history_query(&self, wire: &pb::GetRatingHistoryRequest) -> Result<RatingHistoryQuery, Rejection> {
        let mut problems = self.field_errors();
        let set_id = self.resolve_required_set_id(wire.matchmaking_set_id, &mut problems);
        field_checks::check_required_text(&wire.user_id, "user_id", &mut problems);
        let most = checked_page_size(wire.page_size, PAGE_SIZE_DEFAULT, &mut problems);
        let before = (!wire.page_token.is_empty()).then(|| {
            let (at, number) = wire.page_token.split_at_checked(8)?;
            Some((UnixMs(u64::from_be_bytes(at.try_into().ok()?)), u32::from_be_bytes(number.try_into().ok()?)))
        });
        if before == Some(None) {
            problems.add("page_token", INVALID_PAGE_TOKEN);
        }
        problems.into_result(RatingHistoryQuery {
            set_id,
            user: UserKey::from_name(&wire.user_id),
            page_size: most,
            before: before.flatten(),
        })
    }

    /// What a player thought of a match.
    pub fn submit_feedback_command(&self, wire: pb::SubmitFeedbackRequest) -> Result<SubmitFeedbackCommand, Rejection> {
        let mut problems = self.field_errors();
        let said = SubmitFeedbackCommand {
            match_id: parse_match_id(&wire.match_id, &mut problems),
            ticket_token: field_checks::checked_token(wire.ticket_token, "ticket_token", &mut problems),
            player_key: (!wire.player_key.is_empty())
                .then(|| parse_player_key(&wire.player_key, "player_key", &mut problems)),
            stars: match wire.stars {
                score @ 1..=5 => score as u8,
                other => {
                    problems.add("score", format!("is {other}, must be from 1 to 5"));
                    1
                }
            },
        };
        problems.into_result(said)
    }

    /// After which finished match, and how many at most.
    pub fn export_matches_query(
        &self,
        wire: &pb::ExportMatchesRequest,
    ) -> Result<((UnixMs, MatchId), usize), Rejection> {
        let mut problems = self.field_errors();
        let most = checked_page_size(wire.page_size, EXPORT_PAGE_SIZE_DEFAULT, &mut problems);
        let after = match &*wire.page_token {
            [] => Some((0, [0; 16])),
            token => decode_page_token(token),
        };
        if after.is_none() {
            problems.add("page_token", INVALID_PAGE_TOKEN);
        }
        let (at, id) = after.unwrap_or_default();
        problems.into_result(((UnixMs(at), MatchId::from_bytes(id)), most))
    }
}

/// What is said of a page that nobody gave.
const INVALID_PAGE_TOKEN: &str = "is none: send next_page_token as it came";

fn result_report(
    wire: pb::ReportResultRequest,
    by: ResultReporter,
    mut problems: FieldErrors,
) -> Result<ReportResultCommand, Rejection> {
    let problems_of = &mut problems;
    let match_id = parse_match_id(&wire.match_id, problems_of);
    let fits =
        field_checks::check_list_len(wire.team_ranks.len(), limit::PLAYERS_PER_SESSION_MAX, "team_ranks", problems_of)
            & field_checks::check_list_len(wire.player_ranks.len(), MATCH_PLAYERS_MAX, "player_ranks", problems_of)
            & field_checks::check_list_len(
                wire.disconnected_player_keys.len(),
                MATCH_PLAYERS_MAX,
                "disconnected_player_keys",
                problems_of,
            );
    let ranks = match (wire.team_ranks.is_empty(), wire.player_ranks.is_empty()) {
        _ if !fits => ReportedRanks::ByTeam(Vec::new()),
        (false, true) => {
            let team = |(index, it): (usize, &pb::TeamRank)| {
                let team = u16::try_from(it.team).unwrap_or(u16::MAX);
                (team, checked_rank(it.rank, format!("team_ranks[{index}].rank"), problems_of))
            };
            ReportedRanks::ByTeam(wire.team_ranks.iter().enumerate().map(team).collect())
        }
        (true, false) => {
            let ranked = |(index, it): (usize, &pb::PlayerRank)| {
                let key = parse_player_key(&it.player_key, &format!("player_ranks[{index}].player_key"), problems_of);
                (key, checked_rank(it.rank, format!("player_ranks[{index}].rank"), problems_of))
            };
            ReportedRanks::ByPlayer(wire.player_ranks.iter().enumerate().map(ranked).collect())
        }
        (none, _) => {
            let what =
                if none { "is empty, and so is player_ranks" } else { "is not alone: player_ranks is there too" };
            problems_of.add("team_ranks", format!("{what}: rank every team, or every player"));
            ReportedRanks::ByTeam(Vec::new())
        }
    };
    let left = wire.disconnected_player_keys.iter().enumerate().filter(|_| fits);
    let disconnected = left
        .map(|(index, key)| parse_player_key(key, &format!("disconnected_player_keys[{index}]"), problems_of))
        .collect();
    if wire.duration_ms.is_some_and(|ms| limit::RULESET_DURATION_MS_MAX < ms) {
        problems_of.add("duration_ms", format!("is longer than {} ms, thirty days", limit::RULESET_DURATION_MS_MAX));
    }
    problems.into_result(ReportResultCommand {
        match_id,
        ranks,
        disconnected_players: disconnected,
        duration_ms: wire.duration_ms,
        reporter: by,
    })
}

/// Players in one match at most.
const MATCH_PLAYERS_MAX: usize = 1_024;

fn checked_rank(rank: i32, path: String, problems: &mut FieldErrors) -> u32 {
    match u32::try_from(rank) {
        Ok(rank) if 0 < rank => rank,
        _ => {
            problems.add(path, format!("is {rank}: 1 is the best, 2 comes after it, equal is a draw"));
            1
        }
    }
}

fn checked_page_size(size: Option<u32>, default: usize, problems: &mut FieldErrors) -> usize {
    let Some(size) = size else { return default };
    let most = limit::PAGE_ENTRIES_MAX;
    if !(1..=most).contains(&(size as usize)) {
        problems.add("page_size", format!("is {size}, must be from 1 to {most}"));
    }
    (size as usize).clamp(1, most)
}

fn parse_match_id(text: &str, problems: &mut FieldErrors) -> MatchId {
    MatchId::parse(text).unwrap_or_else(|| {
        problems.add("match_id", field_checks::invalid_id_message(text));
        MatchId::from_bytes([0; 16])
    })
}

fn parse_player_key(text: &str, path: &str, problems: &mut FieldErrors) -> UserKey {
    UserKey::parse(text).unwrap_or_else(|| {
        problems.add(path, field_checks::invalid_id_message(text));
        UserKey::from_bytes([0; 16])
    })
}

/// Accounts, in the order given.
fn user_keys(wire: &[String], path: &str, problems: &mut FieldErrors) -> Vec<UserKey> {
    if !field_checks::check_list_len(wire.len(), limit::RATING_USERS_PER_CALL_MAX, path, problems) {
        return Vec::new();
    }
    for (index, user) in wire.iter().enumerate() {
        field_checks::check_required_text(user, format_args!("{path}[{index}]"), problems);
    }
    wire.iter().map(|user| UserKey::from_name(user)).collect()
}

/// A number and a name, as pages are called.
fn decode_page_token(token: &[u8]) -> Option<(u64, [u8; 16])> {
    let (number, name) = token.split_at_checked(8)?;
    Some((u64::from_be_bytes(number.try_into().ok()?), name.try_into().ok()?))
}

/// The same as bytes.
fn encode_page_token(number: u64, name: &[u8; 16]) -> Vec<u8> {
    number.to_be_bytes().into_iter().chain(*name).collect()
}
