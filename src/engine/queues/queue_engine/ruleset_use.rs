//! Use of rulesets by tickets and matches in memory, and the end of the tickets of a retired set.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;

use crate::domain::id::{RulesetHash, SetId, TicketId};
use crate::domain::queue::ticket::TicketEndReason;
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::stored_ticket::is_ticket_ended;
use crate::store::queues::{QueueOutcome, QueueWrite};

/// Tickets and matches that need a ruleset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RulesetUsage {
    /// Waiting tickets, by set.
    pub(crate) waiting_ticket_count_by_set: BTreeMap<SetId, u32>,
    /// Matches that have not ended, by ruleset.
    pub(crate) live_match_count_by_ruleset: BTreeMap<(SetId, RulesetHash), u32>,
}

impl RulesetUsage {
    /// Waiting tickets of a set.
    pub(crate) fn waiting_ticket_count_of_set(&self, set_id: SetId) -> u32 {
        self.waiting_ticket_count_by_set.get(&set_id).copied().unwrap_or(0)
    }

    /// Matches of a set that have not ended.
    pub(crate) fn live_match_count_of_set(&self, set_id: SetId) -> u32 {
        self.live_match_count_by_ruleset.iter().filter(|((set, _), _)| *set == set_id).map(|(_, count)| count).sum()
    }
}

impl QueueEngine {
    /// Waiting tickets and live matches of every set.
    pub(crate) fn ruleset_usage(&self) -> RulesetUsage {
        let cache = self.shared.cache.read();
        let mut usage = RulesetUsage::default();
        for (key, index) in cache.queues() {
            let waiting = u32::try_from(index.waiting_ticket_count()).unwrap_or(u32::MAX);
            if waiting > 0 {
                *usage.waiting_ticket_count_by_set.entry(key.set_id).or_default() += waiting;
            }
            for found in index.live_matches().filter_map(|id| cache.match_by_id(id)) {
                *usage.live_match_count_by_ruleset.entry((found.set_id, found.ruleset_hash)).or_default() += 1;
            }
        }
        usage
    }

    /// Waiting tickets of the sets, at most `max`.
    pub(crate) fn waiting_tickets_of_sets(&self, sets: &BTreeSet<SetId>, max: usize) -> Vec<(SetId, TicketId)> {
        let cache = self.shared.cache.read();
        let queues = cache.queues().filter(|(key, _)| sets.contains(&key.set_id));
        queues.flat_map(|(key, index)| index.waiting_tickets().map(move |(_, id)| (key.set_id, id))).take(max).collect()
    }

    /// Ends waiting tickets of retired sets. Returns how many ended, now or before. A failed write is left to the caller's
    /// next attempt.
    pub(crate) async fn end_tickets_of_retired_sets(&self, tickets: Vec<TicketId>) -> u32 {
        let now = self.shared.common.clock.now();
        let purge_at = now.plus_ms(self.shared.common.settings.ended_ticket_retention_ms);
        let end_reason = TicketEndReason::RulesetRetired;
        let writes = tickets
            .into_iter()
            .map(|ticket_id| self.shared.submit_write(QueueWrite::EndTicket { ticket_id, end_reason, purge_at, now }));
        let outcomes = join_all(writes).await;
        let ended = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Ok(QueueOutcome::CurrentTicket(stored)) if is_ticket_ended(stored)));
        u32::try_from(ended.count()).unwrap_or(u32::MAX)
    }

    /// Wakes the queue runners after a change of the rulesets.
    pub(crate) fn notify_rulesets_changed(&self) {
        self.shared.queue_wakeups.lock().wake_sets(|_| true);
    }
}
