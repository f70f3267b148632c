//! Fills matches and sessions that have open seats before new matches are made.

use std::sync::Arc;

use crate::domain::advertisement::Advertisement;
use crate::domain::facts::Facts;
use crate::domain::time::UnixMs;

/// A session with open seats, as a queue sees it.
#[derive(Clone, Debug)]
pub struct OpenSession {
    /// As published. Of a kind and set that this queue may fill, and of the queue's silo.
    pub advertisement: Arc<Advertisement>,
    /// What the ruleset sees of it.
    pub facts: Facts,
    /// Until when it is believed.
    pub expires: UnixMs,
    /// Seats that nobody holds.
    pub open_seats: u16,
    /// Open seats of each team, in the order of `TeamsSpec::sizes`, where it is known; they add up to `open_seats`.
    pub open_by_team: Option<Box<[u16]>>,
    /// The ratings of those who are in it, on the set's scale; empty when they are not known.
    pub ratings: Box<[f64]>,
    /// The mean of its players' places on the leaderboard, 0 for the best, where it is known.
    pub place: Option<f64>,
}
