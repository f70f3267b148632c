//! What the last pass of each queue said: why tickets were left, and how it went.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::domain::filter::Refusal;
use crate::domain::id::{IdState, TicketId};
use crate::domain::queue::report::PassReport;
use crate::domain::ruleset::Ruleset;
use crate::store::queues::QueueKey;

/// The last report of every queue that runs here.
#[derive(Debug, Default)]
pub(super) struct Reports {
    queues: BTreeMap<QueueKey, Filed>,
}

/// A report, filed for questions.
#[derive(Clone, Debug, Default)]
pub(super) struct Filed {
    why: HashMap<TicketId, Arc<str>, IdState>,
    /// How often each rule refused, by its name, in the order of the report.
    pub(super) refusals: Vec<(Arc<str>, u64)>,
    /// Passes of this queue since it has been run here.
    pub(super) passes: u64,
    /// How long the last one took, milliseconds.
    pub(super) took_ms: f64,
    /// The last report, but for the tickets.
    pub(super) last: PassReport,
}

impl Reports {
    /// Files the report of a pass that took `took_ms`.
    pub(super) fn file(&mut self, key: QueueKey, ruleset: &Ruleset, mut report: PassReport, took_ms: f64) {
        let filed = self.queues.entry(key).or_default();
        // Names are made once a report: most tickets wait for the same few rules.
        let mut names: BTreeMap<Refusal, Arc<str>> = BTreeMap::new();
        let mut name = |refusal: Refusal| -> Arc<str> {
            Arc::clone(names.entry(refusal).or_insert_with(|| rule_name(ruleset, refusal).into()))
        };
        filed.why = report.left.drain(..).map(|left| (left.ticket, name(left.refusal))).collect();
        filed.refusals = report.refusals.iter().map(|(refusal, count)| (name(*refusal), *count)).collect();
        filed.passes += 1;
        filed.took_ms = took_ms;
        filed.last = report;
    }

    /// Why a ticket was left by the last pass that looked at it.
    pub(super) fn why(&self, key: QueueKey, id: TicketId) -> Option<Arc<str>> {
        self.queues.get(&key)?.why.get(&id).cloned()
    }

    /// The last report of a queue.
    pub(super) fn of(&self, key: QueueKey) -> Option<&Filed> {
        self.queues.get(&key)
    }

    /// Another server runs it now, or nobody has to.
    pub(super) fn forget(&mut self, key: QueueKey) {
        self.queues.remove(&key);
    }
}

/// What a refusal is called: a hard filter by its own name, everything else by its word.
pub fn rule_name(ruleset: &Ruleset, refusal: Refusal) -> String {
    match refusal {
        Refusal::Filter { filter, .. } => ruleset.hard.get(filter).map_or("allowed", |hard| &hard.name).to_owned(),
        other => other.as_str().to_owned(),
    }
}
