//! The leaderboard of a simulated set: who stands where, by the rating system's own score.

use crate::domain::id::UserKey;

/// Users by score, best first, ties by user.
#[derive(Debug, Default)]
pub struct Ladder {
    /// The score negated, so that the order of the list is the order of the ladder.
    rows: Vec<(f64, UserKey)>,
}

impl Ladder {
    /// Moves a user from one score to another; `before` is none for whoever was not on it.
    pub fn put(&mut self, user: UserKey, before: Option<f64>, score: f64) {
        if let Some(before) = before
            && let Ok(at) = self.find(before, user)
        {
            self.rows.remove(at);
        }
        if let Err(at) = self.find(score, user) {
            self.rows.insert(at, (-score, user));
        }
    }

    /// Where somebody with `score` stands who is on the ladder, or would stand who is not; 0 is best.
    pub fn place(&self, user: UserKey, score: f64, is_on: bool) -> usize {
        match is_on {
            true => self.find(score, user).unwrap_or_else(|at| at),
            false => self.rows.partition_point(|row| row.0 < -score),
        }
    }

    fn find(&self, score: f64, user: UserKey) -> Result<usize, usize> {
        self.rows.binary_search_by(|row| row.0.total_cmp(&-score).then(row.1.cmp(&user)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: u8) -> UserKey {
        UserKey::from_bytes([name; 16])
    }

    #[test]
    fn places_follow_scores_and_then_users() {
        let mut ladder = Ladder::default();
        for (name, score) in [(3, 10.0), (1, 20.0), (2, 20.0)] {
            ladder.put(user(name), None, score);
        }
        let place = |ladder: &Ladder, name, score| ladder.place(user(name), score, true);
        assert_eq!([place(&ladder, 1, 20.0), place(&ladder, 2, 20.0), place(&ladder, 3, 10.0)], [0, 1, 2]);
        assert_eq!(ladder.place(user(9), 15.0, false), 2, "whoever is not on it stands where the score would");
        ladder.put(user(3), Some(10.0), 30.0);
        assert_eq!([place(&ladder, 3, 30.0), place(&ladder, 1, 20.0), place(&ladder, 2, 20.0)], [0, 1, 2]);
    }
}
