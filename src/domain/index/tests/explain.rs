//! Explanations of searches, held against the definition over random worlds.

use std::sync::Arc;

use crate::domain::expansion::Expansion;
use crate::domain::facts::Facts;
use crate::domain::filter::explain::explain;
use crate::domain::filter::{Listed, Searcher, admit};
use crate::domain::index::Entry;
use crate::domain::index::tests::world::{self, Dice, NOW, Taste};
use crate::domain::time::UnixMs;

/// What is counted is what `admit` says of every row, and the remedy, applied, lets somebody through.
#[test]
fn explanations_agree_with_the_definition() {
    let mut remedies = 0;
    for seed in 0..2_000 {
        let dice = &mut Dice(seed);
        let ruleset = Arc::new(world::ruleset(dice));
        let taste = Taste { common: dice.pick(&[2, 1000]), missing: dice.pick(&[6, 1000]), users: 200 };
        let entries: Vec<Entry> = (0..dice.below(30))
            .map(|_| {
                let id = world::id(dice);
                world::entry(dice, &ruleset, id, taste)
            })
            .collect();
        let session = world::session(dice, taste);
        let (facts, users) = (Facts::of(&ruleset, &session), session.users());
        let searcher = Searcher {
            facts: &facts,
            locality: session.locality,
            regions: &session.regions,
            seats: 1,
            users: &users,
            subject: None,
            excluded: &[],
            waited_ms: dice.pick(&[0, 5_000, 60_000]),
        };
        let now = UnixMs(NOW);
        let listed: Vec<Listed<'_>> = entries.iter().map(Entry::listed).collect();
        let explained = explain(&ruleset, &searcher, listed.iter().copied(), 5, now);
        let said: Vec<_> = listed.iter().map(|it| admit(&ruleset, &searcher, it, None, now)).collect();
        assert_eq!(explained.candidates as usize, said.len());
        assert_eq!(explained.suitable as usize, said.iter().filter(|it| it.is_ok()).count());
        let counted: u32 = explained.refusals.iter().map(|(_, count)| count).sum();
        assert_eq!(counted + explained.suitable, explained.candidates, "seed {seed}");
        for (refusal, count) in &explained.refusals {
            assert_eq!(*count as usize, said.iter().filter(|it| **it == Err(*refusal)).count(), "{refusal:?}");
        }
        assert!(explained.nearest.is_sorted_by_key(|miss| miss.refusals), "seed {seed}");
        let Some(remedy) = explained.remedy else { continue };
        remedies += 1;
        assert!(remedy.from < remedy.to, "seed {seed}: {remedy:?}");
        let mut wider = (*ruleset).clone();
        let known = &wider.expansions[remedy.expansion];
        let most = known.steps().iter().map(|step| step.value).fold(remedy.to, f64::max);
        wider.expansions[remedy.expansion] = Expansion::constant(&known.name, known.measure, most).unwrap();
        let through = listed.iter().filter(|it| admit(&wider, &searcher, it, None, now).is_ok()).count();
        assert!(0 < through, "seed {seed}: {remedy:?} lets nobody through");
    }
    assert!(20 < remedies, "{remedies} remedies say little");
}
