//! Ratings and leaderboards by set, in memory.
//!
//! Copies of the store's rows, updated by the queue writer and the feed. A leaderboard is built on first use and then
//! updated with each row. It is ordered by stored values: inactivity increases a deviation but does not move an entry.

pub mod command;
mod queries;

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::id::{BuildIdHasher, SetId, UserKey};
use crate::domain::queue::ticket::{PlayerRating, Ticket};
use crate::domain::rating::leaderboard::{Leaderboard, LeaderboardEntry};
use crate::domain::rating::{SetActivity, Skill};
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::SatisfactionSpec;
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::time::UnixMs;
use crate::store::queues::RatingRow;

/// Ratings of all sets.
#[derive(Debug, Default)]
pub(crate) struct RatingCache {
    sets: HashMap<SetId, SetRatings>,
}

#[derive(Debug, Default)]
struct SetRatings {
    rows: HashMap<UserKey, RatingRow, BuildIdHasher>,
    /// Activity of the set, over all users.
    set_activity: SetActivity,
    /// Leaderboard, and the z for which it is built.
    leaderboard: Option<(f64, Leaderboard)>,
}

impl RatingCache {
    /// Inserts or replaces a stored row.
    pub(crate) fn upsert(&mut self, row: RatingRow) {
        let set = self.sets.entry(row.set_id).or_default();
        set.set_activity = set.set_activity.including_skill(&row.skill());
        let previous = set.rows.insert(row.user, row);
        if let Some((z, leaderboard)) = &mut set.leaderboard {
            if let Some(previous) = previous {
                leaderboard.remove(&leaderboard_entry(&previous, *z));
            }
            leaderboard.insert(leaderboard_entry(&row, *z));
        }
    }

    /// Row of a user in a set, if any.
    pub(crate) fn rating_row(&self, set_id: SetId, user: UserKey) -> Option<&RatingRow> {
        self.sets.get(&set_id)?.rows.get(&user)
    }

    /// Skill of a user at `now`, with inactivity decay; a newcomer's if there is no row.
    pub(crate) fn skill_at(&self, set_id: SetId, spec: &RatingSpec, user: UserKey, now: UnixMs) -> Skill {
        let activity = self.set_activity(set_id);
        self.rating_row(set_id, user)
            .map_or_else(|| spec.initial_skill(), |row| spec.skill_at_with_activity(row.skill(), now, activity))
    }

    /// Activity of a set.
    pub(crate) fn set_activity(&self, set_id: SetId) -> SetActivity {
        self.sets.get(&set_id).map_or_else(SetActivity::default, |set| set.set_activity)
    }

    /// Rating of a user at `now`, or a newcomer's; `None` if the set has no rating system.
    pub(crate) fn rating_at(&self, ruleset: &Ruleset, user: UserKey, now: UnixMs) -> Option<PlayerRating> {
        let spec = ruleset.rating.as_ref()?;
        Some(self.skill_at(ruleset.set_id, spec, user, now).estimate)
    }

    /// Leaderboard by `rating - z * deviation`, best first, ties by user. Rebuilt when z changes.
    pub(crate) fn leaderboard(&mut self, set_id: SetId, spec: &RatingSpec) -> &Leaderboard {
        let set = self.sets.entry(set_id).or_default();
        let existing = set.leaderboard.take().filter(|(z, _)| z.to_bits() == spec.z.to_bits());
        let build = || {
            let entries = set.rows.values().map(|row| leaderboard_entry(row, spec.z));
            (spec.z, Leaderboard::from_entries(entries.collect()))
        };
        let leaderboard = existing.unwrap_or_else(build);
        &set.leaderboard.insert(leaderboard).1
    }

    /// Mean leaderboard rank of each ticket's players, 0 for the best. A user without a row gets the rank that its
    /// rating would have. `None` if the set has no rating system.
    pub(crate) fn mean_leaderboard_ranks(&mut self, ruleset: &Ruleset, tickets: &[Arc<Ticket>]) -> Vec<Option<f64>> {
        let Some(spec) = &ruleset.rating else { return vec![None; tickets.len()] };
        self.leaderboard(ruleset.set_id, spec);
        let Some((set, (z, leaderboard))) =
            self.sets.get(&ruleset.set_id).and_then(|set| Some((set, set.leaderboard.as_ref()?)))
        else {
            return vec![None; tickets.len()];
        };
        let rank = |user: UserKey, rating: PlayerRating| match set.rows.get(&user) {
            Some(row) => leaderboard.index_of(&leaderboard_entry(row, *z)),
            None => leaderboard.index_of_rating(spec.conservative_rating(rating)),
        };
        let mean_rank = |ticket: &Arc<Ticket>| {
            let players = ticket.session.players.iter().zip(&ticket.player_ratings);
            let sum: f64 = players.map(|(player, rating)| rank(player.user, *rating) as f64).sum();
            Some(sum / ticket.player_ratings.len().max(1) as f64)
        };
        tickets.iter().map(mean_rank).collect()
    }

    /// Whether each ticket has a frustrated player, by losses, abandoned matches or low feedback.
    pub(crate) fn tickets_with_frustrated_player(
        &self,
        set_id: SetId,
        satisfaction: &SatisfactionSpec,
        tickets: &[Arc<Ticket>],
    ) -> Vec<bool> {
        let is_frustrated =
            |row: &RatingRow| satisfaction.is_frustrated(row.streak, row.match_count, &row.satisfaction);
        let user_is_frustrated = |user: UserKey| self.rating_row(set_id, user).is_some_and(is_frustrated);
        tickets
            .iter()
            .map(|ticket| ticket.session.players.iter().any(|player| user_is_frustrated(player.user)))
            .collect()
    }
}

/// Leaderboard entry of a row.
fn leaderboard_entry(row: &RatingRow, z: f64) -> LeaderboardEntry {
    LeaderboardEntry { conservative_rating: row.rating.rating - z * row.rating.deviation, user: row.user }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::match_result;
    use crate::domain::ruleset::rating::RatingSystem;

    fn test_rating_row(user: u8, rating: f64) -> RatingRow {
        RatingRow {
            user: UserKey::from_bytes([user; 16]),
            set_id: SetId(1),
            rating: PlayerRating { rating, deviation: 10.0 },
            volatility: 0.0,
            match_count: 1,
            last_match_at: UnixMs(0),
            streak: 0,
            satisfaction: match_result::SatisfactionStats::default(),
            active_periods: 0,
        }
    }

    fn ranked_users(cache: &mut RatingCache, spec: &RatingSpec) -> Vec<u8> {
        cache.leaderboard(SetId(1), spec).iter_from(0).map(|(_, entry)| entry.user.as_bytes()[0]).collect()
    }

    /// S2-3: an update moves a user on the leaderboard, whether it was built before or after; another z gives another
    /// order.
    #[test]
    fn leaderboard_reorders_when_a_rating_or_z_changes() {
        let glicko =
            RatingSystem::Glicko { initial: 1500.0, deviation: 350.0, min_deviation: 30.0, c: 0.0, period_ms: 1 };
        let spec = RatingSpec::with_defaults(glicko);
        let mut cache = RatingCache::default();
        for (user, rating) in [(1, 1.0), (2, 2.0), (3, 3.0)] {
            cache.upsert(test_rating_row(user, rating));
        }
        assert_eq!(ranked_users(&mut cache, &spec), [3, 2, 1]);
        cache.upsert(test_rating_row(1, 2.5));
        cache.upsert(test_rating_row(4, 2.5));
        assert_eq!(ranked_users(&mut cache, &spec), [3, 1, 4, 2], "equals by user");
        let uncertain = RatingRow { rating: PlayerRating { rating: 3.5, deviation: 100.0 }, ..test_rating_row(2, 0.0) };
        cache.upsert(uncertain);
        assert_eq!(ranked_users(&mut cache, &spec), [3, 1, 4, 2]);
        assert_eq!(ranked_users(&mut cache, &RatingSpec { z: 0.0, ..spec }), [2, 3, 1, 4]);
        assert_eq!(ranked_users(&mut cache, &spec), [3, 1, 4, 2]);
    }
}
