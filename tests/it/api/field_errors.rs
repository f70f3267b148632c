//! Field errors of the other requests, by path and message; and the status of every engine error.

use tonic::{Code, Status};
use tonic_types::StatusExt;

use fireteam::api::convert::RequestReader;
use fireteam::api::pb;
use fireteam::api::status::Rejection;
use fireteam::domain::attribute_values::FieldProblem;
use fireteam::domain::filter::RefusingSide;
use fireteam::domain::id::{RulesetHash, SetId, UserKey};
use fireteam::engine::command::Caller;
use fireteam::engine::error::EngineError;

const ADVERTISEMENT_ID: &str = "0123456789abcdef0123456789ABCDEF";

fn session_of_two() -> Option<pb::SessionCompositionData> {
    Some(pb::SessionCompositionData { party_size_composition: vec![2], ..Default::default() })
}

fn assert_field_errors<T: std::fmt::Debug>(result: Result<T, Rejection>, expected: &[(&str, &str)]) {
    let rejection = match (result, expected.is_empty()) {
        (Ok(_), true) => return,
        (result, _) => result.expect_err(&format!("{expected:?}")),
    };
    assert_eq!(rejection.code, Code::InvalidArgument);
    let found: Vec<(&str, &str)> = rejection.fields.iter().map(|field| (&*field.path, &*field.message)).collect();
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for ((path, message), (expected_path, fragment)) in found.iter().zip(expected) {
        assert_eq!(path, expected_path);
        assert!(message.contains(fragment), "{message:?} does not contain {fragment:?}");
    }
}

#[test]
fn search_errors_name_the_field() {
    let good = || pb::SearchRequest {
        session_composition: session_of_two(),
        matchmaking_set_id: Some(1),
        ..Default::default()
    };
    let check = |change: fn(&mut pb::SearchRequest), expected: &[(&str, &str)]| {
        let mut wire = good();
        change(&mut wire);
        assert_field_errors(RequestReader::default().search_command(&Caller::default(), wire), expected);
    };
    check(|_| {}, &[]);
    check(|wire| wire.session_composition = None, &[("session_composition", "is missing")]);
    check(|wire| wire.matchmaking_set_id = None, &[("matchmaking_set_id", "is missing")]);
    check(|wire| wire.search_token = vec![0; 1_025], &[("search_token", "1025 bytes; at most 1024")]);
    check(|wire| wire.exclude_advertisement_ids = vec![ADVERTISEMENT_ID.into(); 256], &[]);
    check(
        |wire| wire.exclude_advertisement_ids = vec![ADVERTISEMENT_ID.into(); 257],
        &[("exclude_advertisement_ids", "257 entries")],
    );
    check(
        |wire| wire.exclude_advertisement_ids = vec![ADVERTISEMENT_ID.into(), "42".into(), String::new()],
        &[
            ("exclude_advertisement_ids[1]", "32 hexadecimal"),
            ("exclude_advertisement_ids[2]", "is empty; send the id from"),
        ],
    );
    check(
        |wire| {
            let wire = wire.search_config_overrides.insert(Default::default());
            (wire.max_results, wire.max_evaluated) = (Some(201), Some(0));
            wire.weights.insert("skill".into(), -1.0);
            wire.limits.insert("wide".into(), f64::NAN);
        },
        &[
            ("search_config_overrides.max_results", "is 201; must be from 1 to 200"),
            ("search_config_overrides.max_evaluated", "is 0"),
            ("search_config_overrides.weights[\"skill\"]", "must not be negative"),
            ("search_config_overrides.limits[\"wide\"]", "must be a number"),
        ],
    );
}

#[test]
fn update_errors_name_the_field() {
    let heartbeat = || pb::UpdateAdvertisementRequest {
        advertisement_id: ADVERTISEMENT_ID.into(),
        advertisement_token: vec![1],
        ..Default::default()
    };
    let create = || pb::UpdateAdvertisementRequest {
        session_composition: session_of_two(),
        matchmaking_set_id: Some(1),
        ..Default::default()
    };
    let check = |mut wire: pb::UpdateAdvertisementRequest,
                 change: fn(&mut pb::UpdateAdvertisementRequest),
                 expected: &[(&str, &str)]| {
        change(&mut wire);
        assert_field_errors(RequestReader::default().update_command(&Caller::default(), wire), expected);
    };
    check(heartbeat(), |_| {}, &[]);
    check(create(), |_| {}, &[]);
    check(heartbeat(), |wire| wire.connect_data = vec![1], &[("connect_data", "cannot change in a heartbeat")]);
    check(heartbeat(), |wire| wire.advertisement_id = "nonsense".into(), &[("advertisement_id", "32 hexadecimal")]);
    check(create(), |wire| wire.advertisement_token = vec![1], &[("advertisement_id", "send both or neither")]);
    check(create(), |wire| wire.session_composition = None, &[("session_composition", "is missing")]);
    check(create(), |wire| wire.matchmaking_set_id = None, &[("matchmaking_set_id", "is missing")]);
    check(create(), |wire| wire.connect_data = vec![0; 513], &[("connect_data", "513 bytes; at most 512")]);
    check(create(), |wire| wire.kind = 9, &[("kind", "is 9")]);
    check(create(), |wire| wire.idempotency_key = "short".into(), &[("idempotency_key", "16 random characters")]);
    check(create(), |wire| wire.idempotency_key = "x".repeat(129), &[("idempotency_key", "129 bytes; at most 128")]);
    check(
        create(),
        |wire| wire.joined_reservation_ids = vec!["x".into()],
        &[("joined_reservation_ids[0]", "not an id")],
    );
    check(
        create(),
        |wire| {
            let range = |min, max| pb::AllowedRange { attribute: "skill".into(), min, max };
            let (up, down) = (range(Some(1.0), Some(2.0)), range(Some(2.0), Some(1.0)));
            let invalid = pb::AllowedRange { max: Some(f64::NAN), ..Default::default() };
            wire.allowed_ranges = vec![up, down, range(None, None), invalid];
        },
        &[
            ("allowed_ranges[1]", "has min 2 above max 1"),
            ("allowed_ranges[2]", "neither min nor max"),
            ("allowed_ranges[3].attribute", "is missing"),
            ("allowed_ranges[3].max", "must be a number"),
        ],
    );
    let named = Caller { subject: Some(UserKey::from_name("ann")), ..Caller::default() };
    let wire = pb::UpdateAdvertisementRequest { idempotency_key: "short".into(), ..create() };
    assert!(
        RequestReader::default().update_command(&named, wire).is_ok(),
        "keys of authenticated callers are separate, so they may be short"
    );
}

#[test]
fn reserve_latency_and_action_errors_name_the_field() {
    let entry_point = RequestReader::default();
    assert_field_errors(
        entry_point.delete_command(pb::DeleteAdvertisementRequest::default()),
        &[("advertisement_id", "is empty; send the id from")],
    );
    assert_field_errors(
        entry_point.release_command(pb::ReleaseRequest::default()),
        &[("reservation_id", "is empty; send the id from the response to Reserve")],
    );
    assert_field_errors(
        entry_point.reserve_command(&Caller::default(), pb::ReserveRequest::default()),
        &[
            ("advertisement_id", "is empty; send the id from"),
            ("idempotency_key", "is missing"),
            ("session_composition.party_size_composition", "is missing"),
            ("search_token", "is missing"),
        ],
    );
    let good = pb::ReserveRequest {
        advertisement_id: ADVERTISEMENT_ID.into(),
        idempotency_key: "0123456789abcdef".into(),
        search_token: vec![1],
        session_composition: session_of_two(),
        players: vec![pb::PlayerData { skill: Some(f64::NAN), ..Default::default() }],
        ..Default::default()
    };
    assert_field_errors(
        entry_point.reserve_command(&Caller::default(), good),
        &[
            ("players[0].user_id", "is missing"),
            ("players[0].skill", "must be a number"),
            ("session_composition.party_size_composition", "adds up to 2, but players has 1"),
        ],
    );
    let measured =
        |id: &str, ms| pb::LatencyMeasurement { advertisement_id: id.into(), round_trip_ms: ms, ..Default::default() };
    let report = pb::ReportLatencyRequest {
        measurements: vec![
            measured(ADVERTISEMENT_ID, Some(-1.0)),
            measured(ADVERTISEMENT_ID, None),
            measured("x", None),
        ],
        session_composition: session_of_two(),
        ..Default::default()
    };
    assert_field_errors(
        entry_point.report_latency_command(&Caller::default(), report),
        &[
            ("phase", "LATENCY_PHASE_QUICK"),
            ("search_token", "is missing"),
            ("matchmaking_set_id", "is missing"),
            ("measurements[0].round_trip_ms", "must be from 0 to 60000"),
            ("measurements[1].advertisement_id", "is listed twice"),
            ("measurements[2].advertisement_id", "not an id"),
        ],
    );
    for size in [0, 65, u32::MAX] {
        let wire = pb::ChooseActionRequest { matchmaking_set_id: Some(1), party_size: size };
        assert_field_errors(entry_point.choose_action_query(wire), &[("party_size", "must be from 1 to 64")]);
    }
    assert_field_errors(
        entry_point.configuration_query(pb::GetConfigurationRequest::default()),
        &[("matchmaking_set_id", "is missing")],
    );
}

/// Every engine error has a status, with a reason, metadata and a retry delay where needed.
#[test]
fn engine_errors_map_to_statuses_with_details() {
    let check = |error: EngineError, code: Code, reason: &str, facts: &[(&str, &str)], retry_ms: Option<u32>| {
        let rejection = Rejection::from(error.clone());
        let wire = rejection.clone().into_request_error();
        let status: Status = rejection.into();
        assert_eq!((status.code(), wire.code), (code, i32::from(code)), "{error:?}");
        assert_eq!(status.message(), wire.message, "{error:?}");
        let details = status.get_error_details();
        let info = details.error_info().unwrap();
        assert_eq!((&*info.reason, &*info.domain), (reason, "fireteam"), "{error:?}");
        for (key, value) in facts {
            assert_eq!(info.metadata[*key], *value, "{error:?}");
        }
        let pushback = status.metadata().get("grpc-retry-pushback-ms").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(pushback, retry_ms.map(|ms| ms.to_string()), "{error:?}");
        let delay = details.retry_info().and_then(|info| info.retry_delay);
        assert_eq!(delay.map(|delay| delay.as_millis()), retry_ms.map(u128::from), "{error:?}");
        assert_eq!(wire.retry_after_ms, retry_ms.map(u64::from));
    };
    let problem = FieldProblem { path: "session_composition.players".into(), message: "is wrong".into() };
    check(EngineError::InvalidFields(vec![problem]), Code::InvalidArgument, "INVALID_REQUEST", &[], None);
    let set = EngineError::UnknownSet(SetId(9));
    check(set, Code::NotFound, "UNKNOWN_MATCHMAKING_SET", &[("matchmaking_set_id", "9")], None);
    let hash = EngineError::UnknownRulesetHash { requested: RulesetHash(1), current: RulesetHash(2) };
    check(hash, Code::FailedPrecondition, "STALE_CONFIGURATION", &[("current_hash", "2")], None);
    check(EngineError::NotOwner, Code::PermissionDenied, "NOT_OWNER", &[], None);
    check(EngineError::AdvertisementNotFound, Code::NotFound, "ADVERTISEMENT_NOT_FOUND", &[], None);
    check(EngineError::AdvertisementDeleted, Code::FailedPrecondition, "ADVERTISEMENT_DELETED", &[], None);
    let taken = EngineError::SeatsTaken { open_seats: 1 };
    check(taken, Code::FailedPrecondition, "SEATS_TAKEN", &[("open_seats", "1")], None);
    let refused = EngineError::RefusedByRule { rule: "build".into(), side: RefusingSide::Advertiser };
    let facts = [("rule", "build"), ("side", "advertiser")];
    check(refused, Code::FailedPrecondition, "REFUSED_BY_RULE", &facts, None);
    check(EngineError::IdempotencyKeyReused, Code::AlreadyExists, "IDEMPOTENCY_KEY_REUSED", &[], None);
    check(EngineError::ReservationEnded, Code::FailedPrecondition, "RESERVATION_ENDED", &[], None);
    check(EngineError::AdvertisementReservationsFull, Code::ResourceExhausted, "TOO_MANY_RESERVATIONS", &[], None);
    check(EngineError::OverridesForbidden, Code::PermissionDenied, "OVERRIDES_FORBIDDEN", &[], None);
    check(EngineError::Overloaded { retry_after_ms: 40 }, Code::ResourceExhausted, "OVERLOADED", &[], Some(40));
    check(
        EngineError::StoreUnavailable { retry_after_ms: 900 },
        Code::Unavailable,
        "STORE_UNAVAILABLE",
        &[],
        Some(900),
    );
    check(EngineError::Draining, Code::Unavailable, "DRAINING", &[], None);
    check(EngineError::Internal, Code::Internal, "INTERNAL", &[], None);
}
