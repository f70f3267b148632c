//! Validated ruleset and its configuration hash.

mod element_reader;
pub mod hash;
pub mod load;
mod number_bounds;
pub mod probing;
pub mod queue;
pub mod rating;
pub mod raw;
mod soft_filter;
pub mod spelling;
pub mod teams;
pub mod tradeoff;
pub mod validate;
pub mod wait_outlook;

use std::borrow::Cow;
use std::sync::Arc;

use crate::attribute::{Attribute, AttributeValue, ValueOrigin};
use crate::expansion::Expansion;
use crate::id::{RatingKey, RulesetHash, SetId, SiloId};
use crate::latency::LatencyModel;
use crate::matchmaking_action::AdvertiseChances;
use crate::measure::Measure;
use crate::ruleset::probing::ProbingSpec;
use crate::ruleset::queue::{AvoidStrictness, AvoidanceRule, DEFAULT_TICKET_TTL_MS, FrustratedPlayerSpec, QueueSpec};
use crate::ruleset::rating::RatingSpec;
use crate::ruleset::rating::scale::RatingPool;
use crate::ruleset::teams::{HostingSpec, ReadyCheckSpec, TeamsSpec};
use crate::session::Session;
use crate::wish::{LATENCY_WISH, WishSubject};

pub use crate::ruleset::soft_filter::{DistanceCurve, SoftFilter, SoftFilterObjective, SoftMissingPolicy};

/// Silos that a matchmaking set serves.
#[derive(Clone, Debug, PartialEq)]
pub enum RulesetSilos {
    /// All silos.
    Any,
    /// The listed silos, sorted by id.
    Only(Box<[SiloId]>),
}

impl RulesetSilos {
    /// Whether the set serves `silo`.
    pub fn serves(&self, silo: SiloId) -> bool {
        match self {
            RulesetSilos::Any => true,
            RulesetSilos::Only(silos) => silos.binary_search(&silo).is_ok(),
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
        list: InFilterListSource,
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
        /// Rule by which one common entry is chosen for those who play together; all of them must have one. `None` for no choice.
        choose: Option<OverlapChoice>,
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
    /// The low end of the interval of the searcher's lost probe packets is at most this. A session that was not probed passes.
    MaxPacketLoss {
        /// Percent, 0 to 100.
        percent: f64,
    },
    /// The jitter of the searcher's probe is at most this. A session that was not probed passes.
    MaxJitter {
        /// Milliseconds, 0 or more.
        ms: f64,
    },
}

/// Rule by which one of several common entries is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlapChoice {
    /// The first in the order of names.
    FirstCommon,
    /// One at random.
    Drawn,
    /// The one that its players have played least recently.
    LeastRecentlyPlayed {
        /// Time since the start of a match, milliseconds, after which it no longer counts.
        recent_ms: u64,
    },
}

/// List that an `In` filter compares with.
#[derive(Clone, Debug, PartialEq)]
pub enum InFilterListSource {
    /// The checking side's own string list attribute.
    OwnAttribute(usize),
    /// Constant strings, sorted.
    Strings(Box<[Box<str>]>),
}

/// Rule that a `filter_index` of a refusal stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RefusingRule<'a> {
    /// A hard filter.
    HardFilter(&'a HardFilter),
    /// An allowed range that an advertisement publishes.
    AllowedRange,
    /// A party's wish for this attribute, or for the round trip.
    Wish(&'a str),
}

impl<'a> RefusingRule<'a> {
    /// Name of the rule, as answers tell it: `skill`, `allowed_range` or `wish:skill`. Names of hard filters have no colon.
    pub fn name(&self) -> Cow<'a, str> {
        match *self {
            Self::HardFilter(filter) => Cow::Borrowed(&filter.name),
            Self::AllowedRange => Cow::Borrowed("allowed_range"),
            Self::Wish(attribute) => Cow::Owned(format!("wish:{attribute}")),
        }
    }
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
pub enum AdvertisementIdForm {
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
    pub silos: RulesetSilos,
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
    pub advertisement_id_form: AdvertisementIdForm,
    /// Estimates latency from distance.
    pub latency_model: LatencyModel,
    /// Share of candidates that must answer the quick probe before the involved phase starts, percent.
    pub answered_percent_for_involved_phase: f64,
    /// Probes of candidates, and trust in round trips to regions.
    pub probing: ProbingSpec,
    /// Parties may state which round trips they accept.
    pub allows_latency_wishes: bool,
    /// Whether party members must consent.
    pub consent: PartyConsentPolicy,
    /// Players whom a player does not meet, or rather not, in searched sessions as in the queue; `never` and `prefer_not` only.
    pub avoid: Box<[AvoidanceRule]>,
    /// Wider limits for frustrated players, in searches and in the queue; `None` for none.
    pub frustrated_player_limits: Option<FrustratedPlayerSpec>,
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
    /// Rating settings of a set that keeps the former default constants; `None` if they are the same.
    pub former_rating: Option<RatingSpec>,
    /// Name of the pool of sets that share their ratings. `None` if the set's ratings are its own.
    pub rating_pool: Option<Box<str>>,
    /// Regions that statistics tell apart, sorted; at most `limit::STATISTICS_REGIONS_MAX`.
    pub statistics_regions: Box<[Box<str>]>,
    /// Source file without comments, as clients read it.
    pub source_xml: Arc<str>,
    /// Source file, unchanged. Only operators and the store read it.
    pub file_xml: Arc<str>,
}

impl Ruleset {
    /// Index of the attribute `name` in `attributes`.
    pub fn attribute_index(&self, name: &str) -> Option<usize> {
        self.attributes.iter().position(|attribute| &*attribute.name == name)
    }

    /// Whether the value of the attribute `name` of a session from `origin` counts: the ruleset trusts its callers, or the server
    /// counts it.
    pub fn trusts_attribute_from_origin(&self, name: &str, origin: ValueOrigin) -> bool {
        let attribute = self.attribute_index(name).map(|index| &self.attributes[index]);
        attribute.is_some_and(|attribute| attribute.source.is_counted_from_matches() || attribute.trust.accepts(origin))
    }

    /// Subject of a wish with this name; `None` if the ruleset allows no such wish.
    pub fn wish_subject(&self, name: &str) -> Option<WishSubject> {
        if name == LATENCY_WISH {
            return self.allows_latency_wishes.then_some(WishSubject::Latency);
        }
        let index = self.attribute_index(name)?;
        self.attributes[index].allows_wishes.then_some(WishSubject::Attribute(index))
    }

    /// Whether parties may have wishes.
    pub fn allows_wishes(&self) -> bool {
        self.allows_latency_wishes || self.attributes.iter().any(|attribute| attribute.allows_wishes)
    }

    /// Number of different `filter_index` values of refusals: hard filters, allowed ranges, and wishes if any are allowed.
    pub fn refusing_rule_count(&self) -> usize {
        let wishes = if self.allows_wishes() { 1 + self.attributes.len() } else { 0 };
        self.hard_filters.len() + 1 + wishes
    }

    /// `filter_index` of a refusal by a wish.
    pub fn filter_index_of_wish(&self, subject: WishSubject) -> usize {
        let first = self.hard_filters.len() + 1;
        match subject {
            WishSubject::Latency => first,
            WishSubject::Attribute(index) => first + 1 + index,
        }
    }

    /// The rule that a `filter_index` of a refusal stands for.
    pub fn rule_of_filter_index(&self, filter_index: usize) -> RefusingRule<'_> {
        let Some(beyond_filters) = filter_index.checked_sub(self.hard_filters.len()) else {
            return RefusingRule::HardFilter(&self.hard_filters[filter_index]);
        };
        match beyond_filters.checked_sub(2).and_then(|index| self.attributes.get(index)) {
            Some(attribute) => RefusingRule::Wish(&attribute.name),
            None if beyond_filters == 1 => RefusingRule::Wish(LATENCY_WISH),
            None => RefusingRule::AllowedRange,
        }
    }

    /// Whether a search adds costs for avoided players to scores.
    pub fn has_search_avoidance_costs(&self) -> bool {
        self.avoid.iter().any(|rule| matches!(rule.how, AvoidStrictness::PreferNot { .. }))
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

    /// `region` if statistics tell it apart.
    pub fn statistics_region_if_listed<'a>(&self, region: &'a str) -> Option<&'a str> {
        self.statistics_regions.binary_search_by(|listed| (**listed).cmp(region)).ok().map(|_| region)
    }

    /// Nearest region of a party, if statistics tell it apart.
    pub fn nearest_region_if_in_statistics<'a>(&self, session: &'a Session) -> Option<&'a str> {
        let nearest = if self.statistics_regions.is_empty() { None } else { session.nearest_region() };
        nearest.and_then(|region| self.statistics_region_if_listed(region))
    }

    /// Whether entries of string lists are chosen for those who play together.
    pub fn chooses_values(&self) -> bool {
        self.hard_filters.iter().any(|filter| matches!(filter.rule, HardRule::Overlap { choose: Some(_), .. }))
    }

    /// Longest time for which values that players have played count, milliseconds; `None` if no choice depends on them.
    pub fn played_values_recent_ms(&self) -> Option<u64> {
        let recent_ms = self.hard_filters.iter().filter_map(|filter| match filter.rule {
            HardRule::Overlap { choose: Some(OverlapChoice::LeastRecentlyPlayed { recent_ms }), .. } => Some(recent_ms),
            _ => None,
        });
        recent_ms.max()
    }

    /// Deviations that are deducted from a rating when players are matched; 0 without a rating system.
    pub fn match_z(&self) -> f64 {
        self.rating.map_or(0.0, |rating| rating.match_z)
    }

    /// TTL of a ticket without a heartbeat, milliseconds. In a set without a queue, tickets are those of sessions' matches.
    pub fn ticket_ttl_ms(&self) -> u32 {
        self.queue.as_ref().map_or(DEFAULT_TICKET_TTL_MS, |queue| queue.ticket_ttl_ms)
    }

    /// Owner of the ratings: the named pool, or the set.
    pub fn rating_pool(&self) -> RatingPool<'_> {
        self.rating_pool.as_deref().map_or(RatingPool::Set(self.set_id), RatingPool::Named)
    }

    /// Digest key of the ratings of pool and scale; `None` without a rating system.
    pub fn rating_key_of_pool_and_scale(&self) -> Option<RatingKey> {
        Some(self.rating.as_ref()?.scale().rating_key_of_pool(self.rating_pool()))
    }
}
