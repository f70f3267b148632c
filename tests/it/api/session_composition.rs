//! Validation of session compositions: each rejected one with the path of the field and a message; and valid ones.

use fireteam::api::convert::RequestReader;
use fireteam::api::pb;
use fireteam::domain::attribute::AttributeValue;
use fireteam::domain::id::UserKey;
use fireteam::domain::session::Session;
use fireteam::engine::command::Caller;

fn player(user_id: &str) -> pb::PlayerData {
    pb::PlayerData { user_id: user_id.into(), ..Default::default() }
}

fn players(count: usize) -> Vec<pb::PlayerData> {
    (0..count).map(|index| player(&format!("user {index}"))).collect()
}

/// Converts a session of one player after `change`.
fn convert_session(change: impl FnOnce(&mut pb::SessionCompositionData)) -> Result<Session, Vec<(String, String)>> {
    let mut composition = pb::SessionCompositionData { players: players(1), ..Default::default() };
    change(&mut composition);
    let wire =
        pb::SearchRequest { session_composition: Some(composition), matchmaking_set_id: Some(1), ..Default::default() };
    match RequestReader::default().search_command(&Caller::default(), wire) {
        Ok(search) => Ok(search.session),
        Err(rejection) => Err(rejection.fields.into_iter().map(|field| (field.path, field.message)).collect()),
    }
}

/// Asserts that the only problem is at `path` under the composition, with a message that contains `message`.
fn assert_one_problem(path: &str, message: &str, change: impl FnOnce(&mut pb::SessionCompositionData)) {
    let problems = convert_session(change).expect_err(path);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert_eq!(problems[0].0, format!("session_composition.{path}"));
    assert!(problems[0].1.contains(message), "{problems:?} does not contain {message:?}");
}

/// S1-13: at most 128 parties, each size at least 1, and the sizes add up to the number of players.
#[test]
fn party_sizes_are_checked_against_their_limits() {
    let sizes = |sizes: Vec<i32>| {
        move |wire: &mut pb::SessionCompositionData| {
            wire.players.clear();
            wire.party_size_composition = sizes;
        }
    };
    assert_one_problem("party_size_composition", "129 entries; at most 128", sizes(vec![1; 129]));
    assert_one_problem("party_size_composition[1]", "is 0; must be from 1 to 128", sizes(vec![2, 0, 1]));
    assert_one_problem("party_size_composition[3]", "is -1; must be from 1", sizes(vec![1, 1, 1, -1]));
    assert_one_problem("party_size_composition", "adds up to 129 players; at most 128", sizes(vec![65, 64]));
    assert_one_problem("party_size_composition", "is missing, and so are players", sizes(vec![]));
    assert_one_problem("party_size_composition", "adds up to 3, but session_composition.players has 1", |wire| {
        wire.party_size_composition = vec![2, 1];
    });
    assert_eq!(convert_session(sizes(vec![2; 64])).unwrap().party_sizes, [2; 64]);
    assert_eq!(convert_session(|wire| wire.players = players(5)).unwrap().party_sizes, [5]);
}

#[test]
fn players_must_have_distinct_users() {
    assert_one_problem("players", "129 entries; at most 128", |wire| wire.players = players(129));
    assert_one_problem("players[0].user_id", "is missing", |wire| wire.players[0].user_id.clear());
    assert_one_problem("players[0].user_id", "65 bytes; at most 64", |wire| wire.players[0].user_id = "x".repeat(65));
    assert_one_problem("players[0].player_id", "65 bytes", |wire| wire.players[0].player_id = "x".repeat(65));
    assert_one_problem("players[2].user_id", "is also the user of session_composition.players[0]", |wire| {
        wire.players = vec![player("ann"), player("bob"), player("ann")];
    });
    let session = convert_session(|wire| {
        wire.players = vec![player("ann"), pb::PlayerData { player_id: "b1".into(), ..player("bob") }]
    });
    let session = session.unwrap();
    assert_eq!(session.players[0].client_key, UserKey::from_name("ann"), "the player key defaults to the user");
    assert_eq!(session.players[1].client_key, UserKey::from_name("b1"));
}

/// SEC-18: NaN, infinities and numbers above the limit are rejected; both zeros become zero.
#[test]
fn nan_and_infinite_numbers_are_rejected() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.1e12, -1.1e12] {
        assert_one_problem("players[0].skill", "must be a number from -1e12 to 1e12", |wire| {
            wire.players[0].skill = Some(bad)
        });
        assert_one_problem("attributes[\"rank\"].number_value", "must be a number", |wire| {
            insert_attribute(wire, "rank", number_value(bad))
        });
    }
    for bad in [f32::NAN, f32::INFINITY, -0.5, 60_001.0] {
        assert_one_problem("region_latencies[0].round_trip_ms", "must be from 0 to 60000", |wire| {
            wire.region_latencies = vec![region_latency("eu", bad)];
        });
    }
    for near_zero in [-0.0, f64::MIN_POSITIVE / 2.0] {
        let session = convert_session(|wire| wire.players[0].skill = Some(near_zero)).unwrap();
        assert_eq!(session.players[0].stated_skill.unwrap().to_bits(), 0.0f64.to_bits());
    }
    assert_eq!(
        convert_session(|wire| wire.players[0].skill = Some(-1e12)).unwrap().players[0].stated_skill,
        Some(-1e12)
    );
}

#[test]
fn negative_counts_are_rejected() {
    let seats =
        |seats| move |wire: &mut pb::SessionCompositionData| wire.max_allowed_join_reservation_count = Some(seats);
    assert_one_problem("max_allowed_join_reservation_count", "is -1; must be from 0 to 1000", seats(-1));
    assert_one_problem("max_allowed_join_reservation_count", "is 1001", seats(1_001));
    assert_one_problem("big_party_count", "is -2; must not be less than 0", |wire| wire.big_party_count = Some(-2));
    assert_one_problem("nat_type", "is -1; must not be less than 0", |wire| wire.nat_type = Some(-1));
    assert_eq!(convert_session(seats(1_000)).unwrap().offered_seats, 1_000);
}

/// S1-14, S1-27: a locality is complete and on the sphere, or absent.
#[test]
fn locality_must_be_complete_and_on_the_sphere() {
    let at = |x: f32, y: f32, z: f32| {
        let (x, y, z) = (Some(x), Some(y), Some(z));
        Some(pb::LocalityData { locality_x: x, locality_y: y, locality_z: z, ..Default::default() })
    };
    assert_one_problem("locality_info", "on the sphere", |wire| wire.locality_info = at(0.0, 0.0, 0.0));
    assert_one_problem("locality_info", "on the sphere", |wire| wire.locality_info = at(f32::NAN, 0.0, 4000.0));
    assert_one_problem("locality_info", "is incomplete", |wire| {
        wire.locality_info = Some(pb::LocalityData { locality_x: Some(4000.0), ..Default::default() });
    });
    assert!(convert_session(|wire| wire.locality_info = at(0.0, 4000.0, 0.0)).unwrap().locality.is_some());
    assert_eq!(convert_session(|_| {}).unwrap().locality, None);
}

#[test]
fn attributes_are_limited_in_number_and_length() {
    assert_one_problem("attributes", "33 entries; at most 32", |wire| {
        (0..33).for_each(|index| insert_attribute(wire, &format!("a{index}"), number_value(1.0)));
    });
    assert_one_problem("attributes[\"\"]", "is missing", |wire| insert_attribute(wire, "", number_value(1.0)));
    assert_one_problem("attributes[\"mode\"]", "has no value", |wire| insert_attribute(wire, "mode", None));
    assert_one_problem("attributes[\"mode\"].string_value", "65 bytes", |wire| {
        insert_attribute(wire, "mode", Some(pb::attribute_value::Value::StringValue("x".repeat(65))));
    });
    assert_one_problem("attributes[\"maps\"].string_list.values", "33 entries", |wire| {
        insert_attribute(wire, "maps", string_list_value(&["x"; 33]))
    });
    assert_one_problem("attributes[\"maps\"].string_list.values[1]", "65 bytes", |wire| {
        insert_attribute(wire, "maps", string_list_value(&["short", &"x".repeat(65)]));
    });
    let session = convert_session(|wire| {
        insert_attribute(wire, "z", number_value(2.0));
        insert_attribute(wire, "maps", string_list_value(&["b", "a", "b"]));
    });
    let expected = vec![
        ("maps".into(), AttributeValue::from_string_list(vec!["a".into(), "b".into()])),
        ("z".into(), AttributeValue::Number(2.0)),
    ];
    assert_eq!(session.unwrap().attributes, expected, "in name order, each string once");
}

#[test]
fn region_latencies_must_name_each_region_once() {
    assert_one_problem("region_latencies", "33 entries", |wire| {
        wire.region_latencies = (0..33).map(|index| region_latency(&format!("r{index}"), 1.0)).collect();
    });
    assert_one_problem("region_latencies[1].region", "is listed twice", |wire| {
        wire.region_latencies = vec![region_latency("eu", 1.0), region_latency("eu", 2.0)];
    });
    assert_one_problem("region_latencies[0].region", "is missing", |wire| {
        wire.region_latencies = vec![region_latency("", 1.0)]
    });
    let session =
        convert_session(|wire| wire.region_latencies = vec![region_latency("us", 2.0), region_latency("eu", 1.0)])
            .unwrap();
    assert_eq!(session.region_latencies.iter().map(|region| &*region.region).collect::<Vec<_>>(), ["eu", "us"]);
}

#[test]
fn field_errors_are_reported_all_at_once() {
    let problems = convert_session(|wire| {
        wire.nat_type = Some(-1);
        wire.players[0].skill = Some(f64::NAN);
        wire.party_size_composition = vec![0, 1];
    });
    let paths: Vec<String> = problems.unwrap_err().into_iter().map(|(path, _)| path).collect();
    let expected = ["players[0].skill", "party_size_composition[0]", "nat_type"];
    assert_eq!(paths, expected.map(|path| format!("session_composition.{path}")));
}

/// Error details are sent in headers, so at most sixteen field errors are listed.
#[test]
fn field_errors_are_limited_to_sixteen() {
    let mut wire = pb::SearchRequest { matchmaking_set_id: Some(1), ..Default::default() };
    wire.session_composition = Some(pb::SessionCompositionData { players: players(1), ..Default::default() });
    wire.exclude_advertisement_ids = vec!["x".into(); 200];
    let rejection = RequestReader::default().search_command(&Caller::default(), wire).unwrap_err();
    assert_eq!(rejection.fields.len(), 16);
    assert!(rejection.message.ends_with("(and 199 more)"), "{}", rejection.message);
}

fn insert_attribute(wire: &mut pb::SessionCompositionData, name: &str, value: Option<pb::attribute_value::Value>) {
    wire.attributes.insert(name.into(), pb::AttributeValue { value });
}

fn number_value(number: f64) -> Option<pb::attribute_value::Value> {
    Some(pb::attribute_value::Value::NumberValue(number))
}

fn string_list_value(values: &[&str]) -> Option<pb::attribute_value::Value> {
    let values = values.iter().map(|&text| text.into()).collect();
    Some(pb::attribute_value::Value::StringList(pb::StringList { values }))
}

fn region_latency(name: &str, round_trip_ms: f32) -> pb::RegionLatency {
    pb::RegionLatency { region: name.into(), round_trip_ms }
}
