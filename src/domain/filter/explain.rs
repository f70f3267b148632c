//! Why a search finds so little: what each rule refuses it among all that are advertised, who comes nearest, and which one limit
//! would have to give. It looks at every row by the definition, so it is for people who ask, not for players who search.

use crate::domain::filter::pair::{Pair, Waits, measure_between};
use crate::domain::filter::{Listed, Refusal, Searcher, Side, is_own, lies_within};
use crate::domain::id::AdvertisementId;
use crate::domain::ruleset::{HardRule, Ruleset};
use crate::domain::time::UnixMs;

/// Why a search finds what it finds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SearchExplanation {
    /// Advertisements that were looked at.
    pub candidates: u32,
    /// Of these, how many no rule refused.
    pub suitable: u32,
    /// Of these, how many each rule refused first, in the order of `Refusal::counter`.
    pub refusals: Vec<(Refusal, u32)>,
    /// Those who come nearest: fewest rules in the way, then the least beyond the limit in shares of it, then by id.
    pub nearest: Vec<NearMiss>,
    /// Where nothing suits: the least change of one expansion that would let somebody through.
    pub remedy: Option<WiderLimit>,
}

/// An advertisement that a rule keeps from a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NearMiss {
    /// Which.
    pub id: AdvertisementId,
    /// The rule that refuses first.
    pub refusal: Refusal,
    /// How many rules refuse.
    pub refusals: u16,
    /// What the first measures and what it allows, where it has a measure.
    pub by: Option<(f64, f64)>,
}

/// A limit that would have to be wider.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WiderLimit {
    /// A place in `Ruleset::expansions`.
    pub expansion: usize,
    /// What it is by now.
    pub from: f64,
    /// What would do.
    pub to: f64,
}

/// Explains a search over `listed`, all of its silo and kind; names `nearest` of those who come nearest.
pub fn explain<'a>(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    listed: impl Iterator<Item = Listed<'a>>,
    nearest: usize,
    now: UnixMs,
) -> SearchExplanation {
    let mut explained = SearchExplanation::default();
    let mut counts = vec![0_u32; Refusal::counters(ruleset.hard.len())];
    for listed in listed {
        explained.candidates += 1;
        let refused = refusals(ruleset, searcher, &listed, now);
        let Some(first) = refused.first().copied() else {
            explained.suitable += 1;
            continue;
        };
        counts[first.0.counter()] += 1;
        if let [(Refusal::Filter { filter, .. }, Some((is, limit)))] = refused[..] {
            explained.remedy = less(explained.remedy, wider(ruleset, filter, limit, is));
        }
        let refusals = u16::try_from(refused.len()).unwrap_or(u16::MAX);
        let miss = NearMiss { id: listed.advertisement.id, refusal: first.0, refusals, by: first.1 };
        let at = explained.nearest.partition_point(|known| order(known, &miss).is_lt());
        if at < nearest {
            explained.nearest.truncate(nearest - 1);
            explained.nearest.insert(at, miss);
        }
    }
    let counted = counts.into_iter().enumerate().filter(|(_, count)| 0 < *count);
    explained.refusals = counted.map(|(counter, count)| (Refusal::of_counter(counter), count)).collect();
    explained.remedy = explained.remedy.filter(|_| explained.suitable == 0);
    explained
}

/// Every rule that refuses, in the order tried, with what it measures and allows.
fn refusals(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    listed: &Listed<'_>,
    now: UnixMs,
) -> Vec<(Refusal, Option<(f64, f64)>)> {
    let advertisement = listed.advertisement;
    let mut refused = Vec::new();
    let mut note = |refuses: bool, refusal| {
        if refuses {
            refused.push((refusal, None));
        }
    };
    note(is_own(searcher, advertisement), Refusal::Own);
    note(searcher.excluded.binary_search(&advertisement.id).is_ok(), Refusal::Excluded);
    note(listed.expires <= now, Refusal::Expired);
    note(listed.open_seats < searcher.seats, Refusal::Full);
    let here = Waits { seen: searcher.seen(), waited_ms: searcher.waited_ms };
    let there = Waits { seen: listed.seen(), waited_ms: now.since(advertisement.since) };
    let pair = Pair { ruleset, here, there, hash: advertisement.hash, round_trip_ms: None };
    for (filter, hard) in ruleset.hard.iter().enumerate() {
        let Err(side) = pair.judge(hard) else { continue };
        let by = match hard.rule {
            HardRule::Within { measure, expansion, reciprocal_percent } => {
                let limit = |waited_ms| ruleset.expansions[expansion].limit_at(waited_ms);
                let between = measure_between(ruleset, measure, &here.seen, &there.seen, None);
                between.map(|is| match side {
                    Side::Searcher => (is, limit(here.waited_ms)),
                    Side::Advertiser => (is * reciprocal_percent / 100.0, limit(there.waited_ms)),
                })
            }
            _ => None,
        };
        refused.push((Refusal::Filter { filter, side }, by));
    }
    if advertisement.allowed.iter().any(|range| !lies_within(ruleset, searcher.facts, range)) {
        refused.push((Refusal::Filter { filter: ruleset.hard.len(), side: Side::Advertiser }, None));
    }
    refused
}

/// The limit that would admit `is`, which is now `from`, from both sides.
fn wider(ruleset: &Ruleset, filter: usize, from: f64, is: f64) -> Option<WiderLimit> {
    match ruleset.hard.get(filter)?.rule {
        HardRule::Within { expansion, reciprocal_percent, .. } => {
            // The other side's share is worked out as `admit` does, which may round upwards.
            Some(WiderLimit { expansion, from, to: is.max(is * reciprocal_percent / 100.0) })
        }
        _ => None,
    }
}

/// The lesser change, in shares of what there is.
fn less(known: Option<WiderLimit>, other: Option<WiderLimit>) -> Option<WiderLimit> {
    let by = |it: &WiderLimit| beyond(Some((it.to, it.from)));
    match (known, other) {
        (Some(known), Some(other)) => Some(if by(&other) < by(&known) { other } else { known }),
        (known, other) => known.or(other),
    }
}

fn order(one: &NearMiss, other: &NearMiss) -> std::cmp::Ordering {
    let by_far = beyond(one.by).total_cmp(&beyond(other.by));
    one.refusals.cmp(&other.refusals).then(by_far).then(one.id.cmp(&other.id))
}

/// How far beyond its limit something is, in shares of the limit; without a measure, beyond all others.
fn beyond(by: Option<(f64, f64)>) -> f64 {
    by.map_or(f64::INFINITY, |(is, limit)| (is - limit) / limit.max(f64::MIN_POSITIVE))
}
