//! What is asked about results and ratings, and what is answered, in the domain's words.

use std::sync::Arc;

use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::match_result::{MatchResult, RatingUpdate, SatisfactionStats};
use crate::domain::rating::Skill;
use crate::domain::rating::leaderboard::LeaderboardEntry;

pub use crate::store::queues::FinishedMatch;

/// Say what came of a match.
#[derive(Clone, Debug)]
pub struct ReportResultCommand {
    /// Which.
    pub match_id: MatchId,
    /// Who came in where.
    pub ranks: ReportedRanks,
    /// Players who had left before its end, by their names in the match.
    pub disconnected_players: Vec<UserKey>,
    /// How long it was played, where whoever reports says so, milliseconds.
    pub duration_ms: Option<u64>,
    /// Who says so.
    pub reporter: ResultReporter,
}

/// Who came in where; 1 is best, equal is a draw.
#[derive(Clone, Debug)]
pub enum ReportedRanks {
    /// By team.
    ByTeam(Vec<(u16, u32)>),
    /// By player, each by its name in the match.
    ByPlayer(Vec<(UserKey, u32)>),
}

/// Who says what came of a match, and how they show that they may.
#[derive(Clone, Debug)]
pub enum ResultReporter {
    /// A game server, by its advertisement's token.
    GameServer(Vec<u8>),
    /// A player's game, by its ticket's token.
    Ticket(Vec<u8>),
    /// An operator, who need not show anything more.
    Operator,
}

/// It is written down.
#[derive(Clone, Debug)]
pub struct ReportResultAnswer {
    /// As it is kept.
    pub result: Arc<MatchResult>,
    /// An earlier report had said so.
    pub is_replay: bool,
    /// What it made of those whom the reporter may know of, by their names in the match.
    pub rating_changes: Vec<(UserKey, RatingUpdate)>,
}

/// Say what a player thought of a match.
#[derive(Clone, Debug)]
pub struct SubmitFeedbackCommand {
    /// Which.
    pub match_id: MatchId,
    /// Proof: a ticket of the player's in it.
    pub ticket_token: Vec<u8>,
    /// Who of the ticket's players, by its name in the match; `None` where there is but one.
    pub player_key: Option<UserKey>,
    /// 1 to 5, more is better.
    pub stars: u8,
}

/// How good a user is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatingView {
    /// As of now.
    pub skill: Skill,
    /// What the leaderboard goes by, as stored.
    pub conservative_rating: f64,
    /// Where the rating is in 95 of 100 cases.
    pub interval_95: (f64, f64),
    /// Still being placed.
    pub is_provisional: bool,
    /// The place on the leaderboard, 0 for the best; none for who is not on it.
    pub leaderboard_rank: Option<usize>,
    /// How content the user is, as far as it shows.
    pub satisfaction: SatisfactionStats,
}

/// Which part of a leaderboard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LeaderboardRange {
    /// From a place on, 0 for the best.
    FromRank(usize),
    /// What follows the last entry of another page, wherever that would stand by now.
    AfterEntry(LeaderboardEntry),
    /// A user, and so many to either side.
    AroundUser(UserKey, usize),
}

/// Look at a leaderboard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeaderboardQuery {
    /// Whose.
    pub set_id: SetId,
    /// Which part of it.
    pub range: LeaderboardRange,
    /// Entries at most.
    pub max_entries: usize,
}

/// A part of a leaderboard.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaderboardPage {
    /// Places, 0 for the best, and who is there, best first.
    pub entries: Vec<(usize, LeaderboardEntry, RatingView)>,
    /// How many are on the board in all.
    pub total_entries: usize,
    /// There are more after the last entry.
    pub has_more: bool,
}
