//! What a player's region means, in the three ways of S3-8: separate queues, a stage of its own, or part of quality.

use crate::attribute::AttributeValue;
use crate::attribute_values::AttributeValues;
use crate::ruleset::Ruleset;
use crate::ruleset::queue::RegionMode;
use crate::session::RegionLatency;

/// A region and the round trip to it, milliseconds; regions are places in the pass's list of names.
pub(super) type RegionRoundTrip = (u32, f32);

/// What a party's regions come to at the moment of a pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ReachableRegions<'a> {
    /// The region that it names, where regions are separate.
    pub(super) named_region: Option<&'a str>,
    /// It has measured something; who has not fits everywhere.
    pub(super) has_measurements: bool,
    /// The regions that it may play in by now, with its round trips, in order.
    pub(super) round_trips: Box<[RegionRoundTrip]>,
}

/// Regions that one pass tells apart. A game has a handful; what strangers invent beyond that is passed over.
const REGION_NAMES_MAX: usize = 1_024;

/// The names of all regions that anybody has measured, sorted.
#[derive(Clone, Debug, Default)]
pub(super) struct RegionNames<'a>(Vec<&'a str>);

impl<'a> RegionNames<'a> {
    pub(super) fn from_measurements(lists: impl Iterator<Item = &'a [RegionLatency]>) -> Self {
        // Most lists name the same few regions, so what comes next is usually known.
        let mut names: Vec<&str> = Vec::new();
        for trip in lists.flatten() {
            let known = names.binary_search(&&*trip.region);
            if let Err(place) = known
                && names.len() < REGION_NAMES_MAX
            {
                names.insert(place, &trip.region);
            }
        }
        Self(names)
    }

    pub(super) fn name(&self, region: u32) -> &'a str {
        self.0[region as usize]
    }

    fn index_of(&self, name: &str) -> Option<u32> {
        self.0.binary_search(&name).ok().map(|place| place as u32)
    }
}

/// What `trips` come to for a party that has waited `waited_ms`.
pub(super) fn reachable_regions<'a>(
    ruleset: &Ruleset,
    rule: RegionMode,
    names: &RegionNames<'_>,
    facts: &'a AttributeValues,
    trips: &[RegionLatency],
    waited_ms: u64,
) -> ReachableRegions<'a> {
    let within_ms = match rule {
        RegionMode::Separate { attribute } => {
            let named = match facts.get(attribute) {
                Some(AttributeValue::String(name)) => Some(&**name),
                _ => None,
            };
            return ReachableRegions { named_region: named, ..ReachableRegions::default() };
        }
        RegionMode::Stage { expansion } => ruleset.expansions[expansion].limit_at(waited_ms),
        RegionMode::Quality { .. } => f64::INFINITY,
    };
    let near = trips.iter().filter(|trip| f64::from(trip.round_trip_ms) <= within_ms);
    let placed = near.filter_map(|trip| Some((names.index_of(&trip.region)?, trip.round_trip_ms)));
    ReachableRegions { named_region: None, has_measurements: !trips.is_empty(), round_trips: placed.collect() }
}

/// Whether two may meet, as far as regions go.
pub(super) fn regions_may_meet(rule: RegionMode, one: &ReachableRegions<'_>, other: &ReachableRegions<'_>) -> bool {
    match rule {
        RegionMode::Separate { .. } => one.named_region.is_some() && one.named_region == other.named_region,
        RegionMode::Stage { .. } => match (one.has_measurements, other.has_measurements) {
            (true, true) => common_regions(&one.round_trips, &other.round_trips).next().is_some(),
            // Who has measured nothing goes wherever the other may; if the other may go anywhere at all.
            (true, false) => !one.round_trips.is_empty(),
            (false, true) => !other.round_trips.is_empty(),
            (false, false) => true,
        },
        RegionMode::Quality { .. } => true,
    }
}

/// Where all of a match meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RegionChoice<'a> {
    /// Nowhere: they have no region in common, though they must.
    NoCommonRegion,
    /// Anywhere: nobody has measured anything, or it does not matter that they have nothing in common.
    Unrestricted,
    /// There. With the mean round trip of those who have measured one, milliseconds; 0 where regions are separate.
    Chosen(&'a str, f64),
}

/// The region of a match: of those that all have in common, the one whose slowest round trip is least for a stage, whose mean
/// round trip is least for quality; ties by name.
pub(super) fn choose_region<'a>(
    rule: RegionMode,
    names: &RegionNames<'a>,
    members: &[&ReachableRegions<'a>],
) -> RegionChoice<'a> {
    if let RegionMode::Separate { .. } = rule {
        let named = members.first().and_then(|it| it.named_region);
        let same = members.iter().all(|it| it.named_region == named);
        return named.filter(|_| same).map_or(RegionChoice::NoCommonRegion, |name| RegionChoice::Chosen(name, 0.0));
    }
    let mut measured = members.iter().filter(|it| it.has_measurements);
    let Some(first) = measured.next() else { return RegionChoice::Unrestricted };
    let start =
        |&(region, ms): &RegionRoundTrip| CommonRegion { region, worst_ms: ms, sum_ms: f64::from(ms), member_count: 1 };
    let mut common: Vec<CommonRegion> = first.round_trips.iter().map(start).collect();
    for member in measured {
        common.retain_mut(|it| {
            let Ok(place) = member.round_trips.binary_search_by_key(&it.region, |trip| trip.0) else { return false };
            let ms = member.round_trips[place].1;
            (it.worst_ms, it.sum_ms, it.member_count) =
                (it.worst_ms.max(ms), it.sum_ms + f64::from(ms), it.member_count + 1);
            true
        });
    }
    let stage = matches!(rule, RegionMode::Stage { .. });
    let key = |it: &CommonRegion| if stage { f64::from(it.worst_ms) } else { it.sum_ms };
    let best = common.iter().min_by(|one, other| key(one).total_cmp(&key(other)).then(one.region.cmp(&other.region)));
    match best {
        Some(best) => RegionChoice::Chosen(names.name(best.region), best.sum_ms / f64::from(best.member_count)),
        None if stage => RegionChoice::NoCommonRegion,
        None => RegionChoice::Unrestricted,
    }
}

/// What the round trips of a match take from its quality (S3-8 c). Who has measured nothing, and everybody where nothing is
/// common, counts as the whole span.
pub(super) fn region_cost(rule: RegionMode, place: RegionChoice<'_>, members: &[&ReachableRegions<'_>]) -> f64 {
    let RegionMode::Quality { weight, span_ms } = rule else { return 0.0 };
    let measured = members.iter().filter(|it| it.has_measurements).count() as f64;
    let mean_ms = match place {
        RegionChoice::Chosen(_, mean_ms) => {
            (mean_ms * measured + span_ms * (members.len() as f64 - measured)) / members.len() as f64
        }
        RegionChoice::NoCommonRegion | RegionChoice::Unrestricted => span_ms,
    };
    weight * (mean_ms / span_ms).clamp(0.0, 1.0)
}

struct CommonRegion {
    region: u32,
    worst_ms: f32,
    sum_ms: f64,
    member_count: u32,
}

/// The regions of two lists in order that are in both.
fn common_regions<'t>(one: &'t [RegionRoundTrip], other: &'t [RegionRoundTrip]) -> impl Iterator<Item = u32> + 't {
    one.iter().map(|trip| trip.0).filter(|region| other.binary_search_by_key(region, |trip| trip.0).is_ok())
}
