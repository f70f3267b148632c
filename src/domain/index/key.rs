//! Which partition an advertisement belongs to, and which partitions a search visits.

use crate::domain::advertisement::Kind;
use crate::domain::attribute::Value;
use crate::domain::facts::Facts;
use crate::domain::id::SiloId;
use crate::domain::index::Query;
use crate::domain::ruleset::{HardRule, MissingHard, Ruleset};

/// One attribute's part of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// No value.
    Missing,
    /// A flag.
    Flag(bool),
    /// A text.
    Text(Box<str>),
}

/// A partition's name: advertisements of different keys are told apart before any row is read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The population.
    pub(super) silo: SiloId,
    /// 0 for sessions, 1 for servers.
    pub(super) kind: u8,
    /// One for each keyed attribute.
    pub(super) parts: Vec<Part>,
}

impl Key {
    /// The key of an advertisement.
    pub(super) fn of(silo: SiloId, kind: Kind, keyed: &[usize], facts: &Facts) -> Self {
        Self { silo, kind: kind_number(kind), parts: keyed.iter().map(|&it| part(facts.get(it))).collect() }
    }

    /// Whether `of` would give this key; allocates nothing.
    pub(super) fn is_of(&self, silo: SiloId, kind: Kind, keyed: &[usize], facts: &Facts) -> bool {
        let same = |(part, &attribute): (&Part, &usize)| part.is(facts.get(attribute));
        self.silo == silo && self.kind == kind_number(kind) && self.parts.iter().zip(keyed).all(same)
    }
}

impl Part {
    fn is(&self, value: Option<&Value>) -> bool {
        match (self, value) {
            (Part::Flag(one), Some(Value::Flag(other))) => one == other,
            (Part::Text(one), Some(Value::Text(other))) => one == other,
            (Part::Missing, Some(Value::Number(_) | Value::Texts(_)) | None) => true,
            (Part::Missing | Part::Flag(_) | Part::Text(_), _) => false,
        }
    }
}

fn part(value: Option<&Value>) -> Part {
    match value {
        Some(Value::Flag(flag)) => Part::Flag(*flag),
        Some(Value::Text(text)) => Part::Text(text.clone()),
        Some(Value::Number(_) | Value::Texts(_)) | None => Part::Missing,
    }
}

fn kind_number(kind: Kind) -> u8 {
    match kind {
        Kind::Session => 0,
        Kind::Server => 1,
    }
}

/// What a search wants one attribute to be.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// Anything.
    Any,
    /// One of these.
    Parts(Vec<Part>),
}

/// Which keys a search visits: those that no `Equal` filter refuses.
#[derive(Debug)]
pub(super) struct Wish {
    silo: SiloId,
    kind: u8,
    wanted: Vec<Wanted>,
}

/// Keys looked up one by one; with more, the partitions of the silo are gone through instead.
const KEYS_MAX: usize = 16;

impl Wish {
    /// What `query` wants of the attributes in `keyed`.
    pub(super) fn of(query: &Query<'_>, keyed: &[usize]) -> Self {
        let wanted = keyed.iter().map(|&it| wanted(query.ruleset, query.searcher.facts, it)).collect();
        Self { silo: query.silo, kind: kind_number(query.kind), wanted }
    }

    /// Every key that fits, when they can be listed.
    pub(super) fn keys(&self) -> Option<Vec<Key>> {
        let mut keys = vec![self.least()];
        for wanted in &self.wanted {
            let Wanted::Parts(parts) = wanted else { return None };
            let with = |key: Key| {
                parts.iter().map(move |part| {
                    let mut key = key.clone();
                    key.parts.push(part.clone());
                    key
                })
            };
            keys = keys.into_iter().flat_map(with).collect();
            if KEYS_MAX < keys.len() {
                return None;
            }
        }
        Some(keys)
    }

    /// Before every key of the silo and kind.
    pub(super) fn least(&self) -> Key {
        Key { silo: self.silo, kind: self.kind, parts: Vec::new() }
    }

    /// Whether `key` is of the same silo and kind.
    pub(super) fn is_near(&self, key: &Key) -> bool {
        key.silo == self.silo && key.kind == self.kind
    }

    /// Whether no `Equal` filter refuses `key`.
    pub(super) fn fits(&self, key: &Key) -> bool {
        self.is_near(key)
            && self.wanted.iter().zip(&key.parts).all(|(wanted, part)| match wanted {
                Wanted::Any => true,
                Wanted::Parts(parts) => parts.contains(part),
            })
    }
}

fn wanted(ruleset: &Ruleset, searcher: &Facts, keyed: usize) -> Wanted {
    let mut wanted = Wanted::Any;
    for hard in &ruleset.hard {
        let HardRule::Equal { attribute, value } = &hard.rule else { continue };
        if *attribute != keyed {
            continue;
        }
        let missing = hard.missing == MissingHard::Pass;
        let asked = match (value, searcher.get(keyed)) {
            (Some(value), _) | (None, Some(value)) => Some(part(Some(value))),
            (None, None) if missing => continue,
            (None, None) => None,
        };
        let passes = |it: &Part| Some(it) == asked.as_ref() || (missing && *it == Part::Missing);
        wanted = match wanted {
            Wanted::Any => {
                let mut parts: Vec<Part> = asked.clone().into_iter().chain(missing.then_some(Part::Missing)).collect();
                parts.dedup();
                Wanted::Parts(parts)
            }
            Wanted::Parts(parts) => Wanted::Parts(parts.into_iter().filter(passes).collect()),
        };
    }
    wanted
}
