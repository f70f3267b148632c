//! How hard filters judge two sessions: a searcher and an advertisement, or two parties of one queue.

use crate::attribute::AttributeValue;
use crate::attribute_values::AttributeValues;
use crate::filter::refusal::{Refusal, RefusingSide};
use crate::id::RulesetHash;
use crate::latency::{LatencyEndpoint, expected_round_trip_ms};
use crate::locality::Locality;
use crate::measure::Measure;
use crate::ruleset::{HardFilter, HardMissingPolicy, HardRule, InFilterList, Ruleset};
use crate::session::RegionLatency;

/// A session as the other side's filters see it.
#[derive(Clone, Copy, Debug)]
pub struct SessionView<'a> {
    /// What the ruleset sees of it.
    pub attribute_values: &'a AttributeValues,
    /// Where it is.
    pub locality: Option<Locality>,
    /// Its round trips to regions, in name order.
    pub region_latencies: &'a [RegionLatency],
}

/// A session whose limits relax.
#[derive(Clone, Copy, Debug)]
pub struct WaitingSession<'a> {
    /// As others see it.
    pub session: SessionView<'a>,
    /// How long it has been searching, waiting or advertised, milliseconds: its limits go by it.
    pub waited_ms: u64,
}

/// Lets two parties of a queue meet, or says which hard filter refuses; the `Searcher`'s side is that of `here`.
///
/// Neither of them searches, so every rule must hold from both sides, whichever asks. A limit that asks only for a share
/// of reciprocity holds when either side could have found the other: the wider limit covers the measure, the tighter
/// one that share of it (S0-16).
pub fn admit_mutually(ruleset: &Ruleset, here: &WaitingSession<'_>, there: &WaitingSession<'_>) -> Result<(), Refusal> {
    (0..ruleset.hard_filters.len()).try_for_each(|filter| admit_mutually_by_filter(ruleset, filter, here, there))
}

/// As `meet`, by one hard filter alone: its place in `Ruleset::hard`.
pub fn admit_mutually_by_filter(
    ruleset: &Ruleset,
    filter: usize,
    here: &WaitingSession<'_>,
    there: &WaitingSession<'_>,
) -> Result<(), Refusal> {
    let (hard, refused) = (&ruleset.hard_filters[filter], |side| Refusal::HardFilter { filter_index: filter, side });
    let pair = DirectedPair {
        ruleset,
        searcher: *here,
        candidate: *there,
        candidate_ruleset_hash: ruleset.hash,
        measured_round_trip_ms: None,
    };
    if let HardRule::Within { measure, expansion, reciprocal_percent } = hard.rule {
        return pair.evaluate_within_mutually(hard.missing, measure, expansion, reciprocal_percent).map_err(refused);
    }
    pair.evaluate(hard).map_err(refused)?;
    let turned = DirectedPair { searcher: *there, candidate: *here, ..pair };
    turned.evaluate(hard).map_err(|side| refused(side.opposite()))
}

/// The measure between two sides; `None` when either side lacks what it needs. `round_trip_ms` is a measured one, where
/// there is any; it replaces whatever else is known of latency.
pub fn measure_between(
    ruleset: &Ruleset,
    measure: Measure,
    here: &SessionView<'_>,
    there: &SessionView<'_>,
    round_trip_ms: Option<f64>,
) -> Option<f64> {
    match measure {
        Measure::AttributeDifference(index) => {
            Some((there.attribute_values.number(index)? - here.attribute_values.number(index)?).abs())
        }
        Measure::Distance => Some(here.locality?.chord_miles(there.locality?)),
        Measure::Latency => round_trip_ms.or_else(|| {
            let here = LatencyEndpoint { locality: here.locality, region_latencies: here.region_latencies };
            let there = LatencyEndpoint { locality: there.locality, region_latencies: there.region_latencies };
            expected_round_trip_ms(&ruleset.latency_model, here, there)
        }),
    }
}

/// Two sessions of which `here` asks.
#[derive(Clone, Copy)]
pub(super) struct DirectedPair<'a> {
    pub(super) ruleset: &'a Ruleset,
    pub(super) searcher: WaitingSession<'a>,
    pub(super) candidate: WaitingSession<'a>,
    /// The ruleset that `there` goes by.
    pub(super) candidate_ruleset_hash: RulesetHash,
    pub(super) measured_round_trip_ms: Option<f64>,
}

impl DirectedPair<'_> {
    /// Passes, or names the side that refuses. A missing value is the searcher's doing when the searcher lacks it.
    pub(super) fn evaluate(&self, hard: &HardFilter) -> Result<(), RefusingSide> {
        match &hard.rule {
            HardRule::Equal { attribute, value: None } => {
                self.evaluate_both_values(hard, *attribute, |one, other| one == other)
            }
            HardRule::NotEqual { attribute, value: None } => {
                self.evaluate_both_values(hard, *attribute, |one, other| one != other)
            }
            HardRule::Equal { attribute, value: Some(wanted) } => {
                self.evaluate_candidate_value(hard, *attribute, |it| it == wanted)
            }
            HardRule::NotEqual { attribute, value: Some(wanted) } => {
                self.evaluate_candidate_value(hard, *attribute, |it| it != wanted)
            }
            HardRule::Range { attribute, min, max } => self.evaluate_candidate_value(
                hard,
                *attribute,
                |it| matches!(it, AttributeValue::Number(it) if min <= it && it <= max),
            ),
            HardRule::Overlap { attribute } => self.evaluate_both_values(hard, *attribute, lists_overlap),
            HardRule::Compatible { attribute, pairs } => {
                self.evaluate_both_values(hard, *attribute, |one, other| is_compatible_pair(pairs, one, other))
            }
            HardRule::In { attribute, list, mutual } => {
                let (searcher, listed) =
                    (self.searcher.session.attribute_values, self.candidate.session.attribute_values);
                value_in_list(hard.missing, searcher, list, listed.get(*attribute))
                    .then_some(())
                    .ok_or(RefusingSide::Searcher)?;
                let asked_back = !mutual || value_in_list(hard.missing, listed, list, searcher.get(*attribute));
                asked_back.then_some(()).ok_or(RefusingSide::Advertiser)
            }
            HardRule::Within { measure, expansion, reciprocal_percent } => {
                self.evaluate_within(hard.missing, *measure, *expansion, *reciprocal_percent)
            }
            HardRule::SameHash => {
                (self.candidate_ruleset_hash == self.ruleset.hash).then_some(()).ok_or(RefusingSide::Searcher)
            }
        }
    }

    fn evaluate_within(
        &self,
        missing: HardMissingPolicy,
        measure: Measure,
        expansion: usize,
        reciprocal_percent: f64,
    ) -> Result<(), RefusingSide> {
        let between = measure_between(
            self.ruleset,
            measure,
            &self.searcher.session,
            &self.candidate.session,
            self.measured_round_trip_ms,
        );
        let Some(between) = between else { return missing_value_verdict(missing) };
        let expansion = &self.ruleset.expansions[expansion];
        if expansion.limit_at(self.searcher.waited_ms) < between {
            return Err(RefusingSide::Searcher);
        }
        if expansion.limit_at(self.candidate.waited_ms) < between * reciprocal_percent / 100.0 {
            return Err(RefusingSide::Advertiser);
        }
        Ok(())
    }

    /// As `within`, for two who both wait.
    fn evaluate_within_mutually(
        &self,
        missing: HardMissingPolicy,
        measure: Measure,
        expansion: usize,
        reciprocal_percent: f64,
    ) -> Result<(), RefusingSide> {
        let between = measure_between(
            self.ruleset,
            measure,
            &self.searcher.session,
            &self.candidate.session,
            self.measured_round_trip_ms,
        );
        let Some(between) = between else { return missing_value_verdict(missing) };
        let expansion = &self.ruleset.expansions[expansion];
        let (ours, theirs) =
            (expansion.limit_at(self.searcher.waited_ms), expansion.limit_at(self.candidate.waited_ms));
        let (tighter, side) =
            if ours <= theirs { (ours, RefusingSide::Searcher) } else { (theirs, RefusingSide::Advertiser) };
        if ours.max(theirs) < between || tighter < between * reciprocal_percent / 100.0 {
            return Err(side);
        }
        Ok(())
    }

    fn evaluate_both_values(
        &self,
        hard: &HardFilter,
        attribute: usize,
        holds: impl Fn(&AttributeValue, &AttributeValue) -> bool,
    ) -> Result<(), RefusingSide> {
        match (
            self.searcher.session.attribute_values.get(attribute),
            self.candidate.session.attribute_values.get(attribute),
        ) {
            (Some(one), Some(other)) => holds(one, other).then_some(()).ok_or(RefusingSide::Searcher),
            _ => missing_value_verdict(hard.missing),
        }
    }

    fn evaluate_candidate_value(
        &self,
        hard: &HardFilter,
        attribute: usize,
        holds: impl Fn(&AttributeValue) -> bool,
    ) -> Result<(), RefusingSide> {
        match self.candidate.session.attribute_values.get(attribute) {
            Some(value) => holds(value).then_some(()).ok_or(RefusingSide::Searcher),
            None => missing_value_verdict(hard.missing),
        }
    }
}

/// A rule that lacks a value to judge is the searcher's rule: it was the searcher who asked.
fn missing_value_verdict(missing: HardMissingPolicy) -> Result<(), RefusingSide> {
    match missing {
        HardMissingPolicy::Pass => Ok(()),
        HardMissingPolicy::Refuse => Err(RefusingSide::Searcher),
    }
}

fn value_in_list(
    missing: HardMissingPolicy,
    asking: &AttributeValues,
    list: &InFilterList,
    asked: Option<&AttributeValue>,
) -> bool {
    let Some(AttributeValue::String(text)) = asked else { return missing == HardMissingPolicy::Pass };
    match list {
        InFilterList::Strings(texts) => texts.binary_search(text).is_ok(),
        InFilterList::OwnAttribute(index) => match asking.get(*index) {
            Some(AttributeValue::StringList(texts)) => texts.binary_search(text).is_ok(),
            _ => missing == HardMissingPolicy::Pass,
        },
    }
}

/// Both lists are sorted.
fn lists_overlap(one: &AttributeValue, other: &AttributeValue) -> bool {
    let (AttributeValue::StringList(one), AttributeValue::StringList(other)) = (one, other) else { return false };
    one.iter().any(|text| other.binary_search(text).is_ok())
}

fn is_compatible_pair(pairs: &[(i32, i32)], one: &AttributeValue, other: &AttributeValue) -> bool {
    let (AttributeValue::Number(one), AttributeValue::Number(other)) = (one, other) else { return false };
    let (low, high) = if one <= other { (one, other) } else { (other, one) };
    pairs.iter().any(|&(lesser, greater)| f64::from(lesser) == *low && f64::from(greater) == *high)
}
