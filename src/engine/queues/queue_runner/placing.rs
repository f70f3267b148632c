//! Game servers for the queue's matches that have none yet.

use futures_util::future::join_all;
use tokio::time::Instant;

use crate::domain::id::MatchId;
use crate::domain::lifecycle::event::MatchEvent;
use crate::domain::lifecycle::{Assignment, MatchStage};
use crate::domain::queue::placement::PlacementProblem;
use crate::engine::queues::allocation::{HostFinder, is_placed_only_by_allocators};
use crate::engine::queues::queue_runner::{ALLOCATION_RETRY_INTERVAL, DUE_PER_ROUND_MAX, QueueRunner};
use crate::rules::catalog::MatchRulesetLookup;

impl QueueRunner {
    /// Allocates servers: at once for new matches, and for all of them every `ALLOCATION_RETRY_INTERVAL`.
    pub(super) async fn allocate_placing_matches(&mut self) {
        let placing =
            self.shared.cache.read().queue_index(self.queue_key).map_or_else(Vec::new, |index| index.placing_matches());
        let mut to_attempt = self.next_matches_to_place(&placing);
        // All have had their turn: begin again.
        if to_attempt.is_empty()
            && self.last_allocation_at.is_none_or(|time| time + ALLOCATION_RETRY_INTERVAL <= Instant::now())
        {
            self.last_allocation_at = Some(Instant::now());
            self.attempted_matches.clear();
            to_attempt = self.next_matches_to_place(&placing);
        }
        self.attempted_matches.extend(&to_attempt);
        join_all(to_attempt.into_iter().map(|id| self.allocate_match(id))).await;
    }

    /// Matches without an attempt in this cycle, so that many that cannot be placed do not delay the others.
    fn next_matches_to_place(&self, placing: &[MatchId]) -> Vec<MatchId> {
        let waiting = placing.iter().filter(|id| !self.attempted_matches.contains(id));
        waiting.take(DUE_PER_ROUND_MAX).copied().collect()
    }

    async fn allocate_match(&self, id: MatchId) {
        let Some(match_) = self.shared.cache.read().match_by_id(id).cloned() else { return };
        if !matches!(match_.stage, MatchStage::Placing { .. }) {
            return;
        }
        let ruleset = match self.shared.common.ruleset_of_match(match_.set_id, match_.ruleset_hash) {
            MatchRulesetLookup::Known(ruleset) => ruleset,
            // Found, or cancelled, in a later round.
            MatchRulesetLookup::NotLoaded | MatchRulesetLookup::Unrecoverable => return,
        };
        if is_placed_only_by_allocators(&match_, &ruleset) {
            return self.shared.placement_problems.lock().record(id, PlacementProblem::NoServer);
        }
        let assignment = match HostFinder::new(&self.shared, &match_, &ruleset).reserve_host().await {
            Ok(assignment) => assignment,
            Err(problem) => return self.shared.placement_problems.lock().record(id, problem),
        };
        self.shared.placement_problems.lock().remove(id);
        let outcome = self.shared.apply_match_event(id, MatchEvent::ServerFound(assignment.clone())).await;
        let is_used =
            outcome.is_ok_and(|outcome| outcome.match_after.stage.assignment_since_confirming() == Some(&assignment));
        if let Assignment::GameServer { advertisement, reservation: Some(reservation), .. } = assignment
            && !is_used
        {
            self.shared.adverts.release_seats(advertisement, match_.set_id, reservation);
        }
    }
}
