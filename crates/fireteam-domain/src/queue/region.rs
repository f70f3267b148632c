//! Regions in a queue: separate pools, a latency filter, or a part of the quality.

use crate::attribute::AttributeValue;
use crate::attribute_values::AttributeValues;
use crate::queue::ticket::Ticket;
use crate::ruleset::Ruleset;
use crate::ruleset::queue::RegionUse;
use crate::session::RegionLatency;

/// Region index and round trip time in milliseconds. The index refers to `RegionNames`.
pub(super) type RegionRoundTrip = (u32, f32);

/// Regions of a party at the time of a pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ReachableRegions<'a> {
    /// Region named by its attribute, where regions are separate.
    pub(super) named_region: Option<&'a str>,
    /// It has measured round trips. A party without measurements fits all regions.
    pub(super) has_measurements: bool,
    /// Regions that its own measurements allow under the current limit, sorted by index; with the round trips that others
    /// may judge it by.
    pub(super) round_trips: Box<[RegionRoundTrip]>,
}

/// Maximum number of region names per pass. Games use a few; further names from clients are ignored.
const REGION_NAMES_MAX: usize = 1_024;

/// Names of all measured regions, sorted.
#[derive(Clone, Debug, Default)]
pub(super) struct RegionNames<'a>(Vec<&'a str>);

impl<'a> RegionNames<'a> {
    pub(super) fn from_measurements(lists: impl Iterator<Item = &'a [RegionLatency]>) -> Self {
        // Most tickets name the same few regions, so the lookup usually succeeds.
        let mut names: Vec<&str> = Vec::new();
        for trip in lists.flatten() {
            let found = names.binary_search(&&*trip.region);
            if let Err(position) = found
                && names.len() < REGION_NAMES_MAX
            {
                names.insert(position, &trip.region);
            }
        }
        Self(names)
    }

    pub(super) fn name(&self, region: u32) -> &'a str {
        self.0[region as usize]
    }

    fn index_of(&self, name: &str) -> Option<u32> {
        self.0.binary_search(&name).ok().map(|index| index as u32)
    }
}

/// Regions that the party of `ticket` may play in after waiting `waited_ms`. Its own limit applies to its exact round
/// trips; the rest of the pass sees the rounded ones.
pub(super) fn reachable_regions<'a>(
    ruleset: &Ruleset,
    mode: RegionUse,
    region_names: &RegionNames<'_>,
    attribute_values: &'a AttributeValues,
    ticket: &Ticket,
    waited_ms: u64,
) -> ReachableRegions<'a> {
    let limit_ms = match mode {
        RegionUse::Partition { attribute } => {
            let named = match attribute_values.get(attribute) {
                Some(AttributeValue::String(name)) => Some(&**name),
                _ => None,
            };
            return ReachableRegions { named_region: named, ..ReachableRegions::default() };
        }
        RegionUse::Filter { expansion } => attribute_values.limit_of(&ruleset.expansions[expansion], waited_ms),
        RegionUse::Quality { .. } => f64::INFINITY,
    };
    let measured = &ticket.session.region_latencies;
    let within_limit = measured
        .iter()
        .enumerate()
        .filter(|(index, _)| f64::from(ticket.measured_round_trip_to_region_ms(*index)) <= limit_ms);
    let round_trips =
        within_limit.filter_map(|(_, trip)| Some((region_names.index_of(&trip.region)?, trip.round_trip_ms)));
    ReachableRegions { named_region: None, has_measurements: !measured.is_empty(), round_trips: round_trips.collect() }
}

/// Whether the region rule lets two parties meet.
pub(super) fn regions_may_meet(mode: RegionUse, one: &ReachableRegions<'_>, other: &ReachableRegions<'_>) -> bool {
    match mode {
        RegionUse::Partition { .. } => one.named_region.is_some() && one.named_region == other.named_region,
        RegionUse::Filter { .. } => match (one.has_measurements, other.has_measurements) {
            (true, true) => common_regions(&one.round_trips, &other.round_trips).next().is_some(),
            // A party without measurements fits all regions of the other, if there are any.
            (true, false) => !one.round_trips.is_empty(),
            (false, true) => !other.round_trips.is_empty(),
            (false, false) => true,
        },
        RegionUse::Quality { .. } => true,
    }
}

/// Region of a match.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum RegionChoice<'a> {
    /// No region in common, although the rule requires one.
    NoCommonRegion,
    /// No region is required, or no ticket has measurements.
    Unrestricted,
    /// Region name and mean round trip of the measured tickets, milliseconds; 0 where regions are separate.
    Chosen(&'a str, f64),
}

/// Chooses the region of a match from those that all tickets share. A latency filter minimizes the slowest round trip,
/// a quality rule the mean. Ties by name.
pub(super) fn choose_region<'a>(
    mode: RegionUse,
    region_names: &RegionNames<'a>,
    members: &[&ReachableRegions<'a>],
) -> RegionChoice<'a> {
    if let RegionUse::Partition { .. } = mode {
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
            let Ok(position) = member.round_trips.binary_search_by_key(&it.region, |trip| trip.0) else { return false };
            let ms = member.round_trips[position].1;
            (it.worst_ms, it.sum_ms, it.member_count) =
                (it.worst_ms.max(ms), it.sum_ms + f64::from(ms), it.member_count + 1);
            true
        });
    }
    let is_filter = matches!(mode, RegionUse::Filter { .. });
    let key = |it: &CommonRegion| if is_filter { f64::from(it.worst_ms) } else { it.sum_ms };
    let best = common.iter().min_by(|one, other| key(one).total_cmp(&key(other)).then(one.region.cmp(&other.region)));
    match best {
        Some(best) => RegionChoice::Chosen(region_names.name(best.region), best.sum_ms / f64::from(best.member_count)),
        None if is_filter => RegionChoice::NoCommonRegion,
        None => RegionChoice::Unrestricted,
    }
}

/// Quality cost of the round trips, 0 to `weight`. Tickets without measurements count as `span_ms`, and so do all if no
/// region is shared.
pub(super) fn region_cost(mode: RegionUse, choice: RegionChoice<'_>, members: &[&ReachableRegions<'_>]) -> f64 {
    let RegionUse::Quality { weight, span_ms } = mode else { return 0.0 };
    let measured = members.iter().filter(|it| it.has_measurements).count() as f64;
    let mean_ms = match choice {
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

/// Regions in both lists, which are sorted.
fn common_regions<'t>(one: &'t [RegionRoundTrip], other: &'t [RegionRoundTrip]) -> impl Iterator<Item = u32> + 't {
    one.iter().map(|trip| trip.0).filter(|region| other.binary_search_by_key(region, |trip| trip.0).is_ok())
}
