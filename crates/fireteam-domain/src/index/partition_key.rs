//! Partition keys of advertisements, and the set of keys that a search visits.

use crate::advertisement::AdvertisementKind;
use crate::attribute::{AttributeValue, ShortString};
use crate::attribute_values::AttributeValues;
use crate::id::SiloId;
use crate::index::query::SearchQuery;
use crate::ruleset::{HardMissingPolicy, HardRule, Ruleset};

/// Part of a partition key for one attribute.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AttributeKeyPart {
    /// No value, or a value of another type.
    Missing,
    /// Bool value.
    Bool(bool),
    /// String value.
    String(ShortString),
}

/// Key of a partition. Searches select partitions by key before they read rows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartitionKey {
    /// Silo.
    pub(super) silo: SiloId,
    /// 0 for sessions, 1 for game servers.
    pub(super) kind_number: u8,
    /// One part per partition attribute.
    pub(super) parts: Vec<AttributeKeyPart>,
}

impl PartitionKey {
    /// Partition key of an advertisement.
    pub(super) fn of_advertisement(
        silo: SiloId,
        kind: AdvertisementKind,
        partition_attributes: &[usize],
        attribute_values: &AttributeValues,
    ) -> Self {
        Self {
            silo,
            kind_number: kind_number(kind),
            parts: partition_attributes.iter().map(|&attribute| key_part(attribute_values.get(attribute))).collect(),
        }
    }

    /// Whether `of_advertisement` would return this key; does not allocate.
    pub(super) fn matches_advertisement(
        &self,
        silo: SiloId,
        kind: AdvertisementKind,
        partition_attributes: &[usize],
        attribute_values: &AttributeValues,
    ) -> bool {
        let matches =
            |(part, &attribute): (&AttributeKeyPart, &usize)| part.matches_value(attribute_values.get(attribute));
        self.silo == silo
            && self.kind_number == kind_number(kind)
            && self.parts.iter().zip(partition_attributes).all(matches)
    }
}

impl AttributeKeyPart {
    fn matches_value(&self, value: Option<&AttributeValue>) -> bool {
        match (self, value) {
            (AttributeKeyPart::Bool(one), Some(AttributeValue::Bool(other))) => one == other,
            (AttributeKeyPart::String(one), Some(AttributeValue::String(other))) => one == other,
            (AttributeKeyPart::Missing, Some(AttributeValue::Number(_) | AttributeValue::StringList(_)) | None) => true,
            (AttributeKeyPart::Missing | AttributeKeyPart::Bool(_) | AttributeKeyPart::String(_), _) => false,
        }
    }
}

fn key_part(value: Option<&AttributeValue>) -> AttributeKeyPart {
    match value {
        Some(AttributeValue::Bool(boolean)) => AttributeKeyPart::Bool(*boolean),
        Some(AttributeValue::String(string)) => AttributeKeyPart::String(string.clone()),
        Some(AttributeValue::Number(_) | AttributeValue::StringList(_)) | None => AttributeKeyPart::Missing,
    }
}

fn kind_number(kind: AdvertisementKind) -> u8 {
    match kind {
        AdvertisementKind::Session => 0,
        AdvertisementKind::GameServer => 1,
    }
}

/// Values of one attribute that a search accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WantedValue {
    /// Any value.
    Any,
    /// One of these values.
    OneOf(Vec<AttributeKeyPart>),
}

/// Partition keys that a search visits: those that no `Equal` filter refuses.
#[derive(Debug)]
pub(super) struct WantedKeys {
    silo: SiloId,
    kind_number: u8,
    wanted_values: Vec<WantedValue>,
}

/// Maximum number of keys that are looked up one by one. With more, the search scans all partitions of the silo.
const ENUMERATED_KEYS_MAX: usize = 16;

impl WantedKeys {
    /// Keys wanted by `query`.
    pub(super) fn for_query(query: &SearchQuery<'_>, partition_attributes: &[usize]) -> Self {
        let wanted_values = partition_attributes
            .iter()
            .map(|&attribute| wanted_value(query.ruleset, query.searcher.attribute_values, attribute))
            .collect();
        Self { silo: query.silo, kind_number: kind_number(query.kind), wanted_values }
    }

    /// All wanted keys; `None` if there are too many or an attribute accepts any value.
    pub(super) fn enumerate_keys(&self) -> Option<Vec<PartitionKey>> {
        let mut keys = vec![self.range_start()];
        for wanted in &self.wanted_values {
            let WantedValue::OneOf(parts) = wanted else { return None };
            let extend = |key: PartitionKey| {
                parts.iter().map(move |part| {
                    let mut key = key.clone();
                    key.parts.push(part.clone());
                    key
                })
            };
            keys = keys.into_iter().flat_map(extend).collect();
            if keys.len() > ENUMERATED_KEYS_MAX {
                return None;
            }
        }
        Some(keys)
    }

    /// Lowest key of the silo and kind.
    pub(super) fn range_start(&self) -> PartitionKey {
        PartitionKey { silo: self.silo, kind_number: self.kind_number, parts: Vec::new() }
    }

    /// Whether `key` has the wanted silo and kind.
    pub(super) fn has_same_silo_and_kind(&self, key: &PartitionKey) -> bool {
        key.silo == self.silo && key.kind_number == self.kind_number
    }

    /// Whether no `Equal` filter refuses `key`.
    pub(super) fn matches_key(&self, key: &PartitionKey) -> bool {
        self.has_same_silo_and_kind(key)
            && self.wanted_values.iter().zip(&key.parts).all(|(wanted, part)| match wanted {
                WantedValue::Any => true,
                WantedValue::OneOf(parts) => parts.contains(part),
            })
    }
}

fn wanted_value(ruleset: &Ruleset, searcher: &AttributeValues, partition_attribute: usize) -> WantedValue {
    let mut wanted = WantedValue::Any;
    for hard in &ruleset.hard_filters {
        let HardRule::Equal { attribute, value } = &hard.rule else { continue };
        if *attribute != partition_attribute {
            continue;
        }
        let missing_passes = hard.missing == HardMissingPolicy::Pass;
        let wanted_part = match (value, searcher.get(partition_attribute)) {
            (Some(value), _) | (None, Some(value)) => Some(key_part(Some(value))),
            (None, None) if missing_passes => continue,
            (None, None) => None,
        };
        let passes = |part: &AttributeKeyPart| {
            Some(part) == wanted_part.as_ref() || (missing_passes && *part == AttributeKeyPart::Missing)
        };
        wanted = match wanted {
            WantedValue::Any => {
                let mut parts: Vec<AttributeKeyPart> = wanted_part
                    .clone()
                    .into_iter()
                    .chain(missing_passes.then_some(AttributeKeyPart::Missing))
                    .collect();
                parts.dedup();
                WantedValue::OneOf(parts)
            }
            WantedValue::OneOf(parts) => WantedValue::OneOf(parts.into_iter().filter(passes).collect()),
        };
    }
    wanted
}
