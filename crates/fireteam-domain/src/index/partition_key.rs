//! Which partition an advertisement belongs to, and which partitions a search visits.

use crate::advertisement::AdvertisementKind;
use crate::attribute::AttributeValue;
use crate::attribute_values::AttributeValues;
use crate::id::SiloId;
use crate::index::SearchQuery;
use crate::ruleset::{HardMissingPolicy, HardRule, Ruleset};

/// One attribute's part of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum KeyPart {
    /// No value.
    Missing,
    /// A flag.
    Bool(bool),
    /// A text.
    String(Box<str>),
}

/// A partition's name: advertisements of different keys are told apart before any row is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PartitionKey {
    /// The population.
    pub(super) silo: SiloId,
    /// 0 for sessions, 1 for servers.
    pub(super) kind_number: u8,
    /// One for each keyed attribute.
    pub(super) parts: Vec<KeyPart>,
}

impl PartitionKey {
    /// The key of an advertisement.
    pub(super) fn of_advertisement(
        silo: SiloId,
        kind: AdvertisementKind,
        keyed: &[usize],
        facts: &AttributeValues,
    ) -> Self {
        Self { silo, kind_number: kind_number(kind), parts: keyed.iter().map(|&it| key_part(facts.get(it))).collect() }
    }

    /// Whether `of` would give this key; allocates nothing.
    pub(super) fn matches_advertisement(
        &self,
        silo: SiloId,
        kind: AdvertisementKind,
        keyed: &[usize],
        facts: &AttributeValues,
    ) -> bool {
        let same = |(part, &attribute): (&KeyPart, &usize)| part.matches_value(facts.get(attribute));
        self.silo == silo && self.kind_number == kind_number(kind) && self.parts.iter().zip(keyed).all(same)
    }
}

impl KeyPart {
    fn matches_value(&self, value: Option<&AttributeValue>) -> bool {
        match (self, value) {
            (KeyPart::Bool(one), Some(AttributeValue::Bool(other))) => one == other,
            (KeyPart::String(one), Some(AttributeValue::String(other))) => one == other,
            (KeyPart::Missing, Some(AttributeValue::Number(_) | AttributeValue::StringList(_)) | None) => true,
            (KeyPart::Missing | KeyPart::Bool(_) | KeyPart::String(_), _) => false,
        }
    }
}

fn key_part(value: Option<&AttributeValue>) -> KeyPart {
    match value {
        Some(AttributeValue::Bool(flag)) => KeyPart::Bool(*flag),
        Some(AttributeValue::String(text)) => KeyPart::String(text.clone()),
        Some(AttributeValue::Number(_) | AttributeValue::StringList(_)) | None => KeyPart::Missing,
    }
}

fn kind_number(kind: AdvertisementKind) -> u8 {
    match kind {
        AdvertisementKind::Session => 0,
        AdvertisementKind::GameServer => 1,
    }
}

/// What a search wants one attribute to be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum WantedValue {
    /// Anything.
    Any,
    /// One of these.
    OneOf(Vec<KeyPart>),
}

/// Which keys a search visits: those that no `Equal` filter refuses.
#[derive(Debug)]
pub(super) struct WantedKeys {
    silo: SiloId,
    kind_number: u8,
    wanted_values: Vec<WantedValue>,
}

/// Keys looked up one by one; with more, the partitions of the silo are gone through instead.
const ENUMERATED_KEYS_MAX: usize = 16;

impl WantedKeys {
    /// What `query` wants of the attributes in `keyed`.
    pub(super) fn for_query(query: &SearchQuery<'_>, keyed: &[usize]) -> Self {
        let wanted = keyed.iter().map(|&it| wanted_value(query.ruleset, query.searcher.attribute_values, it)).collect();
        Self { silo: query.silo, kind_number: kind_number(query.kind), wanted_values: wanted }
    }

    /// Every key that fits, when they can be listed.
    pub(super) fn enumerate_keys(&self) -> Option<Vec<PartitionKey>> {
        let mut keys = vec![self.range_start()];
        for wanted in &self.wanted_values {
            let WantedValue::OneOf(parts) = wanted else { return None };
            let with = |key: PartitionKey| {
                parts.iter().map(move |part| {
                    let mut key = key.clone();
                    key.parts.push(part.clone());
                    key
                })
            };
            keys = keys.into_iter().flat_map(with).collect();
            if ENUMERATED_KEYS_MAX < keys.len() {
                return None;
            }
        }
        Some(keys)
    }

    /// Before every key of the silo and kind.
    pub(super) fn range_start(&self) -> PartitionKey {
        PartitionKey { silo: self.silo, kind_number: self.kind_number, parts: Vec::new() }
    }

    /// Whether `key` is of the same silo and kind.
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

fn wanted_value(ruleset: &Ruleset, searcher: &AttributeValues, keyed: usize) -> WantedValue {
    let mut wanted = WantedValue::Any;
    for hard in &ruleset.hard_filters {
        let HardRule::Equal { attribute, value } = &hard.rule else { continue };
        if *attribute != keyed {
            continue;
        }
        let missing = hard.missing == HardMissingPolicy::Pass;
        let asked = match (value, searcher.get(keyed)) {
            (Some(value), _) | (None, Some(value)) => Some(key_part(Some(value))),
            (None, None) if missing => continue,
            (None, None) => None,
        };
        let passes = |it: &KeyPart| Some(it) == asked.as_ref() || (missing && *it == KeyPart::Missing);
        wanted = match wanted {
            WantedValue::Any => {
                let mut parts: Vec<KeyPart> =
                    asked.clone().into_iter().chain(missing.then_some(KeyPart::Missing)).collect();
                parts.dedup();
                WantedValue::OneOf(parts)
            }
            WantedValue::OneOf(parts) => WantedValue::OneOf(parts.into_iter().filter(passes).collect()),
        };
    }
    wanted
}
