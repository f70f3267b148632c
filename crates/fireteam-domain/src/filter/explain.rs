//! Why a search finds so little: what each rule refuses it among all that are advertised, who comes nearest, and which one limit
//! would have to give. It looks at every row by the definition, so it is for people who ask, not for players who search.

use crate::filter::pair::{DirectedPair, WaitingSession, measure_between};
use crate::filter::{AdvertisementView, Refusal, RefusingSide, Searcher, is_own_advertisement, value_in_allowed_range};
use crate::id::AdvertisementId;
use crate::ruleset::{HardRule, Ruleset};
use crate::time::UnixMs;

/// Why a search finds what it finds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchExplanation {
    /// Advertisements that were looked at.
    pub candidate_count: u32,
    /// Of these, how many no rule refused.
    pub compatible_count: u32,
    /// Of these, how many each rule refused first, in the order of `Refusal::counter`.
    pub refusal_counts: Vec<(Refusal, u32)>,
    /// Those who come nearest: fewest rules in the way, then the least beyond the limit in shares of it, then by id.
    pub near_misses: Vec<NearMiss>,
    /// Where nothing suits: the least change of one expansion that would let somebody through.
    pub smallest_relaxation: Option<LimitRelaxation>,
}

/// An advertisement that a rule keeps from a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearMiss {
    /// Which.
    pub advertisement_id: AdvertisementId,
    /// The rule that refuses first.
    pub first_refusal: Refusal,
    /// How many rules refuse.
    pub refusal_count: u16,
    /// What the first measures and what it allows, where it has a measure.
    pub measured_and_limit: Option<(f64, f64)>,
}

/// A limit that would have to be wider.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LimitRelaxation {
    /// A place in `Ruleset::expansions`.
    pub expansion_index: usize,
    /// What it is by now.
    pub current_limit: f64,
    /// What would do.
    pub required_limit: f64,
}

/// Explains a search over `listed`, all of its silo and kind; names `nearest` of those who come nearest.
pub fn explain_search<'a>(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    listed: impl Iterator<Item = AdvertisementView<'a>>,
    nearest: usize,
    now: UnixMs,
) -> SearchExplanation {
    let mut explained = SearchExplanation::default();
    let mut counts = vec![0_u32; Refusal::counter_count(ruleset.hard_filters.len())];
    for listed in listed {
        explained.candidate_count += 1;
        let refused = all_refusals(ruleset, searcher, &listed, now);
        let Some(first) = refused.first().copied() else {
            explained.compatible_count += 1;
            continue;
        };
        counts[first.0.counter_index()] += 1;
        if let [(Refusal::HardFilter { filter_index: filter, .. }, Some((is, limit)))] = refused[..] {
            explained.smallest_relaxation =
                smaller_relaxation(explained.smallest_relaxation, relaxation_to_admit(ruleset, filter, limit, is));
        }
        let refusals = u16::try_from(refused.len()).unwrap_or(u16::MAX);
        let miss = NearMiss {
            advertisement_id: listed.advertisement.id,
            first_refusal: first.0,
            refusal_count: refusals,
            measured_and_limit: first.1,
        };
        let at = explained.near_misses.partition_point(|known| compare_near_misses(known, &miss).is_lt());
        if at < nearest {
            explained.near_misses.truncate(nearest - 1);
            explained.near_misses.insert(at, miss);
        }
    }
    let counted = counts.into_iter().enumerate().filter(|(_, count)| 0 < *count);
    explained.refusal_counts = counted.map(|(counter, count)| (Refusal::from_counter_index(counter), count)).collect();
    explained.smallest_relaxation = explained.smallest_relaxation.filter(|_| explained.compatible_count == 0);
    explained
}

/// Every rule that refuses, in the order tried, with what it measures and allows.
fn all_refusals(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    listed: &AdvertisementView<'_>,
    now: UnixMs,
) -> Vec<(Refusal, Option<(f64, f64)>)> {
    let advertisement = listed.advertisement;
    let mut refused = Vec::new();
    let mut note = |refuses: bool, refusal| {
        if refuses {
            refused.push((refusal, None));
        }
    };
    note(is_own_advertisement(searcher, advertisement), Refusal::OwnSession);
    note(searcher.excluded_ids.binary_search(&advertisement.id).is_ok(), Refusal::Excluded);
    note(listed.expires_at <= now, Refusal::Expired);
    note(listed.open_seats < searcher.seats_needed, Refusal::NotEnoughSeats);
    let here = WaitingSession { session: searcher.session_view(), waited_ms: searcher.waited_ms };
    let there =
        WaitingSession { session: listed.session_view(), waited_ms: now.ms_since(advertisement.advertised_since) };
    let pair = DirectedPair {
        ruleset,
        searcher: here,
        candidate: there,
        candidate_ruleset_hash: advertisement.ruleset_hash,
        measured_round_trip_ms: None,
    };
    for (filter, hard) in ruleset.hard_filters.iter().enumerate() {
        let Err(side) = pair.evaluate(hard) else { continue };
        let by = match hard.rule {
            HardRule::Within { measure, expansion, reciprocal_percent } => {
                let limit = |waited_ms| ruleset.expansions[expansion].limit_at(waited_ms);
                let between = measure_between(ruleset, measure, &here.session, &there.session, None);
                between.map(|is| match side {
                    RefusingSide::Searcher => (is, limit(here.waited_ms)),
                    RefusingSide::Advertiser => (is * reciprocal_percent / 100.0, limit(there.waited_ms)),
                })
            }
            _ => None,
        };
        refused.push((Refusal::HardFilter { filter_index: filter, side }, by));
    }
    if advertisement
        .allowed_ranges
        .iter()
        .any(|range| !value_in_allowed_range(ruleset, searcher.attribute_values, range))
    {
        refused.push((
            Refusal::HardFilter { filter_index: ruleset.hard_filters.len(), side: RefusingSide::Advertiser },
            None,
        ));
    }
    refused
}

/// The limit that would admit `is`, which is now `from`, from both sides.
fn relaxation_to_admit(ruleset: &Ruleset, filter: usize, from: f64, is: f64) -> Option<LimitRelaxation> {
    match ruleset.hard_filters.get(filter)?.rule {
        HardRule::Within { expansion, reciprocal_percent, .. } => {
            // The other side's share is worked out as `admit` does, which may round upwards.
            Some(LimitRelaxation {
                expansion_index: expansion,
                current_limit: from,
                required_limit: is.max(is * reciprocal_percent / 100.0),
            })
        }
        _ => None,
    }
}

/// The lesser change, in shares of what there is.
fn smaller_relaxation(known: Option<LimitRelaxation>, other: Option<LimitRelaxation>) -> Option<LimitRelaxation> {
    let by = |it: &LimitRelaxation| relative_excess(Some((it.required_limit, it.current_limit)));
    match (known, other) {
        (Some(known), Some(other)) => Some(if by(&other) < by(&known) { other } else { known }),
        (known, other) => known.or(other),
    }
}

fn compare_near_misses(one: &NearMiss, other: &NearMiss) -> std::cmp::Ordering {
    let by_far = relative_excess(one.measured_and_limit).total_cmp(&relative_excess(other.measured_and_limit));
    one.refusal_count.cmp(&other.refusal_count).then(by_far).then(one.advertisement_id.cmp(&other.advertisement_id))
}

/// How far beyond its limit something is, in shares of the limit; without a measure, beyond all others.
fn relative_excess(by: Option<(f64, f64)>) -> f64 {
    by.map_or(f64::INFINITY, |(is, limit)| (is - limit) / limit.max(f64::MIN_POSITIVE))
}
