//! How hard filters judge two sessions: a searcher and an advertisement, or two parties of one queue.

use crate::domain::attribute::Value;
use crate::domain::facts::Facts;
use crate::domain::filter::refusal::{Refusal, Side};
use crate::domain::id::RulesetHash;
use crate::domain::latency::{End, expected_round_trip_ms};
use crate::domain::locality::Locality;
use crate::domain::measure::Measure;
use crate::domain::ruleset::{HardFilter, HardRule, InList, MissingHard, Ruleset};
use crate::domain::session::RegionLatency;

/// A session as the other side's filters see it.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// What the ruleset sees of it.
    pub facts: &'a Facts,
    /// Where it is.
    pub locality: Option<Locality>,
    /// Its round trips to regions, in name order.
    pub regions: &'a [RegionLatency],
}

/// A session whose limits relax.
#[derive(Clone, Copy, Debug)]
pub struct Waits<'a> {
    /// As others see it.
    pub seen: Seen<'a>,
    /// How long it has been searching, waiting or advertised, milliseconds: its limits go by it.
    pub waited_ms: u64,
}

/// Lets two parties of a queue meet, or says which hard filter refuses; the `Searcher`'s side is that of `here`.
///
/// Neither of them searches, so every rule must hold from both sides, whichever asks. A limit that asks only for a share
/// of reciprocity holds when either side could have found the other: the wider limit covers the measure, the tighter
/// one that share of it (S0-16).
pub fn meet(ruleset: &Ruleset, here: &Waits<'_>, there: &Waits<'_>) -> Result<(), Refusal> {
    let pair = Pair { ruleset, here: *here, there: *there, hash: ruleset.hash, round_trip_ms: None };
    let turned = Pair { here: *there, there: *here, ..pair };
    for (filter, hard) in ruleset.hard.iter().enumerate() {
        let refused = |side| Refusal::Filter { filter, side };
        if let HardRule::Within { measure, expansion, reciprocal_percent } = hard.rule {
            pair.within_either(hard.missing, measure, expansion, reciprocal_percent).map_err(refused)?;
            continue;
        }
        pair.judge(hard).map_err(refused)?;
        turned.judge(hard).map_err(|side| refused(side.other()))?;
    }
    Ok(())
}

/// The measure between two sides; `None` when either side lacks what it needs. `round_trip_ms` is a measured one, where
/// there is any; it replaces whatever else is known of latency.
pub fn measure_between(
    ruleset: &Ruleset,
    measure: Measure,
    here: &Seen<'_>,
    there: &Seen<'_>,
    round_trip_ms: Option<f64>,
) -> Option<f64> {
    match measure {
        Measure::Attribute(index) => Some((there.facts.number(index)? - here.facts.number(index)?).abs()),
        Measure::Distance => Some(here.locality?.chord_miles(there.locality?)),
        Measure::Latency => round_trip_ms.or_else(|| {
            let here = End { locality: here.locality, regions: here.regions };
            let there = End { locality: there.locality, regions: there.regions };
            expected_round_trip_ms(&ruleset.line, here, there)
        }),
    }
}

/// Two sessions of which `here` asks.
#[derive(Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) ruleset: &'a Ruleset,
    pub(super) here: Waits<'a>,
    pub(super) there: Waits<'a>,
    /// The ruleset that `there` goes by.
    pub(super) hash: RulesetHash,
    pub(super) round_trip_ms: Option<f64>,
}

impl Pair<'_> {
    /// Passes, or names the side that refuses. A missing value is the searcher's doing when the searcher lacks it.
    pub(super) fn judge(&self, hard: &HardFilter) -> Result<(), Side> {
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
                let (searcher, listed) = (self.here.seen.facts, self.there.seen.facts);
                is_in(hard.missing, searcher, list, listed.get(*attribute)).then_some(()).ok_or(Side::Searcher)?;
                let asked_back = !mutual || is_in(hard.missing, listed, list, searcher.get(*attribute));
                asked_back.then_some(()).ok_or(Side::Advertiser)
            }
            HardRule::Within { measure, expansion, reciprocal_percent } => {
                self.within(hard.missing, *measure, *expansion, *reciprocal_percent)
            }
            HardRule::SameHash => (self.hash == self.ruleset.hash).then_some(()).ok_or(Side::Searcher),
        }
    }

    fn within(
        &self,
        missing: MissingHard,
        measure: Measure,
        expansion: usize,
        reciprocal_percent: f64,
    ) -> Result<(), Side> {
        let between = measure_between(self.ruleset, measure, &self.here.seen, &self.there.seen, self.round_trip_ms);
        let Some(between) = between else { return when_missing(missing) };
        let expansion = &self.ruleset.expansions[expansion];
        if expansion.limit_at(self.here.waited_ms) < between {
            return Err(Side::Searcher);
        }
        if expansion.limit_at(self.there.waited_ms) < between * reciprocal_percent / 100.0 {
            return Err(Side::Advertiser);
        }
        Ok(())
    }

    /// As `within`, for two who both wait.
    fn within_either(
        &self,
        missing: MissingHard,
        measure: Measure,
        expansion: usize,
        reciprocal_percent: f64,
    ) -> Result<(), Side> {
        let between = measure_between(self.ruleset, measure, &self.here.seen, &self.there.seen, self.round_trip_ms);
        let Some(between) = between else { return when_missing(missing) };
        let expansion = &self.ruleset.expansions[expansion];
        let (ours, theirs) = (expansion.limit_at(self.here.waited_ms), expansion.limit_at(self.there.waited_ms));
        let (tighter, side) = if ours <= theirs { (ours, Side::Searcher) } else { (theirs, Side::Advertiser) };
        if ours.max(theirs) < between || tighter < between * reciprocal_percent / 100.0 {
            return Err(side);
        }
        Ok(())
    }

    fn both(&self, hard: &HardFilter, attribute: usize, holds: impl Fn(&Value, &Value) -> bool) -> Result<(), Side> {
        match (self.here.seen.facts.get(attribute), self.there.seen.facts.get(attribute)) {
            (Some(one), Some(other)) => holds(one, other).then_some(()).ok_or(Side::Searcher),
            _ => when_missing(hard.missing),
        }
    }

    fn theirs(&self, hard: &HardFilter, attribute: usize, holds: impl Fn(&Value) -> bool) -> Result<(), Side> {
        match self.there.seen.facts.get(attribute) {
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
