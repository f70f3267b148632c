//! Number of matches that this server saw end, by set and reason.

use std::collections::BTreeMap;

use crate::domain::id::SetId;
use crate::domain::lifecycle::{Match, MatchEndReason};

/// Maximum number of sets that have counts of their own. Matches of further sets are not counted.
const COUNTED_SETS_MAX: usize = 256;

/// Number of matches that ended since the server started, by set and reason. It only grows.
#[derive(Debug, Default)]
pub(crate) struct EndedMatchCounts {
    counts_by_set: BTreeMap<SetId, Vec<(MatchEndReason, u64)>>,
}

impl EndedMatchCounts {
    /// Counts a match that has changed, if it has ended and had not before. One that is first seen after its end may have ended before
    /// the start of the server.
    pub(super) fn record(&mut self, before: Option<&Match>, match_: &Match) {
        let was_live = before.is_some_and(|before| before.stage.end_reason().is_none());
        let Some(end_reason) = match_.stage.end_reason().filter(|_| was_live) else { return };
        if self.counts_by_set.len() == COUNTED_SETS_MAX && !self.counts_by_set.contains_key(&match_.set_id) {
            return;
        }
        let counts = self.counts_by_set.entry(match_.set_id).or_default();
        match counts.iter_mut().find(|(reason, _)| *reason == end_reason) {
            Some((_, count)) => *count += 1,
            None => counts.push((end_reason, 1)),
        }
    }

    /// Sets with ended matches.
    pub(crate) fn sets(&self) -> impl Iterator<Item = SetId> + '_ {
        self.counts_by_set.keys().copied()
    }

    /// Numbers of one set, by reason; reasons without a match are left out.
    pub(crate) fn of_set(&self, set_id: SetId) -> &[(MatchEndReason, u64)] {
        self.counts_by_set.get(&set_id).map_or(&[], Vec::as_slice)
    }
}
