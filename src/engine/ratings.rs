//! Users' ratings by set, in memory, and the leaderboards that come of them.
//!
//! The store has the rows; here are copies, brought up to date by the writer of queues and by the feed. A leaderboard is made when it
//! is first asked for and then kept in order as rows change; it goes by what is stored: idle time makes somebody less sure, and
//! moves nobody.

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

/// Every set's ratings.
#[derive(Debug, Default)]
pub(in crate::engine) struct RatingCache {
    sets: HashMap<SetId, SetRatings>,
}

#[derive(Debug, Default)]
struct SetRatings {
    rows: HashMap<UserKey, RatingRow, BuildIdHasher>,
    /// How far it has been played, by all of them.
    set_activity: SetActivity,
    /// By the z that its scores go by.
    leaderboard: Option<(f64, Leaderboard)>,
}

impl RatingCache {
    /// Takes a row as the store has it.
    pub(in crate::engine) fn upsert(&mut self, row: RatingRow) {
        let set = self.sets.entry(row.set_id).or_default();
        set.set_activity = set.set_activity.including_skill(&row.skill());
        let before = set.rows.insert(row.user, row);
        if let Some((z, board)) = &mut set.leaderboard {
            if let Some(before) = before {
                board.remove(&leaderboard_entry(&before, *z));
            }
            board.insert(leaderboard_entry(&row, *z));
        }
    }

    /// A user's row in a set, if there is one.
    pub(in crate::engine) fn rating_row(&self, set_id: SetId, user: UserKey) -> Option<&RatingRow> {
        self.sets.get(&set_id)?.rows.get(&user)
    }

    /// A user as rating systems see it at `now`; a newcomer where nothing is stored.
    pub(in crate::engine) fn skill_at(&self, set_id: SetId, spec: &RatingSpec, user: UserKey, now: UnixMs) -> Skill {
        let played = self.set_activity(set_id);
        self.rating_row(set_id, user)
            .map_or_else(|| spec.initial_skill(), |row| spec.skill_at_with_activity(row.skill(), now, played))
    }

    /// How far a set has been played.
    pub(in crate::engine) fn set_activity(&self, set_id: SetId) -> SetActivity {
        self.sets.get(&set_id).map_or_else(SetActivity::default, |set| set.set_activity)
    }

    /// A user's rating at `now`, or what newcomers have; none where the set has no rating system.
    pub(in crate::engine) fn rating_at(&self, ruleset: &Ruleset, user: UserKey, now: UnixMs) -> Option<PlayerRating> {
        let spec = ruleset.rating.as_ref()?;
        Some(self.skill_at(ruleset.set_id, spec, user, now).estimate)
    }

    /// The leaderboard: by `rating - z * deviation`, best first, ties by user (S2-3). Made anew when z is another.
    pub(in crate::engine) fn leaderboard(&mut self, set_id: SetId, spec: &RatingSpec) -> &Leaderboard {
        let set = self.sets.entry(set_id).or_default();
        let known = set.leaderboard.take().filter(|(z, _)| z.to_bits() == spec.z.to_bits());
        let made = || {
            let standings = set.rows.values().map(|row| leaderboard_entry(row, spec.z));
            (spec.z, Leaderboard::from_entries(standings.collect()))
        };
        let board = known.unwrap_or_else(made);
        &set.leaderboard.insert(board).1
    }

    /// Where the players of each ticket stand on the leaderboard, in the mean, 0 for the best: those who are not on it where
    /// their rating would be (D-8, S2-9). None where the set has no rating system.
    pub(in crate::engine) fn mean_leaderboard_ranks(
        &mut self,
        ruleset: &Ruleset,
        tickets: &[Arc<Ticket>],
    ) -> Vec<Option<f64>> {
        let Some(spec) = &ruleset.rating else { return vec![None; tickets.len()] };
        self.leaderboard(ruleset.set_id, spec);
        let Some((set, (z, board))) =
            self.sets.get(&ruleset.set_id).and_then(|set| Some((set, set.leaderboard.as_ref()?)))
        else {
            return vec![None; tickets.len()];
        };
        let place = |user: UserKey, rated: PlayerRating| match set.rows.get(&user) {
            Some(row) => board.index_of(&leaderboard_entry(row, *z)),
            None => board.index_of_rating(spec.conservative_rating(rated)),
        };
        let of_ticket = |ticket: &Arc<Ticket>| {
            let players = ticket.session.players.iter().zip(&ticket.player_ratings);
            let sum: f64 = players.map(|(player, rated)| place(player.user, *rated) as f64).sum();
            Some(sum / ticket.player_ratings.len().max(1) as f64)
        };
        tickets.iter().map(of_ticket).collect()
    }

    /// Which tickets have a player whom the queue looks after (S1-97).
    pub(in crate::engine) fn tickets_with_frustrated_player(
        &self,
        set_id: SetId,
        satisfaction: &SatisfactionSpec,
        tickets: &[Arc<Ticket>],
    ) -> Vec<bool> {
        let looks_after = |row: &RatingRow| satisfaction.is_frustrated(row.streak, row.match_count, &row.satisfaction);
        let is_one = |user: UserKey| self.rating_row(set_id, user).is_some_and(looks_after);
        tickets.iter().map(|ticket| ticket.session.players.iter().any(|player| is_one(player.user))).collect()
    }
}

/// A row as its leaderboard has it.
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
            periods_played: 0,
        }
    }

    fn ranked_users(ratings: &mut RatingCache, spec: &RatingSpec) -> Vec<u8> {
        ratings.leaderboard(SetId(1), spec).iter_from(0).map(|(_, it)| it.user.as_bytes()[0]).collect()
    }

    /// S2-3: a user who moves leaves one place for another, whether the board was made before or after; another z is another order.
    #[test]
    fn leaderboard_reorders_when_a_rating_or_z_changes() {
        let glicko =
            RatingSystem::Glicko { initial: 1500.0, deviation: 350.0, min_deviation: 30.0, c: 0.0, period_ms: 1 };
        let spec = RatingSpec::with_defaults(glicko);
        let mut ratings = RatingCache::default();
        for (user, rating) in [(1, 1.0), (2, 2.0), (3, 3.0)] {
            ratings.upsert(test_rating_row(user, rating));
        }
        assert_eq!(ranked_users(&mut ratings, &spec), [3, 2, 1]);
        ratings.upsert(test_rating_row(1, 2.5));
        ratings.upsert(test_rating_row(4, 2.5));
        assert_eq!(ranked_users(&mut ratings, &spec), [3, 1, 4, 2], "equals by user");
        let unsure = RatingRow { rating: PlayerRating { rating: 3.5, deviation: 100.0 }, ..test_rating_row(2, 0.0) };
        ratings.upsert(unsure);
        assert_eq!(ranked_users(&mut ratings, &spec), [3, 1, 4, 2]);
        assert_eq!(ranked_users(&mut ratings, &RatingSpec { z: 0.0, ..spec }), [2, 3, 1, 4]);
        assert_eq!(ranked_users(&mut ratings, &spec), [3, 1, 4, 2]);
    }
}
