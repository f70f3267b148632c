//! Users' ratings by set, in memory, and the leaderboards that come of them.
//!
//! The store has the rows; here are copies, brought up to date by the writer of queues and by the feed. A leaderboard is made when it
//! is first asked for and then kept in order as rows change; it goes by what is stored: idle time makes somebody less sure, and
//! moves nobody.

mod answer;
pub mod command;

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::id::{IdState, SetId, UserKey};
use crate::domain::queue::ticket::{Rated, Ticket};
use crate::domain::rating::board::{Board, Standing};
use crate::domain::rating::{Played, Skill};
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::Satisfaction;
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::time::UnixMs;
use crate::store::queues::RatingRow;

/// Every set's ratings.
#[derive(Debug, Default)]
pub(in crate::engine) struct Ratings {
    sets: HashMap<SetId, OfSet>,
}

#[derive(Debug, Default)]
struct OfSet {
    rows: HashMap<UserKey, RatingRow, IdState>,
    /// How far it has been played, by all of them.
    played: Played,
    /// By the z that its scores go by.
    board: Option<(f64, Board)>,
}

impl Ratings {
    /// Takes a row as the store has it.
    pub(in crate::engine) fn put(&mut self, row: RatingRow) {
        let set = self.sets.entry(row.set_id).or_default();
        set.played = set.played.with(&row.skill());
        let before = set.rows.insert(row.user, row);
        if let Some((z, board)) = &mut set.board {
            if let Some(before) = before {
                board.remove(&standing(&before, *z));
            }
            board.insert(standing(&row, *z));
        }
    }

    /// A user's row in a set, if there is one.
    pub(in crate::engine) fn row(&self, set_id: SetId, user: UserKey) -> Option<&RatingRow> {
        self.sets.get(&set_id)?.rows.get(&user)
    }

    /// A user as rating systems see it at `now`; a newcomer where nothing is stored.
    pub(in crate::engine) fn skill(&self, set_id: SetId, spec: &RatingSpec, user: UserKey, now: UnixMs) -> Skill {
        let played = self.played(set_id);
        self.row(set_id, user).map_or_else(|| spec.newcomer(), |row| spec.at_in(row.skill(), now, played))
    }

    /// How far a set has been played.
    pub(in crate::engine) fn played(&self, set_id: SetId) -> Played {
        self.sets.get(&set_id).map_or_else(Played::default, |set| set.played)
    }

    /// A user's rating at `now`, or what newcomers have; none where the set has no rating system.
    pub(in crate::engine) fn of(&self, ruleset: &Ruleset, user: UserKey, now: UnixMs) -> Option<Rated> {
        let spec = ruleset.rating.as_ref()?;
        Some(self.skill(ruleset.set_id, spec, user, now).rated)
    }

    /// The leaderboard: by `rating - z * deviation`, best first, ties by user (S2-3). Made anew when z is another.
    pub(in crate::engine) fn board(&mut self, set_id: SetId, spec: &RatingSpec) -> &Board {
        let set = self.sets.entry(set_id).or_default();
        let known = set.board.take().filter(|(z, _)| z.to_bits() == spec.z.to_bits());
        let made = || {
            let standings = set.rows.values().map(|row| standing(row, spec.z));
            (spec.z, Board::of(standings.collect()))
        };
        let board = known.unwrap_or_else(made);
        &set.board.insert(board).1
    }

    /// Where the players of each ticket stand on the leaderboard, in the mean, 0 for the best: those who are not on it where
    /// their rating would be (D-8, S2-9). None where the set has no rating system.
    pub(in crate::engine) fn places(&mut self, ruleset: &Ruleset, tickets: &[Arc<Ticket>]) -> Vec<Option<f64>> {
        let Some(spec) = &ruleset.rating else { return vec![None; tickets.len()] };
        self.board(ruleset.set_id, spec);
        let Some((set, (z, board))) = self.sets.get(&ruleset.set_id).and_then(|set| Some((set, set.board.as_ref()?)))
        else {
            return vec![None; tickets.len()];
        };
        let place = |user: UserKey, rated: Rated| match set.rows.get(&user) {
            Some(row) => board.place(&standing(row, *z)),
            None => board.place_of_score(spec.score(rated)),
        };
        let of_ticket = |ticket: &Arc<Ticket>| {
            let players = ticket.session.players.iter().zip(&ticket.ratings);
            let sum: f64 = players.map(|(player, rated)| place(player.user, *rated) as f64).sum();
            Some(sum / ticket.ratings.len().max(1) as f64)
        };
        tickets.iter().map(of_ticket).collect()
    }

    /// Which tickets have a player whom the queue looks after (S1-97).
    pub(in crate::engine) fn frustrated(
        &self,
        set_id: SetId,
        satisfaction: &Satisfaction,
        tickets: &[Arc<Ticket>],
    ) -> Vec<bool> {
        let looks_after = |row: &RatingRow| satisfaction.looks_after(row.streak, row.matches, &row.satisfaction);
        let is_one = |user: UserKey| self.row(set_id, user).is_some_and(looks_after);
        tickets.iter().map(|ticket| ticket.session.players.iter().any(|player| is_one(player.user))).collect()
    }
}

/// A row as its leaderboard has it.
fn standing(row: &RatingRow, z: f64) -> Standing {
    Standing { score: row.rated.rating - z * row.rated.deviation, user: row.user }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::result;
    use crate::domain::ruleset::rating::RatingSystem;

    fn row(user: u8, rating: f64) -> RatingRow {
        RatingRow {
            user: UserKey::from_bytes([user; 16]),
            set_id: SetId(1),
            rated: Rated { rating, deviation: 10.0 },
            volatility: 0.0,
            matches: 1,
            last: UnixMs(0),
            streak: 0,
            satisfaction: result::Satisfaction::default(),
            played: 0,
        }
    }

    fn places(ratings: &mut Ratings, spec: &RatingSpec) -> Vec<u8> {
        ratings.board(SetId(1), spec).from(0).map(|(_, it)| it.user.as_bytes()[0]).collect()
    }

    /// S2-3: a user who moves leaves one place for another, whether the board was made before or after; another z is another order.
    #[test]
    fn the_leaderboard_follows_its_rows() {
        let glicko =
            RatingSystem::Glicko { initial: 1500.0, deviation: 350.0, min_deviation: 30.0, c: 0.0, period_ms: 1 };
        let spec = RatingSpec::plain(glicko);
        let mut ratings = Ratings::default();
        for (user, rating) in [(1, 1.0), (2, 2.0), (3, 3.0)] {
            ratings.put(row(user, rating));
        }
        assert_eq!(places(&mut ratings, &spec), [3, 2, 1]);
        ratings.put(row(1, 2.5));
        ratings.put(row(4, 2.5));
        assert_eq!(places(&mut ratings, &spec), [3, 1, 4, 2], "equals by user");
        let unsure = RatingRow { rated: Rated { rating: 3.5, deviation: 100.0 }, ..row(2, 0.0) };
        ratings.put(unsure);
        assert_eq!(places(&mut ratings, &spec), [3, 1, 4, 2]);
        assert_eq!(places(&mut ratings, &RatingSpec { z: 0.0, ..spec }), [2, 3, 1, 4]);
        assert_eq!(places(&mut ratings, &spec), [3, 1, 4, 2]);
    }
}
