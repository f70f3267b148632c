//! Removal of ratings from memory: of erased users, and of those that were not rated for long.

use std::collections::HashSet;

use crate::domain::id::{RatingKey, UserKey};
use crate::domain::time::UnixMs;
use crate::engine::ratings::{KeyedRatings, RatingCache, leaderboard_entry};
use crate::store::queues::RatingRow;

/// Time for which own writes are remembered, milliseconds. No read of all ratings is applied later than that after its start.
const OWN_WRITES_KEPT_MS: u64 = 60_000;

impl RatingCache {
    /// Remembers that this server has written ratings, which a read of all ratings may not have yet.
    pub(crate) fn record_own_writes(&mut self, rows: &[RatingRow], now: UnixMs) {
        while self.own_writes.front().is_some_and(|(at, ..)| at.plus_ms(OWN_WRITES_KEPT_MS) < now) {
            self.own_writes.pop_front();
        }
        self.own_writes.extend(rows.iter().map(|row| (now, row.key, row.user)));
    }

    /// Removes ratings.
    pub(crate) fn remove(&mut self, ratings: &[(UserKey, RatingKey)]) {
        for (user, key) in ratings {
            if let Some(group) = self.ratings_by_key.get_mut(key) {
                group.remove(*user);
                self.changes.record(*key, *user);
            }
        }
    }

    /// Removes the ratings of a user that are not among `rows`, all ratings of the user. Returns whether there were any.
    pub(crate) fn remove_unlisted_of(&mut self, user: UserKey, rows: &[RatingRow]) -> bool {
        let mut has_removed = false;
        for (key, group) in &mut self.ratings_by_key {
            let is_listed = || rows.iter().any(|row| row.user == user && row.key == *key);
            if group.rows.contains_key(&user) && !is_listed() {
                has_removed |= group.remove(user);
                self.changes.record(*key, user);
            }
        }
        has_removed
    }

    /// Removes the ratings that are not among `rows`, all ratings as of some time, and that this server has not written since
    /// `newer_than`.
    pub(crate) fn remove_unlisted_older_than(&mut self, rows: &[RatingRow], newer_than: UnixMs) {
        let known: usize = self.ratings_by_key.values().map(|group| group.rows.len()).sum();
        if known == rows.len() {
            return;
        }
        let mut kept: HashSet<(RatingKey, UserKey)> = rows.iter().map(|row| (row.key, row.user)).collect();
        kept.extend(self.own_writes.iter().filter(|(at, ..)| newer_than <= *at).map(|(_, key, user)| (*key, *user)));
        for (key, group) in &mut self.ratings_by_key {
            let unlisted: Vec<UserKey> =
                group.rows.keys().copied().filter(|user| !kept.contains(&(*key, *user))).collect();
            for user in unlisted {
                group.remove(user);
                self.changes.record(*key, user);
            }
        }
    }

    /// Ratings of a user.
    pub(crate) fn ratings_of(&self, user: UserKey) -> Vec<RatingRow> {
        let mut rows: Vec<RatingRow> =
            self.ratings_by_key.values().filter_map(|group| group.rows.get(&user)).copied().collect();
        rows.sort_unstable_by_key(|row| row.key);
        rows
    }

    /// At most `max` ratings whose last rated match was before a time.
    pub(crate) fn last_rated_before(&self, before: UnixMs, max: usize) -> Vec<(UserKey, RatingKey)> {
        let rows = self.ratings_by_key.values().flat_map(|group| group.rows.values());
        rows.filter(|row| row.last_match_at < before).take(max).map(|row| (row.user, row.key)).collect()
    }
}

impl KeyedRatings {
    /// Removes the rating of a user. Returns whether there was one.
    fn remove(&mut self, user: UserKey) -> bool {
        let Some(removed) = self.rows.remove(&user) else { return false };
        if let Some((z, leaderboard)) = &mut self.leaderboard {
            leaderboard.remove(&leaderboard_entry(&removed, *z));
        }
        true
    }
}
