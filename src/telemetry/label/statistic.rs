//! Labels of statistics: numbers of sets, classes of party sizes, and names from rulesets.

use std::fmt;

use prometheus_client::encoding::{EncodeLabel as _, EncodeLabelSet, LabelSetEncoder};

use crate::domain::statistic::{StatisticKey, StatisticKind};

/// Labels of a party's quantities.
const PARTY_LABELS: &[&str] = &["set", "region", "party_size"];

/// Labels of refusals.
const RULE_REFUSAL_LABELS: &[&str] = &["set", "party_size", "rule"];

/// Labels of quantities that tell one version of a ruleset from another.
const RULESET_LABELS: &[&str] = &["set", "ruleset"];

/// Labels of one series: names, and their values in the same order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StatisticLabels {
    names: &'static [&'static str],
    values: Vec<String>,
}

impl StatisticLabels {
    /// Labels of a key.
    pub fn new(key: &StatisticKey) -> Self {
        let set = || key.set_id.map_or_else(|| "other".to_owned(), |set_id| set_id.0.to_string());
        let party_size = || key.party_size.as_str().to_owned();
        let (names, values) = match key.kind {
            StatisticKind::SearchRefusals | StatisticKind::PassRefusals => {
                (RULE_REFUSAL_LABELS, vec![set(), party_size(), key.rule.to_string()])
            }
            StatisticKind::Feedback | StatisticKind::Results => {
                (RULESET_LABELS, vec![set(), key.ruleset_hash.map_or_else(String::new, |hash| hash.0.to_string())])
            }
            _ => (PARTY_LABELS, vec![set(), key.region.to_string(), party_size()]),
        };
        Self { names, values }
    }
}

impl EncodeLabelSet for StatisticLabels {
    fn encode(&self, encoder: &mut LabelSetEncoder<'_>) -> fmt::Result {
        for (name, value) in self.names.iter().zip(&self.values) {
            (*name, value.as_str()).encode(encoder.encode_label())?;
        }
        Ok(())
    }
}
