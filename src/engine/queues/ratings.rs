//! Users' ratings by set, and their places on its leaderboard.

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::id::{IdState, SetId, UserKey};
use crate::domain::queue::ticket::Rated;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::rating::RatingSystem;
use crate::store::queues::RatingRow;

/// Every set's ratings.
#[derive(Debug, Default)]
pub(super) struct Ratings {
    sets: HashMap<SetId, Board>,
}

#[derive(Debug, Default)]
struct Board {
    rows: HashMap<UserKey, RatingRow, IdState>,
    /// None when a rating has changed since.
    places: Option<Arc<Places>>,
}

/// Who stands where on a leaderboard.
#[derive(Debug, Default)]
pub(super) struct Places {
    of: HashMap<UserKey, u32, IdState>,
    /// The scores in that order.
    scores: Vec<f64>,
    z: f64,
}

impl Places {
    /// A user's place, 0 for the best: among those who are rated, or where somebody with `rated` would stand (D-8).
    pub(super) fn of(&self, user: UserKey, rated: Rated) -> u32 {
        self.of.get(&user).copied().unwrap_or_else(|| {
            let score = score(rated, self.z);
            u32::try_from(self.scores.partition_point(|known| score < *known)).unwrap_or(u32::MAX)
        })
    }
}

impl Ratings {
    /// Takes a row as the store has it.
    pub(super) fn put(&mut self, row: RatingRow) {
        let board = self.sets.entry(row.set_id).or_default();
        board.rows.insert(row.user, row);
        board.places = None;
    }

    /// A user's rating, or what newcomers have; none where the set has no rating system.
    pub(super) fn of(&self, ruleset: &Ruleset, user: UserKey) -> Option<Rated> {
        let spec = ruleset.rating.as_ref()?;
        let known = self.sets.get(&ruleset.set_id).and_then(|board| board.rows.get(&user));
        Some(known.map_or_else(|| newcomer(&spec.system), |row| row.rated))
    }

    /// The leaderboard as it stands: by `rating - z * deviation`, best first, ties by user (S2-3, S2-9). Sorted anew only when a
    /// rating has changed.
    pub(super) fn places(&mut self, ruleset: &Ruleset) -> Arc<Places> {
        let Some(z) = ruleset.rating.as_ref().map(|spec| spec.z) else { return Arc::default() };
        let board = self.sets.entry(ruleset.set_id).or_default();
        if let Some(places) = board.places.as_ref().filter(|places| places.z.to_bits() == z.to_bits()) {
            return Arc::clone(places);
        }
        let mut order: Vec<(f64, UserKey)> = board.rows.values().map(|row| (score(row.rated, z), row.user)).collect();
        order.sort_unstable_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        let of = order.iter().zip(0..).map(|((_, user), place)| (*user, place)).collect();
        let places = Arc::new(Places { of, scores: order.into_iter().map(|(score, _)| score).collect(), z });
        board.places = Some(Arc::clone(&places));
        places
    }
}

fn score(rated: Rated, z: f64) -> f64 {
    rated.rating - z * rated.deviation
}

/// What somebody has who has never played.
pub(super) fn newcomer(system: &RatingSystem) -> Rated {
    match *system {
        RatingSystem::Elo { initial, .. } => Rated { rating: initial, deviation: 0.0 },
        RatingSystem::Glicko { initial, deviation, .. } | RatingSystem::Glicko2 { initial, deviation, .. } => {
            Rated { rating: initial, deviation }
        }
        RatingSystem::TrueSkill { mu, sigma, .. } | RatingSystem::PlackettLuce { mu, sigma, .. } => {
            Rated { rating: mu, deviation: sigma }
        }
    }
}
