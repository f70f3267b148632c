//! Hard filters: admit an advertisement, or say which rule refused it. This is the definition that the index obeys.

use crate::domain::advertisement::{Advertisement, AllowedRange};
use crate::domain::attribute::Value;
use crate::domain::facts::Facts;
use crate::domain::id::{AdvertisementId, RulesetHash, UserKey};
use crate::domain::latency::{End, expected_round_trip_ms};
use crate::domain::locality::Locality;
use crate::domain::measure::Measure;
use crate::domain::ruleset::{HardFilter, HardRule, InList, MissingHard, Ruleset};
use crate::domain::session::RegionLatency;
use crate::domain::time::UnixMs;

/// Which side's rule refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The searcher will not have the advertisement.
    Searcher,
    /// The advertisement will not have the searcher.
    Advertiser,
}

/// Why an advertisement may not be shown to a searcher, in the order tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// They are of populations that never meet.
    Silo,
    /// It shares a user or a subject with the searcher (S1-50).
    Own,
    /// The searcher asked not to be shown it.
    Excluded,
    /// It is no longer believed (S1-45).
    Expired,
    /// It has fewer open seats than the searcher has players (S1-40).
    Full,
    /// A hard filter of the ruleset: its place in `Ruleset::hard`, or `Ruleset::hard.len()` for a range that the
    /// advertisement itself published.
    Filter {
        /// Which filter.
        filter: usize,
        /// Whose limit.
        side: Side,
    },
}

/// A session that looks for others.
#[derive(Clone, Copy, Debug)]
pub struct Searcher<'a> {
    /// What the ruleset sees of it.
    pub facts: &'a Facts,
    /// Where it is.
    pub locality: Option<Locality>,
    /// Its round trips to regions, in name order.
    pub regions: &'a [RegionLatency],
    /// Seats that it needs.
    pub seats: u16,
    /// Its users, sorted.
    pub users: &'a [UserKey],
    /// The authenticated caller, if any.
    pub subject: Option<UserKey>,
    /// Advertisements not to show, sorted.
    pub excluded: &'a [AdvertisementId],
    /// How long it has been searching, milliseconds.
    pub waited_ms: u64,
}

/// An advertisement as it stands at the moment of a search.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// As published.
    pub advertisement: &'a Advertisement,
    /// What the ruleset sees of it.
    pub facts: &'a Facts,
    /// Until when it is believed: it is expired from this moment on.
    pub expires: UnixMs,
    /// Seats that nobody holds.
    pub open_seats: u16,
}

/// Admits `listed`, or says which rule refuses it first. The silo is the caller's to check: partitions never mix them.
///
/// `round_trip_ms` is a measured one, where there is any; it replaces whatever else is known of latency.
pub fn admit(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    listed: &Listed<'_>,
    round_trip_ms: Option<f64>,
    now: UnixMs,
) -> Result<(), Refusal> {
    let advertisement = listed.advertisement;
    if is_own(searcher, advertisement) {
        return Err(Refusal::Own);
    }
    if searcher.excluded.binary_search(&advertisement.id).is_ok() {
        return Err(Refusal::Excluded);
    }
    if listed.expires <= now {
        return Err(Refusal::Expired);
    }
    if listed.open_seats < searcher.seats {
        return Err(Refusal::Full);
    }
    let pair = Pair { ruleset, searcher, listed, round_trip_ms, advertised_ms: now.since(advertisement.since) };
    for (filter, hard) in ruleset.hard.iter().enumerate() {
        pair.judge(hard).map_err(|side| Refusal::Filter { filter, side })?;
    }
    let outside = |range: &AllowedRange| !lies_within(ruleset, searcher.facts, range);
    if advertisement.allowed.iter().any(outside) {
        return Err(Refusal::Filter { filter: ruleset.hard.len(), side: Side::Advertiser });
    }
    Ok(())
}

/// The measure between two sides; `None` when either side lacks what it needs.
pub fn measure_between(
    ruleset: &Ruleset,
    measure: Measure,
    searcher: &Searcher<'_>,
    listed: &Listed<'_>,
    round_trip_ms: Option<f64>,
) -> Option<f64> {
    let session = &listed.advertisement.session;
    match measure {
        Measure::Attribute(index) => Some((listed.facts.number(index)? - searcher.facts.number(index)?).abs()),
        Measure::Distance => Some(searcher.locality?.chord_miles(session.locality?)),
        Measure::Latency => round_trip_ms.or_else(|| {
            let here = End { locality: searcher.locality, regions: searcher.regions };
            let there = End { locality: session.locality, regions: &session.regions };
            expected_round_trip_ms(&ruleset.line, here, there)
        }),
    }
}

fn is_own(searcher: &Searcher<'_>, advertisement: &Advertisement) -> bool {
    let same_subject = searcher.subject.is_some() && searcher.subject == advertisement.subject;
    let shares_user = |player: &crate::domain::session::Player| searcher.users.binary_search(&player.user).is_ok();
    same_subject || advertisement.session.players.iter().any(shares_user)
}

/// An allowed range of an attribute that the ruleset no longer has says nothing; one whose searcher has no value refuses.
fn lies_within(ruleset: &Ruleset, searcher: &Facts, range: &AllowedRange) -> bool {
    let Some(index) = ruleset.attribute_index(&range.attribute) else { return true };
    let Some(number) = searcher.number(index) else { return false };
    range.min.is_none_or(|min| min <= number) && range.max.is_none_or(|max| number <= max)
}

struct Pair<'a> {
    ruleset: &'a Ruleset,
    searcher: &'a Searcher<'a>,
    listed: &'a Listed<'a>,
    round_trip_ms: Option<f64>,
    advertised_ms: u64,
}

impl Pair<'_> {
    /// Passes, or names the side that refuses. A missing value is the searcher's doing when the searcher lacks it.
    fn judge(&self, hard: &HardFilter) -> Result<(), Side> {
        match &hard.rule {
            HardRule::Equal { attribute, value: None } => self.both(hard, *attribute, |one, other| one == other),
            HardRule::NotEqual { attribute, value: None } => self.both(hard, *attribute, |one, other| one != other),
            HardRule::Equal { attribute, value: Some(wanted) } => self.theirs(hard, *attribute, |it| it == wanted),
            HardRule::NotEqual { attribute, value: Some(wanted) } => self.theirs(hard, *attribute, |it| it != wanted),
            HardRule::Range { attribute, min, max } => {
                self.theirs(hard, *attribute, |it| matches!(it, Value::Number(it) if min <= it && it <= max))
            }
            HardRule::Overlap { attribute } => self.both(hard, *attribute, share_an_entry),
            HardRule::Compatible { attribute, pairs } => {
                self.both(hard, *attribute, |one, other| is_compatible(pairs, one, other))
            }
            HardRule::In { attribute, list, mutual } => {
                let (searcher, listed) = (self.searcher.facts, self.listed.facts);
                is_in(hard.missing, searcher, list, listed.get(*attribute)).then_some(()).ok_or(Side::Searcher)?;
                let asked_back = !mutual || is_in(hard.missing, listed, list, searcher.get(*attribute));
                asked_back.then_some(()).ok_or(Side::Advertiser)
            }
            HardRule::Within { measure, expansion, reciprocal_percent } => {
                self.within(hard.missing, *measure, *expansion, *reciprocal_percent)
            }
            HardRule::SameHash => {
                let same: RulesetHash = self.listed.advertisement.hash;
                (same == self.ruleset.hash).then_some(()).ok_or(Side::Searcher)
            }
        }
    }

    fn within(
        &self,
        missing: MissingHard,
        measure: Measure,
        expansion: usize,
        reciprocal_percent: f64,
    ) -> Result<(), Side> {
        let between = measure_between(self.ruleset, measure, self.searcher, self.listed, self.round_trip_ms);
        let Some(between) = between else { return when_missing(missing) };
        let expansion = &self.ruleset.expansions[expansion];
        if expansion.limit_at(self.searcher.waited_ms) < between {
            return Err(Side::Searcher);
        }
        if expansion.limit_at(self.advertised_ms) < between * reciprocal_percent / 100.0 {
            return Err(Side::Advertiser);
        }
        Ok(())
    }

    fn both(&self, hard: &HardFilter, attribute: usize, holds: impl Fn(&Value, &Value) -> bool) -> Result<(), Side> {
        match (self.searcher.facts.get(attribute), self.listed.facts.get(attribute)) {
            (Some(one), Some(other)) => holds(one, other).then_some(()).ok_or(Side::Searcher),
            _ => when_missing(hard.missing),
        }
    }

    fn theirs(&self, hard: &HardFilter, attribute: usize, holds: impl Fn(&Value) -> bool) -> Result<(), Side> {
        match self.listed.facts.get(attribute) {
            Some(value) => holds(value).then_some(()).ok_or(Side::Searcher),
            None => when_missing(hard.missing),
        }
    }
}

/// A rule that lacks a value to judge is the searcher's rule: it was the searcher who asked.
fn when_missing(missing: MissingHard) -> Result<(), Side> {
    match missing {
        MissingHard::Pass => Ok(()),
        MissingHard::Refuse => Err(Side::Searcher),
    }
}

fn is_in(missing: MissingHard, asking: &Facts, list: &InList, asked: Option<&Value>) -> bool {
    let Some(Value::Text(text)) = asked else { return missing == MissingHard::Pass };
    match list {
        InList::Texts(texts) => texts.binary_search(text).is_ok(),
        InList::Attribute(index) => match asking.get(*index) {
            Some(Value::Texts(texts)) => texts.binary_search(text).is_ok(),
            _ => missing == MissingHard::Pass,
        },
    }
}

/// Both lists are sorted.
fn share_an_entry(one: &Value, other: &Value) -> bool {
    let (Value::Texts(one), Value::Texts(other)) = (one, other) else { return false };
    one.iter().any(|text| other.binary_search(text).is_ok())
}

fn is_compatible(pairs: &[(i32, i32)], one: &Value, other: &Value) -> bool {
    let (Value::Number(one), Value::Number(other)) = (one, other) else { return false };
    let (low, high) = if one <= other { (one, other) } else { (other, one) };
    pairs.iter().any(|&(lesser, greater)| f64::from(lesser) == *low && f64::from(greater) == *high)
}
