//! Explanations of searches, held against the definition over random worlds.

use std::sync::Arc;

use crate::attribute_values::AttributeValues;
use crate::expansion::Expansion;
use crate::filter::explain::explain_search;
use crate::filter::{AdvertisementView, Searcher, admit};
use crate::index::IndexEntry;
use crate::index::tests::random_world::{self, IndexTestRng, NOW_MS, ValueDistribution};
use crate::time::UnixMs;

/// What is counted is what `admit` says of every row, and the remedy, applied, lets somebody through.
#[test]
fn search_explanation_agrees_with_admit() {
    let mut remedies = 0;
    for seed in 0..2_000 {
        let dice = &mut IndexTestRng(seed);
        let ruleset = Arc::new(random_world::random_ruleset(dice));
        let taste = ValueDistribution {
            common_one_in: dice.pick(&[2, 1000]),
            missing_one_in: dice.pick(&[6, 1000]),
            user_count: 200,
        };
        let entries: Vec<IndexEntry> = (0..dice.below(30))
            .map(|_| {
                let id = random_world::random_id(dice);
                random_world::random_entry(dice, &ruleset, id, taste)
            })
            .collect();
        let session = random_world::random_session(dice, taste);
        let (facts, users) = (AttributeValues::from_session(&ruleset, &session), session.sorted_users());
        let searcher = Searcher {
            attribute_values: &facts,
            locality: session.locality,
            region_latencies: &session.region_latencies,
            seats_needed: 1,
            users: &users,
            caller: None,
            excluded_ids: &[],
            waited_ms: dice.pick(&[0, 5_000, 60_000]),
        };
        let now = UnixMs(NOW_MS);
        let listed: Vec<AdvertisementView<'_>> = entries.iter().map(IndexEntry::view).collect();
        let explained = explain_search(&ruleset, &searcher, listed.iter().copied(), 5, now);
        let said: Vec<_> = listed.iter().map(|it| admit(&ruleset, &searcher, it, None, now)).collect();
        assert_eq!(explained.candidate_count as usize, said.len());
        assert_eq!(explained.compatible_count as usize, said.iter().filter(|it| it.is_ok()).count());
        let counted: u32 = explained.refusal_counts.iter().map(|(_, count)| count).sum();
        assert_eq!(counted + explained.compatible_count, explained.candidate_count, "seed {seed}");
        for (refusal, count) in &explained.refusal_counts {
            assert_eq!(*count as usize, said.iter().filter(|it| **it == Err(*refusal)).count(), "{refusal:?}");
        }
        assert!(explained.near_misses.is_sorted_by_key(|miss| miss.refusal_count), "seed {seed}");
        let Some(remedy) = explained.smallest_relaxation else { continue };
        remedies += 1;
        assert!(remedy.current_limit < remedy.required_limit, "seed {seed}: {remedy:?}");
        let mut wider = (*ruleset).clone();
        let known = &wider.expansions[remedy.expansion_index];
        let most = known.steps().iter().map(|step| step.limit).fold(remedy.required_limit, f64::max);
        wider.expansions[remedy.expansion_index] = Expansion::constant(&known.name, known.measure, most).unwrap();
        let through = listed.iter().filter(|it| admit(&wider, &searcher, it, None, now).is_ok()).count();
        assert!(0 < through, "seed {seed}: {remedy:?} lets nobody through");
    }
    assert!(20 < remedies, "{remedies} remedies say little");
}
