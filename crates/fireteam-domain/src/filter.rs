//! Hard filters: admit a candidate or return the refusing rule. Reference implementation for the search index.

pub mod explain;
mod pair;
mod refusal;
mod search_predictor;
pub mod search_round_trip;
mod wishes;

use crate::advertisement::{Advertisement, AllowedRange};
use crate::attribute_values::AttributeValues;
use crate::filter::pair::SearcherCandidatePair;
use crate::id::{AdvertisementId, UserKey};
use crate::latency::beacon_vector::CompletedVector;
use crate::latency::min_possible_round_trip_ms;
use crate::locality::Locality;
use crate::measure::Measure;
use crate::probe_result::{MeasuredOrPredictedRoundTrip, MeasuredRoundTrip, ProbeFinding, ProbeResults};
use crate::ruleset::{HardFilter, HardRule, Ruleset};
use crate::session::{Player, RegionLatency};
use crate::time::UnixMs;
use crate::wish::Wish;

pub use crate::filter::pair::{
    SessionView, WaitingSession, admit_queue_parties_by_one_filter, estimate_round_trip_between, measure_between,
    measure_for_queue_limit,
};
pub use crate::filter::refusal::{Refusal, RefusingSide};
pub use crate::filter::search_predictor::RoundTripPredictor;
pub use crate::filter::wishes::{admit_mutually_by_wishes, refusals_by_wishes};

/// Advertisements with players whom a searcher avoids.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AdvertsOfAvoidedPlayers<'a> {
    /// Ids of those that do not exist for the searcher, sorted.
    pub hidden: &'a [AdvertisementId],
    /// Costs that are added to the scores of others, sorted by id; positive.
    pub costs: &'a [(AdvertisementId, f64)],
}

impl AdvertsOfAvoidedPlayers<'_> {
    /// Whether an advertisement does not exist for the searcher.
    pub fn is_hidden(&self, id: AdvertisementId) -> bool {
        self.hidden.binary_search(&id).is_ok()
    }

    /// Cost that is added to the score of an advertisement.
    pub fn cost(&self, id: AdvertisementId) -> f64 {
        self.costs.binary_search_by_key(&id, |(id, _)| *id).map_or(0.0, |index| self.costs[index].1)
    }
}

/// Session that searches for advertisements.
#[derive(Clone, Copy, Debug)]
pub struct Searcher<'a> {
    /// Its attribute values under the ruleset.
    pub attribute_values: &'a AttributeValues,
    /// Its position, if known.
    pub locality: Option<Locality>,
    /// Its round trips to regions, sorted by region name.
    pub region_latencies: &'a [RegionLatency],
    /// Its wishes.
    pub wishes: &'a [Wish],
    /// Number of seats that it needs.
    pub seats_needed: u16,
    /// Its users, sorted.
    pub users: &'a [UserKey],
    /// Authenticated caller; `None` if anonymous.
    pub caller: Option<UserKey>,
    /// Ids of advertisements to exclude, sorted.
    pub excluded_ids: &'a [AdvertisementId],
    /// Advertisements with players whom it avoids.
    pub avoided: AdvertsOfAvoidedPlayers<'a>,
    /// Results of its probes in this search.
    pub probes: ProbeResults<'a>,
    /// Predictor of round trips; `None` if the ruleset does not predict them, or the party has too few floors to beacons.
    pub predictor: Option<RoundTripPredictor<'a>>,
    /// Time spent searching, milliseconds.
    pub waited_ms: u64,
}

impl<'a> Searcher<'a> {
    /// The part that filters and scores read.
    pub fn session_view(&self) -> SessionView<'a> {
        let Self { attribute_values, locality, region_latencies, wishes, .. } = *self;
        SessionView { attribute_values, locality, region_latencies, wishes, prediction_end: None }
    }
}

/// Advertisement at the time of a search.
#[derive(Clone, Copy, Debug)]
pub struct AdvertisementView<'a> {
    /// The published advertisement.
    pub advertisement: &'a Advertisement,
    /// Its attribute values under the ruleset.
    pub attribute_values: &'a AttributeValues,
    /// Expiry; the advertisement is expired from this time on.
    pub expires_at: UnixMs,
    /// Seats that are neither taken nor reserved.
    pub open_seats: u16,
    /// Its published vector, completed before; predictions that use another fleet complete it again.
    pub completed_vector: Option<&'a CompletedVector>,
}

impl<'a> AdvertisementView<'a> {
    /// The part that filters and scores read.
    pub fn session_view(&self) -> SessionView<'a> {
        let session = &self.advertisement.session;
        SessionView {
            attribute_values: self.attribute_values,
            locality: session.locality,
            region_latencies: &session.region_latencies,
            wishes: session.wishes(),
            prediction_end: None,
        }
    }
}

/// Admits `candidate` or returns the first rule that refuses it. The caller must check the silo; index partitions do
/// that.
///
/// What the searcher has measured replaces the estimated latency.
pub fn admit_advertisement(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    candidate: &AdvertisementView<'_>,
    now: UnixMs,
) -> Result<(), Refusal> {
    if searcher.avoided.is_hidden(candidate.advertisement.id) {
        return Err(Refusal::AvoidedPlayer);
    }
    admit_visible_advertisement(ruleset, searcher, candidate, now)
}

/// Admits two queue parties to each other, or returns the hard filter that refuses. `one` counts as the searcher.
///
/// Each rule must hold in both directions, and so must the wishes. A limit with partial reciprocity holds if either side could have found the
/// other: the wider limit covers the measure, and the tighter limit covers `other_range_cover_percent` of it.
pub fn admit_queue_parties(
    ruleset: &Ruleset,
    one: &WaitingSession<'_>,
    other: &WaitingSession<'_>,
) -> Result<(), Refusal> {
    (0..ruleset.hard_filters.len())
        .try_for_each(|index| admit_queue_parties_by_one_filter(ruleset, index, one, other))?;
    admit_mutually_by_wishes(ruleset, one, other, None)
}

/// Like `admit_advertisement`, for a candidate that is known not to be hidden.
#[inline]
pub(crate) fn admit_visible_advertisement(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    candidate: &AdvertisementView<'_>,
    now: UnixMs,
) -> Result<(), Refusal> {
    let advertisement = candidate.advertisement;
    if is_own_advertisement(searcher, advertisement) {
        return Err(Refusal::OwnSession);
    }
    if searcher.excluded_ids.binary_search(&advertisement.id).is_ok() {
        return Err(Refusal::Excluded);
    }
    if candidate.expires_at <= now {
        return Err(Refusal::Expired);
    }
    if candidate.open_seats < searcher.seats_needed {
        return Err(Refusal::NotEnoughSeats);
    }
    let pair = SearcherCandidatePair {
        ruleset,
        searcher: WaitingSession { session: searcher.session_view(), waited_ms: searcher.waited_ms },
        candidate: WaitingSession {
            session: candidate.session_view(),
            waited_ms: now.ms_since(advertisement.advertised_since),
        },
        candidate_ruleset_hash: advertisement.ruleset_hash,
        measured_or_predicted: match searcher.predictor.is_some() || !searcher.probes.is_empty() {
            true if reads_round_trip(ruleset, searcher, candidate) => {
                measured_or_predicted_round_trip(ruleset, searcher, candidate)
            }
            _ => None,
        },
    };
    for (filter_index, hard_filter) in ruleset.hard_filters.iter().enumerate() {
        pair.evaluate_filter(hard_filter).map_err(|side| Refusal::HardFilter { filter_index, side })?;
    }
    let is_outside = |range: &AllowedRange| !value_in_allowed_range(ruleset, searcher.attribute_values, range);
    if advertisement.allowed_ranges.iter().any(is_outside) {
        return Err(Refusal::HardFilter { filter_index: ruleset.hard_filters.len(), side: RefusingSide::Advertiser });
    }
    admit_mutually_by_wishes(ruleset, &pair.searcher, &pair.candidate, pair.measured_or_predicted)?;
    if !searcher.probes.is_empty() && searcher.probes.is_silent_or_incompatible(advertisement.id) {
        return Err(Refusal::Silent);
    }
    Ok(())
}

/// Whether a hard filter or a wish may read the round trip between `searcher` and `candidate`. A prediction takes longer than all others
/// together.
fn reads_round_trip(ruleset: &Ruleset, searcher: &Searcher<'_>, candidate: &AdvertisementView<'_>) -> bool {
    let reads = |filter: &HardFilter| match filter.rule {
        HardRule::Within { measure: Measure::AttributeDifference(_) | Measure::Distance, .. } => false,
        HardRule::Within { .. } | HardRule::MaxPacketLoss { .. } | HardRule::MaxJitter { .. } => true,
        _ => false,
    };
    !searcher.wishes.is_empty()
        || !candidate.advertisement.session.wishes().is_empty()
        || ruleset.hard_filters.iter().any(reads)
}

/// Round trip that counts between `searcher` and `candidate` in place of the estimate from regions or distance: the measured one,
/// or the predicted one. A measured one is at least what light takes; an old one is at least the estimate.
#[inline]
pub fn measured_or_predicted_round_trip(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    candidate: &AdvertisementView<'_>,
) -> Option<MeasuredOrPredictedRoundTrip> {
    if !searcher.probes.is_empty()
        && let Some(counted) = measured_round_trip(ruleset, searcher, candidate)
    {
        return Some(counted);
    }
    predicted_round_trip(ruleset, searcher, candidate)
}

fn predicted_round_trip(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    candidate: &AdvertisementView<'_>,
) -> Option<MeasuredOrPredictedRoundTrip> {
    let predictor = searcher.predictor.as_ref()?;
    let predicted = predictor.predict_round_trip(ruleset, &candidate.advertisement.session, candidate.completed_vector);
    predicted.map(MeasuredOrPredictedRoundTrip::Predicted)
}

/// Result of [`measured_or_predicted_round_trip`] for a searcher that has probed. Few have, so it is kept out of the path of the others.
#[cold]
fn measured_round_trip(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    candidate: &AdvertisementView<'_>,
) -> Option<MeasuredOrPredictedRoundTrip> {
    let result = searcher.probes.of_advert(candidate.advertisement.id)?;
    let ProbeFinding::Answered(reported) = result.finding else { return None };
    let (one, other) = (searcher.session_view(), candidate.session_view());
    let mut round_trip_ms = reported.round_trip_ms.max(min_possible_round_trip_ms(one.locality, other.locality));
    if result.is_old {
        let predicted = predicted_round_trip(ruleset, searcher, candidate);
        let estimated = measure_between(ruleset, Measure::Latency, &one, &other, predicted);
        round_trip_ms = estimated.map_or(round_trip_ms, |estimated| round_trip_ms.max(estimated));
    }
    let is_as_measured = round_trip_ms == reported.round_trip_ms;
    Some(MeasuredOrPredictedRoundTrip::Measured {
        measured: MeasuredRoundTrip { round_trip_ms, ..reported },
        is_as_measured,
        is_old: result.is_old,
    })
}

/// Whether searcher and advertisement have the same authenticated caller or share a user.
fn is_own_advertisement(searcher: &Searcher<'_>, advertisement: &Advertisement) -> bool {
    let same_caller = searcher.caller.is_some() && searcher.caller == advertisement.publisher;
    let shares_user = |player: &Player| searcher.users.binary_search(&player.user).is_ok();
    same_caller || advertisement.session.players.iter().any(shares_user)
}

/// Whether the searcher's value lies in `range`. A range of an attribute that the ruleset no longer declares is
/// ignored. A searcher without the value is refused.
fn value_in_allowed_range(ruleset: &Ruleset, searcher: &AttributeValues, range: &AllowedRange) -> bool {
    let Some(index) = ruleset.attribute_index(&range.attribute) else { return true };
    let Some(number) = searcher.number(index) else { return false };
    range.min.is_none_or(|min| min <= number) && range.max.is_none_or(|max| number <= max)
}
