//! What matches say about players: five rating systems behind one question, what did this match change?
//!
//! A ruleset names the system of its set ([`RatingSpec`]); everything here is a method of it. A match is rated as a whole or not
//! at all, from the skills as they were stored and the time at which it ended; nothing is remembered in between.
//!
//! Teams and free-for-alls go the way of each system: TrueSkill and Plackett-Luce say themselves what several sides of several
//! players mean. Elo and Glicko only know two players: every player plays every opponent, and what comes of it is averaged, so
//! that a match of teams counts as one game (S4-14, B-18). Glicko-2 sets each player against each other side as one opponent. Where
//! a ruleset says so (`GamePer::Opponent`), every opponent is a game of its own.

mod elo;
mod glicko;
mod glicko2;
mod inactivity;
pub mod leaderboard;
pub mod percentile;
mod plackett_luce;
#[cfg(test)]
mod tests;
mod trueskill;
mod validate;
mod win_probability;

use std::cmp::Ordering;

use crate::queue::ticket::PlayerRating;
use crate::rating::validate::validate_sides;
use crate::ruleset::rating::{RatingSpec, RatingSystem};
use crate::time::UnixMs;

pub use crate::rating::inactivity::SetActivity;

pub(crate) use crate::rating::win_probability::{TeamStrength, relative_draw_probability, win_probabilities};

/// Sides in one match, at most.
pub const SIDES_MAX: usize = 64;
/// Players in one match, all sides together, at most.
pub const PLAYERS_MAX: usize = 1_024;
/// The largest magnitude that a rating or a deviation may have; ratings stay within it whatever happens.
pub const RATING_MAX: f64 = 1e9;

/// What one system knows of one user.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Skill {
    /// Rating and deviation as they were after the last match. What idle time has done since is for [`RatingSpec::at`] to say.
    pub estimate: PlayerRating,
    /// Glicko-2's volatility; 0 for systems without.
    pub volatility: f64,
    /// Matches that count in it.
    pub match_count: u32,
    /// When it last changed by a match; none for newcomers, whose idle time does not count.
    pub last_match_at: Option<UnixMs>,
    /// Matches won in a row, above 0, or lost, below. A draw ends a streak. Among several sides a match is won by coming in before
    /// more sides than behind.
    pub streak: i32,
    /// Periods in which the set had been played, up to and with that of the last match, where the ruleset's decay counts them
    /// (S2-14); else 0.
    pub active_periods: u32,
}

/// One side of a finished match.
#[derive(Clone, Debug)]
pub struct Side {
    /// Its players, as they are stored; one or more.
    pub players: Vec<Skill>,
    /// Where it came in: 1 is best, equal is a draw. Only the order counts, so places may be left out.
    pub rank: u32,
}

/// Why a match cannot be rated or predicted. Sides and players are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RatingError {
    /// One side, or none.
    #[error("a match has 2 to {SIDES_MAX} sides, not {sides}")]
    WrongSideCount {
        /// How many there are.
        sides: usize,
    },
    /// A side without players.
    #[error("side {side} has no players: every side has one or more")]
    EmptySide {
        /// Which.
        side: usize,
    },
    /// More players than one match can have.
    #[error("a match has at most {PLAYERS_MAX} players, not {players}")]
    TooManyPlayers {
        /// How many there are.
        players: usize,
    },
    /// Rank 0.
    #[error("side {side} has rank 0: ranks are 1 for the best, 2 and so on, equal for a draw")]
    ZeroRank {
        /// Which.
        side: usize,
    },
    /// A rating that is no number, or beyond all measure.
    #[error(
        "player {player} of side {side} has the rating {rating}: it is a number between -{RATING_MAX} and {RATING_MAX}"
    )]
    InvalidRating {
        /// Which side.
        side: usize,
        /// Which of its players.
        player: usize,
        /// What was given.
        rating: f64,
    },
    /// A deviation that is no number, negative, or beyond all measure.
    #[error("player {player} of side {side} has the deviation {deviation}: it is a number between 0 and {RATING_MAX}")]
    InvalidDeviation {
        /// Which side.
        side: usize,
        /// Which of its players.
        player: usize,
        /// What was given.
        deviation: f64,
    },
    /// A volatility that is no number, negative, or beyond all measure.
    #[error(
        "player {player} of side {side} has the volatility {volatility}: it is a number between 0 and {RATING_MAX}"
    )]
    InvalidVolatility {
        /// Which side.
        side: usize,
        /// Which of its players.
        player: usize,
        /// What was given.
        volatility: f64,
    },
}

impl RatingSpec {
    /// What somebody has who has never played.
    pub fn initial_skill(&self) -> Skill {
        let (rated, volatility) = match self.system {
            RatingSystem::Elo { initial, .. } => (PlayerRating { rating: initial, deviation: 0.0 }, 0.0),
            RatingSystem::Glicko { initial, deviation, .. } => (PlayerRating { rating: initial, deviation }, 0.0),
            RatingSystem::Glicko2 { initial, deviation, volatility, .. } => {
                (PlayerRating { rating: initial, deviation }, volatility)
            }
            RatingSystem::TrueSkill { mu, sigma, .. } | RatingSystem::PlackettLuce { mu, sigma, .. } => {
                (PlayerRating { rating: mu, deviation: sigma }, 0.0)
            }
        };
        Skill { estimate: rated, volatility, match_count: 0, last_match_at: None, streak: 0, active_periods: 0 }
    }

    /// What a match that ended at `at` makes of everybody: sides and players in the order given. All or nothing. Skills are
    /// given as they are stored; idle time is counted here. As [`RatingSpec::rate_in`] has it in a set that nobody played before.
    pub fn rate_match(&self, sides: &[Side], at: UnixMs) -> Result<Vec<Vec<Skill>>, RatingError> {
        self.rate_match_with_activity(sides, at, SetActivity::default())
    }

    /// The same in a set that was played so far before.
    pub fn rate_match_with_activity(
        &self,
        sides: &[Side],
        at: UnixMs,
        played: SetActivity,
    ) -> Result<Vec<Vec<Skill>>, RatingError> {
        validate_sides(sides.iter().map(|side| (&*side.players, side.rank)))?;
        let aged = |side: &Side| Side {
            players: side.players.iter().map(|skill| self.skill_at_with_activity(*skill, at, played)).collect(),
            rank: side.rank,
        };
        let before: Vec<Side> = sides.iter().map(aged).collect();
        let after = match self.system {
            RatingSystem::Elo { k, scale, .. } => elo::rate_match(&before, k, scale, self.game_per),
            RatingSystem::Glicko { min_deviation, .. } => glicko::rate_match(&before, min_deviation, self.game_per),
            RatingSystem::Glicko2 { deviation, volatility, tau, .. } => glicko2::rate_match(
                &before,
                glicko2::Constants {
                    max_deviation: deviation,
                    default_volatility: volatility,
                    tau,
                    games_per: self.game_per,
                },
            ),
            RatingSystem::TrueSkill { beta, tau, draw_percent, .. } => {
                trueskill::rate_match(&before, beta, tau, draw_percent / 100.0)
            }
            RatingSystem::PlackettLuce { beta, kappa, tau, .. } => {
                plackett_luce::rate_match(&before, plackett_luce::Constants { beta, kappa, tau })
            }
        };
        let counted = self.active_period_number(at, played);
        let settle = |(side, skills): (usize, Vec<Skill>)| {
            let won = overall_result(&before, side);
            let pairs = before[side].players.iter().zip(skills);
            pairs
                .map(|(before, after)| Skill {
                    active_periods: counted.unwrap_or(before.active_periods),
                    ..self.finalize_skill(before, after, won, at)
                })
                .collect()
        };
        Ok(after.into_iter().enumerate().map(settle).collect())
    }

    /// The chance of each side to come in first; they add up to 1. With two sides that is the chance to win, a draw counted as
    /// half a win. Skills are taken as they are given: see [`RatingSpec::at`].
    pub fn win_probabilities(&self, sides: &[Vec<Skill>]) -> Result<Vec<f64>, RatingError> {
        validate_sides(sides.iter().map(|players| (&**players, 1)))?;
        let teams: Vec<TeamStrength> =
            sides.iter().map(|side| side.iter().map(|skill| skill.estimate).collect()).collect();
        Ok(win_probabilities(&self.system, &teams))
    }

    /// The leaderboard's order, best first: `rating - z * deviation` (S2-3).
    pub fn conservative_rating(&self, rated: PlayerRating) -> f64 {
        rated.rating - self.z * rated.deviation
    }

    /// Where the rating is in 95 of 100 cases: two deviations to either side, as Glickman has it (S1-64): 300/50 is 200 to 400.
    /// Without a deviation, the rating itself.
    pub fn confidence_interval_95(&self, rated: PlayerRating) -> (f64, f64) {
        let reach = 2.0 * rated.deviation;
        (rated.rating - reach, rated.rating + reach)
    }

    /// The user is still being placed.
    pub fn is_provisional(&self, skill: &Skill) -> bool {
        skill.match_count < self.placement_matches
    }

    /// What is to be stored of a player who had `before`, idle time counted, and has `after` by the system alone.
    fn finalize_skill(&self, before: &Skill, after: Skill, won: Ordering, at: UnixMs) -> Skill {
        let streak = match won {
            Ordering::Greater => before.streak.max(0).saturating_add(1),
            Ordering::Equal => 0,
            Ordering::Less => before.streak.min(0).saturating_sub(1),
        };
        let mut rating = after.estimate.rating;
        if let Some(momentum) = self.momentum
            && streak.signum() == before.streak.signum()
            && momentum.after <= before.streak.unsigned_abs()
        {
            rating = before.estimate.rating + momentum.factor * (rating - before.estimate.rating);
        }
        let rated = PlayerRating {
            rating: rating.clamp(-RATING_MAX, RATING_MAX),
            deviation: after.estimate.deviation.clamp(0.0, RATING_MAX),
        };
        // A result that comes late does not set the clock back.
        let last = Some(before.last_match_at.map_or(at, |last| last.max(at)));
        let volatility = after.volatility.clamp(0.0, RATING_MAX);
        Skill {
            estimate: rated,
            volatility,
            match_count: before.match_count.saturating_add(1),
            last_match_at: last,
            streak,
            ..*before
        }
    }
}

/// How a side stands among the others: greater where more of them are behind it than before it.
fn overall_result(sides: &[Side], side: usize) -> Ordering {
    let rank = sides[side].rank;
    let count = |which: fn(&u32, &u32) -> bool| sides.iter().filter(|other| which(&other.rank, &rank)).count();
    count(u32::gt).cmp(&count(u32::lt))
}

/// What coming in at `rank` scores against somebody at `other`: a win 1, a draw a half, a loss 0.
fn actual_score(rank: u32, other: u32) -> f64 {
    match rank.cmp(&other) {
        Ordering::Less => 1.0,
        Ordering::Equal => 0.5,
        Ordering::Greater => 0.0,
    }
}
