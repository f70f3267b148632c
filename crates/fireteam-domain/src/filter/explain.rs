//! Search explanation: refusals per rule, near misses, and the smallest limit relaxation that admits a candidate.
//!
//! Evaluates every candidate with the reference implementation, which is slow. For operators only, not for player
//! searches.

use std::cmp::Ordering;

use crate::advertisement::AllowedRange;
use crate::filter::pair::{SearcherCandidatePair, WaitingSession};
use crate::filter::search_round_trip::{ExplainedRoundTrip, explained_round_trip};
use crate::filter::{
    AdvertisementView, Refusal, RefusingSide, Searcher, is_own_advertisement, measured_or_predicted_round_trip,
    refusals_by_wishes, value_in_allowed_range,
};
use crate::id::AdvertisementId;
use crate::ruleset::{HardRule, Ruleset};
use crate::score::score;
use crate::time::UnixMs;

/// Explanation of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchExplanation {
    /// Number of advertisements evaluated.
    pub candidate_count: u32,
    /// Number of them that no rule refused.
    pub compatible_count: u32,
    /// Number of them per rule that refused first, in the order of `Refusal::counter_index`.
    pub first_refusal_counts: Vec<(Refusal, u32)>,
    /// Closest non-matching advertisements, ordered by number of refusing rules, then by excess relative to the limit,
    /// then by id.
    pub near_misses: Vec<NearMiss>,
    /// Best advertisements that no rule refuses, ordered by score, then by id.
    pub compatible_adverts: Vec<CompatibleAdvert>,
    /// If no advertisement is compatible: the smallest change of one expansion that would admit one.
    pub smallest_relaxation: Option<LimitRelaxation>,
}

impl SearchExplanation {
    /// Rule with the most refusals, of equal ones the first. `None` if an advertisement is compatible, or there is none.
    pub fn most_frequent_refusal_if_none_compatible(&self) -> Option<Refusal> {
        let counts = self.first_refusal_counts.iter().rev().filter(|_| self.compatible_count == 0);
        counts.max_by_key(|(_, count)| *count).map(|(refusal, _)| *refusal)
    }
}

/// Advertisement that at least one rule refuses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearMiss {
    /// Advertisement id.
    pub advertisement_id: AdvertisementId,
    /// The rule that refuses first.
    pub first_refusal: Refusal,
    /// Number of rules that refuse.
    pub failed_rule_count: u16,
    /// Measured value and limit of the first refusing rule, if it has a measure.
    pub measured_and_limit: Option<(f64, f64)>,
    /// Round trip to it; `None` if no source has both sides.
    pub round_trip: Option<ExplainedRoundTrip>,
}

/// Advertisement that no rule refuses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CompatibleAdvert {
    /// Advertisement id.
    pub advertisement_id: AdvertisementId,
    /// Score, as in the search.
    pub score: f64,
    /// Round trip to it; `None` if no source has both sides.
    pub round_trip: Option<ExplainedRoundTrip>,
}

/// Limit and the value that it would need.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitRelaxation {
    /// Index in `Ruleset::expansions`.
    pub expansion_index: usize,
    /// Limit at the time waited.
    pub current_limit: f64,
    /// Limit that would admit the candidate.
    pub required_limit: f64,
}

/// Explains a search over `candidates`, which must have its silo and kind. Lists at most `max_listed` near misses and as many compatible
/// advertisements.
pub fn explain_search<'a>(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    candidates: impl Iterator<Item = AdvertisementView<'a>>,
    max_listed: usize,
    now: UnixMs,
) -> SearchExplanation {
    let mut explanation = SearchExplanation::default();
    let mut counts = vec![0_u32; Refusal::counter_count(ruleset.refusing_rule_count())];
    for candidate in candidates {
        explanation.candidate_count += 1;
        let refusals = all_refusals(ruleset, searcher, &candidate, now);
        let Some((first_refusal, measured_and_limit)) = refusals.first().copied() else {
            explanation.compatible_count += 1;
            let (advertisement_id, score) = (candidate.advertisement.id, score(ruleset, searcher, &candidate));
            let advert = CompatibleAdvert { advertisement_id, score, round_trip: None };
            let list = &mut explanation.compatible_adverts;
            if let Some(advert) = insert_if_among_first(list, advert, max_listed, compare_compatible) {
                advert.round_trip = explained_round_trip(ruleset, searcher, &candidate);
            }
            continue;
        };
        counts[first_refusal.counter_index()] += 1;
        if let [(Refusal::HardFilter { filter_index, .. }, Some((measured, limit)))] = refusals[..] {
            explanation.smallest_relaxation = smaller_relaxation(
                explanation.smallest_relaxation,
                relaxation_to_admit(ruleset, filter_index, limit, measured),
            );
        }
        let refusal_count = u16::try_from(refusals.len()).unwrap_or(u16::MAX);
        let advertisement_id = candidate.advertisement.id;
        let miss = NearMiss {
            advertisement_id,
            first_refusal,
            failed_rule_count: refusal_count,
            measured_and_limit,
            round_trip: None,
        };
        if let Some(miss) = insert_if_among_first(&mut explanation.near_misses, miss, max_listed, compare_near_misses) {
            miss.round_trip = explained_round_trip(ruleset, searcher, &candidate);
        }
    }
    let non_zero = counts.into_iter().enumerate().filter(|(_, count)| *count > 0);
    explanation.first_refusal_counts =
        non_zero.map(|(counter, count)| (Refusal::from_counter_index(counter), count)).collect();
    explanation.smallest_relaxation = explanation.smallest_relaxation.filter(|_| explanation.compatible_count == 0);
    explanation
}

/// Inserts `item` into an ordered list of at most `max` items, and returns it there; `None` if it is not among the first.
fn insert_if_among_first<T>(
    list: &mut Vec<T>,
    item: T,
    max: usize,
    compare: impl Fn(&T, &T) -> Ordering,
) -> Option<&mut T> {
    let index = list.partition_point(|known| compare(known, &item).is_lt());
    if max <= index {
        return None;
    }
    list.truncate(max - 1);
    list.insert(index, item);
    list.get_mut(index)
}

/// All rules that refuse, in evaluation order, each with its measured value and limit if it has a measure.
fn all_refusals(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    candidate: &AdvertisementView<'_>,
    now: UnixMs,
) -> Vec<(Refusal, Option<(f64, f64)>)> {
    let advertisement = candidate.advertisement;
    let mut refusals = Vec::new();
    let mut push_if = |refuses: bool, refusal| {
        if refuses {
            refusals.push((refusal, None));
        }
    };
    push_if(searcher.avoided.is_hidden(advertisement.id), Refusal::AvoidedPlayer);
    push_if(is_own_advertisement(searcher, advertisement), Refusal::OwnSession);
    push_if(searcher.excluded_ids.binary_search(&advertisement.id).is_ok(), Refusal::Excluded);
    push_if(candidate.expires_at <= now, Refusal::Expired);
    push_if(candidate.open_seats < searcher.seats_needed, Refusal::NotEnoughSeats);
    let one = WaitingSession { session: searcher.session_view(), waited_ms: searcher.waited_ms };
    let other =
        WaitingSession { session: candidate.session_view(), waited_ms: now.ms_since(advertisement.advertised_since) };
    let pair = SearcherCandidatePair {
        ruleset,
        searcher: one,
        candidate: other,
        candidate_ruleset_hash: advertisement.ruleset_hash,
        measured_or_predicted: measured_or_predicted_round_trip(ruleset, searcher, candidate),
    };
    for (filter_index, filter) in ruleset.hard_filters.iter().enumerate() {
        let Err(side) = pair.evaluate_filter(filter) else { continue };
        let measured_and_limit = match filter.rule {
            HardRule::Within { measure, expansion, reciprocal_percent } => {
                let limit = |side: &WaitingSession<'_>| side.limit_of(&ruleset.expansions[expansion]);
                let measured = pair.measure_for_search_limit(measure);
                measured.map(|measured| match side {
                    RefusingSide::Searcher => (measured, limit(&one)),
                    RefusingSide::Advertiser => (measured * reciprocal_percent / 100.0, limit(&other)),
                })
            }
            _ => None,
        };
        refusals.push((Refusal::HardFilter { filter_index, side }, measured_and_limit));
    }
    let is_outside = |range: &AllowedRange| !value_in_allowed_range(ruleset, searcher.attribute_values, range);
    if advertisement.allowed_ranges.iter().any(is_outside) {
        let filter_index = ruleset.hard_filters.len();
        refusals.push((Refusal::HardFilter { filter_index, side: RefusingSide::Advertiser }, None));
    }
    refusals
        .extend(refusals_by_wishes(ruleset, &one, &other, pair.measured_or_predicted).map(|refusal| (refusal, None)));
    if searcher.probes.is_silent_or_incompatible(advertisement.id) {
        refusals.push((Refusal::Silent, None));
    }
    refusals
}

/// Relaxation from `current_limit` to the limit that would admit `measured` from both sides.
fn relaxation_to_admit(
    ruleset: &Ruleset,
    filter_index: usize,
    current_limit: f64,
    measured: f64,
) -> Option<LimitRelaxation> {
    match ruleset.hard_filters.get(filter_index)?.rule {
        HardRule::Within { expansion, reciprocal_percent, .. } => {
            // Same arithmetic as `admit_advertisement` for the advertiser's share, which may round up.
            let required_limit = measured.max(measured * reciprocal_percent / 100.0);
            Some(LimitRelaxation { expansion_index: expansion, current_limit, required_limit })
        }
        _ => None,
    }
}

/// The smaller change, relative to the current limit.
fn smaller_relaxation(known: Option<LimitRelaxation>, other: Option<LimitRelaxation>) -> Option<LimitRelaxation> {
    let change =
        |relaxation: &LimitRelaxation| relative_excess(Some((relaxation.required_limit, relaxation.current_limit)));
    match (known, other) {
        (Some(known), Some(other)) => Some(if change(&other) < change(&known) { other } else { known }),
        (known, other) => known.or(other),
    }
}

fn compare_compatible(one: &CompatibleAdvert, other: &CompatibleAdvert) -> Ordering {
    one.score.total_cmp(&other.score).then(one.advertisement_id.cmp(&other.advertisement_id))
}

fn compare_near_misses(one: &NearMiss, other: &NearMiss) -> Ordering {
    let by_excess = relative_excess(one.measured_and_limit).total_cmp(&relative_excess(other.measured_and_limit));
    one.failed_rule_count
        .cmp(&other.failed_rule_count)
        .then(by_excess)
        .then(one.advertisement_id.cmp(&other.advertisement_id))
}

/// Excess of a measured value over its limit, relative to the limit; infinite without a measure.
fn relative_excess(measured_and_limit: Option<(f64, f64)>) -> f64 {
    measured_and_limit.map_or(f64::INFINITY, |(measured, limit)| (measured - limit) / limit.max(f64::MIN_POSITIVE))
}
