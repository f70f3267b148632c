//! Search explanations, compared with `admit` over random rulesets and populations.

use std::sync::Arc;

use crate::attribute_values::AttributeValues;
use crate::expansion::Expansion;
use crate::filter::explain::explain_search;
use crate::filter::{AdvertisementView, AdvertsOfAvoidedPlayers, Searcher, admit_advertisement};
use crate::index::IndexEntry;
use crate::index::tests::random_world::{self, IndexTestRng, NOW_MS, ValueDistribution};
use crate::probe_result::ProbeResults;
use crate::time::UnixMs;

/// Refusal counts match the results of `admit`, and applying the relaxation admits a candidate.
#[test]
fn search_explanation_agrees_with_admit() {
    let mut relaxations = 0;
    for seed in 0..2_000 {
        let rng = &mut IndexTestRng(seed);
        let ruleset = Arc::new(random_world::random_ruleset(rng));
        let values = ValueDistribution {
            common_one_in: rng.pick(&[2, 1000]),
            missing_one_in: rng.pick(&[6, 1000]),
            user_count: 200,
        };
        let entries: Vec<IndexEntry> = (0..rng.below(30))
            .map(|_| {
                let id = random_world::random_id(rng);
                random_world::random_entry(rng, &ruleset, id, values)
            })
            .collect();
        let session = random_world::random_session(rng, values);
        let attribute_values = AttributeValues::from_session_without_standings(&ruleset, &session);
        let (attribute_values, users) =
            (attribute_values.with_frustration(&ruleset, rng.one_in(3)), session.sorted_users());
        let searcher = Searcher {
            attribute_values: &attribute_values,
            locality: session.locality,
            region_latencies: &session.region_latencies,
            wishes: session.wishes(),
            seats_needed: 1,
            users: &users,
            caller: None,
            excluded_ids: &[],
            avoided: AdvertsOfAvoidedPlayers::default(),
            probes: ProbeResults::default(),
            predictor: None,
            waited_ms: rng.pick(&[0, 5_000, 60_000]),
        };
        let now = UnixMs(NOW_MS);
        let candidates: Vec<AdvertisementView<'_>> = entries.iter().map(IndexEntry::view).collect();
        let explanation = explain_search(&ruleset, &searcher, candidates.iter().copied(), 5, now);
        let verdicts: Vec<_> =
            candidates.iter().map(|candidate| admit_advertisement(&ruleset, &searcher, candidate, now)).collect();
        assert_eq!(explanation.candidate_count as usize, verdicts.len());
        assert_eq!(explanation.compatible_count as usize, verdicts.iter().filter(|verdict| verdict.is_ok()).count());
        let counted: u32 = explanation.refusal_counts.iter().map(|(_, count)| count).sum();
        assert_eq!(counted + explanation.compatible_count, explanation.candidate_count, "seed {seed}");
        for (refusal, count) in &explanation.refusal_counts {
            assert_eq!(
                *count as usize,
                verdicts.iter().filter(|verdict| **verdict == Err(*refusal)).count(),
                "{refusal:?}"
            );
        }
        assert!(explanation.near_misses.is_sorted_by_key(|miss| miss.refusal_count), "seed {seed}");
        let Some(relaxation) = explanation.smallest_relaxation else { continue };
        relaxations += 1;
        assert!(relaxation.current_limit < relaxation.required_limit, "seed {seed}: {relaxation:?}");
        let mut relaxed = (*ruleset).clone();
        let expansion = &relaxed.expansions[relaxation.expansion_index];
        let limit = expansion.steps().iter().map(|step| step.limit).fold(relaxation.required_limit, f64::max);
        relaxed.expansions[relaxation.expansion_index] =
            Expansion::constant(&expansion.name, expansion.measure, limit).unwrap();
        let is_admitted =
            |candidate: &AdvertisementView<'_>| admit_advertisement(&relaxed, &searcher, candidate, now).is_ok();
        assert!(candidates.iter().any(is_admitted), "seed {seed}: {relaxation:?} admits no candidate");
    }
    assert!(relaxations > 20, "only {relaxations} relaxations tested");
}
