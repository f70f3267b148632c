//! Typed calls, Core and Connect share one handler: the same request gets the same answer or error from each.

use prost::Message;
use tokio_stream::StreamExt;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::support::generated_client::matchmaking_connect_response::Message as ConnectMessage;
use crate::support::generated_client::{self, MatchmakingCoreRequestType as Type};
use crate::support::scripted_engine::{RULESET_HASH, SET_ID};
use crate::support::scripted_server::{ScriptedServer, publish_request, search_request, session_composition};

fn envelope(request_type: Type) -> generated_client::MatchmakingCoreRequest {
    generated_client::MatchmakingCoreRequest {
        request_type: Some(request_type.into()),
        request_nonce: Some(77),
        managed_session_index: Some(-3),
        ..Default::default()
    }
}

async fn send_by_connect(
    server: &ScriptedServer,
    core: generated_client::MatchmakingCoreRequest,
) -> generated_client::MatchmakingCoreResponse {
    let request = generated_client::MatchmakingConnectRequest { core: Some(core) };
    let mut answers =
        server.matchmaking_client().await.connect(tokio_stream::once(request)).await.unwrap().into_inner();
    match answers.next().await.unwrap().unwrap().message.unwrap() {
        ConnectMessage::Core(core) => core,
        other => panic!("unexpected event {other:?}"),
    }
}

/// S1-9, S1-16: the same search gets the same answer from each entry point, and the envelope's own fields are returned.
#[tokio::test]
async fn search_has_the_same_answer_through_each_entry_point() {
    let server = ScriptedServer::start().await;
    let typed = server.matchmaking_client().await.search(search_request()).await.unwrap().into_inner();
    assert_eq!(typed.candidates.len(), 2);
    let inner = generated_client::MatchmakingSearchRequest { matchmaking_set_id: None, ..search_request() };
    let core = generated_client::MatchmakingCoreRequest {
        search_request: Some(inner),
        matchmaking_set_id: Some(SET_ID),
        ..envelope(Type::Search)
    };
    let by_core = server.matchmaking_client().await.core(core.clone()).await.unwrap().into_inner();
    let by_stream = send_by_connect(&server, core).await;
    assert_eq!(by_core, by_stream);
    assert_eq!(by_core.search_response, Some(typed));
    assert_eq!(
        (by_core.request_type, by_core.request_nonce, by_core.managed_session_index),
        (Some(1), Some(77), Some(-3))
    );
    let commands = server.engine.received_commands.lock().unwrap();
    assert!(
        commands.windows(2).all(|pair| pair[0] == pair[1]),
        "the engine receives the same command from each entry point: {commands:?}"
    );
}

#[tokio::test]
async fn update_delete_and_configuration_have_the_same_answer_through_each_entry_point() {
    let server = ScriptedServer::start().await;
    let mut client = server.matchmaking_client().await;
    let update = generated_client::MatchmakingUpdateAdvertisementRequest {
        idempotency_key: "k".repeat(16),
        ..publish_request()
    };
    let typed = client.update_advertisement(update.clone()).await.unwrap().into_inner();
    assert_eq!(typed.ignored_fields, ["session_composition.players[0].skill"]);
    let core = generated_client::MatchmakingCoreRequest {
        update_advertisement_request: Some(update),
        ..envelope(Type::UpdateAdvertisement)
    };
    assert_eq!(send_by_connect(&server, core.clone()).await.update_advertisement_response, Some(typed.clone()));
    let by_core = client.core(core).await.unwrap().into_inner();
    assert_eq!(by_core.update_advertisement_response, Some(typed.clone()));

    let delete = generated_client::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: typed.advertisement_id,
        advertisement_token: typed.advertisement_token,
    };
    client.delete_advertisement(delete.clone()).await.unwrap();
    let core = generated_client::MatchmakingCoreRequest {
        delete_advertisement_request: Some(delete),
        ..envelope(Type::DeleteAdvertisement)
    };
    assert!(client.core(core.clone()).await.unwrap().into_inner().delete_advertisement_response.is_some());
    assert!(send_by_connect(&server, core).await.delete_advertisement_response.is_some());

    for (known, not_modified, xml) in [(None, false, "<Ruleset/>\n"), (Some(RULESET_HASH), true, "")] {
        let get = generated_client::MatchmakingGetConfigurationRequest {
            matchmaking_set_id: Some(SET_ID),
            service_configuration_hash: known,
        };
        let typed = client.get_configuration(get).await.unwrap().into_inner();
        assert_eq!((typed.not_modified, &*typed.ruleset_xml), (not_modified, xml));
        let core = generated_client::MatchmakingCoreRequest {
            get_configuration_request: Some(get),
            ..envelope(Type::GetConfiguration)
        };
        assert_eq!(send_by_connect(&server, core).await.get_configuration_response, Some(typed));
    }
}

/// S1-52: the request type must match the one sub-request, or the error is INVALID_ARGUMENT, on a call and on a stream.
#[tokio::test]
async fn envelope_type_must_match_its_sub_request() {
    let server = ScriptedServer::start().await;
    let mut client = server.matchmaking_client().await;
    let search_in = |core| generated_client::MatchmakingCoreRequest { search_request: Some(search_request()), ..core };
    let with_set = |core, set| generated_client::MatchmakingCoreRequest { matchmaking_set_id: Some(set), ..core };
    let delete = Some(generated_client::MatchmakingDeleteAdvertisementRequest::default());
    let two = generated_client::MatchmakingCoreRequest {
        delete_advertisement_request: delete,
        ..search_in(envelope(Type::Search))
    };
    let untyped = generated_client::MatchmakingCoreRequest { request_type: None, ..search_in(envelope(Type::Search)) };
    let unknown_type =
        generated_client::MatchmakingCoreRequest { request_type: Some(99), ..search_in(envelope(Type::Search)) };
    let mut crowded = search_in(envelope(Type::Search));
    let composition = crowded.search_request.as_mut().unwrap().session_composition.as_mut().unwrap();
    composition.players.clear();
    composition.party_size_composition = vec![1, 1, 1, 0];
    let table = [
        (search_in(envelope(Type::GetConfiguration)), "request_type", "set it to MATCHMAKING_CORE_REQUEST_TYPE_SEARCH"),
        (search_in(envelope(Type::Unspecified)), "request_type", "set it to MATCHMAKING_CORE_REQUEST_TYPE_SEARCH"),
        (untyped, "request_type", "is absent"),
        (unknown_type, "request_type", "99, an unknown request type"),
        (envelope(Type::Search), "request_type", "no sub-request"),
        (two, "delete_advertisement_request", "is one of 2 sub-requests"),
        (
            with_set(search_in(envelope(Type::Search)), SET_ID + 1),
            "search_request.matchmaking_set_id",
            "is 42, but the envelope has 43",
        ),
        (crowded, "search_request.session_composition.party_size_composition[3]", "is 0; must be from 1 to 128"),
    ];
    for (core, path, message_part) in table {
        let status = client.core(core.clone()).await.unwrap_err();
        assert_violation(&status, path, message_part);
        let answer = send_by_connect(&server, core).await;
        let error = answer.error.expect(path);
        assert_eq!((error.code, &*error.field), (3, path));
        assert!(error.message.contains(message_part), "{error:?}");
        assert_eq!(answer.request_nonce, Some(77), "the error has the nonce of its request");
    }
    assert!(server.engine.received_commands.lock().unwrap().is_empty(), "no command reached the engine");
}

fn assert_violation(status: &Status, path: &str, message_part: &str) {
    assert_eq!(status.code(), Code::InvalidArgument, "{path}");
    let details = status.get_error_details();
    let violations = &details.bad_request().unwrap().field_violations;
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert_eq!(violations[0].field, path);
    assert!(violations[0].description.contains(message_part), "{violations:?}");
}

#[tokio::test]
async fn reserve_latency_and_action_requests_reach_the_engine() {
    let server = ScriptedServer::start().await;
    let mut client = server.matchmaking_client().await;
    let id = "ab".repeat(16);
    let reserve = generated_client::MatchmakingReserveRequest {
        advertisement_id: id.clone(),
        players: session_composition().players,
        idempotency_key: "0123456789abcdef".into(),
        search_token: vec![1],
        ..Default::default()
    };
    let answer = client.reserve(reserve.clone()).await.unwrap().into_inner();
    assert_eq!((answer.reservation.unwrap().seats, answer.connect_data), (1, vec![1, 2, 3]));
    let four = Some(generated_client::SessionCompositionData { party_size_composition: vec![4], ..Default::default() });
    let crowd = generated_client::MatchmakingReserveRequest { players: vec![], session_composition: four, ..reserve };
    let status = client.reserve(crowd).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.get_error_details().error_info().unwrap().metadata["open_seats"], "3");

    let release = generated_client::MatchmakingReleaseRequest {
        reservation_id: "03".repeat(16),
        reservation_token: vec![5],
        ..Default::default()
    };
    client.release(release).await.unwrap();

    let measurement = |ms| generated_client::LatencyMeasurement {
        advertisement_id: id.clone(),
        round_trip_ms: ms,
        ..Default::default()
    };
    let report = generated_client::MatchmakingReportLatencyRequest {
        search_token: vec![1],
        phase: generated_client::LatencyPhase::Quick.into(),
        measurements: vec![measurement(Some(31.5))],
        session_composition: Some(session_composition()),
        matchmaking_set_id: Some(SET_ID),
        service_configuration_hash: Some(RULESET_HASH),
    };
    let answer = client.report_latency(report).await.unwrap().into_inner();
    assert!(answer.involved_phase_may_start);
    assert_eq!(answer.candidates[0].round_trip_ms, Some(31.5));

    let choose = generated_client::MatchmakingChooseActionRequest { matchmaking_set_id: Some(SET_ID), party_size: 3 };
    let answer = client.choose_action(choose).await.unwrap().into_inner();
    assert_eq!((answer.action(), answer.advertise_percent), (generated_client::MatchmakingAction::Advertise, 50.0));
}

/// S1-37: an unknown hash gets an error that names the current hash.
#[tokio::test]
async fn stale_configuration_error_names_the_current_hash() {
    let server = ScriptedServer::start().await;
    let stale = generated_client::MatchmakingSearchRequest { service_configuration_hash: Some(1), ..search_request() };
    let status = server.matchmaking_client().await.search(stale).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    let details = status.get_error_details();
    assert_eq!(details.error_info().unwrap().metadata["current_hash"], RULESET_HASH.to_string());
    let unknown_set = generated_client::MatchmakingSearchRequest { matchmaking_set_id: Some(1), ..search_request() };
    assert_eq!(server.matchmaking_client().await.search(unknown_set).await.unwrap_err().code(), Code::NotFound);
}

/// The caller's address is the one noted by a trusted proxy, or the peer's address.
#[tokio::test]
async fn caller_address_comes_from_the_connection_and_trusted_proxies() {
    let server = ScriptedServer::start().await;
    let mut client = server.matchmaking_client().await;
    client.search(search_request()).await.unwrap();
    let mut request = tonic::Request::new(search_request());
    request.metadata_mut().append("x-forwarded-for", "198.51.100.7, 203.0.113.9".parse().unwrap());
    client.search(request).await.unwrap();
    let callers = server.engine.callers.lock().unwrap();
    let addresses: Vec<String> = callers.iter().map(|caller| caller.ip_address.unwrap().to_string()).collect();
    assert_eq!(addresses, ["127.0.0.1", "203.0.113.9"]);
    assert!(callers.iter().all(|caller| caller.subject.is_none()));
}

/// Absent fields of a request stay absent in the engine.
#[tokio::test]
async fn absent_fields_stay_absent_in_the_engine() {
    let server = ScriptedServer::start().await;
    let mut client = server.matchmaking_client().await;
    client.search(search_request()).await.unwrap();
    let mut with_zeros = search_request();
    let composition = with_zeros.session_composition.as_mut().unwrap();
    (composition.nat_type, composition.game_in_progress) = (Some(0), Some(false));
    assert_ne!(with_zeros.encode_to_vec(), search_request().encode_to_vec());
    client.search(with_zeros).await.unwrap();
    let commands = server.engine.received_commands.lock().unwrap();
    assert!(commands[0].contains("nat_type: None, game_in_progress: None"), "{commands:?}");
    assert!(commands[1].contains("nat_type: Some(0), game_in_progress: Some(false)"), "{commands:?}");
}
