//! Ruleset copies of the in-memory store.

use std::sync::PoisonError;

use async_trait::async_trait;

use crate::store::error::StoreError;
use crate::store::memory::MemoryStore;
use crate::store::queues::TicketState;
use crate::store::ruleset_copies::{RulesetCopy, RulesetCopyStore, RulesetReport, UsedRulesets};

#[async_trait]
impl RulesetCopyStore for MemoryStore {
    async fn apply_ruleset_report(&self, report: &RulesetReport) -> Result<Vec<RulesetCopy>, StoreError> {
        let used = {
            let queues = self.lock_queues();
            let live = queues.tickets.values().filter(|stored| !matches!(stored.state, TicketState::Ended { .. }));
            UsedRulesets {
                ticket_sets: live.map(|stored| stored.ticket.set_id).collect(),
                match_rulesets: queues.matches.values().map(|found| (found.set_id, found.ruleset_hash)).collect(),
            }
        };
        let mut rows = self.ruleset_copies.lock().unwrap_or_else(PoisonError::into_inner);
        rows.apply_report(report);
        rows.purge(report, &used);
        Ok(rows.clone().into_copies())
    }
}
