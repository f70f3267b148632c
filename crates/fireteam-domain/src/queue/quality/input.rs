//! Input of the match quality: one party of a match.

use crate::filter::SessionView;
use crate::queue::ticket::PlayerRating;

/// One party of a match, as input of the quality.
#[derive(Clone, Copy, Debug)]
pub struct PartyQualityInput<'a> {
    /// Input of soft filters.
    pub session: SessionView<'a>,
    /// Ratings of its players; ratings that are not finite are 0.
    pub matching_ratings: &'a [f64],
    /// Ratings of its players with deviations.
    pub player_ratings: &'a [PlayerRating],
    /// Leaderboard position, if known.
    pub leaderboard_position: Option<f64>,
    /// Time waited, milliseconds.
    pub waited_ms: u64,
    /// Team: an index into `TeamsSpec::team_sizes`.
    pub team: u16,
}
