//! Validated ruleset and its configuration hash.

mod element_reader;
pub mod hash;
mod number_bounds;
pub mod queue;
pub mod rating;
pub mod raw;
mod soft_filter;
pub mod spelling;
pub mod teams;
pub mod tradeoff;
pub mod validate;
pub mod wait_outlook;

use std::sync::Arc;

use crate::attribute::{Attribute, AttributeValue};
use crate::expansion::Expansion;
use crate::id::{RatingKey, RulesetHash, SetId, SiloId};
use crate::latency::LatencyModel;
use crate::matchmaking_action::AdvertiseChances;
use crate::measure::Measure;
use crate::ruleset::queue::QueueSpec;
use crate::ruleset::rating::RatingSpec;
use crate::ruleset::rating::scale::RatingPool;
use crate::ruleset::teams::{HostingSpec, ReadyCheckSpec, TeamsSpec};

pub use crate::ruleset::soft_filter::{DistanceCurve, SoftFilter, SoftFilterMode, SoftMissingPolicy};

/// Silos that a matchmaking set serves.
#[derive(Clone, Debug, PartialEq)]
pub enum ServedSilos {
    /// All silos.
    Any,
    /// The listed silos, sorted by id.
    Only(Box<[SiloId]>),
}

impl ServedSilos {
    /// Whether the set serves `silo`.
    pub fn serves(&self, silo: SiloId) -> bool {
        match self {
            ServedSilos::Any => true,
            ServedSilos::Only(silos) => silos.binary_search(&silo).is_ok(),
        }
    }
}

/// Result of a hard filter if either side lacks the value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HardMissingPolicy {
    /// The filter passes.
    #[default]
    Pass,
    /// The filter refuses the candidate.
    Refuse,
}

/// Hard filter: a rule that must hold exactly and is never traded against a soft filter.
#[derive(Clone, Debug, PartialEq)]
pub struct HardFilter {
    /// Name under which refusals are counted.
    pub name: Box<str>,
    /// Result if a value is missing.
    pub missing: HardMissingPolicy,
    /// Condition to check.
    pub rule: HardRule,
}

/// Condition of a hard filter. Attributes are indexes into `Ruleset::attributes`.
#[derive(Clone, Debug, PartialEq)]
pub enum HardRule {
    /// Both sides have the same value. With `value`, the advertiser's value must equal it.
    Equal {
        /// Attribute of any kind.
        attribute: usize,
        /// Constant to compare with.
        value: Option<AttributeValue>,
    },
    /// The two sides have different values. With `value`, the advertiser's value must differ from it.
    NotEqual {
        /// Attribute of any kind.
        attribute: usize,
        /// Constant to compare with.
        value: Option<AttributeValue>,
    },
    /// The other side's value is in a list.
    In {
        /// String attribute.
        attribute: usize,
        /// List of accepted values.
        list: InFilterList,
        /// Both sides check the rule; otherwise only the searcher does.
        mutual: bool,
    },
    /// The advertiser's number is in [min, max]. An end that the file omits is infinite.
    Range {
        /// Number attribute.
        attribute: usize,
        /// Lower bound, inclusive.
        min: f64,
        /// Upper bound, inclusive.
        max: f64,
    },
    /// The two string lists share at least one entry.
    Overlap {
        /// String list attribute.
        attribute: usize,
    },
    /// The pair of numbers, in either order, is in a table; for example, a table of NAT types.
    Compatible {
        /// Number attribute that holds integers.
        attribute: usize,
        /// Accepted pairs, smaller number first; sorted.
        pairs: Box<[(i32, i32)]>,
    },
    /// The measured value is within each side's limit for the time that side has waited.
    Within {
        /// Measured quantity; the same as that of the expansion.
        measure: Measure,
        /// Index into `Ruleset::expansions`.
        expansion: usize,
        /// Share of the measured value that the advertiser's limit must cover, percent. 100: both limits must hold. 0:
        /// only the searcher's limit counts.
        reciprocal_percent: f64,
    },
    /// The advertisement was published under the ruleset version that the search uses.
    SameRuleset,
}

/// List that an `In` filter compares with.
#[derive(Clone, Debug, PartialEq)]
pub enum InFilterList {
    /// The checking side's own string list attribute.
    OwnAttribute(usize),
    /// Constant strings, sorted.
    Strings(Box<[Box<str>]>),
}

/// Limits on the work of one search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    /// Maximum number of candidates in an answer.
    pub max_results: u32,
    /// Maximum number of rows to evaluate.
    pub max_evaluated: u32,
}

/// Form in which searchers receive advertisement ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandlePolicy {
    /// The ids themselves.
    #[default]
    Ids,
    /// Handles that differ by searcher and change with time, so that searchers cannot compare what they see.
    PerSearcher,
}

/// Whether each player of a party must consent to the party leader's requests. It applies to callers with an identity of a
/// player; others need no consent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartyConsentPolicy {
    /// The ruleset says nothing: consent is required. A value of its own, so that such rulesets keep their hash.
    #[default]
    Unstated,
    /// The party leader acts for all members.
    Assumed,
    /// If a player's client acts for other players, each of them must have consented.
    Required,
}

impl PartyConsentPolicy {
    /// Whether consent is required.
    pub fn is_required(self) -> bool {
        self != Self::Assumed
    }
}

/// Valid ruleset of one matchmaking set.
#[derive(Clone, Debug, PartialEq)]
pub struct Ruleset {
    /// Playlist name for people.
    pub name: Box<str>,
    /// Matchmaking set.
    pub set_id: SetId,
    /// Configuration hash; identifies the meaning of the ruleset.
    pub hash: RulesetHash,
    /// Silos that the set serves.
    pub silos: ServedSilos,
    /// Declared attributes, in file order.
    pub attributes: Box<[Attribute]>,
    /// Hard filters, in file order.
    pub hard_filters: Box<[HardFilter]>,
    /// Soft filters, in file order. Terms are summed in this order.
    pub soft_filters: Box<[SoftFilter]>,
    /// Expansions, in file order.
    pub expansions: Box<[Expansion]>,
    /// Chance to advertise instead of search, by party size.
    pub advertise_chances: AdvertiseChances,
    /// Limits on one search.
    pub search_limits: SearchLimits,
    /// Clients of one account that may advertise and reserve at the same time, at least 1.
    pub clients_per_account: u32,
    /// Form in which searchers receive advertisement ids.
    pub handles: HandlePolicy,
    /// Estimates latency from distance.
    pub latency_model: LatencyModel,
    /// Share of candidates that must answer the quick probe before the involved phase starts, percent.
    pub involved_phase_percent: f64,
    /// Whether party members must consent.
    pub consent: PartyConsentPolicy,
    /// Teams of a match. `None` for sets that only advertise and search.
    pub teams: Option<TeamsSpec>,
    /// Queue settings. `None` for sets without a queue.
    pub queue: Option<QueueSpec>,
    /// Ready check. `None` if matches start without one.
    pub ready_check: Option<ReadyCheckSpec>,
    /// Hosting of matches.
    pub hosting: HostingSpec,
    /// Rating settings. `None` if results do not change ratings.
    pub rating: Option<RatingSpec>,
    /// Name of the pool of sets that share their ratings. `None` if the set's ratings are its own.
    pub rating_pool: Option<Box<str>>,
    /// Source file, unchanged.
    pub source_xml: Arc<str>,
}

impl Ruleset {
    /// Index of the attribute `name` in `attributes`.
    pub fn attribute_index(&self, name: &str) -> Option<usize> {
        self.attributes.iter().position(|attribute| &*attribute.name == name)
    }

    /// Milliseconds until the next growth of any limit that a hard filter uses, after `waited_ms`. `None` if no limit
    /// grows again.
    pub fn ms_until_next_expansion(&self, waited_ms: u64) -> Option<u64> {
        let used_expansions = self.hard_filters.iter().filter_map(|filter| match filter.rule {
            HardRule::Within { expansion, .. } => Some(expansion),
            _ => None,
        });
        used_expansions.filter_map(|expansion| self.expansions[expansion].ms_until_next_growth(waited_ms)).min()
    }

    /// Owner of the ratings: the named pool, or the set.
    pub fn rating_pool(&self) -> RatingPool<'_> {
        self.rating_pool.as_deref().map_or(RatingPool::Set(self.set_id), RatingPool::Named)
    }

    /// Digest key of the ratings of pool and scale; `None` without a rating system.
    pub fn rating_digest_key(&self) -> Option<RatingKey> {
        Some(self.rating.as_ref()?.scale().digest_key(self.rating_pool()))
    }

    /// Digest key of the set's own ratings on its scale, also if it uses a named pool; `None` without a rating system.
    pub fn own_rating_digest_key(&self) -> Option<RatingKey> {
        Some(self.rating.as_ref()?.scale().digest_key(RatingPool::Set(self.set_id)))
    }
}
