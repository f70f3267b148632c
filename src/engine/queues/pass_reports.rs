//! What the last pass of each queue said: why tickets were left, and how it went.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::domain::filter::Refusal;
use crate::domain::id::{BuildIdHasher, TicketId};
use crate::domain::queue::report::PassReport;
use crate::domain::ruleset::Ruleset;
use crate::store::queues::QueueKey;

/// The last report of every queue that runs here.
#[derive(Debug, Default)]
pub(super) struct PassReports {
    by_queue: BTreeMap<QueueKey, StoredReport>,
}

/// A report, filed for questions.
#[derive(Clone, Debug, Default)]
pub(super) struct StoredReport {
    blocking_rules: HashMap<TicketId, Arc<str>, BuildIdHasher>,
    /// How often each rule refused, by its name, in the order of the report.
    pub(super) refusal_counts: Vec<(Arc<str>, u64)>,
    /// Passes of this queue since it has been run here.
    pub(super) pass_count: u64,
    /// How long the last one took, milliseconds.
    pub(super) last_pass_ms: f64,
    /// The last report, but for the tickets.
    pub(super) last_report: PassReport,
}

impl PassReports {
    /// Files the report of a pass that took `took_ms`.
    pub(super) fn store_report(&mut self, key: QueueKey, ruleset: &Ruleset, mut report: PassReport, took_ms: f64) {
        let filed = self.by_queue.entry(key).or_default();
        // Names are made once a report: most tickets wait for the same few rules.
        let mut names: BTreeMap<Refusal, Arc<str>> = BTreeMap::new();
        let mut name = |refusal: Refusal| -> Arc<str> {
            Arc::clone(names.entry(refusal).or_insert_with(|| rule_name(ruleset, refusal).into()))
        };
        filed.blocking_rules = report.unmatched.drain(..).map(|left| (left.ticket_id, name(left.refusal))).collect();
        filed.refusal_counts = report.refusal_counts.iter().map(|(refusal, count)| (name(*refusal), *count)).collect();
        filed.pass_count += 1;
        filed.last_pass_ms = took_ms;
        filed.last_report = report;
    }

    /// Why a ticket was left by the last pass that looked at it.
    pub(super) fn blocking_rule(&self, key: QueueKey, id: TicketId) -> Option<Arc<str>> {
        self.by_queue.get(&key)?.blocking_rules.get(&id).cloned()
    }

    /// The last report of a queue.
    pub(super) fn get(&self, key: QueueKey) -> Option<&StoredReport> {
        self.by_queue.get(&key)
    }

    /// Another server runs it now, or nobody has to.
    pub(super) fn remove(&mut self, key: QueueKey) {
        self.by_queue.remove(&key);
    }
}

/// What a refusal is called: a hard filter by its own name, everything else by its word.
pub fn rule_name(ruleset: &Ruleset, refusal: Refusal) -> String {
    match refusal {
        Refusal::HardFilter { filter_index: filter, .. } => {
            ruleset.hard_filters.get(filter).map_or("allowed", |hard| &hard.name).to_owned()
        }
        other => other.as_str().to_owned(),
    }
}
