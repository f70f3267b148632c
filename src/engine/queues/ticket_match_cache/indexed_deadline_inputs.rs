//! Outages that the deadlines in the indexes were computed with, and the durations of deadlines.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::available_time::OutageTimes;
use crate::domain::id::SetId;
use crate::domain::lifecycle::Match;
use crate::domain::lifecycle::rules::LifecycleRules;
use crate::domain::time::UnixMs;
use crate::rules::RulesetCatalog;
use crate::rules::catalog::MatchRulesetLookup;
use crate::store::queues::StoredTicket;

/// TTL of tickets whose set has no queue any more, milliseconds.
const TTL_WITHOUT_QUEUE_MS: u32 = 60_000;

/// Outages that the deadlines in the indexes were computed with, and the durations of deadlines.
#[derive(Debug, Default)]
pub(super) struct IndexedDeadlineInputs {
    pub(super) outages: Arc<OutageTimes>,
    /// TTL of tickets per set. Fixed until the outages change, so that an expiry in the indexes can be computed again.
    ticket_ttl_ms_by_set: BTreeMap<SetId, u32>,
    rulesets: Option<Arc<RulesetCatalog>>,
}

impl IndexedDeadlineInputs {
    /// Extension by `outages`, with the durations that the rulesets have now.
    pub(super) fn new(outages: Arc<OutageTimes>, rulesets: Arc<RulesetCatalog>) -> Self {
        let catalog = rulesets.snapshot();
        let set_ids = catalog.active.keys().chain(catalog.retiring.keys());
        let ticket_ttl_ms = set_ids
            .filter_map(|set_id| Some((*set_id, catalog.ruleset_in_force(*set_id)?.queue.as_ref()?.ticket_ttl_ms)));
        Self { outages, ticket_ttl_ms_by_set: ticket_ttl_ms.collect(), rulesets: Some(rulesets) }
    }

    /// Time at which a ticket expires, with these outages.
    pub(super) fn expiry_of(&self, stored: &StoredTicket, outages: &OutageTimes) -> UnixMs {
        if outages.is_empty() {
            return stored.expires_at;
        }
        let ttl_ms = self.ticket_ttl_ms_by_set.get(&stored.ticket.set_id).copied().unwrap_or(TTL_WITHOUT_QUEUE_MS);
        let set_at = UnixMs(stored.expires_at.ms_since(UnixMs(u64::from(ttl_ms))));
        outages.effective_deadline(set_at, stored.expires_at)
    }

    /// Lifecycle settings of a match, if its ruleset is loaded.
    pub(super) fn lifecycle_rules_if_loaded(&self, match_: &Match) -> Option<LifecycleRules> {
        match self.rulesets.as_ref()?.look_up_match_ruleset(match_.set_id, match_.ruleset_hash) {
            MatchRulesetLookup::Known(ruleset) => Some(LifecycleRules::from_ruleset(&ruleset)),
            MatchRulesetLookup::NotLoaded | MatchRulesetLookup::Unrecoverable => None,
        }
    }
}
