//! Scores of the vectors: every case through a ruleset file and the index, and over gRPC with measured round trips.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;

use fireteam::domain::advertisement::{Advertisement, AdvertisementKind};
use fireteam::domain::attribute::AttributeValue;
use fireteam::domain::attribute::ValueOrigin;
use fireteam::domain::attribute_values::AttributeValues;
use fireteam::domain::filter::Searcher;
use fireteam::domain::id::{AdvertisementId, SiloId, UserKey};
use fireteam::domain::index::{AdvertisementIndex, IndexEntry, SearchQuery, SearchResult};
use fireteam::domain::ruleset::Ruleset;
use fireteam::domain::score::soft_filter_term_of_advertisement;
use fireteam::domain::session::{Player, Session};
use fireteam::domain::time::UnixMs;
use fireteam::rules;
use fireteam_client::pb;

use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::test_server::{advertise_request, party_session};

#[derive(Deserialize)]
struct Vectors {
    weights: BTreeMap<String, [f64; 2]>,
    seed_example: WorkedExample,
    cases: Vec<ScoreCase>,
    sort_example: SortExample,
}

#[derive(Clone, Copy, Deserialize)]
struct RawValues {
    skill: f64,
    latency: f64,
}

#[derive(Deserialize)]
struct WorkedExample {
    weights: RawValues,
    client_norm: RawValues,
    candidate_norm: RawValues,
    client_raw: RawValues,
    candidate_raw: RawValues,
    printed: f64,
}

#[derive(Deserialize)]
struct ScoreCase {
    weights: String,
    client: RawValues,
    candidate: RawValues,
    score: f64,
    contributions: RawValues,
}

#[derive(Deserialize)]
struct SortExample {
    client: RawValues,
    candidates: Vec<NamedCandidate>,
    order_40_60: Vec<RankedCandidate>,
    order_70_30: Vec<RankedCandidate>,
}

#[derive(Deserialize)]
struct NamedCandidate {
    id: String,
    #[serde(flatten)]
    raw: RawValues,
}

#[derive(Deserialize)]
struct RankedCandidate {
    id: String,
    score: f64,
}

fn load_vectors() -> Vectors {
    serde_json::from_str(include_str!("../../vectors/soft_filters.json")).unwrap()
}

/// Ruleset with the ranges of the vectors. `latency_filter` uses either measured latency or a stated attribute.
fn ruleset_xml([skill, latency]: [f64; 2], latency_filter: &str) -> String {
    format!(
        r#"<Ruleset Name="scores" SetId="1">
             <Attributes>
               <Attribute Name="skill" Type="number" Min="-1000" Max="1000" Trust="client"/>
               <Attribute Name="ping" Type="number" Min="0" Max="300" Trust="client"/>
             </Attributes>
             <SoftFilters>
               <SoftFilter Attribute="skill" Weight="{skill}" Mode="difference"/>
               <SoftFilter Weight="{latency}" {latency_filter}/>
             </SoftFilters>
           </Ruleset>"#
    )
}

const PING_DIFFERENCE: &str = r#"Attribute="ping" Mode="difference""#;
const PING_LOWER_IS_BETTER: &str = r#"Attribute="ping" Mode="lower_is_better""#;
const MEASURED_LATENCY: &str = r#"Attribute="latency" Mode="lower_is_better" Min="0" Max="300""#;

fn session(user: &str, raw: RawValues) -> Session {
    let user = UserKey::from_name(user);
    Session {
        party_sizes: [1].into(),
        players: vec![Player { stated_skill: Some(raw.skill), ..Player::from_user(user) }],
        attributes: vec![("ping".into(), AttributeValue::Number(raw.latency))],
        offered_seats: 1,
        value_origin: ValueOrigin::Client,
        ..Session::default()
    }
}

/// Searches the index for `candidates`: name, score and terms, best first.
fn search_ranked(
    ruleset: &Arc<Ruleset>,
    client: RawValues,
    candidates: &[(String, RawValues)],
) -> Vec<(String, f64, Vec<f64>)> {
    let mut index = AdvertisementIndex::new(Arc::clone(ruleset));
    for (name, raw) in candidates {
        let session = session(name, *raw);
        let attribute_values = AttributeValues::from_session_without_standings(ruleset, &session);
        let mut id = [0; 16];
        id[0] = name.as_bytes()[0];
        let advertisement = Advertisement {
            id: AdvertisementId::from_bytes(id),
            set_id: ruleset.set_id,
            kind: AdvertisementKind::Session,
            publisher: None,
            advertised_since: UnixMs(0),
            ruleset_hash: ruleset.hash,
            session,
            ttl_ms: None,
            allowed_ranges: Box::default(),
            connect_data: name.as_bytes().into(),
            probe: None,
        };
        let advertisement = Arc::new(advertisement);
        index.upsert(IndexEntry { advertisement, attribute_values, expires_at: UnixMs(9), open_seats: 1 });
    }
    let session = session("the searcher", client);
    let (attribute_values, users) =
        (AttributeValues::from_session_without_standings(ruleset, &session), session.sorted_users());
    let searcher = Searcher {
        attribute_values: &attribute_values,
        locality: None,
        region_latencies: &[],
        wishes: &[],
        seats_needed: 1,
        users: &users,
        caller: None,
        excluded_ids: &[],
        avoided: Default::default(),
        probes: Default::default(),
        predictor: None,
        waited_ms: 0,
    };
    let (limits, now) = (ruleset.search_limits, UnixMs(1));
    let mut found = SearchResult::default();
    index.search(
        &SearchQuery { ruleset, searcher, silo: SiloId(0), kind: AdvertisementKind::Session, limits, now },
        &mut found,
    );
    let rows = found.hits.iter().map(|hit| {
        let entry = index.entry(hit.slot);
        let terms = ruleset
            .soft_filters
            .iter()
            .map(|soft| soft_filter_term_of_advertisement(ruleset, soft, &searcher, &entry.view()))
            .collect();
        (String::from_utf8(entry.advertisement.connect_data.to_vec()).unwrap(), hit.score, terms)
    });
    rows.collect()
}

fn parse_scores_ruleset(weights: [f64; 2], latency_filter: &str) -> Arc<Ruleset> {
    Arc::new(rules::parse_ruleset("scores.xml", &ruleset_xml(weights, latency_filter)).unwrap())
}

fn is_close(actual: f64, expected: f64) -> bool {
    (actual - expected).abs() <= 1e-9
}

/// S1-20, B-8: the worked example of 0.19, in which latency is a difference. Latency as a cost gives another score.
#[test]
fn score_of_the_worked_example_is_0_19() {
    let Vectors { seed_example: example, .. } = load_vectors();
    let weights = [example.weights.skill, example.weights.latency];
    let ruleset = parse_scores_ruleset(weights, PING_DIFFERENCE);
    for (raw, norm) in [(example.client_raw, example.client_norm), (example.candidate_raw, example.candidate_norm)] {
        assert!(is_close(ruleset.soft_filters[0].normalize(raw.skill), norm.skill));
        assert!(is_close(ruleset.soft_filters[1].normalize(raw.latency), norm.latency));
    }
    let candidate = [("a".to_owned(), example.candidate_raw)];
    let found = search_ranked(&ruleset, example.client_raw, &candidate);
    let [(_, score, terms)] = &*found else { panic!("one candidate: {found:?}") };
    assert!(
        is_close(*score, example.printed) && is_close(terms[0], 0.04) && is_close(terms[1], 0.15),
        "{score} {terms:?}"
    );
    let cost = search_ranked(&parse_scores_ruleset(weights, PING_LOWER_IS_BETTER), example.client_raw, &candidate);
    assert!(is_close(cost[0].1, 0.04 + 0.6 * 0.75), "{cost:?}");
}

/// S1-18, S1-19, S1-21, S1-22, S1-23, B-9: score and terms of every case. If the client has no latency, difference and
/// cost give the same score.
#[test]
fn scores_and_terms_match_the_vectors() {
    let vectors = load_vectors();
    assert_eq!(vectors.cases.len(), 24);
    for case in &vectors.cases {
        let weights = vectors.weights[&case.weights];
        let modes = if case.client.latency == 0.0 {
            vec![PING_DIFFERENCE, PING_LOWER_IS_BETTER]
        } else {
            vec![PING_DIFFERENCE]
        };
        for mode in modes {
            let found =
                search_ranked(&parse_scores_ruleset(weights, mode), case.client, &[("a".to_owned(), case.candidate)]);
            let [(_, score, terms)] = &*found else { panic!("one candidate: {found:?}") };
            assert!(is_close(*score, case.score), "{}: {score}, not {}", case.weights, case.score);
            assert!(is_close(terms[0], case.contributions.skill) && is_close(terms[1], case.contributions.latency));
        }
    }
}

/// S1-18, S1-21, S1-22: order of six candidates by two pairs of weights.
#[test]
fn score_order_follows_the_weights() {
    let Vectors { sort_example: sort, weights, .. } = load_vectors();
    let candidates: Vec<(String, RawValues)> =
        sort.candidates.iter().map(|candidate| (candidate.id.clone(), candidate.raw)).collect();
    for (name, order) in [("40/60", &sort.order_40_60), ("70/30", &sort.order_70_30)] {
        for mode in [PING_DIFFERENCE, PING_LOWER_IS_BETTER] {
            let found = search_ranked(&parse_scores_ruleset(weights[name], mode), sort.client, &candidates);
            assert_eq!(found.len(), order.len());
            for (found, expected) in found.iter().zip(order) {
                assert_eq!(found.0, expected.id, "{name}");
                assert!(is_close(found.1, expected.score), "{name}: {found:?}");
            }
        }
    }
}

/// S1-19, B-11: a value beyond the declared range counts as the nearest end. A term is never larger than its weight.
#[test]
fn score_of_a_value_beyond_the_range_is_that_of_the_nearest_end() {
    let ruleset = parse_scores_ruleset([0.4, 0.6], PING_LOWER_IS_BETTER);
    let beyond = [("a".to_owned(), RawValues { skill: 9_000.0, latency: 400.0 })];
    let found = search_ranked(&ruleset, RawValues { skill: -9_000.0, latency: 0.0 }, &beyond);
    assert!(is_close(found[0].1, 1.0), "{found:?}");
}

/// S1-18, S1-23, S1-31: the sort example over gRPC with measured latency. Scores, and terms that would reveal a
/// location or a round trip, are rounded to a thousandth; the order is exact.
#[tokio::test]
async fn search_returns_the_sort_example_over_grpc() {
    let Vectors { sort_example: sort, weights, .. } = load_vectors();
    for (name, order) in [("40/60", &sort.order_40_60), ("70/30", &sort.order_70_30)] {
        let server = RulesetDirectory::with_files(&[("scores.xml", &ruleset_xml(weights[name], MEASURED_LATENCY))])
            .start_server()
            .await;
        let client = server.client().await;
        let mut ids = BTreeMap::new();
        for candidate in &sort.candidates {
            let advertised = client
                .advertise(advertise_request(&[(&candidate.id, candidate.raw.skill)], 1))
                .await
                .expect("advertise");
            ids.insert(advertised.id().to_owned(), candidate);
        }
        let mut searching = client.new_search(1, party_session(&[("searcher", sort.client.skill)]));
        assert_eq!(searching.search().await.expect("search").candidates.len(), 6);
        let measured = ids.iter().map(|(id, candidate)| (id.clone(), Some(candidate.raw.latency as f32)));
        let answer = searching.report_latency(pb::LatencyPhase::Quick, measured).await.expect("report");
        assert!(answer.involved_phase_may_start);
        assert_eq!(answer.candidates.len(), order.len());
        for (found, expected) in answer.candidates.iter().zip(order) {
            let candidate = ids[&found.advertisement_id];
            assert_eq!(candidate.id, expected.id, "{name}");
            assert_eq!(found.score, (expected.score * 1_000.0).round() / 1_000.0);
            let [by_skill, by_latency] = &*found.terms else { panic!("two terms: {found:?}") };
            assert_eq!((&*by_skill.name, &*by_latency.name), ("skill", "latency"));
            let exact = weights[name][0] * (candidate.raw.skill - sort.client.skill).abs() / 2_000.0;
            assert!(is_close(by_skill.value, exact), "not rounded, because clients state it themselves: {by_skill:?}");
            assert_eq!(
                by_latency.value,
                (weights[name][1] * candidate.raw.latency / 300.0 * 1_000.0).round() / 1_000.0
            );
            assert_eq!(found.round_trip_ms, Some(candidate.raw.latency as f32));
        }
    }
}
