//! Ratings and leaderboards by pool and scale, in memory.
//!
//! Copies of the store's rows, updated by the queue writer and the feed. A leaderboard is built on first use and then
//! updated with each row. It is ordered by stored values: inactivity increases a deviation but does not move an entry.
//! Ratings on scales that no ruleset uses now stay, and return with the scale.

pub mod command;
pub(crate) mod first_scales;
mod forget;
mod queries;
pub(crate) mod rating_changes;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use crate::domain::id::{BuildIdHasher, RatingKey, SetId, UserKey};
use crate::domain::player_standing::PlayerStanding;
use crate::domain::queue::ticket::{PlayerRating, Ticket};
use crate::domain::rating::leaderboard::{Leaderboard, LeaderboardEntry};
use crate::domain::rating::{AllUsersMatchActivity, Skill};
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::FrustratedPlayerSpec;
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::ruleset::rating::defaults::OwnRatingKeys;
use crate::domain::ruleset::rating::scale::KeyedRatingSpec;
use crate::domain::time::UnixMs;
use crate::engine::ratings::rating_changes::RatingChanges;
use crate::store::queues::RatingRow;
use crate::store::queues::first_scale::FirstRatingScaleOfSet;

/// Ratings of all pools and scales.
#[derive(Debug, Default)]
pub(crate) struct RatingCache {
    ratings_by_key: HashMap<RatingKey, KeyedRatings>,
    /// First scale of each set that has had a rating system.
    first_scales: HashMap<SetId, FirstRatingScaleOfSet>,
    /// Scales of sets that the store has compared with the first ones.
    scales_compared_with_first: HashSet<OwnRatingKeys>,
    /// Latest ratings that this server has written, with the time. A read of all ratings may be older than they are.
    own_writes: VecDeque<(UnixMs, RatingKey, UserKey)>,
    changes: RatingChanges,
}

/// Ratings with one key.
#[derive(Debug, Default)]
struct KeyedRatings {
    rows: HashMap<UserKey, RatingRow, BuildIdHasher>,
    /// Match activity, over all users.
    match_activity: AllUsersMatchActivity,
    /// Leaderboard, and the z for which it is built.
    leaderboard: Option<(f64, Leaderboard)>,
}

/// Leaderboard ranks of the users of one set.
#[derive(Debug)]
pub(crate) struct LeaderboardRanks<'a> {
    spec: RatingSpec,
    ratings: &'a KeyedRatings,
    leaderboard: &'a Leaderboard,
}

impl LeaderboardRanks<'_> {
    /// Mean rank of players, 0 for the best. A user without a row gets the rank that its rating would have.
    pub(crate) fn mean_rank(&self, players: impl Iterator<Item = (UserKey, PlayerRating)>) -> f64 {
        let (mut sum, mut count) = (0.0, 0.0_f64);
        for (user, rating) in players {
            let rank = match self.ratings.rows.get(&user) {
                Some(row) => self.leaderboard.index_of(&leaderboard_entry(row, self.spec.leaderboard_z)),
                None => self.leaderboard.index_of_rating(self.spec.conservative_rating(rating)),
            };
            (sum, count) = (sum + rank as f64, count + 1.0);
        }
        sum / count.max(1.0)
    }
}

impl RatingCache {
    /// Rating settings of a ruleset, with the key of the ratings that they apply to; `None` without a rating system.
    pub(crate) fn keyed_spec_of_ruleset(&self, ruleset: &Ruleset) -> Option<KeyedRatingSpec> {
        let (spec, digest_key) = (ruleset.rating?, ruleset.rating_key_of_pool_and_scale()?);
        // The key of a named pool differs from the recorded one, which is that of the set's own ratings.
        let is_first_scale = self.first_scales.get(&ruleset.set_id).is_some_and(|first| first.key == digest_key);
        let key = if is_first_scale { RatingKey::of_set_on_first_scale(ruleset.set_id) } else { digest_key };
        Some(KeyedRatingSpec { key, spec })
    }

    /// Number of ratings with `key`.
    pub(crate) fn rating_count(&self, key: RatingKey) -> usize {
        self.ratings_by_key.get(&key).map_or(0, |group| group.rows.len())
    }

    /// Inserts or replaces a stored row.
    pub(crate) fn upsert(&mut self, row: RatingRow) {
        self.changes.record(row.key, row.user);
        let group = self.ratings_by_key.entry(row.key).or_default();
        group.match_activity = group.match_activity.including_last_match_of(&row.skill());
        let previous = group.rows.insert(row.user, row);
        if let Some((z, leaderboard)) = &mut group.leaderboard {
            if let Some(previous) = previous {
                leaderboard.remove(&leaderboard_entry(&previous, *z));
            }
            leaderboard.insert(leaderboard_entry(&row, *z));
        }
    }

    /// Row of a user, if any.
    pub(crate) fn rating_row(&self, key: RatingKey, user: UserKey) -> Option<&RatingRow> {
        self.ratings_by_key.get(&key)?.rows.get(&user)
    }

    /// Skill of a user at `now`, with inactivity decay; a newcomer's if there is no row.
    pub(crate) fn skill_at(
        &self,
        KeyedRatingSpec { key, spec }: &KeyedRatingSpec,
        user: UserKey,
        now: UnixMs,
    ) -> Skill {
        let activity = self.match_activity_of_all_users(*key);
        self.rating_row(*key, user)
            .map_or_else(|| spec.initial_skill(), |row| spec.skill_at_with_activity(row.skill(), now, activity))
    }

    /// Match activity of the ratings with `key`.
    pub(crate) fn match_activity_of_all_users(&self, key: RatingKey) -> AllUsersMatchActivity {
        self.ratings_by_key.get(&key).map_or_else(AllUsersMatchActivity::default, |group| group.match_activity)
    }

    /// Standing of a user at `now` by the ratings of `ruleset`.
    pub(crate) fn player_standing(
        &self,
        ruleset: &Ruleset,
        rating: &KeyedRatingSpec,
        user: UserKey,
        now: UnixMs,
    ) -> PlayerStanding {
        let row = self.rating_row(rating.key, user);
        let is_frustrated = |(rule, row): (&FrustratedPlayerSpec, &RatingRow)| {
            rule.is_frustrated(row.streak, row.rated_match_count, &row.satisfaction)
        };
        let Skill { estimate, match_count, .. } = self.skill_at(rating, user, now);
        PlayerStanding {
            rating: estimate,
            rated_match_count: match_count,
            disputed_percent: row.map_or(0.0, |row| row.satisfaction.disputed_percent(row.rated_match_count)),
            is_frustrated: ruleset.frustrated_player_limits.as_ref().zip(row).is_some_and(is_frustrated),
        }
    }

    /// Log of changes.
    pub(crate) fn rating_change_log(&self) -> &RatingChanges {
        &self.changes
    }

    /// Leaderboard by `rating - z * deviation`, best first, ties by user. Rebuilt when z changes.
    pub(crate) fn leaderboard(&mut self, KeyedRatingSpec { key, spec }: &KeyedRatingSpec) -> &Leaderboard {
        let group = self.ratings_by_key.entry(*key).or_default();
        let existing = group.leaderboard.take().filter(|(z, _)| z.to_bits() == spec.leaderboard_z.to_bits());
        let build = || {
            let entries = group.rows.values().map(|row| leaderboard_entry(row, spec.leaderboard_z));
            (spec.leaderboard_z, Leaderboard::from_entries(entries.collect()))
        };
        let leaderboard = existing.unwrap_or_else(build);
        &group.leaderboard.insert(leaderboard).1
    }

    /// Mean leaderboard rank of each ticket's players, 0 for the best. A user without a row gets the rank that its
    /// rating would have. `None` if the set has no rating system.
    pub(crate) fn mean_leaderboard_ranks(&mut self, ruleset: &Ruleset, tickets: &[Arc<Ticket>]) -> Vec<Option<f64>> {
        let Some(ranks) = self.leaderboard_ranks(ruleset) else { return vec![None; tickets.len()] };
        let mean_rank = |ticket: &Arc<Ticket>| {
            let players = ticket.session.players.iter().zip(&ticket.player_ratings);
            Some(ranks.mean_rank(players.map(|(player, rating)| (player.user, *rating))))
        };
        tickets.iter().map(mean_rank).collect()
    }

    /// Leaderboard ranks of a set's users; `None` without a rating system.
    pub(crate) fn leaderboard_ranks(&mut self, ruleset: &Ruleset) -> Option<LeaderboardRanks<'_>> {
        let rating = self.keyed_spec_of_ruleset(ruleset)?;
        self.leaderboard(&rating);
        let group = self.ratings_by_key.get(&rating.key)?;
        Some(LeaderboardRanks { spec: rating.spec, ratings: group, leaderboard: &group.leaderboard.as_ref()?.1 })
    }

    /// Whether each ticket has a frustrated player, by losses, abandoned matches or low feedback.
    pub(crate) fn has_frustrated_player_by_ticket(
        &self,
        ruleset: &Ruleset,
        satisfaction: &FrustratedPlayerSpec,
        tickets: &[Arc<Ticket>],
    ) -> Vec<bool> {
        let Some(KeyedRatingSpec { key, .. }) = self.keyed_spec_of_ruleset(ruleset) else {
            return vec![false; tickets.len()];
        };
        let is_frustrated =
            |row: &RatingRow| satisfaction.is_frustrated(row.streak, row.rated_match_count, &row.satisfaction);
        let user_is_frustrated = |user: UserKey| self.rating_row(key, user).is_some_and(is_frustrated);
        tickets
            .iter()
            .map(|ticket| ticket.session.players.iter().any(|player| user_is_frustrated(player.user)))
            .collect()
    }
}

/// Key of ratings, if it is a digest; as in [`Ticket::rating_digest_key`].
pub(crate) fn rating_key_unless_first_scale(rating: KeyedRatingSpec) -> Option<RatingKey> {
    Some(rating.key).filter(|key| key.is_pool_and_scale_digest())
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

    const KEY: RatingKey = RatingKey::of_set_on_first_scale(SetId(1));

    fn test_rating_row(user: u8, rating: f64) -> RatingRow {
        RatingRow {
            user: UserKey::from_bytes([user; 16]),
            key: KEY,
            rating: PlayerRating { rating, deviation: 10.0 },
            volatility: 0.0,
            rated_match_count: 1,
            last_match_at: UnixMs(0),
            streak: 0,
            satisfaction: match_result::UserSatisfactionStatistics::default(),
            last_match_active_period: 0,
        }
    }

    fn ranked_users(cache: &mut RatingCache, spec: &RatingSpec) -> Vec<u8> {
        cache
            .leaderboard(&KeyedRatingSpec { key: KEY, spec: *spec })
            .iter_from(0)
            .map(|(_, entry)| entry.user.as_bytes()[0])
            .collect()
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
        assert_eq!(ranked_users(&mut cache, &RatingSpec { leaderboard_z: 0.0, ..spec }), [2, 3, 1, 4]);
        assert_eq!(ranked_users(&mut cache, &spec), [3, 1, 4, 2]);
    }
}
