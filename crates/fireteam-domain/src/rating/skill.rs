//! Skills of users, and the sides of a match.

use crate::queue::ticket::PlayerRating;
use crate::time::UnixMs;

/// Skill of one user in one rating system, as stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skill {
    /// Rating and deviation after the last match. [`RatingSpec::skill_at`](crate::ruleset::rating::RatingSpec::skill_at) adds the effect of inactivity.
    pub estimate: PlayerRating,
    /// Volatility (Glicko-2 only); 0 in other systems.
    pub volatility: f64,
    /// Number of rated matches.
    pub match_count: u32,
    /// Time of the last rated match; `None` for a newcomer, whose inactivity does not count.
    pub last_match_at: Option<UnixMs>,
    /// Consecutive wins if positive, consecutive losses if negative. A draw resets it to 0. Among several sides, a win
    /// means more sides ranked behind than ahead.
    pub streak: i32,
    /// Number of active periods of the set, up to the one of the user's last match. Counted if the ruleset's decay uses
    /// active periods; otherwise 0.
    pub last_match_active_period: u32,
}

/// One side of a finished match.
#[derive(Clone, Debug)]
pub struct Side {
    /// Stored skills of its players; at least one.
    pub players: Vec<Skill>,
    /// Rank: 1 is best, equal ranks are a draw. Only the order counts, so ranks may be skipped.
    pub rank: u32,
}
