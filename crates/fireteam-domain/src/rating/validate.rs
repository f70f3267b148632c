//! Validation of the sides of a match: number of sides, players and ranks, and the range of each number; its errors.

use crate::rating::skill::Skill;

/// Maximum number of sides in one match.
pub const SIDES_MAX: usize = 128;
/// Maximum number of players in one match, over all sides.
pub const PLAYERS_MAX: usize = 1_024;
/// Maximum magnitude of a rating or a deviation. Updates are clamped to it.
pub const RATING_MAX: f64 = 1e9;

/// Reasons for which a match cannot be rated or predicted. Sides and players are counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum RatingError {
    /// Fewer than 2 or more than `SIDES_MAX` sides.
    #[error("match has {sides} sides; use 2 to {SIDES_MAX}")]
    WrongSideCount {
        /// Number of sides given.
        sides: usize,
    },
    /// A side without players.
    #[error("side {side} has no players; add one or more")]
    EmptySide {
        /// Index of the side.
        side: usize,
    },
    /// More than `PLAYERS_MAX` players.
    #[error("match has {players} players; use at most {PLAYERS_MAX}")]
    TooManyPlayers {
        /// Number of players given.
        players: usize,
    },
    /// Rank 0.
    #[error("side {side} has rank 0; use 1 for the best side and equal ranks for a draw")]
    ZeroRank {
        /// Index of the side.
        side: usize,
    },
    /// Rating that is not a number or beyond `RATING_MAX`.
    #[error("player {player} of side {side} has rating {rating}; use a number between -{RATING_MAX} and {RATING_MAX}")]
    InvalidRating {
        /// Index of the side.
        side: usize,
        /// Index of the player within the side.
        player: usize,
        /// Rating given.
        rating: f64,
    },
    /// Deviation that is not a number, negative, or beyond `RATING_MAX`.
    #[error("player {player} of side {side} has deviation {deviation}; use a number between 0 and {RATING_MAX}")]
    InvalidDeviation {
        /// Index of the side.
        side: usize,
        /// Index of the player within the side.
        player: usize,
        /// Deviation given.
        deviation: f64,
    },
    /// Volatility that is not a number, negative, or beyond `RATING_MAX`.
    #[error("player {player} of side {side} has volatility {volatility}; use a number between 0 and {RATING_MAX}")]
    InvalidVolatility {
        /// Index of the side.
        side: usize,
        /// Index of the player within the side.
        player: usize,
        /// Volatility given.
        volatility: f64,
    },
}

/// Validates sides given as players and rank. Returns the first error.
pub(crate) fn validate_sides<'a>(sides: impl ExactSizeIterator<Item = (&'a [Skill], u32)>) -> Result<(), RatingError> {
    let count = sides.len();
    if !(2..=SIDES_MAX).contains(&count) {
        return Err(RatingError::WrongSideCount { sides: count });
    }
    let mut players = 0;
    for (side, (skills, rank)) in sides.enumerate() {
        if skills.is_empty() {
            return Err(RatingError::EmptySide { side });
        }
        if rank == 0 {
            return Err(RatingError::ZeroRank { side });
        }
        players += skills.len();
        if players > PLAYERS_MAX {
            return Err(RatingError::TooManyPlayers { players });
        }
        for (player, skill) in skills.iter().enumerate() {
            validate_skill(side, player, skill)?;
        }
    }
    Ok(())
}

fn validate_skill(side: usize, player: usize, skill: &Skill) -> Result<(), RatingError> {
    let (rating, deviation, volatility) = (skill.estimate.rating, skill.estimate.deviation, skill.volatility);
    if !(-RATING_MAX..=RATING_MAX).contains(&rating) {
        return Err(RatingError::InvalidRating { side, player, rating });
    }
    if !(0.0..=RATING_MAX).contains(&deviation) {
        return Err(RatingError::InvalidDeviation { side, player, deviation });
    }
    if !(0.0..=RATING_MAX).contains(&volatility) {
        return Err(RatingError::InvalidVolatility { side, player, volatility });
    }
    Ok(())
}
