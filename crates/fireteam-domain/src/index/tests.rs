//! Judges the index by the oracle over random worlds, and by hand where a story is worth telling.

mod explain;
mod random_world;
mod scenarios;

use std::sync::Arc;

use crate::advertisement::AdvertisementKind;
use crate::attribute_values::AttributeValues;
use crate::filter::{Searcher, admit};
use crate::id::{AdvertisementId, UserKey};
use crate::index::tree::RowAddr;
use crate::index::{AdvertisementIndex, InstructionSet, SearchQuery, SearchResult, oracle};
use crate::ruleset::{Ruleset, SearchLimits};
use crate::score::{score, soft_filter_term};
use crate::session::Session;
use crate::time::UnixMs;
use random_world::{IndexTestRng, NOW_MS, ValueDistribution};

/// Populations in an ordinary run; the environment's `SCALE` says otherwise.
const DEFAULT_SEED_COUNT: u64 = 8_000;

#[expect(clippy::disallowed_methods, reason = "a test has no configuration of its own")]
fn seed_count() -> u64 {
    std::env::var("SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(DEFAULT_SEED_COUNT)
}

/// S1-17, S1-18, S1-24, S1-36, S1-40, S1-45, S1-46, S1-50: whatever the rules, the population and the changes it has
/// been through, a search that no limit cuts short finds what the oracle finds, to the bit, on every instruction set.
#[test]
fn index_search_matches_the_oracle() {
    (0..seed_count()).for_each(test_random_index);
}

fn test_random_index(seed: u64) {
    let dice = &mut IndexTestRng(seed);
    let ruleset = Arc::new(random_world::random_ruleset(dice));
    let taste = ValueDistribution {
        common_one_in: dice.pick(&[1, 2, 4, 1000]),
        missing_one_in: dice.pick(&[2, 6, 50, 1000]),
        user_count: dice.pick(&[2, 5, 200, 200]),
    };
    let size = match dice.below(20) {
        0 => 600 + dice.below(2500),
        1..6 => 50 + dice.below(400),
        _ => dice.below(50),
    };
    let mut index = AdvertisementIndex::new(Arc::clone(&ruleset));
    let mut ids: Vec<AdvertisementId> = Vec::new();
    for _ in 0..size {
        ids.push(random_world::random_id(dice));
        index.upsert(random_world::random_entry(dice, &ruleset, ids[ids.len() - 1], taste));
    }
    let mut found = SearchResult::default();
    for round in 0..3 {
        for _ in 0..3 {
            search_randomly(seed, dice, &index, &ids, taste, &mut found);
        }
        mutate_randomly(dice, &mut index, &mut ids, taste, round);
    }
    assert!(ids.iter().all(|id| index.is_consistent(*id) == index.get(*id).is_some()), "seed {seed}");
    assert_eq!(count_by_pages(&index, 1 + dice.below(100) as u32), index.len(), "seed {seed}");
}

/// How many entries there are, counted by portions.
fn count_by_pages(index: &AdvertisementIndex, most: u32) -> usize {
    let (mut count, mut next) = (0, Some(0));
    while let Some(from) = next {
        let (entries, then) = index.entries_page(from, most);
        count += entries.count();
        next = then;
    }
    count
}

/// R9: a row that says something else than its entry, or is another's, is noticed.
#[test]
fn is_consistent_detects_a_wrong_or_missing_row() {
    let dice = &mut IndexTestRng(7);
    let ruleset = Arc::new(random_world::random_ruleset(dice));
    let taste = ValueDistribution { common_one_in: 1000, missing_one_in: 1000, user_count: 200 };
    let id = random_world::random_id(dice);
    let fresh = |dice: &mut IndexTestRng| {
        let mut index = AdvertisementIndex::new(Arc::clone(&ruleset));
        index.upsert(random_world::random_entry(dice, &ruleset, id, taste));
        assert!(index.is_consistent(id));
        index
    };
    let mut index = fresh(dice);
    let seats = index.get(id).unwrap().open_seats;
    let slot = index.slab.slot_of(id).unwrap();
    let place = index.slab.row_addr(slot);
    index.partitions[place.partition as usize].as_mut().unwrap().1.set_word(
        1,
        place.leaf,
        place.row,
        u32::from(seats) + 1,
    );
    assert!(!index.is_consistent(id), "other seats");
    let mut index = fresh(dice);
    index.slab.entry_mut(slot).unwrap().expires_at = UnixMs(1 << 20);
    assert!(!index.is_consistent(id), "another expiry");
    let mut index = fresh(dice);
    index.slab.set_row_addr(slot, RowAddr { row: 7, ..place });
    assert!(!index.is_consistent(id), "another place");
    let mut index = fresh(dice);
    index.remove_row(place);
    assert!(!index.is_consistent(id), "no row");
    assert!(!index.is_consistent(AdvertisementId::from_bytes([0; 16])), "nothing of that name");
}

fn mutate_randomly(
    dice: &mut IndexTestRng,
    index: &mut AdvertisementIndex,
    ids: &mut Vec<AdvertisementId>,
    taste: ValueDistribution,
    round: usize,
) {
    let ruleset = Arc::clone(index.ruleset());
    let removals = if round == 1 && dice.one_in(3) { 8 } else { 2 };
    for _ in 0..ids.len().min(400) {
        if ids.is_empty() {
            return;
        }
        let at = dice.below(ids.len());
        let id = ids[at];
        match dice.below(8 + removals) {
            0..3 => {
                let old = index.upsert(random_world::random_entry(dice, &ruleset, id, taste));
                assert!(old.is_some_and(|entry| entry.advertisement.id == id));
            }
            3 => {
                ids.push(random_world::random_id(dice));
                index.upsert(random_world::random_entry(dice, &ruleset, ids[ids.len() - 1], taste));
            }
            4 => assert!(index.set_expires_at(id, random_world::random_expiry(dice))),
            5 => assert!(index.set_open_seats(id, dice.below(5) as u16)),
            6 => index.maintain(),
            7 => assert!(index.get(id).is_some_and(|entry| entry.advertisement.id == id)),
            _ => {
                assert!(index.remove(id).is_some_and(|entry| entry.advertisement.id == id));
                assert!(index.remove(id).is_none());
                ids.swap_remove(at);
            }
        }
    }
    assert_eq!(index.len(), ids.len());
}

fn search_randomly(
    seed: u64,
    dice: &mut IndexTestRng,
    index: &AdvertisementIndex,
    ids: &[AdvertisementId],
    taste: ValueDistribution,
    found: &mut SearchResult,
) {
    let own = Arc::clone(index.ruleset());
    let ruleset: Ruleset =
        if dice.one_in(3) { random_world::with_random_overrides(dice, &own) } else { (*own).clone() };
    let session: Session = random_world::random_session(dice, taste);
    let (facts, users) = (AttributeValues::from_session(&ruleset, &session), session.sorted_users());
    let mut excluded: Vec<AdvertisementId> =
        (0..dice.below(4)).filter(|_| !ids.is_empty()).map(|_| dice.pick(ids)).collect();
    excluded.sort_unstable();
    let searcher = Searcher {
        attribute_values: &facts,
        locality: session.locality,
        region_latencies: &session.region_latencies,
        seats_needed: 1 + dice.below(3) as u16,
        users: &users,
        caller: dice.one_in(3).then(|| UserKey::from_bytes([dice.below(30) as u8; 16])),
        excluded_ids: &excluded,
        waited_ms: dice.pick(&[0, 5_000, 60_000, 10_000_000]),
    };
    let max_evaluated = if dice.one_in(4) { dice.below(700) as u32 } else { u32::MAX };
    let limits = SearchLimits { max_results: dice.pick(&[0, 1, 3, 10, 50, 200]), max_evaluated };
    let kind = if dice.one_in(8) { AdvertisementKind::GameServer } else { AdvertisementKind::Session };
    let now = UnixMs(dice.pick(&[NOW_MS, NOW_MS, NOW_MS + 40_000]));
    let query = SearchQuery { ruleset: &ruleset, searcher, silo: session.silo, kind, limits, now };
    index.search(&query, found);
    assert_matches_oracle(seed, index, &query, found);
    let mut portable = SearchResult::default();
    index.search_with_instruction_set(InstructionSet::Portable, &query, &mut portable);
    assert_eq!(found.hits, portable.hits, "seed {seed}");
    assert_eq!(
        (found.evaluated_rows, &found.refusal_counts),
        (portable.evaluated_rows, &portable.refusal_counts),
        "seed {seed}"
    );
}

fn assert_matches_oracle(seed: u64, index: &AdvertisementIndex, query: &SearchQuery<'_>, found: &SearchResult) {
    let hits: Vec<(AdvertisementId, u64)> =
        found.hits.iter().map(|hit| (index.entry(hit.slot).advertisement.id, hit.score.to_bits())).collect();
    for (number, hit) in found.hits.iter().enumerate() {
        let listed = index.entry(hit.slot).view();
        let exact = query
            .ruleset
            .soft_filters
            .iter()
            .map(|it| soft_filter_term(query.ruleset, it, &query.searcher, &listed, None).to_bits());
        assert!(found.hit_terms(number).iter().map(|term| term.to_bits()).eq(exact), "seed {seed}");
    }
    assert!(found.evaluated_rows <= query.limits.max_evaluated);
    let refused: u32 = found.refusal_counts.iter().map(|&(_, count)| count).sum();
    assert!(refused + hits.len() as u32 <= found.evaluated_rows, "seed {seed}: a row counts once");
    if !found.truncated {
        let wanted: Vec<(AdvertisementId, u64)> =
            oracle::search(index, query).into_iter().map(|(id, score)| (id, score.to_bits())).collect();
        assert_eq!(hits, wanted, "seed {seed}");
        return;
    }
    assert_eq!(found.evaluated_rows, query.limits.max_evaluated, "seed {seed}: the limit is used up");
    for hit in &found.hits {
        let listed = index.entry(hit.slot).view();
        assert!(admit(query.ruleset, &query.searcher, &listed, None, query.now).is_ok(), "seed {seed}");
        assert_eq!(hit.score.to_bits(), score(query.ruleset, &query.searcher, &listed, None).to_bits(), "seed {seed}");
    }
}
