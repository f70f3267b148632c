//! Results and ratings: requests from the wire.

mod out;

pub use self::out::{exported, history, leaderboard, ratings, reported};

use crate::api::convert::{Door, Problems, field};
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::limit;
use crate::domain::rating::SIDES_MAX;
use crate::domain::rating::board::Standing;
use crate::domain::time::UnixMs;
use crate::engine::ratings::command::{LookAtBoard, Part, Ranks, ReportResult, Reporter, ScoreMatch};

/// Entries of a page where nobody says how many.
const PAGE: usize = 20;

/// Finished matches of a page where nobody says how many.
const EXPORTED_PAGE: usize = 100;

/// Which changes of whose rating.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AskedHistory {
    /// The set.
    pub set_id: SetId,
    /// Whose.
    pub user: UserKey,
    /// At most.
    pub most: usize,
    /// Those before this moment, or at it with a lower number.
    pub before: Option<(UnixMs, u32)>,
}

impl Door {
    /// What came of a match, by whoever hosted it.
    pub fn report_result(&self, mut wire: pb::ReportResultRequest) -> Result<ReportResult, Rejection> {
        let mut problems = self.problems();
        let server = field::token(std::mem::take(&mut wire.advertisement_token), "advertisement_token", &mut problems);
        let ticket = field::token(std::mem::take(&mut wire.ticket_token), "ticket_token", &mut problems);
        let by = match (server.is_empty(), ticket.is_empty()) {
            (false, true) => Reporter::Server(server),
            (true, false) => Reporter::Ticket(ticket),
            (both_missing, _) => {
                let what = if both_missing { "is missing, and so is ticket_token" } else { "is not the only proof" };
                problems.add("advertisement_token", format!("{what}: show one of the two"));
                Reporter::Server(Vec::new())
            }
        };
        said(wire, by, problems)
    }

    /// What came of a match, by an operator.
    pub fn report_result_by_operator(&self, wire: pb::ReportResultRequest) -> Result<ReportResult, Rejection> {
        let mut problems = self.problems();
        for (proof, path) in [(&wire.advertisement_token, "advertisement_token"), (&wire.ticket_token, "ticket_token")]
        {
            if !proof.is_empty() {
                problems.add(path, "is for hosts: an operator need not show one");
            }
        }
        said(wire, Reporter::Operator, problems)
    }

    /// Whose ratings.
    pub fn get_ratings(&self, wire: &pb::GetRatingsRequest) -> Result<(SetId, Vec<UserKey>), Rejection> {
        let mut problems = self.problems();
        let set_id = self.required_set_id(wire.matchmaking_set_id, &mut problems);
        if wire.user_ids.is_empty() {
            problems.add("user_ids", "is empty: name at least one account");
        }
        let users = users(&wire.user_ids, "user_ids", &mut problems);
        problems.finish((set_id, users))
    }

    /// Which part of a leaderboard.
    pub fn get_leaderboard(&self, wire: &pb::GetLeaderboardRequest) -> Result<LookAtBoard, Rejection> {
        let mut problems = self.problems();
        let set_id = self.required_set_id(wire.matchmaking_set_id, &mut problems);
        let most = page_size(wire.page_size, PAGE, &mut problems);
        let asked = [wire.from_rank.is_some(), !wire.page_token.is_empty(), !wire.around_user_id.is_empty()];
        if 1 < asked.into_iter().filter(|it| *it).count() {
            problems.add("from_place", "is not alone: from a place, after a page or around a user, one of the three");
        }
        let part = match wire.from_rank {
            Some(0) => {
                problems.add("from_place", "is 0: the best is at place 1");
                Part::From(0)
            }
            Some(place) => Part::From(place as usize - 1),
            None if !wire.page_token.is_empty() => match numbers(&wire.page_token) {
                Some((bits, user)) => {
                    Part::After(Standing { score: f64::from_bits(bits), user: UserKey::from_bytes(user) })
                }
                None => {
                    problems.add("page_token", NO_PAGE);
                    Part::From(0)
                }
            },
            None if !wire.around_user_id.is_empty() => {
                field::name(&wire.around_user_id, "around_user_id", &mut problems);
                Part::Around(UserKey::of(&wire.around_user_id), (most - 1) / 2)
            }
            None => Part::From(0),
        };
        problems.finish(LookAtBoard { set_id, part, most })
    }

    /// Sides that would meet.
    pub fn predict_outcome(&self, wire: &pb::PredictOutcomeRequest) -> Result<(SetId, Vec<Vec<UserKey>>), Rejection> {
        let mut problems = self.problems();
        let set_id = self.required_set_id(wire.matchmaking_set_id, &mut problems);
        if wire.sides.len() < 2 {
            problems.add("sides", format!("has {} entries, at least 2 are needed", wire.sides.len()));
        }
        let all: usize = wire.sides.iter().map(|side| side.user_ids.len()).sum();
        let fits = field::count(wire.sides.len(), SIDES_MAX, "sides", &mut problems)
            && field::count(all, limit::RATED_USERS_MAX, "sides.user_ids", &mut problems);
        let mut sides = Vec::with_capacity(wire.sides.len());
        let mut seen = std::collections::BTreeSet::new();
        for (index, side) in wire.sides.iter().enumerate().filter(|_| fits) {
            let path = format!("sides[{index}].user_ids");
            if side.user_ids.is_empty() {
                problems.add(&path, "is empty: name at least one account");
            }
            let users = users(&side.user_ids, &path, &mut problems);
            for (at, user) in users.iter().enumerate() {
                if !seen.insert(*user) {
                    problems.add(format_args!("{path}[{at}]"), "is in this match already: each account once");
                }
            }
            sides.push(users);
        }
        problems.finish((set_id, sides))
    }

    /// Which changes of whose rating.
    pub fn get_rating_history(&self, wire: &pb::GetRatingHistoryRequest) -> Result<AskedHistory, Rejection> {
        let mut problems = self.problems();
        let set_id = self.required_set_id(wire.matchmaking_set_id, &mut problems);
        field::name(&wire.user_id, "user_id", &mut problems);
        let most = page_size(wire.page_size, PAGE, &mut problems);
        let before = (!wire.page_token.is_empty()).then(|| {
            let (at, number) = wire.page_token.split_at_checked(8)?;
            Some((UnixMs(u64::from_be_bytes(at.try_into().ok()?)), u32::from_be_bytes(number.try_into().ok()?)))
        });
        if before == Some(None) {
            problems.add("page_token", NO_PAGE);
        }
        problems.finish(AskedHistory { set_id, user: UserKey::of(&wire.user_id), most, before: before.flatten() })
    }

    /// What a player thought of a match.
    pub fn score_match(&self, wire: pb::SubmitFeedbackRequest) -> Result<ScoreMatch, Rejection> {
        let mut problems = self.problems();
        let said = ScoreMatch {
            match_id: match_id(&wire.match_id, &mut problems),
            ticket_token: field::token(wire.ticket_token, "ticket_token", &mut problems),
            player: (!wire.player_key.is_empty()).then(|| player(&wire.player_key, "player_key", &mut problems)),
            score: match wire.stars {
                score @ 1..=5 => score as u8,
                other => {
                    problems.add("score", format!("is {other}, must be from 1 to 5"));
                    1
                }
            },
        };
        problems.finish(said)
    }

    /// After which finished match, and how many at most.
    pub fn export_matches(&self, wire: &pb::ExportMatchesRequest) -> Result<((UnixMs, MatchId), usize), Rejection> {
        let mut problems = self.problems();
        let most = page_size(wire.page_size, EXPORTED_PAGE, &mut problems);
        let after = match &*wire.page_token {
            [] => Some((0, [0; 16])),
            token => numbers(token),
        };
        if after.is_none() {
            problems.add("page_token", NO_PAGE);
        }
        let (at, id) = after.unwrap_or_default();
        problems.finish(((UnixMs(at), MatchId::from_bytes(id)), most))
    }
}

/// What is said of a page that nobody gave.
const NO_PAGE: &str = "is none: send next_page_token as it came";

fn said(wire: pb::ReportResultRequest, by: Reporter, mut problems: Problems) -> Result<ReportResult, Rejection> {
    let problems_of = &mut problems;
    let match_id = match_id(&wire.match_id, problems_of);
    let fits = field::count(wire.team_ranks.len(), limit::PLAYERS_MAX, "team_ranks", problems_of)
        & field::count(wire.player_ranks.len(), MEMBERS_MAX, "player_ranks", problems_of)
        & field::count(wire.disconnected_player_keys.len(), MEMBERS_MAX, "disconnected_player_keys", problems_of);
    let ranks = match (wire.team_ranks.is_empty(), wire.player_ranks.is_empty()) {
        _ if !fits => Ranks::Teams(Vec::new()),
        (false, true) => {
            let team = |(index, it): (usize, &pb::TeamRank)| {
                let team = u16::try_from(it.team).unwrap_or(u16::MAX);
                (team, rank(it.rank, format!("team_ranks[{index}].rank"), problems_of))
            };
            Ranks::Teams(wire.team_ranks.iter().enumerate().map(team).collect())
        }
        (true, false) => {
            let ranked = |(index, it): (usize, &pb::PlayerRank)| {
                let key = player(&it.player_key, &format!("player_ranks[{index}].player_key"), problems_of);
                (key, rank(it.rank, format!("player_ranks[{index}].rank"), problems_of))
            };
            Ranks::Players(wire.player_ranks.iter().enumerate().map(ranked).collect())
        }
        (none, _) => {
            let what =
                if none { "is empty, and so is player_ranks" } else { "is not alone: player_ranks is there too" };
            problems_of.add("team_ranks", format!("{what}: rank every team, or every player"));
            Ranks::Teams(Vec::new())
        }
    };
    let left = wire.disconnected_player_keys.iter().enumerate().filter(|_| fits);
    let disconnected =
        left.map(|(index, key)| player(key, &format!("disconnected_player_keys[{index}]"), problems_of)).collect();
    if wire.duration_ms.is_some_and(|ms| limit::DURATION_MS_MAX < ms) {
        problems_of.add("duration_ms", format!("is longer than {} ms, thirty days", limit::DURATION_MS_MAX));
    }
    problems.finish(ReportResult { match_id, ranks, disconnected, duration_ms: wire.duration_ms, by })
}

/// Players in one match at most.
const MEMBERS_MAX: usize = 1_024;

fn rank(rank: i32, path: String, problems: &mut Problems) -> u32 {
    match u32::try_from(rank) {
        Ok(rank) if 0 < rank => rank,
        _ => {
            problems.add(path, format!("is {rank}: 1 is the best, 2 comes after it, equal is a draw"));
            1
        }
    }
}

fn page_size(size: Option<u32>, default: usize, problems: &mut Problems) -> usize {
    let Some(size) = size else { return default };
    let most = limit::PAGE_MAX;
    if !(1..=most).contains(&(size as usize)) {
        problems.add("page_size", format!("is {size}, must be from 1 to {most}"));
    }
    (size as usize).clamp(1, most)
}

fn match_id(text: &str, problems: &mut Problems) -> MatchId {
    MatchId::parse(text).unwrap_or_else(|| {
        problems.add("match_id", field::bad_id(text));
        MatchId::from_bytes([0; 16])
    })
}

fn player(text: &str, path: &str, problems: &mut Problems) -> UserKey {
    UserKey::parse(text).unwrap_or_else(|| {
        problems.add(path, field::bad_id(text));
        UserKey::from_bytes([0; 16])
    })
}

/// Accounts, in the order given.
fn users(wire: &[String], path: &str, problems: &mut Problems) -> Vec<UserKey> {
    if !field::count(wire.len(), limit::RATED_USERS_MAX, path, problems) {
        return Vec::new();
    }
    for (index, user) in wire.iter().enumerate() {
        field::name(user, format_args!("{path}[{index}]"), problems);
    }
    wire.iter().map(|user| UserKey::of(user)).collect()
}

/// A number and a name, as pages are called.
fn numbers(token: &[u8]) -> Option<(u64, [u8; 16])> {
    let (number, name) = token.split_at_checked(8)?;
    Some((u64::from_be_bytes(number.try_into().ok()?), name.try_into().ok()?))
}

/// The same as bytes.
fn token(number: u64, name: &[u8; 16]) -> Vec<u8> {
    number.to_be_bytes().into_iter().chain(*name).collect()
}
