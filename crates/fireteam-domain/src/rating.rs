//! Rating systems behind one interface: Elo, Glicko, Glicko-2, TrueSkill and Plackett-Luce. Each updates the skills of
//! the players of one finished match.
//!
//! The ruleset of a set names its system ([`RatingSpec`]), whose methods rate matches. A match is rated completely or
//! not at all. The inputs are the stored skills and the time at which the match ended; no other state is kept.
//!
//! TrueSkill and Plackett-Luce define the rating of several sides of several players. Elo and Glicko are defined for
//! two players only: each player plays each opponent, and the changes are averaged. A team match therefore counts as
//! one game. Glicko-2 treats each other side as one opponent. With `OpponentsPerRatedGame::Each`, each opponent is one
//! game.

mod elo;
mod first_place;
mod glicko;
mod glicko2;
pub mod leaderboard;
pub mod percentile;
mod plackett_luce;
mod set_activity;
mod skill;
#[cfg(test)]
mod tests;
mod trueskill;
mod validate;
mod win_probability;

use crate::ruleset::rating::{RatingSpec, RatingSystem};

pub use crate::rating::set_activity::AllUsersMatchActivity;
pub use crate::rating::skill::{Side, Skill};
pub use crate::rating::validate::{PLAYERS_MAX, RATING_MAX, RatingError, SIDES_MAX};

pub(crate) use crate::rating::validate::validate_sides;
pub(crate) use crate::rating::win_probability::{TeamStrength, relative_draw_probability, win_probabilities};

/// Skills after a match by the rating system of `spec` alone, for all sides and players in the order given. The skills
/// in `before` include the effect of inactivity.
pub(crate) fn rate_sides(spec: &RatingSpec, before: &[Side]) -> Vec<Vec<Skill>> {
    match spec.system {
        RatingSystem::Elo { k, scale, .. } => elo::rate_match(before, k, scale, spec.opponents_per_game),
        RatingSystem::Glicko { min_deviation, .. } => {
            glicko::rate_match(before, min_deviation, spec.opponents_per_game)
        }
        RatingSystem::Glicko2 { deviation, volatility, tau, .. } => glicko2::rate_match(
            before,
            glicko2::Constants {
                max_deviation: deviation,
                default_volatility: volatility,
                tau,
                opponents_per_game: spec.opponents_per_game,
            },
        ),
        RatingSystem::TrueSkill { beta, tau, draw_percent, .. } => {
            trueskill::rate_match(before, beta, tau, draw_percent / 100.0)
        }
        RatingSystem::PlackettLuce { beta, kappa, tau, .. } => {
            plackett_luce::rate_match(before, plackett_luce::Constants { beta, kappa, tau })
        }
    }
}
