//! Single properties of the index, each told by a small population.

use std::sync::Arc;

use crate::domain::advertisement::Kind;
use crate::domain::facts::Facts;
use crate::domain::filter::{Refusal, Searcher};
use crate::domain::id::{AdvertisementId, SiloId};
use crate::domain::index::tests::world::{self, Dice, NOW, Taste};
use crate::domain::index::{Entry, Found, Index, Query, oracle};
use crate::domain::measure::Measure;
use crate::domain::ruleset::{Curve, MissingSoft, Ruleset, SearchLimits, SoftFilter, SoftMode};
use crate::domain::session::Session;
use crate::domain::time::UnixMs;

const TASTE: Taste = Taste { common: 1000, missing: 1000, users: 200 };

/// Distance alone decides; no hard filters.
fn nearest() -> Arc<Ruleset> {
    let mut ruleset = world::ruleset(&mut Dice(0));
    let soft = SoftFilter {
        name: "distance".into(),
        weight: 1.0,
        measure: Measure::Distance,
        mode: SoftMode::LowerIsBetter,
        curve: Curve::Linear,
        missing: MissingSoft::Worst,
        min: 0.0,
        max: 8000.0,
    };
    (ruleset.hard, ruleset.soft) = (Box::default(), Box::new([soft]));
    Arc::new(ruleset)
}

/// `count` advertisements with two open seats, believed for a minute, by the number that their id begins with.
fn filled(ruleset: &Arc<Ruleset>, count: u32, same_place: bool) -> Index {
    let mut index = Index::new(Arc::clone(ruleset));
    let dice = &mut Dice(3);
    let common = world::session(dice, TASTE).locality;
    for number in (0..count).rev() {
        let mut entry: Entry = world::entry(dice, ruleset, id(number), TASTE);
        let advertisement = Arc::make_mut(&mut entry.advertisement);
        (advertisement.kind, advertisement.subject, advertisement.session.silo) = (Kind::Session, None, SiloId(0));
        advertisement.allowed.clear();
        if same_place {
            advertisement.session.locality = common;
        }
        (entry.expires, entry.open_seats) = (UnixMs(NOW + 60_000), 2);
        index.upsert(entry);
    }
    index
}

fn id(number: u32) -> AdvertisementId {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    AdvertisementId::from_bytes(bytes)
}

/// Searches from the place of the population and holds the answer against the oracle, unless it was cut short.
fn found(index: &Index, seats: u16, max_results: u32, max_evaluated: u32, now_ms: u64) -> Found {
    let session = Session { locality: world::session(&mut Dice(3), TASTE).locality, ..Session::default() };
    let facts = Facts::of(index.ruleset(), &session);
    let searcher = Searcher {
        facts: &facts,
        locality: session.locality,
        regions: &[],
        seats,
        users: &[],
        subject: None,
        excluded: &[],
        waited_ms: 0,
    };
    let limits = SearchLimits { max_results, max_evaluated };
    let now = UnixMs(now_ms);
    let query = Query { ruleset: index.ruleset(), searcher, silo: SiloId(0), kind: Kind::Session, limits, now };
    let mut found = Found::default();
    index.search(&query, &mut found);
    let hits = found.hits.iter().map(|hit| (index.entry(hit.slot).advertisement.id, hit.score));
    assert!(found.truncated || hits.eq(oracle::search(index, &query)));
    found
}

#[test]
fn an_empty_index_finds_nothing() {
    let answer = found(&Index::new(nearest()), 1, 50, 100, NOW);
    assert!(answer.hits.is_empty() && answer.evaluated == 0 && !answer.truncated && answer.refusals.is_empty());
}

/// S1-18: order of the same score is the order of ids, whatever the order of arrival, in leaves that cannot be split.
#[test]
fn ties_go_by_id_even_where_everyone_stands_in_one_place() {
    let index = filled(&nearest(), 5_000, true);
    let answer = found(&index, 1, 50, u32::MAX, NOW);
    let ids: Vec<AdvertisementId> = answer.hits.iter().map(|hit| index.entry(hit.slot).advertisement.id).collect();
    assert_eq!(ids, (0..50).map(id).collect::<Vec<_>>());
}

/// S1-46: at most so many rows are looked at, exactly so many when there were more, and the answer says so.
#[test]
fn the_limit_on_rows_is_kept_and_admitted() {
    let index = filled(&nearest(), 3_000, true);
    for limit in [0, 1, 511, 512, 513, 2_999] {
        let answer = found(&index, 1, 10, limit, NOW);
        assert!(answer.truncated && answer.evaluated == limit, "limit {limit}");
    }
    let answer = found(&index, 1, 10, 3_000, NOW);
    assert!(!answer.truncated && answer.evaluated == 3_000);
}

#[test]
fn a_search_of_a_spread_population_looks_at_a_part_of_it() {
    let index = filled(&nearest(), 20_000, false);
    let answer = found(&index, 1, 10, u32::MAX, NOW);
    assert!(answer.evaluated < 5_000 && answer.hits.len() == 10, "looked at {}", answer.evaluated);
}

/// S1-20: a leaf that is refused whole is still accounted for, row by row, when too few were found elsewhere.
#[test]
fn who_finds_nothing_is_told_what_refused() {
    let index = filled(&nearest(), 3_000, true);
    let answer = found(&index, 3, 10, u32::MAX, NOW);
    assert_eq!((answer.hits.len(), answer.evaluated), (0, 3_000));
    assert_eq!(&answer.refusals[..], &[(Refusal::Full, 3_000)][..]);
    let large = filled(&nearest(), 20_000, false);
    let answer = found(&large, 3, 10, u32::MAX, NOW);
    assert!(0 < answer.evaluated && answer.evaluated <= 4_096, "explaining has a limit: {}", answer.evaluated);
    assert!(!answer.truncated, "no candidate was missed");
}

/// S1-45: believed until the very millisecond, in memory at once, listed for the sweeper.
#[test]
fn expiry_is_to_the_millisecond() {
    let mut index = filled(&nearest(), 3, true);
    assert!(index.set_expires(id(1), UnixMs(NOW + 10)));
    assert_eq!(found(&index, 1, 10, 100, NOW + 9).hits.len(), 3);
    let answer = found(&index, 1, 10, 100, NOW + 10);
    assert_eq!((answer.hits.len(), &answer.refusals[..]), (2, &[(Refusal::Expired, 1)][..]));
    let mut expired = Vec::new();
    index.expired(UnixMs(NOW + 10), 10, &mut expired);
    assert_eq!(expired, [id(1)]);
    index.expired(UnixMs(NOW + 60_000), 2, &mut expired);
    assert_eq!(expired.len(), 3);
    assert!(index.set_expires(id(1), UnixMs(NOW + 11)));
    assert_eq!(found(&index, 1, 10, 100, NOW + 10).hits.len(), 3);
}

/// S1-40: never fewer seats than the searcher needs.
#[test]
fn seats_are_counted_as_they_are_taken_and_given_back() {
    let mut index = filled(&nearest(), 3, true);
    assert_eq!(found(&index, 3, 10, 100, NOW).hits.len(), 0);
    assert!(index.set_open_seats(id(0), 3));
    assert_eq!(found(&index, 3, 10, 100, NOW).hits.len(), 1);
    assert!(index.set_open_seats(id(0), 0));
    let answer = found(&index, 1, 10, 100, NOW);
    assert_eq!((answer.hits.len(), &answer.refusals[..]), (2, &[(Refusal::Full, 1)][..]));
    assert!(!index.set_open_seats(id(9), 1) && !index.set_expires(id(9), UnixMs(NOW)));
}

/// Stale bounds cost time, never an answer; tidying makes up for them and joins what has run empty.
#[test]
fn tidying_after_a_purge_leaves_few_leaves_and_the_same_answers() {
    let mut index = filled(&nearest(), 20_000, false);
    (0..20_000).filter(|number| number % 100 != 0).for_each(|number| drop(index.remove(id(number))));
    let before = found(&index, 1, 50, u32::MAX, NOW);
    (0..300).for_each(|_| index.tidy());
    let after = found(&index, 1, 50, u32::MAX, NOW);
    let scores = |found: &Found| found.hits.iter().map(|hit| hit.score).collect::<Vec<_>>();
    assert_eq!(scores(&before), scores(&after));
    let full: usize = index.partitions.iter().flatten().map(|(_, tree)| tree.filled_leaves()).sum();
    assert!(full <= 4, "{full} leaves hold 200 rows");
}

#[test]
fn a_partition_without_rows_is_gone() {
    let mut index = filled(&nearest(), 600, false);
    (0..600).for_each(|number| drop(index.remove(id(number))));
    assert!(index.is_empty() && index.keys.is_empty() && index.partitions.iter().all(Option::is_none));
}
