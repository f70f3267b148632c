//! Vectors through a complete server: hard filters, choice of action, expansion of limits.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;

use fireteam_client::{Code, pb};

use crate::support::ruleset_dir::{OperatorClient, RulesetDirectory};
use crate::support::test_server::{TestServer, advertise_request, party_session};

#[derive(Deserialize)]
struct HardFilterVectors {
    searcher: SearcherVector,
    adverts: Vec<AdvertisementVector>,
    accepted: Vec<String>,
}

#[derive(Deserialize)]
struct SearcherVector {
    mode: String,
    silo: u64,
    hash: u32,
    party: i32,
    skill: f64,
    max_skill_delta: f64,
}

#[derive(Deserialize)]
struct AdvertisementVector {
    id: String,
    mode: String,
    silo: u64,
    hash: u32,
    open_slots: i32,
    skill: f64,
    skill_min: f64,
    skill_max: f64,
}

fn mode_attribute(text: &str) -> HashMap<String, pb::AttributeValue> {
    let value = Some(pb::attribute_value::Value::StringValue(text.into()));
    [("mode".to_owned(), pb::AttributeValue { value })].into_iter().collect()
}

fn ruleset_xml(max_skill_delta: f64) -> String {
    format!(
        r#"<Ruleset Name="filters" SetId="1">
             <Attributes>
               <Attribute Name="skill" Type="number" Min="-1000" Max="1000" Trust="client"/>
               <Attribute Name="mode" Type="string" Trust="client"/>
             </Attributes>
             <HardFilters>
               <SameRuleset Name="same_rules"/>
               <Equal Attribute="mode"/>
               <Within Name="near_in_skill" Attribute="skill" Limit="{max_skill_delta}" ReciprocalPercent="0"/>
             </HardFilters>
           </Ruleset>"#
    )
}

/// S1-17, S1-36, S1-40, S1-49: of the eight sessions, the two that fit are found, limits included. Each of the others
/// is refused by its own rule and side, or is in another population.
#[tokio::test]
async fn hard_filters_refuse_exactly_the_vector_cases_on_both_sides() {
    let vectors: HardFilterVectors = serde_json::from_str(include_str!("../../vectors/hard_filters.json")).unwrap();
    let searcher = &vectors.searcher;
    let directory = RulesetDirectory::with_files(&[("filters.xml", &ruleset_xml(searcher.max_skill_delta - 1.0))]);
    let server = directory.start_server().await;
    let client = server.client().await;
    let mut names = BTreeMap::new();
    let (stale, current): (Vec<&AdvertisementVector>, Vec<&AdvertisementVector>) =
        vectors.adverts.iter().partition(|advert| advert.hash != searcher.hash);
    assert_eq!((stale.len(), current.len()), (1, 7));
    for (round, adverts) in [stale, current].into_iter().enumerate() {
        if round == 1 {
            directory.write_file("filters.xml", &ruleset_xml(searcher.max_skill_delta));
            assert_eq!(OperatorClient::connect(&server).await.reload_rulesets().await.changes.len(), 1);
        }
        for advert in adverts {
            let mut request = advertise_request(&[(&advert.id, advert.skill)], advert.open_slots);
            let session = request.session_composition.as_mut().expect("a session composition");
            (session.silo_id, session.attributes) = (Some(advert.silo), mode_attribute(&advert.mode));
            let (min, max) = (Some(advert.skill_min), Some(advert.skill_max));
            request.allowed_ranges = vec![pb::AllowedRange { attribute: "skill".into(), min, max }];
            names.insert(client.advertise(request).await.expect("advertise").id().to_owned(), &*advert.id);
        }
    }
    let mut session = party_session(&[("one", searcher.skill), ("two", searcher.skill)]);
    (session.silo_id, session.attributes) = (Some(searcher.silo), mode_attribute(&searcher.mode));
    session.party_size_composition = vec![searcher.party];
    let found = client.new_search(1, session).search().await.expect("search");
    let mut shown: Vec<&str> = found.candidates.iter().map(|candidate| names[&candidate.advertisement_id]).collect();
    shown.sort_unstable();
    let mut accepted: Vec<&str> = vectors.accepted.iter().map(String::as_str).collect();
    accepted.sort_unstable();
    assert_eq!(shown, accepted);
    let refused = |rule: &str, kind, side| {
        let row = found.refusals.iter().find(|count| (&*count.rule, count.kind(), count.side()) == (rule, kind, side));
        row.map_or(0, |row| row.count)
    };
    use pb::{RefusalKind as Kind, RefusalSide as Side};
    assert_eq!(refused("", Kind::Full, Side::Unspecified), 1, "{:?}", found.refusals);
    assert_eq!(refused("same_rules", Kind::Filter, Side::Searcher), 1, "{:?}", found.refusals);
    assert_eq!(refused("near_in_skill", Kind::Filter, Side::Searcher), 1, "{:?}", found.refusals);
    assert_eq!(refused("allowed_range", Kind::Filter, Side::Advertiser), 1, "{:?}", found.refusals);
    // The other silo is no row of this population; the other mode may be a population of its own too.
    let counted: u32 = found.refusals.iter().map(|refusal| refusal.count).sum();
    assert_eq!(counted, 4 + refused("mode", Kind::Filter, Side::Searcher), "{:?}", found.refusals);
    assert_eq!(found.evaluated, counted + 2);
}

#[derive(Deserialize)]
struct ActionVectors {
    table_percent: BTreeMap<u32, f64>,
    decision: Vec<ActionDecision>,
}

#[derive(Deserialize)]
struct ActionDecision {
    party: u32,
    u: f64,
    advertise: bool,
}

/// S1-5, S1-6, S1-7, B-34, B-38: with preset random numbers, each decision and percentage equals the vectors. A full
/// party advertises with 99 %, never 100. Party sizes 0 and 65 are rejected.
#[tokio::test]
async fn choose_action_follows_the_vectors() {
    let vectors: ActionVectors = serde_json::from_str(include_str!("../../vectors/advertisement.json")).unwrap();
    let server = TestServer::start().await;
    let client = server.client().await;
    for decision in &vectors.decision {
        server.clock.set_random_unit(decision.u);
        let answer = client.choose_action(1, decision.party).await.expect("choose");
        let expected =
            if decision.advertise { pb::MatchmakingAction::Advertise } else { pb::MatchmakingAction::Search };
        assert_eq!(answer.action(), expected, "party of {}, random number {}", decision.party, decision.u);
        assert_eq!(answer.advertise_percent, vectors.table_percent[&decision.party]);
    }
    assert_eq!(client.choose_action(1, 12).await.expect("choose").advertise_percent, 99.0);
    for size in [0, 65] {
        let error = client.choose_action(1, size).await.expect_err("invalid party size");
        assert_eq!((error.code(), &*error.fields()[0].field), (Some(Code::InvalidArgument), "party_size"));
    }
    assert_eq!(client.choose_action(99, 1).await.expect_err("unknown set").code(), Some(Code::NotFound));
}

/// S1-8: the chances belong to the set: the casual set uses the default chances for sixteen players.
#[tokio::test]
async fn choose_action_uses_the_chances_of_its_set() {
    let server = TestServer::start().await;
    let client = server.client().await;
    server.clock.set_random_unit(0.2);
    let casual = client.choose_action(2, 2).await.expect("choose");
    assert_eq!((casual.action(), casual.advertise_percent), (pb::MatchmakingAction::Advertise, 25.0));
    server.clock.set_random_unit(0.3);
    assert_eq!(client.choose_action(2, 2).await.expect("choose").action(), pb::MatchmakingAction::Search);
    assert_eq!(
        client.choose_action(1, 2).await.expect("choose").action(),
        pb::MatchmakingAction::Advertise,
        "33 % in set 1"
    );
}

#[derive(Deserialize)]
struct ExpansionVectors {
    skill_window_for_skill_200: Vec<SkillWindow>,
}

#[derive(Deserialize)]
struct SkillWindow {
    t_ms: u64,
    min: f64,
    max: f64,
}

/// S1-33, S1-35, S1-36, B-12: a session of skill 200 and searchers at both edges of its skill window, and one point
/// beyond. Both sides have waited equally long. In the end skill is ignored.
#[tokio::test]
async fn skill_limit_expands_as_in_the_vectors() {
    let vectors: ExpansionVectors = serde_json::from_str(include_str!("../../vectors/expansion.json")).unwrap();
    let server = TestServer::start().await;
    let client = server.client().await;
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(600_000),
        ..advertise_request(&[("host", 200.0)], 5)
    };
    client.advertise(request).await.expect("advertise");
    let windows = &vectors.skill_window_for_skill_200;
    let skills = windows.iter().flat_map(|window| [window.min, window.max, window.min - 1.0, window.max + 1.0]);
    let mut searchers = Vec::new();
    for skill in skills {
        let mut searching = client.new_search(1, party_session(&[("guest", skill)]));
        searching.search().await.expect("search");
        searchers.push((skill, searching));
    }
    let mut waited_ms = 0;
    for window in windows {
        server.clock.advance_ms(window.t_ms - waited_ms);
        waited_ms = window.t_ms;
        for (skill, searching) in &mut searchers {
            let shown = !searching.search().await.expect("search").candidates.is_empty();
            let inside = window.min <= *skill && *skill <= window.max;
            assert_eq!(shown, inside, "skill {skill} after {waited_ms} ms");
        }
    }
}
