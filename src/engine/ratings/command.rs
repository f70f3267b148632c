//! Commands for results and ratings, and their answers, in domain types.

use std::sync::Arc;

use crate::domain::id::{MatchId, SetId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::lifecycle::side_reports::SideReportsOutcome;
use crate::domain::match_result::{MatchResult, RatingUpdate, UserSatisfactionStatistics};
use crate::domain::rating::Skill;
use crate::domain::rating::leaderboard::LeaderboardEntry;
use crate::domain::time::UnixMs;

pub use crate::store::queues::FinishedMatch;

/// Reports the result of a match.
#[derive(Clone, Debug)]
pub struct ReportResultCommand {
    /// Match; `None` for the only one that the game server hosts.
    pub match_id: Option<MatchId>,
    /// Ranks of teams or players.
    pub ranks: ReportedRanks,
    /// Player keys of players who left before the end.
    pub disconnected_players: Vec<UserKey>,
    /// Match duration if reported, milliseconds.
    pub duration_ms: Option<u64>,
    /// Reporter and its proof.
    pub reporter: ResultReporter,
    /// Player of the reporting ticket who reports; `None` for the caller's own user, or for all players of the ticket.
    pub player_key: Option<UserKey>,
}

/// Reported ranks; 1 is best, equal ranks are a draw.
#[derive(Clone, Debug)]
pub enum ReportedRanks {
    /// Rank by team.
    ByTeam(Vec<(u16, u32)>),
    /// Rank by player key.
    ByPlayer(Vec<(UserKey, u32)>),
}

/// Reporter of a result, with its proof.
#[derive(Clone, Debug)]
pub enum ResultReporter {
    /// Token of the game server's advertisement.
    GameServer(Vec<u8>),
    /// Token of a ticket in the match.
    Ticket(Vec<u8>),
    /// Operator, already authorized.
    Operator,
}

/// Answer to a result report.
#[derive(Clone, Debug)]
pub struct ReportResultAnswer {
    /// Result as recorded; `None` until the sides' reports are a result.
    pub result: Option<Arc<MatchResult>>,
    /// State of the match's reports.
    pub state: ReportState,
    /// The same result was reported before.
    pub is_repeated_report: bool,
    /// Rating changes that the reporter may see, by player key.
    pub rating_changes: Vec<(UserKey, RatingUpdate)>,
}

/// State of the reports of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportState {
    /// More sides must report, or the window must end.
    Waiting {
        /// Time until the report window ends, milliseconds.
        window_left_ms: u64,
    },
    /// The match has a result.
    Settled,
    /// An operator must decide.
    Held,
    /// The reports contradict each other; the match is unrated.
    Disputed,
    /// No side reported within the window; the match is unrated.
    Unreported,
}

impl ReportState {
    /// State of a match that its players report, whose report window ends at `due_at`; `None` if there is nothing to say
    /// yet.
    pub fn of_match(found: &Match, due_at: Option<UnixMs>, now: UnixMs) -> Option<Self> {
        let reports = &found.side_reports;
        match reports.outcome {
            Some(SideReportsOutcome::Settled) => Some(Self::Settled),
            Some(SideReportsOutcome::Held) => Some(Self::Held),
            Some(SideReportsOutcome::Disputed) => Some(Self::Disputed),
            Some(SideReportsOutcome::Unreported) => Some(Self::Unreported),
            None => {
                let ends_at = due_at.or(reports.window_ends_at)?;
                Some(Self::Waiting { window_left_ms: ends_at.ms_since(now) })
            }
        }
    }
}

/// Submits a player's feedback for a match.
#[derive(Clone, Debug)]
pub struct SubmitFeedbackCommand {
    /// Match.
    pub match_id: MatchId,
    /// Token of the player's ticket in the match.
    pub ticket_token: Vec<u8>,
    /// Player key; may be `None` if the ticket has one player.
    pub player_key: Option<UserKey>,
    /// Stars, 1 to 5; more is better.
    pub stars: u8,
}

/// Rating of a user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatingView {
    /// Current skill.
    pub skill: Skill,
    /// Stored rating less z deviations; orders the leaderboard.
    pub conservative_rating: f64,
    /// 95 % interval of the current rating.
    pub interval_95: (f64, f64),
    /// The user has too few matches for a settled rating.
    pub is_provisional: bool,
    /// Category of the stored rating, from 1; `None` without categories.
    pub category: Option<u16>,
    /// Leaderboard rank, 0 for the best; `None` if not ranked.
    pub leaderboard_index: Option<usize>,
    /// Satisfaction statistics of the user.
    pub satisfaction: UserSatisfactionStatistics,
}

/// Range of a leaderboard.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LeaderboardRange {
    /// From a rank, 0 for the best.
    FromIndex(usize),
    /// After the last entry of another page, at its current position.
    AfterEntry(LeaderboardEntry),
    /// A user, with this many entries on either side.
    AroundUser(UserKey, usize),
}

/// Query of a leaderboard page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeaderboardQuery {
    /// Matchmaking set.
    pub set_id: SetId,
    /// Range to return.
    pub range: LeaderboardRange,
    /// Maximum entries.
    pub max_entries: usize,
}

/// Leaderboard page.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaderboardPage {
    /// Ranks (0 for the best), entries and ratings, best first.
    pub entries: Vec<(usize, LeaderboardEntry, RatingView)>,
    /// Number of entries on the leaderboard.
    pub total_entries: usize,
    /// More entries follow the last one.
    pub has_more: bool,
}
