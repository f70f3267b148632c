//! Rating of matches by the settings of a set: new skills, win probabilities, leaderboard values and intervals.

use std::cmp::Ordering;

use crate::queue::ticket::PlayerRating;
use crate::rating::{
    AllUsersMatchActivity, RATING_MAX, RatingError, Side, Skill, TeamStrength, rate_sides, validate_sides,
    win_probabilities,
};
use crate::ruleset::rating::{RatingSpec, RatingSystem};
use crate::time::UnixMs;

impl RatingSpec {
    /// Skill of a user without rated matches.
    pub fn initial_skill(&self) -> Skill {
        let (estimate, volatility) = match self.system {
            RatingSystem::Elo { initial, .. } => (PlayerRating { rating: initial, deviation: 0.0 }, 0.0),
            RatingSystem::Glicko { initial, deviation, .. } => (PlayerRating { rating: initial, deviation }, 0.0),
            RatingSystem::Glicko2 { initial, deviation, volatility, .. } => {
                (PlayerRating { rating: initial, deviation }, volatility)
            }
            RatingSystem::TrueSkill { mu, sigma, .. } | RatingSystem::PlackettLuce { mu, sigma, .. } => {
                (PlayerRating { rating: mu, deviation: sigma }, 0.0)
            }
        };
        Skill { estimate, volatility, match_count: 0, last_match_at: None, streak: 0, last_match_active_period: 0 }
    }

    /// Skills after a match that ended at `at`, for all sides and players in the order given. Takes stored skills and
    /// adds the effect of inactivity itself. Assumes a set without earlier matches; see
    /// [`RatingSpec::rate_match_with_activity`]. Fails without any change if a side, rank or number is invalid.
    pub fn rate_match(&self, sides: &[Side], at: UnixMs) -> Result<Vec<Vec<Skill>>, RatingError> {
        self.rate_match_with_activity(sides, at, AllUsersMatchActivity::default())
    }

    /// Same as [`RatingSpec::rate_match`], with the set's match activity before this match.
    pub fn rate_match_with_activity(
        &self,
        sides: &[Side],
        at: UnixMs,
        activity: AllUsersMatchActivity,
    ) -> Result<Vec<Vec<Skill>>, RatingError> {
        validate_sides(sides.iter().map(|side| (&*side.players, side.rank)))?;
        let with_inactivity = |side: &Side| Side {
            players: side.players.iter().map(|skill| self.skill_at_with_activity(*skill, at, activity)).collect(),
            rank: side.rank,
        };
        let before: Vec<Side> = sides.iter().map(with_inactivity).collect();
        let after = rate_sides(self, &before);
        let period_number = self.active_period_number_of_match_at(at, activity);
        let finalize_side = |(side, skills): (usize, Vec<Skill>)| {
            let result = overall_result(&before, side);
            let pairs = before[side].players.iter().zip(skills);
            pairs
                .map(|(before, after)| Skill {
                    last_match_active_period: period_number.unwrap_or(before.last_match_active_period),
                    ..self.finalize_skill(before, after, result, at)
                })
                .collect()
        };
        Ok(after.into_iter().enumerate().map(finalize_side).collect())
    }

    /// Probability of each side to come in first; the sum is 1. With two sides, a draw counts as half a win. Takes
    /// skills as they are; see [`RatingSpec::skill_at`] for inactivity. Fails on the same invalid sides as
    /// [`RatingSpec::rate_match`].
    pub fn win_probabilities(&self, sides: &[Vec<Skill>]) -> Result<Vec<f64>, RatingError> {
        validate_sides(sides.iter().map(|players| (&**players, 1)))?;
        let teams: Vec<TeamStrength> =
            sides.iter().map(|side| side.iter().map(|skill| skill.estimate).collect()).collect();
        Ok(win_probabilities(self, &teams))
    }

    /// Leaderboard value, higher is better: `rating - z * deviation`.
    pub fn conservative_rating(&self, estimate: PlayerRating) -> f64 {
        estimate.rating - self.leaderboard_z * estimate.deviation
    }

    /// 95 % interval of the rating: two deviations to either side, as in Glickman's papers. Rating 300 with deviation
    /// 50 gives 200 to 400; a deviation of 0 gives the rating itself.
    pub fn confidence_interval_95(&self, estimate: PlayerRating) -> (f64, f64) {
        let half_width = 2.0 * estimate.deviation;
        (estimate.rating - half_width, estimate.rating + half_width)
    }

    /// True while the user has fewer matches than the ruleset's placement matches.
    pub fn is_provisional(&self, skill: &Skill) -> bool {
        skill.match_count < self.placement_matches
    }

    /// Skill to store: the system's result with streak, momentum and bounds applied. `before` includes inactivity.
    fn finalize_skill(&self, before: &Skill, after: Skill, result: Ordering, at: UnixMs) -> Skill {
        let streak = match result {
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
        let estimate = PlayerRating {
            rating: rating.clamp(-RATING_MAX, RATING_MAX),
            deviation: after.estimate.deviation.clamp(0.0, RATING_MAX),
        };
        // A late report does not move the time of the last match back.
        let last_match_at = Some(before.last_match_at.map_or(at, |last| last.max(at)));
        let volatility = after.volatility.clamp(0.0, RATING_MAX);
        Skill {
            estimate,
            volatility,
            match_count: before.match_count.saturating_add(1),
            last_match_at,
            streak,
            ..*before
        }
    }
}

/// Result of a side against all others: `Greater` if more sides are ranked behind it than ahead of it.
fn overall_result(sides: &[Side], side: usize) -> Ordering {
    let rank = sides[side].rank;
    let count = |which: fn(&u32, &u32) -> bool| sides.iter().filter(|other| which(&other.rank, &rank)).count();
    count(u32::gt).cmp(&count(u32::lt))
}
