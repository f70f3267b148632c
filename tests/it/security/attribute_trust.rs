//! Attribute trust: a stated value counts if the ruleset trusts its source; otherwise it is ignored.

use fireteam::api::convert::RequestReader;
use fireteam::api::matchmaking_handler::MatchmakingHandler;
use fireteam::api::{authorization, pb};
use fireteam::auth::identity::Role;
use fireteam::config::RulesetSource;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use prost::Message;

use crate::support::generated_client;
use crate::support::ruleset_dir::RulesetDirectory;
use crate::support::tokens::start_authenticated_server_with_config;

type TestCaller = authorization::AuthorizedCaller<authorization::ClientOrGameServer>;

/// Number of random rulesets; each is searched a dozen times.
const RULESET_CASES: u32 = 24;
/// Every attribute with a field of its own, and one of each other type.
const ATTRIBUTES: [(&str, &str); 8] = [
    ("skill", "number"),
    ("nat_type", "number"),
    ("big_party_count", "number"),
    ("game_in_progress", "bool"),
    ("level", "number"),
    ("mode", "string"),
    ("voice", "bool"),
    ("maps", "string_list"),
];
const TRUST: [&str; 3] = ["client", "game_server", "token"];

/// Ruleset that uses every attribute: as hard filters where possible, as soft filters for numbers.
fn ruleset_xml(trust: &[usize; 8]) -> String {
    let range = |kind: &str| if kind == "number" { " Min=\"0\" Max=\"100\"" } else { "" };
    let mut text = "<Ruleset Name=\"trust\" SetId=\"7\">\n<Attributes>\n".to_owned();
    for ((name, kind), trust) in ATTRIBUTES.iter().zip(trust) {
        let trust = TRUST[*trust];
        text += &format!("<Attribute Name=\"{name}\" Type=\"{kind}\" Trust=\"{trust}\"{}/>\n", range(kind));
    }
    text += "</Attributes>\n<HardFilters>\n<Overlap Attribute=\"maps\"/>\n<Equal Attribute=\"mode\"/>\n\
             <Equal Attribute=\"voice\"/>\n<Equal Attribute=\"game_in_progress\"/>\n\
             <Within Attribute=\"level\" Limit=\"20\"/>\n</HardFilters>\n<SoftFilters>\n";
    for (name, _) in ATTRIBUTES.iter().filter(|(_, kind)| *kind == "number") {
        text += &format!("<SoftFilter Attribute=\"{name}\" Weight=\"1\"/>\n");
    }
    text + "</SoftFilters>\n</Ruleset>\n"
}

/// Values that a session states; `is_stated` selects the stated ones.
#[derive(Clone, Debug)]
struct StatedValues {
    numbers: [u8; 4],
    flags: [bool; 2],
    mode: bool,
    maps: Vec<u8>,
    is_stated: [bool; 8],
}

fn stated_values() -> impl Strategy<Value = StatedValues> {
    let maps = proptest::collection::vec(0..4_u8, 1..3);
    (any::<[u8; 4]>(), any::<[bool; 2]>(), any::<bool>(), maps, any::<[bool; 8]>()).prop_map(
        |(numbers, flags, mode, maps, says)| {
            let numbers = numbers.map(|number| number % 100);
            StatedValues { numbers, flags, mode, maps, is_stated: says }
        },
    )
}

/// Session of one user that states `values`, except those in `omitted`.
fn session_stating(user: &str, values: &StatedValues, omitted: &[bool; 8]) -> pb::SessionCompositionData {
    use pb::attribute_value::Value;
    let is_stated = |at: usize| values.is_stated[at] && !omitted[at];
    let number = |at: usize, number: u8| is_stated(at).then_some(i32::from(number));
    let skill = is_stated(0).then_some(f64::from(values.numbers[0]));
    let maps = pb::StringList { values: values.maps.iter().map(|map| format!("map {map}")).collect() };
    let named = [
        (4, Value::NumberValue(f64::from(values.numbers[3]))),
        (5, Value::StringValue(if values.mode { "duel".into() } else { "brawl".into() })),
        (6, Value::BoolValue(values.flags[1])),
        (7, Value::StringList(maps)),
    ];
    let named = named.into_iter().filter(|(at, _)| is_stated(*at));
    let named = named.map(|(at, value)| (ATTRIBUTES[at].0.to_owned(), pb::AttributeValue { value: Some(value) }));
    pb::SessionCompositionData {
        players: vec![pb::PlayerData { user_id: user.into(), skill, ..Default::default() }],
        nat_type: number(1, values.numbers[1]),
        big_party_count: number(2, values.numbers[2]),
        game_in_progress: is_stated(3).then_some(values.flags[0]),
        attributes: named.collect(),
        max_allowed_join_reservation_count: Some(4),
        ..Default::default()
    }
}

fn field_path(at: usize) -> String {
    match at {
        0 => "session_composition.players[0].skill".into(),
        1..=3 => format!("session_composition.{}", ATTRIBUTES[at].0),
        _ => format!("session_composition.attributes[\"{}\"]", ATTRIBUTES[at].0),
    }
}

fn search(
    handler: &MatchmakingHandler,
    caller: &TestCaller,
    session: pb::SessionCompositionData,
) -> generated_client::MatchmakingSearchResponse {
    let wire =
        pb::SearchRequest { session_composition: Some(session), matchmaking_set_id: Some(7), ..Default::default() };
    let answer = handler.search(RequestReader::default(), caller, wire).unwrap().encode_to_vec();
    generated_client::MatchmakingSearchResponse::decode(answer.as_slice()).unwrap()
}

async fn publish(
    handler: &MatchmakingHandler,
    caller: &TestCaller,
    session: pb::SessionCompositionData,
) -> Vec<String> {
    let wire = pb::UpdateAdvertisementRequest {
        session_composition: Some(session),
        matchmaking_set_id: Some(7),
        ..Default::default()
    };
    handler.update_advertisement(RequestReader::default(), caller, wire).unwrap().wait().await.unwrap().ignored_fields
}

/// Checks one ruleset: untrusted values are listed and change nothing, for clients and for game servers.
async fn check_ruleset(trust: [usize; 8], hosts: Vec<(bool, StatedValues)>, searchers: Vec<StatedValues>) {
    let rulesets = RulesetDirectory::with_files(&[("trust.xml", &ruleset_xml(&trust))]);
    let directory = rulesets.path().to_owned();
    let (server, issuer) =
        start_authenticated_server_with_config(|config| config.rulesets = RulesetSource::Directory(directory)).await;
    let handler = MatchmakingHandler::new(server.app.engine.clone());
    let of_client = trust.map(|trust| TRUST[trust] != "client");
    let of_server = trust.map(|trust| TRUST[trust] == "token");
    let listed = |values: &StatedValues, untrusted: &[bool; 8]| -> Vec<String> {
        let mut paths: Vec<String> =
            (0..8).filter(|&at| values.is_stated[at] && untrusted[at]).map(field_path).collect();
        paths.sort();
        paths
    };
    for (number, (by_server, values)) in hosts.iter().enumerate() {
        let user = format!("host {number}");
        let role = if *by_server { Role::GameServer } else { Role::Client };
        let caller = issuer.authorized_caller(&server, role, &user);
        let mut ignored = publish(&handler, &caller, session_stating(&user, values, &[false; 8])).await;
        ignored.iter_mut().for_each(|path| path.insert_str(0, "session_composition."));
        ignored.sort();
        assert_eq!(ignored, listed(values, if *by_server { &of_server } else { &of_client }));
    }
    for (number, values) in searchers.iter().enumerate() {
        let user = format!("searcher {number}");
        for (role, untrusted) in [(Role::Client, &of_client), (Role::GameServer, &of_server)] {
            let caller = issuer.authorized_caller(&server, role, &user);
            let full = search(&handler, &caller, session_stating(&user, values, &[false; 8]));
            let trusted_only = search(&handler, &caller, session_stating(&user, values, untrusted));
            assert_eq!(full.candidates, trusted_only.candidates, "{role:?}");
            assert_eq!(full.refusals, trusted_only.refusals, "{role:?}");
            let mut ignored = full.ignored_fields;
            ignored.sort();
            assert_eq!(ignored, listed(values, untrusted), "{role:?}");
            assert!(trusted_only.ignored_fields.is_empty());
        }
    }
}

/// SEC-6: over random rulesets, no value of an attribute that the caller is not trusted with has any effect.
#[test]
fn untrusted_attribute_value_has_no_effect() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let trust = proptest::array::uniform8(0..TRUST.len());
    let hosts = proptest::collection::vec((any::<bool>(), stated_values()), 6..12);
    let searchers = proptest::collection::vec(stated_values(), 4..8);
    let config = ProptestConfig { cases: RULESET_CASES, failure_persistence: None, ..ProptestConfig::default() };
    TestRunner::new(config)
        .run(&(trust, hosts, searchers), |(trust, hosts, searchers)| {
            runtime.block_on(check_ruleset(trust, hosts, searchers));
            Ok(())
        })
        .unwrap();
}
