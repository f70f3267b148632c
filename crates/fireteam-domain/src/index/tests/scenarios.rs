//! Index scenarios: single properties, each with a small population.

use std::sync::Arc;

use crate::advertisement::AdvertisementKind;
use crate::attribute_values::AttributeValues;
use crate::filter::{AdvertsOfAvoidedPlayers, Refusal, Searcher};
use crate::id::{AdvertisementId, SiloId};
use crate::index::tests::random_world::{self, IndexTestRng, NOW_MS, ValueDistribution};
use crate::index::{AdvertisementIndex, IndexEntry, SearchQuery, SearchResult, oracle};
use crate::measure::Measure;
use crate::probe_result::ProbeResults;
use crate::ruleset::{DistanceCurve, Ruleset, SearchLimits, SoftFilter, SoftFilterObjective, SoftMissingPolicy};
use crate::session::Session;
use crate::time::UnixMs;

const SPREAD_VALUES: ValueDistribution =
    ValueDistribution { common_one_in: 1000, missing_one_in: 1000, user_count: 200 };

/// Ruleset with a distance soft filter and no hard filters.
fn distance_only_ruleset() -> Arc<Ruleset> {
    let mut ruleset = random_world::random_ruleset(&mut IndexTestRng(0));
    let soft = SoftFilter {
        name: "distance".into(),
        weight: 1.0,
        measure: Measure::Distance,
        mode: SoftFilterObjective::LowerIsBetter,
        curve: DistanceCurve::Linear,
        missing: SoftMissingPolicy::Worst,
        min: 0.0,
        max: 8000.0,
    };
    (ruleset.hard_filters, ruleset.soft_filters) = (Box::default(), Box::new([soft]));
    Arc::new(ruleset)
}

/// Index with `count` advertisements with two open seats, which expire in a minute. Their ids start with their number.
fn index_with_entries(ruleset: &Arc<Ruleset>, count: u32, same_location: bool) -> AdvertisementIndex {
    let mut index = AdvertisementIndex::new(Arc::clone(ruleset));
    let rng = &mut IndexTestRng(3);
    let shared_locality = random_world::random_session(rng, SPREAD_VALUES).locality;
    for number in (0..count).rev() {
        let mut entry: IndexEntry = random_world::random_entry(rng, ruleset, id_from_number(number), SPREAD_VALUES);
        let advertisement = Arc::make_mut(&mut entry.advertisement);
        (advertisement.kind, advertisement.publisher, advertisement.session.silo) =
            (AdvertisementKind::Session, None, SiloId(0));
        advertisement.allowed_ranges = Box::default();
        advertisement.session.details = None;
        if same_location {
            advertisement.session.locality = shared_locality;
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

/// Searches from the population's location and compares the result with the oracle, unless it is truncated.
fn search_and_check(
    index: &AdvertisementIndex,
    seats_needed: u16,
    max_results: u32,
    max_evaluated: u32,
    now_ms: u64,
) -> SearchResult {
    let session = Session {
        locality: random_world::random_session(&mut IndexTestRng(3), SPREAD_VALUES).locality,
        ..Session::default()
    };
    let attribute_values = AttributeValues::from_session_without_standings(index.ruleset(), &session);
    let searcher = Searcher {
        attribute_values: &attribute_values,
        locality: session.locality,
        region_latencies: &[],
        wishes: &[],
        seats_needed,
        users: &[],
        caller: None,
        excluded_ids: &[],
        avoided: AdvertsOfAvoidedPlayers::default(),
        probes: ProbeResults::default(),
        predictor: None,
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
    let mut result = SearchResult::default();
    index.search(&query, &mut result);
    let hits = result.hits.iter().map(|hit| (index.entry(hit.slot).advertisement.id, hit.score));
    assert!(result.truncated || hits.eq(oracle::search(index, &query)));
    result
}

#[test]
fn empty_index_returns_no_hits() {
    let result = search_and_check(&AdvertisementIndex::new(distance_only_ruleset()), 1, 50, 100, NOW_MS);
    assert!(
        result.hits.is_empty() && result.evaluated_rows == 0 && !result.truncated && result.refusal_counts.is_empty()
    );
}

/// S1-18: equal scores are ordered by id, independent of the insertion order, in leaves that cannot be split.
#[test]
fn score_ties_are_ordered_by_id_even_at_one_location() {
    let index = index_with_entries(&distance_only_ruleset(), 5_000, true);
    let result = search_and_check(&index, 1, 50, u32::MAX, NOW_MS);
    let ids: Vec<AdvertisementId> = result.hits.iter().map(|hit| index.entry(hit.slot).advertisement.id).collect();
    assert_eq!(ids, (0..50).map(id_from_number).collect::<Vec<_>>());
}

/// S1-46: at most `limit` rows are evaluated, exactly `limit` if there are more, and the result is marked as truncated.
#[test]
fn evaluation_limit_truncates_the_search_and_is_reported() {
    let index = index_with_entries(&distance_only_ruleset(), 3_000, true);
    for limit in [0, 1, 511, 512, 513, 2_999] {
        let result = search_and_check(&index, 1, 10, limit, NOW_MS);
        assert!(result.truncated && result.evaluated_rows == limit, "limit {limit}");
    }
    let result = search_and_check(&index, 1, 10, 3_000, NOW_MS);
    assert!(!result.truncated && result.evaluated_rows == 3_000);
}

#[test]
fn search_of_a_spread_population_evaluates_only_a_part() {
    let index = index_with_entries(&distance_only_ruleset(), 20_000, false);
    let result = search_and_check(&index, 1, 10, u32::MAX, NOW_MS);
    assert!(result.evaluated_rows < 5_000 && result.hits.len() == 10, "evaluated {} rows", result.evaluated_rows);
}

/// S1-20: if there are too few hits, the rows of a leaf that is refused as a whole are still counted one by one.
#[test]
fn search_without_hits_counts_refusals_by_rule() {
    let index = index_with_entries(&distance_only_ruleset(), 3_000, true);
    let result = search_and_check(&index, 3, 10, u32::MAX, NOW_MS);
    assert_eq!((result.hits.len(), result.evaluated_rows), (0, 3_000));
    assert_eq!(&result.refusal_counts[..], &[(Refusal::NotEnoughSeats, 3_000)][..]);
    let large = index_with_entries(&distance_only_ruleset(), 20_000, false);
    let result = search_and_check(&large, 3, 10, u32::MAX, NOW_MS);
    assert!((1..=4_096).contains(&result.evaluated_rows), "evaluated {} rows", result.evaluated_rows);
    assert!(!result.truncated, "truncated");
}

/// S1-45: advertisements expire at the exact millisecond, updates apply at once, and expired ids are collected.
#[test]
fn expiry_is_exact_to_the_millisecond() {
    let mut index = index_with_entries(&distance_only_ruleset(), 3, true);
    assert!(index.set_expires_at(id_from_number(1), UnixMs(NOW_MS + 10)));
    assert_eq!(search_and_check(&index, 1, 10, 100, NOW_MS + 9).hits.len(), 3);
    let result = search_and_check(&index, 1, 10, 100, NOW_MS + 10);
    assert_eq!((result.hits.len(), &result.refusal_counts[..]), (2, &[(Refusal::Expired, 1)][..]));
    let mut expired = Vec::new();
    index.collect_expired(UnixMs(NOW_MS + 10), 10, &mut expired);
    assert_eq!(expired, [id_from_number(1)]);
    index.collect_expired(UnixMs(NOW_MS + 60_000), 2, &mut expired);
    assert_eq!(expired.len(), 3);
    assert!(index.set_expires_at(id_from_number(1), UnixMs(NOW_MS + 11)));
    assert_eq!(search_and_check(&index, 1, 10, 100, NOW_MS + 10).hits.len(), 3);
}

/// S1-40: hits have at least the seats that the searcher needs.
#[test]
fn open_seats_update_applies_to_the_next_search() {
    let mut index = index_with_entries(&distance_only_ruleset(), 3, true);
    assert_eq!(search_and_check(&index, 3, 10, 100, NOW_MS).hits.len(), 0);
    assert!(index.set_open_seats(id_from_number(0), 3));
    assert_eq!(search_and_check(&index, 3, 10, 100, NOW_MS).hits.len(), 1);
    assert!(index.set_open_seats(id_from_number(0), 0));
    let result = search_and_check(&index, 1, 10, 100, NOW_MS);
    assert_eq!((result.hits.len(), &result.refusal_counts[..]), (2, &[(Refusal::NotEnoughSeats, 1)][..]));
    assert!(!index.set_open_seats(id_from_number(9), 1) && !index.set_expires_at(id_from_number(9), UnixMs(NOW_MS)));
}

/// Wide bounds never change results; maintenance tightens them and joins small leaves.
#[test]
fn maintenance_after_mass_removal_joins_leaves_and_keeps_results() {
    let mut index = index_with_entries(&distance_only_ruleset(), 20_000, false);
    (0..20_000).filter(|number| number % 100 != 0).for_each(|number| drop(index.remove(id_from_number(number))));
    let before = search_and_check(&index, 1, 50, u32::MAX, NOW_MS);
    (0..300).for_each(|_| index.tighten_and_join_some_leaves());
    let after = search_and_check(&index, 1, 50, u32::MAX, NOW_MS);
    let scores = |result: &SearchResult| result.hits.iter().map(|hit| hit.score).collect::<Vec<_>>();
    assert_eq!(scores(&before), scores(&after));
    let non_empty: usize = index.partitions.iter().flatten().map(|(_, tree)| tree.non_empty_leaf_count()).sum();
    assert!(non_empty <= 4, "{non_empty} leaves hold 200 rows");
}

#[test]
fn partition_without_rows_is_removed() {
    let mut index = index_with_entries(&distance_only_ruleset(), 600, false);
    (0..600).for_each(|number| drop(index.remove(id_from_number(number))));
    assert!(index.is_empty() && index.partition_by_key.is_empty() && index.partitions.iter().all(Option::is_none));
}
