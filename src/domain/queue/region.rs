//! What a player's region means, in the three ways of S3-8: separate queues, a stage of its own, or part of quality.

use crate::domain::attribute::Value;
use crate::domain::facts::Facts;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::queue::Regions;
use crate::domain::session::RegionLatency;

/// A region and the round trip to it, milliseconds; regions are places in the pass's list of names.
pub(super) type RoundTrip = (u32, f32);

/// What a party's regions come to at the moment of a pass.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reached<'a> {
    /// The region that it names, where regions are separate.
    pub(super) named: Option<&'a str>,
    /// It has measured something; who has not fits everywhere.
    pub(super) measured: bool,
    /// The regions that it may play in by now, with its round trips, in order.
    pub(super) trips: Box<[RoundTrip]>,
}

/// Regions that one pass tells apart. A game has a handful; what strangers invent beyond that is passed over.
const NAMES_MAX: usize = 1_024;

/// The names of all regions that anybody has measured, sorted.
#[derive(Clone, Debug, Default)]
pub(super) struct Names<'a>(Vec<&'a str>);

impl<'a> Names<'a> {
    pub(super) fn of(lists: impl Iterator<Item = &'a [RegionLatency]>) -> Self {
        // Most lists name the same few regions, so what comes next is usually known.
        let mut names: Vec<&str> = Vec::new();
        for trip in lists.flatten() {
            let known = names.binary_search(&&*trip.region);
            if let Err(place) = known
                && names.len() < NAMES_MAX
            {
                names.insert(place, &trip.region);
            }
        }
        Self(names)
    }

    pub(super) fn name(&self, region: u32) -> &'a str {
        self.0[region as usize]
    }

    fn place(&self, name: &str) -> Option<u32> {
        self.0.binary_search(&name).ok().map(|place| place as u32)
    }
}

/// What `trips` come to for a party that has waited `waited_ms`.
pub(super) fn reached<'a>(
    ruleset: &Ruleset,
    rule: Regions,
    names: &Names<'_>,
    facts: &'a Facts,
    trips: &[RegionLatency],
    waited_ms: u64,
) -> Reached<'a> {
    let within_ms = match rule {
        Regions::Separate { attribute } => {
            let named = match facts.get(attribute) {
                Some(Value::Text(name)) => Some(&**name),
                _ => None,
            };
            return Reached { named, ..Reached::default() };
        }
        Regions::Stage { expansion } => ruleset.expansions[expansion].limit_at(waited_ms),
        Regions::Quality { .. } => f64::INFINITY,
    };
    let near = trips.iter().filter(|trip| f64::from(trip.round_trip_ms) <= within_ms);
    let placed = near.filter_map(|trip| Some((names.place(&trip.region)?, trip.round_trip_ms)));
    Reached { named: None, measured: !trips.is_empty(), trips: placed.collect() }
}

/// Whether two may meet, as far as regions go.
pub(super) fn may_meet(rule: Regions, one: &Reached<'_>, other: &Reached<'_>) -> bool {
    match rule {
        Regions::Separate { .. } => one.named.is_some() && one.named == other.named,
        Regions::Stage { .. } => !one.measured || !other.measured || shared(&one.trips, &other.trips).next().is_some(),
        Regions::Quality { .. } => true,
    }
}

/// Where all of a match meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place<'a> {
    /// Nowhere: they have no region in common, though they must.
    Nowhere,
    /// Anywhere: nobody has measured anything, or it does not matter that they have nothing in common.
    Anywhere,
    /// There. With the mean round trip of those who have measured one, milliseconds; 0 where regions are separate.
    There(&'a str, f64),
}

/// The region of a match: of those that all have in common, the one whose slowest round trip is least for a stage, whose mean
/// round trip is least for quality; ties by name.
pub(super) fn choose<'a>(rule: Regions, names: &Names<'a>, members: &[&Reached<'a>]) -> Place<'a> {
    if let Regions::Separate { .. } = rule {
        let named = members.first().and_then(|it| it.named);
        let same = members.iter().all(|it| it.named == named);
        return named.filter(|_| same).map_or(Place::Nowhere, |name| Place::There(name, 0.0));
    }
    let mut measured = members.iter().filter(|it| it.measured);
    let Some(first) = measured.next() else { return Place::Anywhere };
    let start = |&(region, ms): &RoundTrip| Common { region, worst: ms, sum: f64::from(ms), count: 1 };
    let mut common: Vec<Common> = first.trips.iter().map(start).collect();
    for member in measured {
        common.retain_mut(|it| {
            let Ok(place) = member.trips.binary_search_by_key(&it.region, |trip| trip.0) else { return false };
            let ms = member.trips[place].1;
            (it.worst, it.sum, it.count) = (it.worst.max(ms), it.sum + f64::from(ms), it.count + 1);
            true
        });
    }
    let stage = matches!(rule, Regions::Stage { .. });
    let key = |it: &Common| if stage { f64::from(it.worst) } else { it.sum };
    let best = common.iter().min_by(|one, other| key(one).total_cmp(&key(other)).then(one.region.cmp(&other.region)));
    match best {
        Some(best) => Place::There(names.name(best.region), best.sum / f64::from(best.count)),
        None if stage => Place::Nowhere,
        None => Place::Anywhere,
    }
}

/// What the round trips of a match take from its quality (S3-8 c). Who has measured nothing, and everybody where nothing is
/// common, counts as the whole span.
pub(super) fn cost(rule: Regions, place: Place<'_>, members: &[&Reached<'_>]) -> f64 {
    let Regions::Quality { weight, span_ms } = rule else { return 0.0 };
    let measured = members.iter().filter(|it| it.measured).count() as f64;
    let mean_ms = match place {
        Place::There(_, mean_ms) => {
            (mean_ms * measured + span_ms * (members.len() as f64 - measured)) / members.len() as f64
        }
        Place::Nowhere | Place::Anywhere => span_ms,
    };
    weight * (mean_ms / span_ms).clamp(0.0, 1.0)
}

struct Common {
    region: u32,
    worst: f32,
    sum: f64,
    count: u32,
}

/// The regions of two lists in order that are in both.
fn shared<'t>(one: &'t [RoundTrip], other: &'t [RoundTrip]) -> impl Iterator<Item = u32> + 't {
    one.iter().map(|trip| trip.0).filter(|region| other.binary_search_by_key(region, |trip| trip.0).is_ok())
}
