//! Judges the index by the oracle over random worlds, and by hand where a story is worth telling.

mod explain;
mod story;
mod world;

use std::sync::Arc;

use crate::domain::advertisement::Kind;
use crate::domain::facts::Facts;
use crate::domain::filter::{Searcher, admit};
use crate::domain::id::{AdvertisementId, UserKey};
use crate::domain::index::tree::Place;
use crate::domain::index::{Found, Index, Path, Query, oracle};
use crate::domain::ruleset::{Ruleset, SearchLimits};
use crate::domain::score::{score, term};
use crate::domain::session::Session;
use crate::domain::time::UnixMs;
use world::{Dice, NOW, Taste};

/// Populations in an ordinary run; the environment's `SCALE` says otherwise.
const POPULATIONS: u64 = 8_000;

#[expect(clippy::disallowed_methods, reason = "a test has no configuration of its own")]
fn populations() -> u64 {
    std::env::var("SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(POPULATIONS)
}

/// S1-17, S1-18, S1-24, S1-36, S1-40, S1-45, S1-46, S1-50: whatever the rules, the population and the changes it has
/// been through, a search that no limit cuts short finds what the oracle finds, to the bit, on every instruction set.
#[test]
fn the_index_finds_what_the_oracle_finds() {
    (0..populations()).for_each(play);
}

fn play(seed: u64) {
    let dice = &mut Dice(seed);
    let ruleset = Arc::new(world::ruleset(dice));
    let taste = Taste {
        common: dice.pick(&[1, 2, 4, 1000]),
        missing: dice.pick(&[2, 6, 50, 1000]),
        users: dice.pick(&[2, 5, 200, 200]),
    };
    let size = match dice.below(20) {
        0 => 600 + dice.below(2500),
        1..6 => 50 + dice.below(400),
        _ => dice.below(50),
    };
    let mut index = Index::new(Arc::clone(&ruleset));
    let mut ids: Vec<AdvertisementId> = Vec::new();
    for _ in 0..size {
        ids.push(world::id(dice));
        index.upsert(world::entry(dice, &ruleset, ids[ids.len() - 1], taste));
    }
    let mut found = Found::default();
    for round in 0..3 {
        for _ in 0..3 {
            ask(seed, dice, &index, &ids, taste, &mut found);
        }
        churn(dice, &mut index, &mut ids, taste, round);
    }
    assert!(ids.iter().all(|id| index.is_sound(*id) == index.get(*id).is_some()), "seed {seed}");
    assert_eq!(in_portions(&index, 1 + dice.below(100) as u32), index.len(), "seed {seed}");
}

/// How many entries there are, counted by portions.
fn in_portions(index: &Index, most: u32) -> usize {
    let (mut count, mut next) = (0, Some(0));
    while let Some(from) = next {
        let (entries, then) = index.portion(from, most);
        count += entries.count();
        next = then;
    }
    count
}

/// R9: a row that says something else than its entry, or is another's, is noticed.
#[test]
fn a_row_that_has_gone_astray_is_noticed() {
    let dice = &mut Dice(7);
    let ruleset = Arc::new(world::ruleset(dice));
    let taste = Taste { common: 1000, missing: 1000, users: 200 };
    let id = world::id(dice);
    let fresh = |dice: &mut Dice| {
        let mut index = Index::new(Arc::clone(&ruleset));
        index.upsert(world::entry(dice, &ruleset, id, taste));
        assert!(index.is_sound(id));
        index
    };
    let mut index = fresh(dice);
    let seats = index.get(id).unwrap().open_seats;
    let slot = index.slab.find(id).unwrap();
    let place = index.slab.place(slot);
    index.partitions[place.partition as usize].as_mut().unwrap().1.set_word(
        1,
        place.leaf,
        place.row,
        u32::from(seats) + 1,
    );
    assert!(!index.is_sound(id), "other seats");
    let mut index = fresh(dice);
    index.slab.entry_mut(slot).unwrap().expires = UnixMs(1 << 20);
    assert!(!index.is_sound(id), "another expiry");
    let mut index = fresh(dice);
    index.slab.note(slot, Place { row: 7, ..place });
    assert!(!index.is_sound(id), "another place");
    let mut index = fresh(dice);
    index.remove_row(place);
    assert!(!index.is_sound(id), "no row");
    assert!(!index.is_sound(AdvertisementId::from_bytes([0; 16])), "nothing of that name");
}

fn churn(dice: &mut Dice, index: &mut Index, ids: &mut Vec<AdvertisementId>, taste: Taste, round: usize) {
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
                let old = index.upsert(world::entry(dice, &ruleset, id, taste));
                assert!(old.is_some_and(|entry| entry.advertisement.id == id));
            }
            3 => {
                ids.push(world::id(dice));
                index.upsert(world::entry(dice, &ruleset, ids[ids.len() - 1], taste));
            }
            4 => assert!(index.set_expires(id, world::expires(dice))),
            5 => assert!(index.set_open_seats(id, dice.below(5) as u16)),
            6 => index.tidy(),
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

fn ask(seed: u64, dice: &mut Dice, index: &Index, ids: &[AdvertisementId], taste: Taste, found: &mut Found) {
    let own = Arc::clone(index.ruleset());
    let ruleset: Ruleset = if dice.one_in(3) { world::overridden(dice, &own) } else { (*own).clone() };
    let session: Session = world::session(dice, taste);
    let (facts, users) = (Facts::of(&ruleset, &session), session.users());
    let mut excluded: Vec<AdvertisementId> =
        (0..dice.below(4)).filter(|_| !ids.is_empty()).map(|_| dice.pick(ids)).collect();
    excluded.sort_unstable();
    let searcher = Searcher {
        facts: &facts,
        locality: session.locality,
        regions: &session.regions,
        seats: 1 + dice.below(3) as u16,
        users: &users,
        subject: dice.one_in(3).then(|| UserKey::from_bytes([dice.below(30) as u8; 16])),
        excluded: &excluded,
        waited_ms: dice.pick(&[0, 5_000, 60_000, 10_000_000]),
    };
    let max_evaluated = if dice.one_in(4) { dice.below(700) as u32 } else { u32::MAX };
    let limits = SearchLimits { max_results: dice.pick(&[0, 1, 3, 10, 50, 200]), max_evaluated };
    let kind = if dice.one_in(8) { Kind::Server } else { Kind::Session };
    let now = UnixMs(dice.pick(&[NOW, NOW, NOW + 40_000]));
    let query = Query { ruleset: &ruleset, searcher, silo: session.silo, kind, limits, now };
    index.search(&query, found);
    check(seed, index, &query, found);
    let mut portable = Found::default();
    index.search_on(Path::Portable, &query, &mut portable);
    assert_eq!(found.hits, portable.hits, "seed {seed}");
    assert_eq!((found.evaluated, &found.refusals), (portable.evaluated, &portable.refusals), "seed {seed}");
}

fn check(seed: u64, index: &Index, query: &Query<'_>, found: &Found) {
    let hits: Vec<(AdvertisementId, u64)> =
        found.hits.iter().map(|hit| (index.entry(hit.slot).advertisement.id, hit.score.to_bits())).collect();
    for (number, hit) in found.hits.iter().enumerate() {
        let listed = index.entry(hit.slot).listed();
        let exact =
            query.ruleset.soft.iter().map(|it| term(query.ruleset, it, &query.searcher, &listed, None).to_bits());
        assert!(found.terms(number).iter().map(|term| term.to_bits()).eq(exact), "seed {seed}");
    }
    assert!(found.evaluated <= query.limits.max_evaluated);
    let refused: u32 = found.refusals.iter().map(|&(_, count)| count).sum();
    assert!(refused + hits.len() as u32 <= found.evaluated, "seed {seed}: a row counts once");
    if !found.truncated {
        let wanted: Vec<(AdvertisementId, u64)> =
            oracle::search(index, query).into_iter().map(|(id, score)| (id, score.to_bits())).collect();
        assert_eq!(hits, wanted, "seed {seed}");
        return;
    }
    assert_eq!(found.evaluated, query.limits.max_evaluated, "seed {seed}: the limit is used up");
    for hit in &found.hits {
        let listed = index.entry(hit.slot).listed();
        assert!(admit(query.ruleset, &query.searcher, &listed, None, query.now).is_ok(), "seed {seed}");
        assert_eq!(hit.score.to_bits(), score(query.ruleset, &query.searcher, &listed, None).to_bits(), "seed {seed}");
    }
}
