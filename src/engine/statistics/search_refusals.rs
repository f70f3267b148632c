//! Refusals of searches by rule. A search adds to counters; only its ruleset is looked up.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::domain::filter::Refusal;
use crate::domain::id::{RulesetHash, SetId};
use crate::domain::ruleset::Ruleset;
use crate::domain::statistic::{PartySizeClass, StatisticKind};
use crate::domain::time::UnixMs;
use crate::engine::statistics::sample::Sample;

/// Rulesets with refusals since the last `take`; refusals of further ones are not counted.
const RULESETS_MAX: usize = 1_024;

/// Counters of each ruleset that was searched under since the last `take`.
#[derive(Debug, Default)]
pub(super) struct SearchRefusals(RwLock<HashMap<(SetId, RulesetHash), RulesetCounters>>);

#[derive(Debug)]
struct RulesetCounters {
    /// Name of the rule of each counter.
    rules: Box<[Box<str>]>,
    /// Counters by party size, then by `Refusal::counter_index`.
    counts: Box<[AtomicU64]>,
}

impl SearchRefusals {
    /// Adds the refusals of a search.
    pub(super) fn record(&self, ruleset: &Ruleset, players: u16, refusals: &[(Refusal, u32)]) {
        let key = (ruleset.set_id, ruleset.hash);
        let class = PartySizeClass::from_player_count(players.into());
        if let Some(counters) = self.0.read().get(&key) {
            return counters.add(class, refusals);
        }
        let mut rulesets = self.0.write();
        if rulesets.len() < RULESETS_MAX || rulesets.contains_key(&key) {
            rulesets.entry(key).or_insert_with(|| RulesetCounters::new(ruleset)).add(class, refusals);
        }
    }

    /// Takes all counts since the last call.
    pub(super) fn take(&self, now: UnixMs) -> Vec<Sample> {
        if self.0.read().is_empty() {
            return Vec::new();
        }
        // No search adds while this lock is held, so no count is lost.
        let rulesets = std::mem::take(&mut *self.0.write());
        rulesets.into_iter().flat_map(|((set_id, _), counters)| counters.into_samples(set_id, now)).collect()
    }
}

impl RulesetCounters {
    fn new(ruleset: &Ruleset) -> Self {
        let rule_count = Refusal::counter_count(ruleset.refusing_rule_count());
        let rule = |counter| Refusal::from_counter_index(counter).rule_name(ruleset).into();
        Self {
            rules: (0..rule_count).map(rule).collect(),
            counts: (0..rule_count * PartySizeClass::ALL.len()).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    fn add(&self, class: PartySizeClass, refusals: &[(Refusal, u32)]) {
        let offset = usize::from(class.number()) * self.rules.len();
        for (refusal, count) in refusals {
            if let Some(counter) = self.counts.get(offset + refusal.counter_index()) {
                counter.fetch_add(u64::from(*count), Ordering::Relaxed);
            }
        }
    }

    fn into_samples(self, set_id: SetId, now: UnixMs) -> Vec<Sample> {
        let mut samples = Vec::new();
        for class in PartySizeClass::ALL {
            let offset = usize::from(class.number()) * self.rules.len();
            for (rule, counter) in self.rules.iter().zip(&self.counts[offset..]) {
                let count = counter.load(Ordering::Relaxed);
                if count > 0 {
                    let sample = Sample::new(StatisticKind::SearchRefusals, set_id, 0.0, now);
                    samples.push(Sample { party_size: class, rule: Some((**rule).into()), count, ..sample });
                }
            }
        }
        samples
    }
}
