//! Reasons why matches have no game server yet, for the statuses of their tickets.

use std::collections::HashMap;

use crate::domain::id::{BuildIdHasher, MatchId};
use crate::domain::queue::placement::PlacementProblem;

/// Maximum matches with a stored reason.
const MATCHES_MAX: usize = 100_000;

/// Last problem of each match that this server tries to place.
#[derive(Debug, Default)]
pub(crate) struct PlacementProblems(HashMap<MatchId, PlacementProblem, BuildIdHasher>);

impl PlacementProblems {
    /// Records the problem of the last attempt.
    pub(crate) fn record(&mut self, id: MatchId, problem: PlacementProblem) {
        if self.0.len() < MATCHES_MAX || self.0.contains_key(&id) {
            self.0.insert(id, problem);
        }
    }

    /// Removes a match that was placed or has ended.
    pub(crate) fn remove(&mut self, id: MatchId) {
        self.0.remove(&id);
    }

    /// Keeps only matches for which `is_placing` is true.
    pub(crate) fn retain(&mut self, is_placing: impl Fn(MatchId) -> bool) {
        self.0.retain(|id, _| is_placing(*id));
    }

    /// Problem of a match at the last attempt of this server.
    pub(crate) fn get(&self, id: MatchId) -> Option<PlacementProblem> {
        self.0.get(&id).copied()
    }
}
