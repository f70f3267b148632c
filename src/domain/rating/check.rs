//! What can be rated: two sides or more, nobody missing, every number a number.

use crate::domain::rating::{PLAYERS_MAX, RATING_MAX, RateError, SIDES_MAX, Skill};

/// Sides as players and rank; the first mistake is the answer.
pub(super) fn checked<'a>(sides: impl ExactSizeIterator<Item = (&'a [Skill], u32)>) -> Result<(), RateError> {
    let count = sides.len();
    if !(2..=SIDES_MAX).contains(&count) {
        return Err(RateError::Sides { sides: count });
    }
    let mut players = 0;
    for (side, (skills, rank)) in sides.enumerate() {
        if skills.is_empty() {
            return Err(RateError::EmptySide { side });
        }
        if rank == 0 {
            return Err(RateError::Rank { side });
        }
        players += skills.len();
        if PLAYERS_MAX < players {
            return Err(RateError::Players { players });
        }
        for (player, skill) in skills.iter().enumerate() {
            of_skill(side, player, skill)?;
        }
    }
    Ok(())
}

fn of_skill(side: usize, player: usize, skill: &Skill) -> Result<(), RateError> {
    let (rating, deviation, volatility) = (skill.rated.rating, skill.rated.deviation, skill.volatility);
    if !(-RATING_MAX..=RATING_MAX).contains(&rating) {
        return Err(RateError::Rating { side, player, rating });
    }
    if !(0.0..=RATING_MAX).contains(&deviation) {
        return Err(RateError::Deviation { side, player, deviation });
    }
    if !(0.0..=RATING_MAX).contains(&volatility) {
        return Err(RateError::Volatility { side, player, volatility });
    }
    Ok(())
}
