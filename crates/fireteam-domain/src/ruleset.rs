//! A ruleset that has passed every check, and the hash that names its meaning.

mod element_reader;
pub mod hash;
pub mod queue;
pub mod rating;
pub mod raw;
pub mod spelling;
pub mod teams;
pub mod tradeoff;
pub mod validate;
pub mod wait_outlook;

use std::sync::Arc;

use crate::attribute::{Attribute, AttributeValue};
use crate::expansion::Expansion;
use crate::id::{RulesetHash, SetId, SiloId};
use crate::latency::LatencyModel;
use crate::matchmaking_action::AdvertiseChances;
use crate::measure::Measure;
use crate::ruleset::queue::QueueSpec;
use crate::ruleset::rating::RatingSpec;
use crate::ruleset::teams::{HostingSpec, ReadyCheckSpec, TeamsSpec};

/// Which silos a set serves.
#[derive(Clone, Debug, PartialEq)]
pub enum ServedSilos {
    /// Every silo.
    Any,
    /// These, sorted.
    Only(Box<[SiloId]>),
}

impl ServedSilos {
    /// Whether `silo` is served.
    pub fn serves(&self, silo: SiloId) -> bool {
        match self {
            ServedSilos::Any => true,
            ServedSilos::Only(silos) => silos.binary_search(&silo).is_ok(),
        }
    }
}

/// What a hard filter does when either side lacks the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HardMissingPolicy {
    /// The filter says nothing.
    #[default]
    Pass,
    /// The filter refuses.
    Refuse,
}

/// A rule that must hold exactly (S1-17). It never trades against a soft one.
#[derive(Clone, Debug, PartialEq)]
pub struct HardFilter {
    /// What refusals are counted under.
    pub name: Box<str>,
    /// When a value is missing.
    pub missing: HardMissingPolicy,
    /// The rule.
    pub rule: HardRule,
}

/// What a hard filter asks. Attributes are places in `Ruleset::attributes`.
#[derive(Clone, Debug, PartialEq)]
pub enum HardRule {
    /// Both sides' values are the same; or, with `value`, the advertiser's is that value.
    Equal {
        /// Any kind of attribute.
        attribute: usize,
        /// The constant to compare with.
        value: Option<AttributeValue>,
    },
    /// Both sides' values differ; or, with `value`, the advertiser's is not that value.
    NotEqual {
        /// Any kind of attribute.
        attribute: usize,
        /// The constant to compare with.
        value: Option<AttributeValue>,
    },
    /// The other side's value is one of a list.
    In {
        /// A text attribute.
        attribute: usize,
        /// The list.
        list: InFilterList,
        /// Asked by both sides rather than by the searcher alone.
        mutual: bool,
    },
    /// The advertiser's number lies in [min, max], both ends included (S1-17). An end that the file leaves out is infinite.
    Range {
        /// A number attribute.
        attribute: usize,
        /// Least value that passes.
        min: f64,
        /// Greatest value that passes.
        max: f64,
    },
    /// The two lists of texts share an entry.
    Overlap {
        /// A texts attribute.
        attribute: usize,
    },
    /// The pair of numbers, either way round, is in a table: NAT types, for one.
    Compatible {
        /// A number attribute that holds whole numbers.
        attribute: usize,
        /// Pairs with the lesser number first; sorted.
        pairs: Box<[(i32, i32)]>,
    },
    /// The measure is within each side's limit at the time that side has waited (S1-36).
    Within {
        /// What is measured: the measure of the expansion.
        measure: Measure,
        /// A place in `Ruleset::expansions`.
        expansion: usize,
        /// How much of the measure the advertiser's limit must cover, percent: 100 is mutual, 0 asks the searcher
        /// alone (S0-16).
        reciprocal_percent: f64,
    },
    /// The advertisement was published under the ruleset that the search uses.
    SameHash,
}

/// What an `In` filter compares with.
#[derive(Clone, Debug, PartialEq)]
pub enum InFilterList {
    /// The asking side's own list: a texts attribute.
    OwnAttribute(usize),
    /// Fixed texts, sorted.
    Strings(Box<[Box<str>]>),
}

/// How a soft filter reads the two sides' values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SoftFilterMode {
    /// |advertiser - searcher|: closeness, as for skill (S1-19).
    Difference,
    /// The advertiser's value, or the pair's measure, against the least of its range: a cost, as for latency (B-8).
    LowerIsBetter,
}

/// How a normalised distance d in [0, 1] weighs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DistanceCurve {
    /// d.
    #[default]
    Linear,
    /// d²: forgives small differences (S4-8).
    Quadratic,
    /// √d: punishes small differences (S4-8).
    SquareRoot,
}

/// What a soft filter adds when a value is missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SoftMissingPolicy {
    /// The whole weight, as if the value were the worst.
    #[default]
    Worst,
    /// Half the weight: neither a reward nor a punishment.
    Neutral,
}

/// A weighted wish: its term is `weight * curve(distance)`, lower is better (S1-18).
#[derive(Clone, Debug, PartialEq)]
pub struct SoftFilter {
    /// What its term is called in answers.
    pub name: Box<str>,
    /// How much it matters; positive, finite.
    pub weight: f64,
    /// What is measured.
    pub measure: Measure,
    /// How the values are read. `Difference` only with `Measure::Attribute`.
    pub mode: SoftFilterMode,
    /// How distance weighs.
    pub curve: DistanceCurve,
    /// When a value is missing.
    pub missing: SoftMissingPolicy,
    /// The value that normalises to 0; less than `max`.
    pub min: f64,
    /// The value that normalises to 1.
    pub max: f64,
}

impl SoftFilter {
    /// `(value - min) / (max - min)`, clamped to [0, 1] (S1-19).
    pub fn normalize(&self, value: f64) -> f64 {
        ((value - self.min) / (self.max - self.min)).clamp(0.0, 1.0)
    }
}

/// How much work one search may cause (S1-46).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    /// Candidates in an answer.
    pub max_results: u32,
    /// Rows looked at.
    pub max_evaluated: u32,
}

/// Whether players must have said themselves that they come along.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartyConsentPolicy {
    /// Whoever leads a party is believed.
    #[default]
    Assumed,
    /// Where a player's game speaks for others, each of them has said so (SEC-6).
    Required,
}

/// A valid ruleset.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruleset {
    /// The playlist's name, for people.
    pub name: Box<str>,
    /// The set that it rules.
    pub set_id: SetId,
    /// Names its meaning.
    pub hash: RulesetHash,
    /// Which silos it serves.
    pub silos: ServedSilos,
    /// Declared attributes, in file order.
    pub attributes: Box<[Attribute]>,
    /// Hard filters, in file order.
    pub hard_filters: Box<[HardFilter]>,
    /// Soft filters, in file order; a score is summed in this order.
    pub soft_filters: Box<[SoftFilter]>,
    /// Expansions, in file order.
    pub expansions: Box<[Expansion]>,
    /// Search or advertise?
    pub advertise_chances: AdvertiseChances,
    /// Limits on a search.
    pub search_limits: SearchLimits,
    /// Distance to milliseconds.
    pub latency_model: LatencyModel,
    /// Share of candidates that must answer the quick probe before the involved one starts, percent (S1-29).
    pub involved_phase_percent: f64,
    /// Whether a party's members must have said that they come along.
    pub consent: PartyConsentPolicy,
    /// How a match is divided; `None` for sets that are only advertised and searched.
    pub teams: Option<TeamsSpec>,
    /// How waiting parties are put together; `None` for sets without a queue.
    pub queue: Option<QueueSpec>,
    /// What players must agree to; `None` when matches begin at once.
    pub ready_check: Option<ReadyCheckSpec>,
    /// Where matches are played.
    pub server: HostingSpec,
    /// How results become ratings; `None` when they do not.
    pub rating: Option<RatingSpec>,
    /// The file, exactly as the designer wrote it.
    pub source_xml: Arc<str>,
}

impl Ruleset {
    /// The place of the attribute called `name`.
    pub fn attribute_index(&self, name: &str) -> Option<usize> {
        self.attributes.iter().position(|attribute| &*attribute.name == name)
    }

    /// Milliseconds until any limit that a hard filter uses next grows for someone who has waited `waited_ms`.
    pub fn ms_until_next_expansion(&self, waited_ms: u64) -> Option<u64> {
        let used = self.hard_filters.iter().filter_map(|filter| match filter.rule {
            HardRule::Within { expansion, .. } => Some(expansion),
            _ => None,
        });
        used.filter_map(|expansion| self.expansions[expansion].ms_until_next_growth(waited_ms)).min()
    }
}
