//! Hard filter evaluation for two sessions: a searcher and an advertisement, or two parties of one queue.

use crate::attribute::AttributeValue;
use crate::attribute_values::AttributeValues;
use crate::expansion::Expansion;
use crate::filter::refusal::{Refusal, RefusingSide};
use crate::id::RulesetHash;
use crate::latency::LatencyEndpoint;
use crate::latency::round_trip_estimate::{
    EstimateEnd, PredictionEnd, RoundTripEstimate, estimate_round_trip, estimated_round_trip_ms,
};
use crate::locality::Locality;
use crate::measure::Measure;
use crate::probe_result::MeasuredOrPredictedRoundTrip;
use crate::ruleset::probing::LatencyEstimatePolicy;
use crate::ruleset::{HardFilter, HardMissingPolicy, HardRule, InFilterListSource, Ruleset};
use crate::session::RegionLatency;
use crate::wish::Wish;

/// The part of a session that filters and scores read.
#[derive(Clone, Copy, Debug)]
pub struct SessionView<'a> {
    /// Attribute values under the ruleset.
    pub attribute_values: &'a AttributeValues,
    /// Position, if known.
    pub locality: Option<Locality>,
    /// Round trips to regions, sorted by region name.
    pub region_latencies: &'a [RegionLatency],
    /// Its wishes for the other side.
    pub wishes: &'a [Wish],
    /// Its vector; `None`: nothing is predicted.
    pub prediction_end: Option<PredictionEnd<'a>>,
}

impl<'a> SessionView<'a> {
    /// Least round trip to a region, milliseconds.
    pub fn best_region_round_trip_ms(&self) -> Option<f64> {
        self.region_latencies.iter().map(|region| f64::from(region.round_trip_ms)).reduce(f64::min)
    }

    /// The part that estimates of round trips read.
    pub fn as_estimate_end(&self) -> EstimateEnd<'a> {
        let Self { locality, region_latencies, prediction_end: prediction, .. } = *self;
        EstimateEnd {
            locality_and_region_latencies: LatencyEndpoint { locality, region_latencies },
            prediction_end: prediction,
        }
    }
}

/// Session with the time waited, which determines its limits.
#[derive(Clone, Copy, Debug)]
pub struct WaitingSession<'a> {
    /// The session.
    pub session: SessionView<'a>,
    /// Time spent searching, queued or advertised, milliseconds.
    pub waited_ms: u64,
}

impl WaitingSession<'_> {
    /// Limit of one of its expansions now.
    pub fn limit_of(&self, expansion: &Expansion) -> f64 {
        self.session.attribute_values.limit_of(expansion, self.waited_ms)
    }
}

/// Like `filter::admit_queue_parties`, for the one hard filter at `filter_index` in `Ruleset::hard_filters`.
pub fn admit_queue_parties_by_one_filter(
    ruleset: &Ruleset,
    filter_index: usize,
    one: &WaitingSession<'_>,
    other: &WaitingSession<'_>,
) -> Result<(), Refusal> {
    let filter = &ruleset.hard_filters[filter_index];
    let refusal = |side| Refusal::HardFilter { filter_index, side };
    let pair = SearcherCandidatePair {
        ruleset,
        searcher: *one,
        candidate: *other,
        candidate_ruleset_hash: ruleset.hash,
        measured_or_predicted: None,
    };
    if let HardRule::Within { measure, expansion, reciprocal_percent } = filter.rule {
        return pair
            .evaluate_within_for_queue_parties(filter.missing, measure, expansion, reciprocal_percent)
            .map_err(refusal);
    }
    pair.evaluate_filter(filter).map_err(refusal)?;
    let reversed = SearcherCandidatePair { searcher: *other, candidate: *one, ..pair };
    reversed.evaluate_filter(filter).map_err(|side| refusal(side.opposite()))
}

/// Measure between two sessions; `None` if a side lacks a required value. A `counted` round trip replaces the estimate from regions
/// or distance.
pub fn measure_between(
    ruleset: &Ruleset,
    measure: Measure,
    one: &SessionView<'_>,
    other: &SessionView<'_>,
    counted: Option<MeasuredOrPredictedRoundTrip>,
) -> Option<f64> {
    match measure {
        Measure::AttributeDifference(index) => {
            Some((other.attribute_values.number(index)? - one.attribute_values.number(index)?).abs())
        }
        Measure::Distance => Some(one.locality?.chord_miles(other.locality?)),
        Measure::PacketLoss => Some(counted?.measured()?.loss?.percent),
        Measure::Jitter => counted?.measured()?.jitter_ms,
        Measure::DeltaPing => {
            let best_region_ms = one.best_region_round_trip_ms()?;
            Some(measure_between(ruleset, Measure::Latency, one, other, counted)? - best_region_ms)
        }
        Measure::Latency => counted.map(|counted| counted.round_trip_ms()).or_else(|| {
            estimated_round_trip_ms(&ruleset.latency_model, one.as_estimate_end(), other.as_estimate_end())
        }),
    }
}

/// Measure between two queue parties as limits compare it: of a cautious ruleset, the high end of a predicted round trip.
pub fn measure_for_queue_limit(
    ruleset: &Ruleset,
    measure: Measure,
    one: &SessionView<'_>,
    other: &SessionView<'_>,
) -> Option<f64> {
    if measure == Measure::Latency && ruleset.probing.filters_by_interval_high_end {
        return estimate_round_trip_between(ruleset, one, other).map(|estimate| estimate.high_ms());
    }
    measure_between(ruleset, measure, one, other, None)
}

/// Estimated round trip between two sessions, with its source; `None` if it is unknown.
pub fn estimate_round_trip_between(
    ruleset: &Ruleset,
    one: &SessionView<'_>,
    other: &SessionView<'_>,
) -> Option<RoundTripEstimate> {
    estimate_round_trip(&ruleset.latency_model, one.as_estimate_end(), other.as_estimate_end())
}

/// Ordered pair of sessions: the searcher's limits and lists apply first.
#[derive(Clone, Copy)]
pub(super) struct SearcherCandidatePair<'a> {
    pub(super) ruleset: &'a Ruleset,
    pub(super) searcher: WaitingSession<'a>,
    pub(super) candidate: WaitingSession<'a>,
    /// Hash of the ruleset of the candidate.
    pub(super) candidate_ruleset_hash: RulesetHash,
    /// Round trip that replaces the estimate.
    pub(super) measured_or_predicted: Option<MeasuredOrPredictedRoundTrip>,
}

impl SearcherCandidatePair<'_> {
    /// Value of a measure that a limit of a search is compared with; `None` if it is missing.
    pub(super) fn measure_for_search_limit(&self, measure: Measure) -> Option<f64> {
        let probing = &self.ruleset.probing;
        match (measure, self.measured_or_predicted) {
            (Measure::Latency, Some(MeasuredOrPredictedRoundTrip::Predicted(predicted)))
                if probing.filters_by_interval_high_end =>
            {
                Some(predicted.high_ms)
            }
            // Estimates do not pass, nor does an old measurement, which counts as the longer of both.
            (Measure::Latency, None | Some(MeasuredOrPredictedRoundTrip::Measured { is_old: true, .. }))
                if probing.latency_estimate_policy == LatencyEstimatePolicy::Measured =>
            {
                None
            }
            _ => measure_between(
                self.ruleset,
                measure,
                &self.searcher.session,
                &self.candidate.session,
                self.measured_or_predicted,
            ),
        }
    }

    /// Evaluates one hard filter; an error is the side that refuses. A missing value is attributed to the searcher.
    pub(super) fn evaluate_filter(&self, filter: &HardFilter) -> Result<(), RefusingSide> {
        match &filter.rule {
            HardRule::Equal { attribute, value: None } => {
                self.evaluate_both_values(filter, *attribute, |one, other| one == other)
            }
            HardRule::NotEqual { attribute, value: None } => {
                self.evaluate_both_values(filter, *attribute, |one, other| one != other)
            }
            HardRule::Equal { attribute, value: Some(wanted) } => {
                self.evaluate_candidate_value(filter, *attribute, |value| value == wanted)
            }
            HardRule::NotEqual { attribute, value: Some(wanted) } => {
                self.evaluate_candidate_value(filter, *attribute, |value| value != wanted)
            }
            HardRule::Range { attribute, min, max } => self.evaluate_candidate_value(
                filter,
                *attribute,
                |value| matches!(value, AttributeValue::Number(number) if min <= number && number <= max),
            ),
            HardRule::Overlap { attribute, .. } => self.evaluate_both_values(filter, *attribute, lists_overlap),
            HardRule::Compatible { attribute, pairs } => {
                self.evaluate_both_values(filter, *attribute, |one, other| is_compatible_value_pair(pairs, one, other))
            }
            HardRule::In { attribute, list, mutual } => {
                let (searcher, candidate) =
                    (self.searcher.session.attribute_values, self.candidate.session.attribute_values);
                value_in_list(filter.missing, searcher, list, candidate.get(*attribute))
                    .then_some(())
                    .ok_or(RefusingSide::Searcher)?;
                let holds_in_reverse =
                    !mutual || value_in_list(filter.missing, candidate, list, searcher.get(*attribute));
                holds_in_reverse.then_some(()).ok_or(RefusingSide::Advertiser)
            }
            HardRule::Within { measure, expansion, reciprocal_percent } => {
                self.evaluate_within(filter.missing, *measure, *expansion, *reciprocal_percent)
            }
            HardRule::MaxPacketLoss { percent } => {
                let loss = self.measured_or_predicted.and_then(|counted| counted.measured()?.loss);
                let is_lossy = loss.is_some_and(|loss| loss.low_percent > *percent);
                if is_lossy { Err(RefusingSide::Searcher) } else { Ok(()) }
            }
            HardRule::MaxJitter { ms } => {
                let jitter_ms = self.measured_or_predicted.and_then(|counted| counted.measured()?.jitter_ms);
                if jitter_ms.is_some_and(|jitter_ms| jitter_ms > *ms) { Err(RefusingSide::Searcher) } else { Ok(()) }
            }
            HardRule::SameRuleset => {
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
        let Some(measured) = self.measure_for_search_limit(measure) else {
            return missing_value_verdict(missing);
        };
        let expansion = &self.ruleset.expansions[expansion];
        if measured > self.searcher.limit_of(expansion) {
            return Err(RefusingSide::Searcher);
        }
        if measured * reciprocal_percent / 100.0 > self.candidate.limit_of(expansion) {
            return Err(RefusingSide::Advertiser);
        }
        Ok(())
    }

    /// Like `evaluate_within`, for two queue parties: the wider limit must cover the measure.
    fn evaluate_within_for_queue_parties(
        &self,
        missing: HardMissingPolicy,
        measure: Measure,
        expansion: usize,
        reciprocal_percent: f64,
    ) -> Result<(), RefusingSide> {
        let measured = measure_for_queue_limit(self.ruleset, measure, &self.searcher.session, &self.candidate.session);
        let Some(measured) = measured else { return missing_value_verdict(missing) };
        let expansion = &self.ruleset.expansions[expansion];
        let (ours, theirs) = (self.searcher.limit_of(expansion), self.candidate.limit_of(expansion));
        let (tighter, side) =
            if ours <= theirs { (ours, RefusingSide::Searcher) } else { (theirs, RefusingSide::Advertiser) };
        if measured > ours.max(theirs) || measured * reciprocal_percent / 100.0 > tighter {
            return Err(side);
        }
        Ok(())
    }

    fn evaluate_both_values(
        &self,
        filter: &HardFilter,
        attribute: usize,
        holds: impl Fn(&AttributeValue, &AttributeValue) -> bool,
    ) -> Result<(), RefusingSide> {
        match (
            self.searcher.session.attribute_values.get(attribute),
            self.candidate.session.attribute_values.get(attribute),
        ) {
            (Some(one), Some(other)) => holds(one, other).then_some(()).ok_or(RefusingSide::Searcher),
            _ => missing_value_verdict(filter.missing),
        }
    }

    fn evaluate_candidate_value(
        &self,
        filter: &HardFilter,
        attribute: usize,
        holds: impl Fn(&AttributeValue) -> bool,
    ) -> Result<(), RefusingSide> {
        match self.candidate.session.attribute_values.get(attribute) {
            Some(value) => holds(value).then_some(()).ok_or(RefusingSide::Searcher),
            None => missing_value_verdict(filter.missing),
        }
    }
}

/// Result of a rule with a missing value. A refusal is attributed to the searcher.
fn missing_value_verdict(missing: HardMissingPolicy) -> Result<(), RefusingSide> {
    match missing {
        HardMissingPolicy::Pass => Ok(()),
        HardMissingPolicy::Refuse => Err(RefusingSide::Searcher),
    }
}

fn value_in_list(
    missing: HardMissingPolicy,
    list_owner: &AttributeValues,
    list: &InFilterListSource,
    value: Option<&AttributeValue>,
) -> bool {
    let Some(AttributeValue::String(string)) = value else { return missing == HardMissingPolicy::Pass };
    match list {
        InFilterListSource::Strings(strings) => has_text(strings, string),
        InFilterListSource::OwnAttribute(index) => match list_owner.get(*index) {
            Some(AttributeValue::StringList(strings)) => has_text(strings, string),
            _ => missing == HardMissingPolicy::Pass,
        },
    }
}

/// Whether a sorted list has `text`.
fn has_text(strings: &[Box<str>], text: &str) -> bool {
    strings.binary_search_by(|known| (**known).cmp(text)).is_ok()
}

/// Whether two string lists share an entry. Both lists are sorted.
fn lists_overlap(one: &AttributeValue, other: &AttributeValue) -> bool {
    let (AttributeValue::StringList(one), AttributeValue::StringList(other)) = (one, other) else { return false };
    one.iter().any(|string| other.binary_search(string).is_ok())
}

fn is_compatible_value_pair(pairs: &[(i32, i32)], one: &AttributeValue, other: &AttributeValue) -> bool {
    let (AttributeValue::Number(one), AttributeValue::Number(other)) = (one, other) else { return false };
    let (low, high) = if one <= other { (one, other) } else { (other, one) };
    pairs.iter().any(|&(pair_low, pair_high)| f64::from(pair_low) == *low && f64::from(pair_high) == *high)
}
