//! The three latency phases, from the first search to the join, against the vectors.

use std::collections::BTreeMap;

use fireteam::domain::locality::Locality;
use fireteam_client::{Client, Code, SearchSession, pb};
use serde::Deserialize;

use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::test_server::{TestServer, advertise_request, party_session};

/// Latency is the only soft filter; skill limits the search. 80 % of the probes must have a result.
const RULESET_XML: &str = r#"<Ruleset Name="phases" SetId="1">
  <Attributes><Attribute Name="skill" Type="number" Min="-1000" Max="1000" Trust="client"/></Attributes>
  <HardFilters><Within Expansion="reach"/></HardFilters>
  <SoftFilters><SoftFilter Attribute="latency" Weight="1" Min="0" Max="1000"/></SoftFilters>
  <ExpansionConfigs><ExpansionConfig Name="reach" Type="skill">
    <Expansion ExpansionDurationMs="10000" Value="100"/><Expansion ExpansionDurationMs="-1" Value="500"/>
  </ExpansionConfig></ExpansionConfigs>
  <Latency InvolvedPhasePercent="80"/>
</Ruleset>"#;

#[derive(Deserialize)]
struct Vectors {
    searcher: String,
    phase1_locality_order: Vec<String>,
    phase2_ms: BTreeMap<String, Option<f32>>,
    phase2_order: Vec<String>,
    phase2_dropped: Vec<String>,
    phase3_start_percent: f64,
    phase3_may_start_after_valid_results: usize,
    phase3_ms: BTreeMap<String, f32>,
    phase3_incompatible: Vec<String>,
    phase3_order: Vec<String>,
    join_results: BTreeMap<String, String>,
    joined: String,
}

#[derive(Deserialize)]
struct PointFile {
    points: BTreeMap<String, Point>,
}

#[derive(Deserialize)]
struct Point {
    latitude: f64,
    longitude: f64,
}

/// A server, its hosts by name and id, and a searcher. All state their location.
struct LatencyScenario {
    server: TestServer,
    client: Client,
    points: BTreeMap<String, Point>,
    names: BTreeMap<String, String>,
    search_session: SearchSession,
}

impl LatencyScenario {
    async fn start(vectors: &Vectors, xml: &str, hosts: &[String]) -> Self {
        let directory = RulesetDirectory::with_files(&[("phases.xml", xml)]);
        let server = directory
            .start_server_with_config(|config| {
                config.allow_client_locality = true;
                (config.location_grid_degrees, config.session_location_grid_degrees) = (0.0, 0.0);
            })
            .await;
        let client = server.client().await;
        let PointFile { points } = serde_json::from_str(include_str!("../../vectors/locality.json")).unwrap();
        let search_session =
            client.new_search(1, session_at(party_session(&[(&vectors.searcher, 0.0)]), &points[&vectors.searcher]));
        let mut scenario = Self { server, client, points, names: BTreeMap::new(), search_session };
        for name in hosts {
            scenario.advertise(name, name, 0.0).await;
        }
        scenario
    }

    async fn advertise(&mut self, name: &str, point: &str, skill: f64) {
        let mut request = advertise_request(&[(name, skill)], 1);
        request.session_composition =
            request.session_composition.map(|session| session_at(session, &self.points[point]));
        let advertised = self.client.advertise(request).await.expect("advertise");
        self.names.insert(advertised.id().to_owned(), name.to_owned());
    }

    fn advertisement_id(&self, name: &str) -> &str {
        self.names.iter().find(|(_, known)| *known == name).expect("a known host").0
    }

    fn names(&self, candidates: &[pb::Candidate]) -> Vec<String> {
        candidates.iter().map(|candidate| self.names[&candidate.advertisement_id].clone()).collect()
    }

    async fn report_latency(
        &mut self,
        phase: pb::LatencyPhase,
        measured: impl Iterator<Item = (&String, Option<f32>)>,
    ) -> pb::MatchmakingReportLatencyResponse {
        let measured: Vec<_> = measured.map(|(name, ms)| (self.advertisement_id(name).to_owned(), ms)).collect();
        self.search_session.report_latency(phase, measured).await.expect("report")
    }
}

fn session_at(mut session: pb::SessionCompositionData, point: &Point) -> pb::SessionCompositionData {
    let Locality { x, y, z } = Locality::from_degrees(point.latitude, point.longitude).unwrap();
    session.locality_info =
        Some(pb::LocalityData { locality_x: Some(x), locality_y: Some(y), locality_z: Some(z), ..Default::default() });
    session
}

fn load_vectors() -> Vectors {
    serde_json::from_str(include_str!("../../vectors/three_phase_latency.json")).unwrap()
}

/// S1-26, S1-28, S1-29, S1-30, S1-31, B-37: candidates are ordered by locality, then by a quick probe that drops hosts
/// without an answer, then by an involved probe that drops incompatible ones. Joins are tried in that order until one
/// succeeds.
#[tokio::test]
async fn latency_phases_end_in_a_join() {
    let vectors = load_vectors();
    let mut scenario = LatencyScenario::start(&vectors, RULESET_XML, &vectors.phase1_locality_order).await;
    let found = scenario.search_session.search().await.expect("search");
    assert_eq!(scenario.names(&found.candidates), vectors.phase1_locality_order);
    assert!(found.candidates.iter().all(|candidate| candidate.distance_miles.is_some()));

    // The percentage counts all probed hosts, answered or not: with one result fewer the involved phase may not start.
    assert_eq!(vectors.phase3_start_percent, 80.0);
    let mut answered = 0;
    let fewer = vectors.phase2_ms.iter().map(|(name, ms)| {
        answered += usize::from(ms.is_some());
        (name, ms.filter(|_| answered < vectors.phase3_may_start_after_valid_results))
    });
    let fewer: Vec<_> = fewer.collect();
    let early = scenario.report_latency(pb::LatencyPhase::Quick, fewer.into_iter()).await;
    assert!(!early.involved_phase_may_start, "{} results of 6 are too few", early.candidates.len());

    let quick =
        scenario.report_latency(pb::LatencyPhase::Quick, vectors.phase2_ms.iter().map(|(name, ms)| (name, *ms))).await;
    assert_eq!(scenario.names(&quick.candidates), vectors.phase2_order);
    assert!(vectors.phase2_dropped.iter().all(|name| vectors.phase2_ms[name].is_none()));
    assert_eq!(quick.candidates.len(), vectors.phase3_may_start_after_valid_results);
    assert!(quick.involved_phase_may_start);
    for candidate in &quick.candidates {
        assert_eq!(candidate.round_trip_ms, vectors.phase2_ms[&scenario.names[&candidate.advertisement_id]]);
    }

    let involved = vectors.phase3_ms.iter();
    let involved = involved.map(|(name, ms)| (name, Some(*ms).filter(|_| !vectors.phase3_incompatible.contains(name))));
    let involved = scenario.report_latency(pb::LatencyPhase::Involved, involved).await;
    assert_eq!(scenario.names(&involved.candidates), vectors.phase3_order);
    assert!(!involved.involved_phase_may_start, "the involved phase is over");

    for (name, result) in &vectors.join_results {
        if result == "full" {
            let mut faster = scenario.client.new_search(1, party_session(&[("faster", 0.0)]));
            faster.search().await.expect("search");
            faster.reserve(scenario.advertisement_id(name)).await.expect("another party reserves first");
        }
    }
    let mut joined = None;
    for name in scenario.names(&involved.candidates) {
        match scenario.search_session.reserve(scenario.advertisement_id(&name)).await {
            Ok(_) => {
                joined = Some(name);
                break;
            }
            Err(error) => {
                assert_eq!(vectors.join_results[&name], "full");
                assert_eq!(
                    error.as_server_error().and_then(|status| status.reason.clone()).as_deref(),
                    Some("SEATS_TAKEN"),
                    "{error}"
                );
            }
        }
    }
    assert_eq!(joined, Some(vectors.joined));
}

/// S1-30, S1-32: when no join succeeds, the limits expand and the same search finds a host that was too far before.
#[tokio::test]
async fn search_expands_when_all_joins_fail() {
    let vectors = load_vectors();
    let mut scenario = LatencyScenario::start(&vectors, RULESET_XML, &vectors.phase1_locality_order).await;
    scenario.advertise("far in skill", "NewYork", 300.0).await;
    let found = scenario.search_session.search().await.expect("search");
    assert_eq!(found.candidates.len(), 6);
    assert_eq!(found.next_expansion_in_ms, Some(10_000));
    for (at, candidate) in found.candidates.iter().enumerate() {
        let mut faster = scenario.client.new_search(1, party_session(&[(&format!("faster {at}"), 0.0)]));
        faster.search().await.expect("search");
        faster.reserve(&candidate.advertisement_id).await.expect("another party reserves first");
        let error = scenario.search_session.reserve(&candidate.advertisement_id).await.expect_err("full");
        assert_eq!(error.code(), Some(Code::FailedPrecondition));
        scenario.search_session.exclude(&candidate.advertisement_id);
    }
    assert!(scenario.search_session.search().await.expect("search").candidates.is_empty());
    scenario.server.clock.advance_ms(10_000);
    let found = scenario.search_session.search().await.expect("search");
    assert_eq!(scenario.names(&found.candidates), ["far in skill"]);
    assert_eq!((found.searching_for_ms, found.next_expansion_in_ms), (10_000, None));
    scenario.search_session.reserve(&found.candidates[0].advertisement_id).await.expect("reserve");
}

/// S1-28: from the quick probe on, locality has no effect, even if a ruleset sorts by distance alone. Candidates are
/// ordered by measured round trip, and latency limits use it.
#[tokio::test]
async fn measured_round_trip_replaces_the_locality_estimate() {
    let by_distance = RULESET_XML.replace(
        r#"<SoftFilter Attribute="latency" Weight="1" Min="0" Max="1000"/>"#,
        r#"<SoftFilter Attribute="distance" Weight="1"/>"#,
    );
    let limited = by_distance
        .replace("<Within Expansion=\"reach\"/>", "<Within Expansion=\"reach\"/><Within Expansion=\"net\"/>")
        .replace(
            "</ExpansionConfigs>",
            r#"<ExpansionConfig Name="net" Type="latency"><Expansion ExpansionDurationMs="-1" Value="400"/></ExpansionConfig></ExpansionConfigs>"#,
        );
    let names = ["MikeLA", "Tokyo", "Sydney"].map(String::from);
    let mut scenario = LatencyScenario::start(&load_vectors(), &limited, &names).await;
    let found = scenario.search_session.search().await.expect("search");
    assert_eq!(scenario.names(&found.candidates), names);
    let measured = names.iter().zip([Some(400.5), Some(90.0), Some(60.0)]);
    let answer = scenario.report_latency(pb::LatencyPhase::Quick, measured).await;
    assert_eq!(
        scenario.names(&answer.candidates),
        ["Sydney", "Tokyo"],
        "MikeLA is near, but its round trip is above the limit"
    );
}

/// SEC-6: a round trip below the time that light needs is raised to that time and listed as ignored.
#[tokio::test]
async fn latency_claim_faster_than_light_is_clamped() {
    let vectors = load_vectors();
    let mut scenario = LatencyScenario::start(&vectors, RULESET_XML, &vectors.phase1_locality_order).await;
    scenario.search_session.search().await.expect("search");
    let claims =
        [("MikeLA".to_owned(), Some(31.0)), ("Sydney".to_owned(), Some(1.0)), ("Tokyo".to_owned(), Some(40.0))];
    let claims = claims.iter().map(|(name, ms)| (name, *ms));
    let answer = scenario.report_latency(pb::LatencyPhase::Quick, claims).await;
    assert_eq!(answer.ignored_fields, ["measurements[1].round_trip_ms"]);
    assert_eq!(scenario.names(&answer.candidates), ["MikeLA", "Tokyo", "Sydney"]);
    let sydney = answer.candidates[2].round_trip_ms.expect("a reported round trip");
    assert!((45.0..60.0).contains(&sydney), "{sydney}");
}
