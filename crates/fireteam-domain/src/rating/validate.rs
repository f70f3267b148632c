//! What can be rated: two sides or more, nobody missing, every number a number.

use crate::rating::{PLAYERS_MAX, RATING_MAX, RatingError, SIDES_MAX, Skill};

/// Sides as players and rank; the first mistake is the answer.
pub(super) fn validate_sides<'a>(sides: impl ExactSizeIterator<Item = (&'a [Skill], u32)>) -> Result<(), RatingError> {
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
        if PLAYERS_MAX < players {
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
