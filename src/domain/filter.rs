//! Hard filters: admit an advertisement, or say which rule refused it. This is the definition that the index obeys.

pub mod explain;
mod pair;
mod refusal;

pub use pair::{Seen, Waits, measure_between, meet, meet_by};
pub use refusal::{Refusal, Side};

use crate::domain::advertisement::{Advertisement, AllowedRange};
use crate::domain::facts::Facts;
use crate::domain::filter::pair::Pair;
use crate::domain::id::{AdvertisementId, UserKey};
use crate::domain::locality::Locality;
use crate::domain::ruleset::Ruleset;
use crate::domain::session::RegionLatency;
use crate::domain::time::UnixMs;

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

impl<'a> Searcher<'a> {
    /// As the other side's filters see it.
    pub fn seen(&self) -> Seen<'a> {
        let Self { facts, locality, regions, .. } = *self;
        Seen { facts, locality, regions }
    }
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

impl<'a> Listed<'a> {
    /// As the searcher's filters see it.
    pub fn seen(&self) -> Seen<'a> {
        let session = &self.advertisement.session;
        Seen { facts: self.facts, locality: session.locality, regions: &session.regions }
    }
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
    let here = Waits { seen: searcher.seen(), waited_ms: searcher.waited_ms };
    let there = Waits { seen: listed.seen(), waited_ms: now.since(advertisement.since) };
    let pair = Pair { ruleset, here, there, hash: advertisement.hash, round_trip_ms };
    for (filter, hard) in ruleset.hard.iter().enumerate() {
        pair.judge(hard).map_err(|side| Refusal::Filter { filter, side })?;
    }
    let outside = |range: &AllowedRange| !lies_within(ruleset, searcher.facts, range);
    if advertisement.allowed.iter().any(outside) {
        return Err(Refusal::Filter { filter: ruleset.hard.len(), side: Side::Advertiser });
    }
    Ok(())
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
