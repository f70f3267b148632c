//! Index tests: comparison with the oracle over random rulesets and populations, and single scenarios.

mod explain;
mod players;
mod predictions;
mod random_vectors;
mod random_wishes;
mod random_world;
mod scenarios;

use std::sync::Arc;

use crate::advertisement::AdvertisementKind;
use crate::attribute_values::AttributeValues;
use crate::filter::{AdvertsOfAvoidedPlayers, Refusal, RoundTripPredictor, Searcher, admit_advertisement};
use crate::id::{AdvertisementId, UserKey};
use crate::index::tree::RowAddr;
use crate::index::{AdvertisementIndex, InstructionSet, SearchQuery, SearchResult, oracle};
use crate::latency::beacon_fleet::BeaconFleet;
use crate::latency::beacon_vector::CompletedVector;
use crate::latency::prediction::PairPrecision;
use crate::probe_result::{
    MeasuredRoundTrip, PROBE_RESULTS_MAX, PacketLossPercent, ProbeFinding, ProbeResult, ProbeResults,
};
use crate::ruleset::probing::LatencyEstimatePolicy;
use crate::ruleset::{Ruleset, SearchLimits};
use crate::score::{score, soft_filter_term_of_advertisement};
use crate::session::Session;
use crate::time::UnixMs;
use random_world::{IndexTestRng, NOW_MS, ValueDistribution};

/// Number of random populations; the environment variable `SCALE` overrides it.
const DEFAULT_SEED_COUNT: u64 = 8_000;

#[expect(clippy::disallowed_methods, reason = "tests have no configuration file")]
fn seed_count() -> u64 {
    std::env::var("SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(DEFAULT_SEED_COUNT)
}

/// S1-17, S1-18, S1-24, S1-36, S1-40, S1-45, S1-46, S1-50: for all rules, populations and updates, a search that is not
/// truncated returns the oracle's result, bit by bit, on each instruction set.
#[test]
fn index_search_matches_the_oracle() {
    (0..seed_count()).for_each(test_random_index);
}

fn test_random_index(seed: u64) {
    let rng = &mut IndexTestRng(seed);
    let ruleset = Arc::new(random_world::random_ruleset(rng));
    let values = ValueDistribution {
        common_one_in: rng.pick(&[1, 2, 4, 1000]),
        missing_one_in: rng.pick(&[2, 6, 50, 1000]),
        user_count: rng.pick(&[2, 5, 200, 200]),
    };
    let size = match rng.below(20) {
        0 => 600 + rng.below(2500),
        1..6 => 50 + rng.below(400),
        _ => rng.below(50),
    };
    let mut index = AdvertisementIndex::new(Arc::clone(&ruleset));
    let fleet = Arc::new(random_vectors::random_fleet(rng));
    index.complete_vectors(rng.one_in(2).then_some(&fleet), 0);
    let mut ids: Vec<AdvertisementId> = Vec::new();
    for _ in 0..size {
        ids.push(random_world::random_id(rng));
        index.upsert(random_world::random_entry(rng, &ruleset, ids[ids.len() - 1], values));
    }
    let mut result = SearchResult::default();
    for round in 0..3 {
        for _ in 0..3 {
            search_randomly(seed, rng, &index, &fleet, &ids, values, &mut result);
        }
        // Some vectors are completed with another fleet than that of the searches.
        let cached = if rng.one_in(2) { Arc::clone(&fleet) } else { Arc::new(random_vectors::random_fleet(rng)) };
        index.complete_vectors(Some(&cached), rng.below(2 * size + 1));
        mutate_randomly(rng, &mut index, &mut ids, values, round);
    }
    assert!(ids.iter().all(|id| index.is_entry_consistent(*id) == index.get(*id).is_some()), "seed {seed}");
    assert_eq!(count_by_pages(&index, 1 + rng.below(100) as u32), index.len(), "seed {seed}");
}

/// Number of entries, counted page by page.
fn count_by_pages(index: &AdvertisementIndex, max_slots: u32) -> usize {
    let (mut count, mut next_page) = (0, Some(0));
    while let Some(first_slot) = next_page {
        let (entries, next) = index.entries_page(first_slot, max_slots);
        count += entries.count();
        next_page = next;
    }
    count
}

/// R9: a row that differs from its entry, belongs to another entry or is missing is detected.
#[test]
fn is_consistent_detects_a_wrong_or_missing_row() {
    let rng = &mut IndexTestRng(11);
    let ruleset = Arc::new(random_world::random_ruleset(rng));
    let values = ValueDistribution { common_one_in: 1000, missing_one_in: 1000, user_count: 200 };
    let id = random_world::random_id(rng);
    let new_index = |rng: &mut IndexTestRng| {
        let mut index = AdvertisementIndex::new(Arc::clone(&ruleset));
        index.upsert(random_world::random_entry(rng, &ruleset, id, values));
        assert!(index.is_entry_consistent(id));
        index
    };
    let mut index = new_index(rng);
    let seats = index.get(id).unwrap().open_seats;
    let slot = index.slab.slot_of(id).unwrap();
    let row_addr = index.slab.row_addr(slot);
    index.partitions[row_addr.partition as usize].as_mut().unwrap().1.set_word(
        1,
        row_addr.leaf,
        row_addr.row,
        u32::from(seats) + 1,
    );
    assert!(!index.is_entry_consistent(id), "wrong seats");
    let mut index = new_index(rng);
    index.slab.entry_mut(slot).unwrap().expires_at = UnixMs(1 << 20);
    assert!(!index.is_entry_consistent(id), "wrong expiry");
    let mut index = new_index(rng);
    index.slab.set_row_addr(slot, RowAddr { row: 7, ..row_addr });
    assert!(!index.is_entry_consistent(id), "wrong row address");
    let mut index = new_index(rng);
    index.remove_row(row_addr);
    assert!(!index.is_entry_consistent(id), "no row");
    assert!(!index.is_entry_consistent(AdvertisementId::from_bytes([0; 16])), "unknown id");
}

fn mutate_randomly(
    rng: &mut IndexTestRng,
    index: &mut AdvertisementIndex,
    ids: &mut Vec<AdvertisementId>,
    values: ValueDistribution,
    round: usize,
) {
    let ruleset = Arc::clone(index.ruleset());
    let removals = if round == 1 && rng.one_in(3) { 8 } else { 2 };
    for _ in 0..ids.len().min(400) {
        if ids.is_empty() {
            return;
        }
        let position = rng.below(ids.len());
        let id = ids[position];
        match rng.below(8 + removals) {
            0..3 => {
                let old = index.upsert(random_world::random_entry(rng, &ruleset, id, values));
                assert!(old.is_some_and(|entry| entry.advertisement.id == id));
            }
            3 => {
                ids.push(random_world::random_id(rng));
                index.upsert(random_world::random_entry(rng, &ruleset, ids[ids.len() - 1], values));
            }
            4 => assert!(index.set_expires_at(id, random_world::random_expiry(rng))),
            5 => assert!(index.set_open_seats(id, rng.below(5) as u16)),
            6 => index.tighten_and_join_some_leaves(),
            7 => assert!(index.get(id).is_some_and(|entry| entry.advertisement.id == id)),
            _ => {
                assert!(index.remove(id).is_some_and(|entry| entry.advertisement.id == id));
                assert!(index.remove(id).is_none());
                ids.swap_remove(position);
            }
        }
    }
    assert_eq!(index.len(), ids.len());
}

fn search_randomly(
    seed: u64,
    rng: &mut IndexTestRng,
    index: &AdvertisementIndex,
    fleet: &BeaconFleet,
    ids: &[AdvertisementId],
    values: ValueDistribution,
    result: &mut SearchResult,
) {
    let index_ruleset = Arc::clone(index.ruleset());
    let ruleset: Ruleset =
        if rng.one_in(3) { random_world::with_random_overrides(rng, &index_ruleset) } else { (*index_ruleset).clone() };
    let session: Session = random_world::random_session(rng, values);
    let attribute_values = AttributeValues::from_session_without_standings(&ruleset, &session);
    let (attribute_values, users) =
        (attribute_values.with_frustration(&ruleset, rng.one_in(3)), session.sorted_users());
    let mut excluded_ids: Vec<AdvertisementId> =
        (0..rng.below(4)).filter(|_| !ids.is_empty()).map(|_| rng.pick(ids)).collect();
    excluded_ids.sort_unstable();
    let (hidden, costs) = random_avoidance(rng, ids);
    let probes = random_probes(rng, ids);
    let predicts = ruleset.probing.latency_estimate_policy == LatencyEstimatePolicy::PredictedV1;
    let own = session
        .locality
        .filter(|_| predicts)
        .and_then(|place| CompletedVector::new(fleet, Some(place), &random_vectors::random_floors(rng, place)).ok());
    let now = UnixMs(rng.pick(&[NOW_MS, NOW_MS, NOW_MS + 40_000]));
    let searcher = Searcher {
        attribute_values: &attribute_values,
        locality: session.locality,
        region_latencies: &session.region_latencies,
        wishes: session.wishes(),
        seats_needed: 1 + rng.below(3) as u16,
        users: &users,
        caller: rng.one_in(3).then(|| UserKey::from_bytes([rng.below(30) as u8; 16])),
        excluded_ids: &excluded_ids,
        avoided: AdvertsOfAvoidedPlayers { hidden: &hidden, costs: &costs },
        probes: ProbeResults::from_sorted(&probes),
        predictor: own.as_ref().map(|own| RoundTripPredictor {
            fleet,
            own_vector: own,
            now,
            precision: PairPrecision::Search,
        }),
        waited_ms: rng.pick(&[0, 5_000, 60_000, 10_000_000]),
    };
    let max_evaluated = if rng.one_in(4) { rng.below(700) as u32 } else { u32::MAX };
    let limits = SearchLimits { max_results: rng.pick(&[0, 1, 3, 10, 50, 200]), max_evaluated };
    let kind = if rng.one_in(8) { AdvertisementKind::GameServer } else { AdvertisementKind::Session };
    let query = SearchQuery { ruleset: &ruleset, searcher, silo: session.silo, kind, limits, now };
    index.search(&query, result);
    assert_matches_oracle(seed, index, &query, result);
    let mut portable = SearchResult::default();
    index.search_with_instruction_set(InstructionSet::Portable, &query, &mut portable);
    assert_eq!(result.hits, portable.hits, "seed {seed}");
    assert_eq!(
        (result.evaluated_rows, &result.refusal_counts),
        (portable.evaluated_rows, &portable.refusal_counts),
        "seed {seed}"
    );
}

/// Sorted ids of hidden advertisements, and of advertisements with a cost: none, a few, or most.
fn random_avoidance(
    rng: &mut IndexTestRng,
    ids: &[AdvertisementId],
) -> (Vec<AdvertisementId>, Vec<(AdvertisementId, f64)>) {
    let draw = |rng: &mut IndexTestRng| {
        let one_in = rng.pick(&[usize::MAX, usize::MAX, 20, 2]);
        let mut drawn: Vec<AdvertisementId> = ids.iter().copied().filter(|_| rng.one_in(one_in)).collect();
        drawn.extend(rng.one_in(4).then(|| random_world::random_id(rng)));
        drawn.sort_unstable();
        drawn.dedup();
        drawn
    };
    let (hidden, with_cost) = (draw(rng), draw(rng));
    let costs = with_cost.into_iter().map(|id| (id, rng.pick(&[0.02, 1e-6, 3.0, 1e6]) * (1.0 - rng.unit_f64())));
    (hidden, costs.collect())
}

/// Probe results of none, a few or up to 64 advertisements, also of unknown ones: answered, silent and incompatible, fresh and old.
fn random_probes(rng: &mut IndexTestRng, ids: &[AdvertisementId]) -> Vec<ProbeResult> {
    let count = rng.pick(&[0, 0, 1, 5, PROBE_RESULTS_MAX]);
    let mut results: Vec<ProbeResult> = Vec::new();
    for _ in 0..count {
        let id = if ids.is_empty() || rng.one_in(10) { random_world::random_id(rng) } else { rng.pick(ids) };
        let loss = |rng: &mut IndexTestRng| {
            let percent = 30.0 * rng.unit_f64();
            PacketLossPercent { percent, low_percent: percent * rng.unit_f64() }
        };
        let finding = match rng.below(8) {
            0 => ProbeFinding::Silent,
            1 => ProbeFinding::Incompatible,
            _ => ProbeFinding::Answered(MeasuredRoundTrip {
                round_trip_ms: rng.pick(&[0.0, 30.0, 90.0, 400.0]) * rng.unit_f64(),
                jitter_ms: (!rng.one_in(3)).then(|| 120.0 * rng.unit_f64()),
                loss: (!rng.one_in(3)).then(|| loss(rng)),
            }),
        };
        results.push(ProbeResult { id_prefix: id.first_eight_bytes(), finding, is_old: rng.one_in(3) });
    }
    results.sort_by_key(|result| result.id_prefix);
    results.dedup_by_key(|result| result.id_prefix);
    results
}

fn assert_matches_oracle(seed: u64, index: &AdvertisementIndex, query: &SearchQuery<'_>, result: &SearchResult) {
    let hits: Vec<(AdvertisementId, u64)> =
        result.hits.iter().map(|hit| (index.entry(hit.slot).advertisement.id, hit.score.to_bits())).collect();
    for (hit_index, hit) in result.hits.iter().enumerate() {
        let candidate = index.entry(hit.slot).view();
        let expected_terms =
            query.ruleset.soft_filters.iter().map(|soft| {
                soft_filter_term_of_advertisement(query.ruleset, soft, &query.searcher, &candidate).to_bits()
            });
        assert!(result.hit_terms(hit_index).iter().map(|term| term.to_bits()).eq(expected_terms), "seed {seed}");
    }
    assert!(result.evaluated_rows <= query.limits.max_evaluated);
    let refused: u32 = result.refusal_counts.iter().map(|&(_, count)| count).sum();
    assert!(refused + hits.len() as u32 <= result.evaluated_rows, "seed {seed}: a row counted twice");
    let tells_avoidance = |(refusal, _): &(Refusal, u32)| *refusal == Refusal::AvoidedPlayer;
    assert!(!result.refusal_counts.iter().any(tells_avoidance), "seed {seed}: a hidden row is counted");
    if !result.truncated {
        let expected: Vec<(AdvertisementId, u64)> =
            oracle::search(index, query).into_iter().map(|(id, score)| (id, score.to_bits())).collect();
        assert_eq!(hits, expected, "seed {seed}");
        return;
    }
    assert_eq!(result.evaluated_rows, query.limits.max_evaluated, "seed {seed}: limit not used up");
    for hit in &result.hits {
        let candidate = index.entry(hit.slot).view();
        assert!(admit_advertisement(query.ruleset, &query.searcher, &candidate, query.now).is_ok(), "seed {seed}");
        assert_eq!(hit.score.to_bits(), score(query.ruleset, &query.searcher, &candidate).to_bits(), "seed {seed}");
    }
}
