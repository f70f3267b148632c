//! Every floating-point field that a client can send, with values that are not usable numbers: each is rejected by
//! field name before any computation. A second test compares the table with the proto.

use fireteam::api::convert::RequestReader;
use fireteam::api::pb;
use fireteam::api::status::Rejection;
use fireteam::engine::command::Caller;

/// Values that no field accepts.
const REJECTED_NUMBERS: [f64; 5] = [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX];
/// Values at or near zero that every field accepts.
const ACCEPTED_NEAR_ZERO: [f64; 3] = [0.0, -0.0, f64::MIN_POSITIVE / 4.0];

const ADVERTISEMENT_ID: &str = "0123456789abcdef0123456789abcdef";

/// A field of the proto, its path in a request, and a function that sends a number there.
type NumberField = (&'static str, &'static str, fn(f64) -> Result<(), Rejection>);

const NUMBER_FIELDS: [NumberField; 15] = [
    ("AcceptedValues.min", "session_composition.wishes[0].accepted.min", |number| {
        search_with_wish(pb::AcceptedValues { min: Some(number), ..Default::default() })
    }),
    ("AcceptedValues.max", "session_composition.wishes[0].accepted.max", |number| {
        search_with_wish(pb::AcceptedValues { max: Some(number), ..Default::default() })
    }),
    ("LocalityData.locality_x", "session_composition.locality_info", |number| {
        search_from_locality(number as f32, 0.0, 0.0)
    }),
    ("LocalityData.locality_y", "session_composition.locality_info", |number| {
        search_from_locality(0.0, number as f32, 0.0)
    }),
    ("LocalityData.locality_z", "session_composition.locality_info", |number| {
        search_from_locality(0.0, 0.0, number as f32)
    }),
    ("LocalityData.latitude_degrees", "session_composition.locality_info", |number| search_from_degrees(number, 0.0)),
    ("LocalityData.longitude_degrees", "session_composition.locality_info", |number| search_from_degrees(0.0, number)),
    ("PlayerData.skill", "session_composition.players[0].skill", |number| {
        search_with(|session, _| session.players[0].skill = Some(number))
    }),
    ("AttributeValue.number_value", "session_composition.attributes[\"rank\"].number_value", |number| {
        let value = Some(pb::attribute_value::Value::NumberValue(number));
        search_with(|session, _| session.attributes = [("rank".into(), pb::AttributeValue { value })].into())
    }),
    ("RegionLatency.round_trip_ms", "session_composition.region_latencies[0].round_trip_ms", |number| {
        let region = pb::RegionLatency { region: "eu".into(), round_trip_ms: number as f32 };
        search_with(|session, _| session.region_latencies = vec![region])
    }),
    ("MatchmakingSearchConfigOverrides.weights", "search_config_overrides.weights[\"skill\"]", |number| {
        search_with(|_, overrides| overrides.weights = [("skill".into(), number)].into())
    }),
    ("MatchmakingSearchConfigOverrides.limits", "search_config_overrides.limits[\"skill\"]", |number| {
        search_with(|_, overrides| overrides.limits = [("skill".into(), number)].into())
    }),
    ("AllowedRange.min", "allowed_ranges[0].min", |number| advertise_with_range(Some(number), None)),
    ("AllowedRange.max", "allowed_ranges[0].max", |number| advertise_with_range(None, Some(number))),
    ("LatencyMeasurement.round_trip_ms", "measurements[0].round_trip_ms", |number| {
        let measured = pb::LatencyMeasurement {
            advertisement_id: ADVERTISEMENT_ID.into(),
            round_trip_ms: Some(number as f32),
            ..Default::default()
        };
        let wire = pb::ReportLatencyRequest {
            search_token: vec![1],
            phase: pb::LatencyPhase::Quick.into(),
            measurements: vec![measured],
            session_composition: Some(session()),
            matchmaking_set_id: Some(1),
            ..Default::default()
        };
        RequestReader::default().report_latency_command(&Caller::default(), wire).map(drop)
    }),
];

fn session() -> pb::SessionCompositionData {
    let player = pb::PlayerData { user_id: "ana".into(), ..Default::default() };
    pb::SessionCompositionData { players: vec![player], ..Default::default() }
}

fn search_with(
    change: impl FnOnce(&mut pb::SessionCompositionData, &mut pb::MatchmakingSearchConfigOverrides),
) -> Result<(), Rejection> {
    let (mut session, mut overrides) = (session(), pb::MatchmakingSearchConfigOverrides::default());
    change(&mut session, &mut overrides);
    let wire = pb::SearchRequest {
        session_composition: Some(session),
        search_config_overrides: Some(overrides),
        matchmaking_set_id: Some(1),
        ..Default::default()
    };
    RequestReader::default().search_command(&Caller::default(), wire).map(drop)
}

fn search_with_wish(accepted: pb::AcceptedValues) -> Result<(), Rejection> {
    let wish = pb::Wish { attribute: "skill".into(), accepted: Some(accepted), ..Default::default() };
    search_with(|session, _| session.wishes = vec![wish])
}

/// Searches from a locality with one unusual coordinate; z is at the north pole if it would be zero.
fn search_from_locality(x: f32, y: f32, z: f32) -> Result<(), Rejection> {
    let z = if z == 0.0 || z.is_subnormal() { 4_000.0 } else { z };
    let locality =
        pb::LocalityData { locality_x: Some(x), locality_y: Some(y), locality_z: Some(z), ..Default::default() };
    search_with(|session, _| session.locality_info = Some(locality))
}

fn search_from_degrees(latitude: f64, longitude: f64) -> Result<(), Rejection> {
    let locality =
        pb::LocalityData { latitude_degrees: Some(latitude), longitude_degrees: Some(longitude), ..Default::default() };
    search_with(|session, _| session.locality_info = Some(locality))
}

fn advertise_with_range(min: Option<f64>, max: Option<f64>) -> Result<(), Rejection> {
    let wire = pb::UpdateAdvertisementRequest {
        session_composition: Some(session()),
        matchmaking_set_id: Some(1),
        idempotency_key: "a sufficiently long key".into(),
        allowed_ranges: vec![pb::AllowedRange { attribute: "skill".into(), min, max }],
        ..Default::default()
    };
    RequestReader::default().update_command(&Caller::default(), wire).map(drop)
}

/// SEC-18: values that are not usable numbers are rejected by field name. Values near zero are accepted.
#[test]
fn number_fields_reject_nan_and_infinity() {
    for (field, path, send) in NUMBER_FIELDS {
        for rejected in REJECTED_NUMBERS {
            let rejection = send(rejected).expect_err(field);
            let named: Vec<&str> = rejection.fields.iter().map(|problem| &*problem.path).collect();
            assert!(named.iter().any(|named| named.starts_with(path)), "{field}: {rejected}: {named:?}");
        }
        for near_zero in ACCEPTED_NEAR_ZERO {
            send(near_zero).unwrap_or_else(|rejection| panic!("{field}: {near_zero}: {rejection:?}"));
        }
    }
}

/// SEC-18: the table has every `float` and `double` of the proto that clients send.
#[test]
fn number_field_table_covers_the_proto() {
    let response_messages = ["Candidate.", "ScoreTerm.", "MatchmakingChooseActionResponse.", "HostedPlayer."];
    let contract = include_str!("../../../proto/fireteam/v1/matchmaking.proto");
    let mut message = "";
    let mut fields = Vec::new();
    for line in contract.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix("message ") {
            message = name.split(' ').next().unwrap_or_default();
        }
        let words: Vec<&str> = line.split(' ').collect();
        let typed = words.iter().position(|word| ["float", "double", "double>"].contains(word));
        if let (Some(typed), false) = (typed, line.starts_with("//")) {
            fields.push(format!("{message}.{}", words[typed + 1]));
        }
    }
    fields.retain(|field| !response_messages.iter().any(|message| field.starts_with(message)));
    assert_eq!(fields, NUMBER_FIELDS.map(|(field, ..)| field));
}
