//! Hard filters: admit an advertisement, or say which rule refused it. This is the definition that the index obeys.

pub mod explain;
mod pair;
mod refusal;

pub use pair::{SessionView, WaitingSession, admit_mutually, admit_mutually_by_filter, measure_between};
pub use refusal::{Refusal, RefusingSide};

use crate::advertisement::{Advertisement, AllowedRange};
use crate::attribute_values::AttributeValues;
use crate::filter::pair::DirectedPair;
use crate::id::{AdvertisementId, UserKey};
use crate::locality::Locality;
use crate::ruleset::Ruleset;
use crate::session::RegionLatency;
use crate::time::UnixMs;

/// A session that looks for others.
#[derive(Clone, Copy, Debug)]
pub struct Searcher<'a> {
    /// What the ruleset sees of it.
    pub attribute_values: &'a AttributeValues,
    /// Where it is.
    pub locality: Option<Locality>,
    /// Its round trips to regions, in name order.
    pub region_latencies: &'a [RegionLatency],
    /// Seats that it needs.
    pub seats_needed: u16,
    /// Its users, sorted.
    pub users: &'a [UserKey],
    /// The authenticated caller, if any.
    pub caller: Option<UserKey>,
    /// Advertisements not to show, sorted.
    pub excluded_ids: &'a [AdvertisementId],
    /// How long it has been searching, milliseconds.
    pub waited_ms: u64,
}

impl<'a> Searcher<'a> {
    /// As the other side's filters see it.
    pub fn session_view(&self) -> SessionView<'a> {
        let Self { attribute_values: facts, locality, region_latencies: regions, .. } = *self;
        SessionView { attribute_values: facts, locality, region_latencies: regions }
    }
}

/// An advertisement as it stands at the moment of a search.
#[derive(Clone, Copy, Debug)]
pub struct AdvertisementView<'a> {
    /// As published.
    pub advertisement: &'a Advertisement,
    /// What the ruleset sees of it.
    pub attribute_values: &'a AttributeValues,
    /// Until when it is believed: it is expired from this moment on.
    pub expires_at: UnixMs,
    /// Seats that nobody holds.
    pub open_seats: u16,
}

impl<'a> AdvertisementView<'a> {
    /// As the searcher's filters see it.
    pub fn session_view(&self) -> SessionView<'a> {
        let session = &self.advertisement.session;
        SessionView {
            attribute_values: self.attribute_values,
            locality: session.locality,
            region_latencies: &session.region_latencies,
        }
    }
}

/// Admits `listed`, or says which rule refuses it first. The silo is the caller's to check: partitions never mix them.
///
/// `round_trip_ms` is a measured one, where there is any; it replaces whatever else is known of latency.
pub fn admit(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    listed: &AdvertisementView<'_>,
    round_trip_ms: Option<f64>,
    now: UnixMs,
) -> Result<(), Refusal> {
    let advertisement = listed.advertisement;
    if is_own_advertisement(searcher, advertisement) {
        return Err(Refusal::OwnSession);
    }
    if searcher.excluded_ids.binary_search(&advertisement.id).is_ok() {
        return Err(Refusal::Excluded);
    }
    if listed.expires_at <= now {
        return Err(Refusal::Expired);
    }
    if listed.open_seats < searcher.seats_needed {
        return Err(Refusal::NotEnoughSeats);
    }
    let here = WaitingSession { session: searcher.session_view(), waited_ms: searcher.waited_ms };
    let there =
        WaitingSession { session: listed.session_view(), waited_ms: now.ms_since(advertisement.advertised_since) };
    let pair = DirectedPair {
        ruleset,
        searcher: here,
        candidate: there,
        candidate_ruleset_hash: advertisement.ruleset_hash,
        measured_round_trip_ms: round_trip_ms,
    };
    for (filter, hard) in ruleset.hard_filters.iter().enumerate() {
        pair.evaluate(hard).map_err(|side| Refusal::HardFilter { filter_index: filter, side })?;
    }
    let outside = |range: &AllowedRange| !value_in_allowed_range(ruleset, searcher.attribute_values, range);
    if advertisement.allowed_ranges.iter().any(outside) {
        return Err(Refusal::HardFilter { filter_index: ruleset.hard_filters.len(), side: RefusingSide::Advertiser });
    }
    Ok(())
}

fn is_own_advertisement(searcher: &Searcher<'_>, advertisement: &Advertisement) -> bool {
    let same_subject = searcher.caller.is_some() && searcher.caller == advertisement.publisher;
    let shares_user = |player: &crate::session::Player| searcher.users.binary_search(&player.user).is_ok();
    same_subject || advertisement.session.players.iter().any(shares_user)
}

/// An allowed range of an attribute that the ruleset no longer has says nothing; one whose searcher has no value refuses.
fn value_in_allowed_range(ruleset: &Ruleset, searcher: &AttributeValues, range: &AllowedRange) -> bool {
    let Some(index) = ruleset.attribute_index(&range.attribute) else { return true };
    let Some(number) = searcher.number(index) else { return false };
    range.min.is_none_or(|min| min <= number) && range.max.is_none_or(|max| number <= max)
}
