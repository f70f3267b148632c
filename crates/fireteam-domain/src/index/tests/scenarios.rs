//! Single properties of the index, each told by a small population.

use std::sync::Arc;

use crate::advertisement::AdvertisementKind;
use crate::attribute_values::AttributeValues;
use crate::filter::{Refusal, Searcher};
use crate::id::{AdvertisementId, SiloId};
use crate::index::tests::random_world::{self, IndexTestRng, NOW_MS, ValueDistribution};
use crate::index::{AdvertisementIndex, IndexEntry, SearchQuery, SearchResult, oracle};
use crate::measure::Measure;
use crate::ruleset::{DistanceCurve, Ruleset, SearchLimits, SoftFilter, SoftFilterMode, SoftMissingPolicy};
use crate::session::Session;
use crate::time::UnixMs;

const SPREAD_VALUES: ValueDistribution =
    ValueDistribution { common_one_in: 1000, missing_one_in: 1000, user_count: 200 };

/// Distance alone decides; no hard filters.
fn distance_only_ruleset() -> Arc<Ruleset> {
    let mut ruleset = random_world::random_ruleset(&mut IndexTestRng(0));
    let soft = SoftFilter {
        name: "distance".into(),
        weight: 1.0,
        measure: Measure::Distance,
        mode: SoftFilterMode::LowerIsBetter,
        curve: DistanceCurve::Linear,
        missing: SoftMissingPolicy::Worst,
        min: 0.0,
        max: 8000.0,
    };
    (ruleset.hard_filters, ruleset.soft_filters) = (Box::default(), Box::new([soft]));
    Arc::new(ruleset)
}

/// `count` advertisements with two open seats, believed for a minute, by the number that their id begins with.
fn index_with_entries(ruleset: &Arc<Ruleset>, count: u32, same_place: bool) -> AdvertisementIndex {
    let mut index = AdvertisementIndex::new(Arc::clone(ruleset));
    let dice = &mut IndexTestRng(3);
    let common = random_world::random_session(dice, SPREAD_VALUES).locality;
    for number in (0..count).rev() {
        let mut entry: IndexEntry = random_world::random_entry(dice, ruleset, id_from_number(number), SPREAD_VALUES);
        let advertisement = Arc::make_mut(&mut entry.advertisement);
        (advertisement.kind, advertisement.publisher, advertisement.session.silo) =
            (AdvertisementKind::Session, None, SiloId(0));
        advertisement.allowed_ranges.clear();
        if same_place {
            advertisement.session.locality = common;
        }
        (entry.expires_at, entry.open_seats) = (UnixMs(NOW_MS + 60_000), 2);
        index.upsert(entry);
    }
    index
}

fn id_from_number(number: u32) -> AdvertisementId {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    AdvertisementId::from_bytes(bytes)
}

/// Searches from the place of the population and holds the answer against the oracle, unless it was cut short.
fn search_and_check(
    index: &AdvertisementIndex,
    seats: u16,
    max_results: u32,
    max_evaluated: u32,
    now_ms: u64,
) -> SearchResult {
    let session = Session {
        locality: random_world::random_session(&mut IndexTestRng(3), SPREAD_VALUES).locality,
        ..Session::default()
    };
    let facts = AttributeValues::from_session(index.ruleset(), &session);
    let searcher = Searcher {
        attribute_values: &facts,
        locality: session.locality,
        region_latencies: &[],
        seats_needed: seats,
        users: &[],
        caller: None,
        excluded_ids: &[],
        waited_ms: 0,
    };
    let limits = SearchLimits { max_results, max_evaluated };
    let now = UnixMs(now_ms);
    let query = SearchQuery {
        ruleset: index.ruleset(),
        searcher,
        silo: SiloId(0),
        kind: AdvertisementKind::Session,
        limits,
        now,
    };
    let mut found = SearchResult::default();
    index.search(&query, &mut found);
    let hits = found.hits.iter().map(|hit| (index.entry(hit.slot).advertisement.id, hit.score));
    assert!(found.truncated || hits.eq(oracle::search(index, &query)));
    found
}

#[test]
fn empty_index_returns_no_hits() {
    let answer = search_and_check(&AdvertisementIndex::new(distance_only_ruleset()), 1, 50, 100, NOW_MS);
    assert!(
        answer.hits.is_empty() && answer.evaluated_rows == 0 && !answer.truncated && answer.refusal_counts.is_empty()
    );
}

/// S1-18: order of the same score is the order of ids, whatever the order of arrival, in leaves that cannot be split.
#[test]
fn score_ties_are_ordered_by_id_even_at_one_location() {
    let index = index_with_entries(&distance_only_ruleset(), 5_000, true);
    let answer = search_and_check(&index, 1, 50, u32::MAX, NOW_MS);
    let ids: Vec<AdvertisementId> = answer.hits.iter().map(|hit| index.entry(hit.slot).advertisement.id).collect();
    assert_eq!(ids, (0..50).map(id_from_number).collect::<Vec<_>>());
}

/// S1-46: at most so many rows are looked at, exactly so many when there were more, and the answer says so.
#[test]
fn evaluation_limit_truncates_the_search_and_is_reported() {
    let index = index_with_entries(&distance_only_ruleset(), 3_000, true);
    for limit in [0, 1, 511, 512, 513, 2_999] {
        let answer = search_and_check(&index, 1, 10, limit, NOW_MS);
        assert!(answer.truncated && answer.evaluated_rows == limit, "limit {limit}");
    }
    let answer = search_and_check(&index, 1, 10, 3_000, NOW_MS);
    assert!(!answer.truncated && answer.evaluated_rows == 3_000);
}

#[test]
fn search_of_a_spread_population_evaluates_only_a_part() {
    let index = index_with_entries(&distance_only_ruleset(), 20_000, false);
    let answer = search_and_check(&index, 1, 10, u32::MAX, NOW_MS);
    assert!(answer.evaluated_rows < 5_000 && answer.hits.len() == 10, "looked at {}", answer.evaluated_rows);
}

/// S1-20: a leaf that is refused whole is still accounted for, row by row, when too few were found elsewhere.
#[test]
fn search_without_hits_counts_refusals_by_rule() {
    let index = index_with_entries(&distance_only_ruleset(), 3_000, true);
    let answer = search_and_check(&index, 3, 10, u32::MAX, NOW_MS);
    assert_eq!((answer.hits.len(), answer.evaluated_rows), (0, 3_000));
    assert_eq!(&answer.refusal_counts[..], &[(Refusal::NotEnoughSeats, 3_000)][..]);
    let large = index_with_entries(&distance_only_ruleset(), 20_000, false);
    let answer = search_and_check(&large, 3, 10, u32::MAX, NOW_MS);
    assert!(
        0 < answer.evaluated_rows && answer.evaluated_rows <= 4_096,
        "explaining has a limit: {}",
        answer.evaluated_rows
    );
    assert!(!answer.truncated, "no candidate was missed");
}

/// S1-45: believed until the very millisecond, in memory at once, listed for the sweeper.
#[test]
fn expiry_is_exact_to_the_millisecond() {
    let mut index = index_with_entries(&distance_only_ruleset(), 3, true);
    assert!(index.set_expires_at(id_from_number(1), UnixMs(NOW_MS + 10)));
    assert_eq!(search_and_check(&index, 1, 10, 100, NOW_MS + 9).hits.len(), 3);
    let answer = search_and_check(&index, 1, 10, 100, NOW_MS + 10);
    assert_eq!((answer.hits.len(), &answer.refusal_counts[..]), (2, &[(Refusal::Expired, 1)][..]));
    let mut expired = Vec::new();
    index.collect_expired(UnixMs(NOW_MS + 10), 10, &mut expired);
    assert_eq!(expired, [id_from_number(1)]);
    index.collect_expired(UnixMs(NOW_MS + 60_000), 2, &mut expired);
    assert_eq!(expired.len(), 3);
    assert!(index.set_expires_at(id_from_number(1), UnixMs(NOW_MS + 11)));
    assert_eq!(search_and_check(&index, 1, 10, 100, NOW_MS + 10).hits.len(), 3);
}

/// S1-40: never fewer seats than the searcher needs.
#[test]
fn open_seats_update_applies_to_the_next_search() {
    let mut index = index_with_entries(&distance_only_ruleset(), 3, true);
    assert_eq!(search_and_check(&index, 3, 10, 100, NOW_MS).hits.len(), 0);
    assert!(index.set_open_seats(id_from_number(0), 3));
    assert_eq!(search_and_check(&index, 3, 10, 100, NOW_MS).hits.len(), 1);
    assert!(index.set_open_seats(id_from_number(0), 0));
    let answer = search_and_check(&index, 1, 10, 100, NOW_MS);
    assert_eq!((answer.hits.len(), &answer.refusal_counts[..]), (2, &[(Refusal::NotEnoughSeats, 1)][..]));
    assert!(!index.set_open_seats(id_from_number(9), 1) && !index.set_expires_at(id_from_number(9), UnixMs(NOW_MS)));
}

/// Stale bounds cost time, never an answer; tidying makes up for them and joins what has run empty.
#[test]
fn maintenance_after_mass_removal_joins_leaves_and_keeps_results() {
    let mut index = index_with_entries(&distance_only_ruleset(), 20_000, false);
    (0..20_000).filter(|number| number % 100 != 0).for_each(|number| drop(index.remove(id_from_number(number))));
    let before = search_and_check(&index, 1, 50, u32::MAX, NOW_MS);
    (0..300).for_each(|_| index.maintain());
    let after = search_and_check(&index, 1, 50, u32::MAX, NOW_MS);
    let scores = |found: &SearchResult| found.hits.iter().map(|hit| hit.score).collect::<Vec<_>>();
    assert_eq!(scores(&before), scores(&after));
    let full: usize = index.partitions.iter().flatten().map(|(_, tree)| tree.non_empty_leaf_count()).sum();
    assert!(full <= 4, "{full} leaves hold 200 rows");
}

#[test]
fn partition_without_rows_is_removed() {
    let mut index = index_with_entries(&distance_only_ruleset(), 600, false);
    (0..600).for_each(|number| drop(index.remove(id_from_number(number))));
    assert!(index.is_empty() && index.partition_by_key.is_empty() && index.partitions.iter().all(Option::is_none));
}
