//! Search explanations, compared with `admit_advertisement` over random rulesets and populations.

use std::sync::Arc;

use crate::attribute_values::AttributeValues;
use crate::expansion::Expansion;
use crate::filter::explain::{SearchExplanation, explain_search};
use crate::filter::search_round_trip::{RoundTripWithSource, search_round_trip};
use crate::filter::{AdvertisementView, AdvertsOfAvoidedPlayers, RoundTripPredictor, Searcher, admit_advertisement};
use crate::index::IndexEntry;
use crate::index::tests::random_vectors;
use crate::index::tests::random_world::{self, IndexTestRng, NOW_MS, ValueDistribution};
use crate::latency::beacon_vector::CompletedVector;
use crate::latency::prediction::PairPrecision;
use crate::probe_result::ProbeResults;
use crate::ruleset::Ruleset;
use crate::ruleset::probing::LatencyEstimatePolicy;
use crate::score::score;
use crate::time::UnixMs;

/// Refusal counts match the results of `admit_advertisement`, lists those of the search, and applying the relaxation admits a candidate.
#[test]
fn search_explanation_agrees_with_admit() {
    let (mut relaxations, mut predictions) = (0, 0);
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
        let (now, fleet) = (UnixMs(NOW_MS), random_vectors::random_fleet(rng));
        let predicts = ruleset.probing.latency_estimate_policy == LatencyEstimatePolicy::PredictedV1;
        let own = session.locality.filter(|_| predicts).and_then(|place| {
            CompletedVector::new(&fleet, Some(place), &random_vectors::random_floors(rng, place)).ok()
        });
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
            predictor: own.as_ref().map(|own| RoundTripPredictor {
                fleet: &fleet,
                own_vector: own,
                now,
                precision: PairPrecision::Search,
            }),
            waited_ms: rng.pick(&[0, 5_000, 60_000]),
        };
        let candidates: Vec<AdvertisementView<'_>> = entries.iter().map(IndexEntry::view).collect();
        let explanation = explain_search(&ruleset, &searcher, candidates.iter().copied(), 5, now);
        assert_counts_match_admit(&ruleset, &searcher, &candidates, now, &explanation);
        predictions += assert_lists_are_of_the_search(&ruleset, &searcher, &candidates, now, &explanation);
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
    assert!(predictions > 20, "only {predictions} predictions tested");
}

/// Checks that the counts are those of `admit_advertisement`.
fn assert_counts_match_admit(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    candidates: &[AdvertisementView<'_>],
    now: UnixMs,
    explanation: &SearchExplanation,
) {
    let verdicts: Vec<_> =
        candidates.iter().map(|candidate| admit_advertisement(ruleset, searcher, candidate, now)).collect();
    assert_eq!(explanation.candidate_count as usize, verdicts.len());
    assert_eq!(explanation.compatible_count as usize, verdicts.iter().filter(|verdict| verdict.is_ok()).count());
    let counted: u32 = explanation.first_refusal_counts.iter().map(|(_, count)| count).sum();
    assert_eq!(counted + explanation.compatible_count, explanation.candidate_count);
    for (refusal, count) in &explanation.first_refusal_counts {
        assert_eq!(
            *count as usize,
            verdicts.iter().filter(|verdict| **verdict == Err(*refusal)).count(),
            "{refusal:?}"
        );
    }
    assert!(explanation.near_misses.is_sorted_by_key(|miss| miss.failed_rule_count));
}

/// Checks that listed advertisements have the score and the round trip of the search, and that the compatible ones are the best of it.
/// Returns the number of predicted round trips.
fn assert_lists_are_of_the_search(
    ruleset: &Ruleset,
    searcher: &Searcher<'_>,
    candidates: &[AdvertisementView<'_>],
    now: UnixMs,
    explanation: &SearchExplanation,
) -> usize {
    let admitted = candidates.iter().filter(|it| admit_advertisement(ruleset, searcher, it, now).is_ok());
    let mut best: Vec<_> = admitted.map(|it| (score(ruleset, searcher, it), it.advertisement.id)).collect();
    best.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    best.truncate(5);
    let listed = explanation.compatible_adverts.iter();
    assert!(listed.map(|advert| (advert.score, advert.advertisement_id)).eq(best));
    let of_compatible =
        explanation.compatible_adverts.iter().map(|advert| (advert.advertisement_id, advert.round_trip));
    let of_misses = explanation.near_misses.iter().map(|miss| (miss.advertisement_id, miss.round_trip));
    let mut predictions = 0;
    for (id, found) in of_compatible.chain(of_misses) {
        let candidate = candidates.iter().find(|it| it.advertisement.id == id).unwrap();
        let expected = search_round_trip(ruleset, searcher, candidate);
        assert_eq!(found.map(|it| it.round_trip), expected);
        let Some(RoundTripWithSource::Predicted(predicted)) = expected else {
            assert_eq!(found.and_then(|it| it.prediction_terms), None);
            continue;
        };
        let terms = found.unwrap().prediction_terms.unwrap();
        let sum_ms = terms.distance_part_ms + terms.beacon_part_ms;
        assert!((sum_ms - predicted.round_trip_ms).abs() < 1e-9, "{terms:?}");
        predictions += 1;
    }
    predictions
}
