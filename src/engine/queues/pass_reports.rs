//! Last pass report of each queue: blocking rules of tickets, refusal counts and timings.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::domain::filter::Refusal;
use crate::domain::id::{BuildIdHasher, TicketId};
use crate::domain::queue::report::PassReport;
use crate::domain::ruleset::Ruleset;
use crate::store::queues::QueueKey;

/// Last reports of the queues that run on this replica.
#[derive(Debug, Default)]
pub(crate) struct PassReports {
    reports_by_queue: BTreeMap<QueueKey, QueuePassReport>,
}

/// Last pass report of a queue, with blocking rules by ticket.
#[derive(Clone, Debug, Default)]
pub(crate) struct QueuePassReport {
    blocking_rules: HashMap<TicketId, Arc<str>, BuildIdHasher>,
    /// Number of refusals by rule name, in report order.
    pub(crate) refusal_counts: Vec<(Arc<str>, u64)>,
    /// Passes run since this replica took the queue over.
    pub(crate) pass_count: u64,
    /// Duration of the last pass, milliseconds.
    pub(crate) last_pass_duration_ms: f64,
    /// Last report, without its unmatched tickets.
    pub(crate) last_report: PassReport,
}

impl PassReports {
    /// Stores the report of a pass that took `duration_ms`.
    pub(crate) fn store_report(&mut self, key: QueueKey, ruleset: &Ruleset, mut report: PassReport, duration_ms: f64) {
        let stored = self.reports_by_queue.entry(key).or_default();
        // Build each name once: most tickets share a few rules.
        let mut names: BTreeMap<Refusal, Arc<str>> = BTreeMap::new();
        let mut name = |refusal: Refusal| -> Arc<str> {
            Arc::clone(names.entry(refusal).or_insert_with(|| refusal.rule_name(ruleset).into()))
        };
        stored.blocking_rules =
            report.unmatched.drain(..).map(|unmatched| (unmatched.ticket_id, name(unmatched.refusal))).collect();
        stored.refusal_counts = report.refusal_counts.iter().map(|(refusal, count)| (name(*refusal), *count)).collect();
        stored.pass_count += 1;
        stored.last_pass_duration_ms = duration_ms;
        stored.last_report = report;
    }

    /// Rule that left a ticket unmatched in the last pass.
    pub(crate) fn blocking_rule(&self, key: QueueKey, id: TicketId) -> Option<Arc<str>> {
        self.reports_by_queue.get(&key)?.blocking_rules.get(&id).cloned()
    }

    /// Last report of a queue.
    pub(crate) fn get(&self, key: QueueKey) -> Option<&QueuePassReport> {
        self.reports_by_queue.get(&key)
    }

    /// Removes a queue that is empty or runs on another replica.
    pub(crate) fn remove(&mut self, key: QueueKey) {
        self.reports_by_queue.remove(&key);
    }
}
