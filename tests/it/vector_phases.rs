//! Three phases of latency, played from the first search to the join, as the vectors have it.

use std::collections::BTreeMap;

use fireteam::domain::locality::Locality;
use fireteam_client::{Client, Code, SearchSession, pb};
use serde::Deserialize;

use crate::harness::{House, host, party};
use crate::rulebook::Rulebook;

/// Latency is all that counts; skill is how far one looks. 80 % must have answered.
const XML: &str = r#"<Ruleset Name="phases" SetId="1">
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
struct Places {
    points: BTreeMap<String, Place>,
}

#[derive(Deserialize)]
struct Place {
    latitude: f64,
    longitude: f64,
}

/// A server, its hosts by name and by id, and a searcher; all say where they are.
struct World {
    house: House,
    client: Client,
    places: BTreeMap<String, Place>,
    names: BTreeMap<String, String>,
    searching: SearchSession,
}

impl World {
    async fn open(vectors: &Vectors, xml: &str, hosts: &[String]) -> Self {
        let book = Rulebook::of(&[("phases.xml", xml)]);
        let house = book.open_with(|config| config.allow_client_locality = true).await;
        let client = house.client().await;
        let Places { points: places } = serde_json::from_str(include_str!("../vectors/locality.json")).unwrap();
        let searching = client.search_session(1, at(party(&[(&vectors.searcher, 0.0)]), &places[&vectors.searcher]));
        let mut world = Self { house, client, places, names: BTreeMap::new(), searching };
        for name in hosts {
            world.publish(name, name, 0.0).await;
        }
        world
    }

    async fn publish(&mut self, name: &str, place: &str, skill: f64) {
        let mut request = host(&[(name, skill)], 1);
        request.session_composition = request.session_composition.map(|it| at(it, &self.places[place]));
        let advertised = self.client.advertise(request).await.expect("advertise");
        self.names.insert(advertised.id().to_owned(), name.to_owned());
    }

    fn id(&self, name: &str) -> &str {
        self.names.iter().find(|(_, known)| *known == name).expect("a host").0
    }

    fn names(&self, candidates: &[pb::Candidate]) -> Vec<String> {
        candidates.iter().map(|it| self.names[&it.advertisement_id].clone()).collect()
    }

    async fn report(
        &self,
        phase: pb::LatencyPhase,
        measured: impl Iterator<Item = (&String, Option<f32>)>,
    ) -> pb::MatchmakingReportLatencyResponse {
        let measured: Vec<_> = measured.map(|(name, ms)| (self.id(name).to_owned(), ms)).collect();
        self.searching.report_latency(phase, measured).await.expect("report")
    }
}

fn at(mut session: pb::SessionCompositionData, place: &Place) -> pb::SessionCompositionData {
    let Locality { x, y, z } = Locality::from_degrees(place.latitude, place.longitude).unwrap();
    session.locality_info = Some(pb::LocalityData { locality_x: Some(x), locality_y: Some(y), locality_z: Some(z) });
    session
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../vectors/three_phase_latency.json")).unwrap()
}

/// S1-26, S1-28, S1-29, S1-30, S1-31, B-37: by locality, by a quick probe that drops the silent, by an involved one
/// that drops the incompatible, and then joins in that order until the first that succeeds.
#[tokio::test]
async fn three_phases_end_in_a_join() {
    let vectors = vectors();
    let mut world = World::open(&vectors, XML, &vectors.phase1_locality_order).await;
    let found = world.searching.search().await.expect("search");
    assert_eq!(world.names(&found.candidates), vectors.phase1_locality_order);
    assert!(found.candidates.iter().all(|it| it.distance_miles.is_some()));

    // The share is of all that were asked, answered or not: at one answer less it may not begin.
    assert_eq!(vectors.phase3_start_percent, 80.0);
    let mut answered = 0;
    let fewer = vectors.phase2_ms.iter().map(|(name, ms)| {
        answered += usize::from(ms.is_some());
        (name, ms.filter(|_| answered < vectors.phase3_may_start_after_valid_results))
    });
    let fewer: Vec<_> = fewer.collect();
    let early = world.report(pb::LatencyPhase::Quick, fewer.into_iter()).await;
    assert!(!early.involved_phase_may_start, "{} of 6 are too few", early.candidates.len());

    let quick = world.report(pb::LatencyPhase::Quick, vectors.phase2_ms.iter().map(|(name, ms)| (name, *ms))).await;
    assert_eq!(world.names(&quick.candidates), vectors.phase2_order);
    assert!(vectors.phase2_dropped.iter().all(|name| vectors.phase2_ms[name].is_none()));
    assert_eq!(quick.candidates.len(), vectors.phase3_may_start_after_valid_results);
    assert!(quick.involved_phase_may_start);
    for candidate in &quick.candidates {
        assert_eq!(candidate.round_trip_ms, vectors.phase2_ms[&world.names[&candidate.advertisement_id]]);
    }

    let involved = vectors.phase3_ms.iter();
    let involved = involved.map(|(name, ms)| (name, Some(*ms).filter(|_| !vectors.phase3_incompatible.contains(name))));
    let involved = world.report(pb::LatencyPhase::Involved, involved).await;
    assert_eq!(world.names(&involved.candidates), vectors.phase3_order);
    assert!(!involved.involved_phase_may_start, "it has begun, and is over");

    for (name, result) in &vectors.join_results {
        if result == "full" {
            let mut faster = world.client.search_session(1, party(&[("faster", 0.0)]));
            faster.search().await.expect("search");
            faster.reserve(world.id(name)).await.expect("somebody else is faster");
        }
    }
    let mut joined = None;
    for name in world.names(&involved.candidates) {
        match world.searching.reserve(world.id(&name)).await {
            Ok(_) => {
                joined = Some(name);
                break;
            }
            Err(error) => {
                assert_eq!(vectors.join_results[&name], "full");
                assert_eq!(
                    error.server_error().and_then(|it| it.reason.clone()).as_deref(),
                    Some("SEATS_TAKEN"),
                    "{error}"
                );
            }
        }
    }
    assert_eq!(joined, Some(vectors.joined));
}

/// S1-30, S1-32: when no join succeeds the limits relax, and the same search, going on, finds who was too far before.
#[tokio::test]
async fn when_all_joins_fail_the_search_expands() {
    let vectors = vectors();
    let mut world = World::open(&vectors, XML, &vectors.phase1_locality_order).await;
    world.publish("far in skill", "NewYork", 300.0).await;
    let found = world.searching.search().await.expect("search");
    assert_eq!(found.candidates.len(), 6);
    assert_eq!(found.next_expansion_in_ms, Some(10_000));
    for (at, candidate) in found.candidates.iter().enumerate() {
        let mut faster = world.client.search_session(1, party(&[(&format!("faster {at}"), 0.0)]));
        faster.search().await.expect("search");
        faster.reserve(&candidate.advertisement_id).await.expect("somebody else is faster");
        let error = world.searching.reserve(&candidate.advertisement_id).await.expect_err("full");
        assert_eq!(error.code(), Some(Code::FailedPrecondition));
        world.searching.exclude(&candidate.advertisement_id);
    }
    assert!(world.searching.search().await.expect("search").candidates.is_empty());
    world.house.clock.turn(10_000);
    let found = world.searching.search().await.expect("search");
    assert_eq!(world.names(&found.candidates), ["far in skill"]);
    assert_eq!((found.searching_for_ms, found.next_expansion_in_ms), (10_000, None));
    world.searching.reserve(&found.candidates[0].advertisement_id).await.expect("reserve");
}

/// S1-28: from the quick probe on locality counts for nothing, even where a ruleset sorts by distance alone; the
/// measured order is by round trip, and measured latency is what latency limits judge.
#[tokio::test]
async fn a_measured_round_trip_replaces_the_place() {
    let by_distance = XML.replace(
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
    let mut world = World::open(&vectors(), &limited, &names).await;
    let found = world.searching.search().await.expect("search");
    assert_eq!(world.names(&found.candidates), names);
    let measured = names.iter().zip([Some(400.5), Some(90.0), Some(60.0)]);
    let answer = world.report(pb::LatencyPhase::Quick, measured).await;
    assert_eq!(world.names(&answer.candidates), ["Sydney", "Tokyo"], "near, but with a slow line");
}

/// SEC-6: whoever claims to be nearer than light allows is believed as far as light allows, and told so.
#[tokio::test]
async fn no_claim_is_faster_than_light() {
    let vectors = vectors();
    let mut world = World::open(&vectors, XML, &vectors.phase1_locality_order).await;
    world.searching.search().await.expect("search");
    let claims =
        [("MikeLA".to_owned(), Some(31.0)), ("Sydney".to_owned(), Some(1.0)), ("Tokyo".to_owned(), Some(40.0))];
    let claims = claims.iter().map(|(name, ms)| (name, *ms));
    let answer = world.report(pb::LatencyPhase::Quick, claims).await;
    assert_eq!(answer.ignored_fields, ["measurements[1].round_trip_ms"]);
    assert_eq!(world.names(&answer.candidates), ["MikeLA", "Tokyo", "Sydney"]);
    let sydney = answer.candidates[2].round_trip_ms.expect("a round trip");
    assert!((45.0..60.0).contains(&sydney), "{sydney}");
}
