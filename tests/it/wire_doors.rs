//! Three doors, one handler: what goes in by one comes out as by the others, refusals included.

use prost::Message;
use tokio_stream::StreamExt;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::plain::matchmaking_connect_response::Message as Said;
use crate::plain::{self, MatchmakingCoreRequestType as Type};
use crate::scripted::{HASH, SET};
use crate::stage::{Stage, composition, publish, search};

fn envelope(request_type: Type) -> plain::MatchmakingCoreRequest {
    plain::MatchmakingCoreRequest {
        request_type: Some(request_type.into()),
        request_nonce: Some(77),
        managed_session_index: Some(-3),
        ..Default::default()
    }
}

async fn by_connect(house: &Stage, core: plain::MatchmakingCoreRequest) -> plain::MatchmakingCoreResponse {
    let request = plain::MatchmakingConnectRequest { core: Some(core) };
    let mut answers = house.client().await.connect(tokio_stream::once(request)).await.unwrap().into_inner();
    match answers.next().await.unwrap().unwrap().message.unwrap() {
        Said::Core(core) => core,
        Said::Reservation(event) => panic!("nobody asked for {event:?}"),
    }
}

/// S1-9, S1-16: the same search through every door gives the same answer, and the envelope's own words come back.
#[tokio::test]
async fn a_search_is_answered_alike_through_every_door() {
    let house = Stage::open().await;
    let typed = house.client().await.search(search()).await.unwrap().into_inner();
    assert_eq!(typed.candidates.len(), 2);
    let inner = plain::MatchmakingSearchRequest { matchmaking_set_id: None, ..search() };
    let core = plain::MatchmakingCoreRequest {
        search_request: Some(inner),
        matchmaking_set_id: Some(SET),
        ..envelope(Type::Search)
    };
    let one = house.client().await.core(core.clone()).await.unwrap().into_inner();
    let other = by_connect(&house, core).await;
    assert_eq!(one, other);
    assert_eq!(one.search_response, Some(typed));
    assert_eq!((one.request_type, one.request_nonce, one.managed_session_index), (Some(1), Some(77), Some(-3)));
    let asked = house.matchmaker.asked.lock().unwrap();
    assert!(asked.windows(2).all(|pair| pair[0] == pair[1]), "the engine cannot tell the doors apart: {asked:?}");
}

#[tokio::test]
async fn updates_deletions_and_configurations_are_answered_alike() {
    let house = Stage::open().await;
    let mut client = house.client().await;
    let update = plain::MatchmakingUpdateAdvertisementRequest { idempotency_key: "k".repeat(16), ..publish() };
    let typed = client.update_advertisement(update.clone()).await.unwrap().into_inner();
    assert_eq!(typed.ignored_fields, ["session_composition.players[0].skill"]);
    let core = plain::MatchmakingCoreRequest {
        update_advertisement_request: Some(update),
        ..envelope(Type::UpdateAdvertisement)
    };
    assert_eq!(by_connect(&house, core.clone()).await.update_advertisement_response, Some(typed.clone()));
    let by_core = client.core(core).await.unwrap().into_inner();
    assert_eq!(by_core.update_advertisement_response, Some(typed.clone()));

    let delete = plain::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: typed.advertisement_id,
        advertisement_token: typed.advertisement_token,
    };
    client.delete_advertisement(delete.clone()).await.unwrap();
    let core = plain::MatchmakingCoreRequest {
        delete_advertisement_request: Some(delete),
        ..envelope(Type::DeleteAdvertisement)
    };
    assert!(client.core(core.clone()).await.unwrap().into_inner().delete_advertisement_response.is_some());
    assert!(by_connect(&house, core).await.delete_advertisement_response.is_some());

    for (known, not_modified, xml) in [(None, false, "<Ruleset/>\n"), (Some(HASH), true, "")] {
        let get = plain::MatchmakingGetConfigurationRequest {
            matchmaking_set_id: Some(SET),
            service_configuration_hash: known,
        };
        let typed = client.get_configuration(get).await.unwrap().into_inner();
        assert_eq!((typed.not_modified, &*typed.ruleset_xml), (not_modified, xml));
        let core =
            plain::MatchmakingCoreRequest { get_configuration_request: Some(get), ..envelope(Type::GetConfiguration) };
        assert_eq!(by_connect(&house, core).await.get_configuration_response, Some(typed));
    }
}

/// S1-52: the type and the one sub-request agree, or it is INVALID_ARGUMENT, on a call and on a connection.
#[tokio::test]
async fn an_envelope_and_its_content_agree() {
    let house = Stage::open().await;
    let mut client = house.client().await;
    let search_in = |core| plain::MatchmakingCoreRequest { search_request: Some(search()), ..core };
    let with_set = |core, set| plain::MatchmakingCoreRequest { matchmaking_set_id: Some(set), ..core };
    let delete = Some(plain::MatchmakingDeleteAdvertisementRequest::default());
    let two =
        plain::MatchmakingCoreRequest { delete_advertisement_request: delete, ..search_in(envelope(Type::Search)) };
    let untyped = plain::MatchmakingCoreRequest { request_type: None, ..search_in(envelope(Type::Search)) };
    let odd = plain::MatchmakingCoreRequest { request_type: Some(99), ..search_in(envelope(Type::Search)) };
    let mut crowded = search_in(envelope(Type::Search));
    let composition = crowded.search_request.as_mut().unwrap().session_composition.as_mut().unwrap();
    composition.players.clear();
    composition.party_size_composition = vec![1, 1, 1, 0];
    let table = [
        (search_in(envelope(Type::GetConfiguration)), "request_type", "say MATCHMAKING_CORE_REQUEST_TYPE_SEARCH"),
        (search_in(envelope(Type::Unspecified)), "request_type", "say MATCHMAKING_CORE_REQUEST_TYPE_SEARCH"),
        (untyped, "request_type", "is absent"),
        (odd, "request_type", "99, which is no request type"),
        (envelope(Type::Search), "request_type", "no sub-request"),
        (two, "delete_advertisement_request", "carries 2 sub-requests"),
        (
            with_set(search_in(envelope(Type::Search)), SET + 1),
            "search_request.matchmaking_set_id",
            "is 42, but the envelope says 43",
        ),
        (crowded, "search_request.session_composition.party_size_composition[3]", "is 0, must be from 1 to 64"),
    ];
    for (core, path, what) in table {
        let status = client.core(core.clone()).await.unwrap_err();
        check_violation(&status, path, what);
        let answer = by_connect(&house, core).await;
        let refusal = answer.error.expect(path);
        assert_eq!((refusal.code, &*refusal.field), (3, path));
        assert!(refusal.message.contains(what), "{refusal:?}");
        assert_eq!(answer.request_nonce, Some(77), "the refusal says whose it is");
    }
    assert!(house.matchmaker.asked.lock().unwrap().is_empty(), "none of these reached the engine");
}

fn check_violation(status: &Status, path: &str, what: &str) {
    assert_eq!(status.code(), Code::InvalidArgument, "{path}");
    let details = status.get_error_details();
    let violations = &details.bad_request().unwrap().field_violations;
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert_eq!(violations[0].field, path);
    assert!(violations[0].description.contains(what), "{violations:?}");
}

#[tokio::test]
async fn seats_latency_and_roles_reach_the_engine() {
    let house = Stage::open().await;
    let mut client = house.client().await;
    let id = "ab".repeat(16);
    let reserve = plain::MatchmakingReserveRequest {
        advertisement_id: id.clone(),
        players: composition().players,
        idempotency_key: "0123456789abcdef".into(),
        search_token: vec![1],
        ..Default::default()
    };
    let answer = client.reserve(reserve.clone()).await.unwrap().into_inner();
    assert_eq!((answer.reservation.unwrap().seats, answer.connect_data), (1, vec![1, 2, 3]));
    let four = Some(plain::SessionCompositionData { party_size_composition: vec![4], ..Default::default() });
    let crowd = plain::MatchmakingReserveRequest { players: vec![], session_composition: four, ..reserve };
    let status = client.reserve(crowd).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert_eq!(status.get_error_details().error_info().unwrap().metadata["open_seats"], "3");

    let release = plain::MatchmakingReleaseRequest { reservation_id: "03".repeat(16), reservation_token: vec![5] };
    client.release(release).await.unwrap();

    let measurement = |ms| plain::LatencyMeasurement { advertisement_id: id.clone(), round_trip_ms: ms };
    let report = plain::MatchmakingReportLatencyRequest {
        search_token: vec![1],
        phase: plain::LatencyPhase::Quick.into(),
        measurements: vec![measurement(Some(31.5))],
        session_composition: Some(composition()),
        matchmaking_set_id: Some(SET),
        service_configuration_hash: Some(HASH),
    };
    let answer = client.report_latency(report).await.unwrap().into_inner();
    assert!(answer.involved_phase_may_start);
    assert_eq!(answer.candidates[0].round_trip_ms, Some(31.5));

    let role = plain::MatchmakingChooseActionRequest { matchmaking_set_id: Some(SET), party_size: 3 };
    let answer = client.choose_action(role).await.unwrap().into_inner();
    assert_eq!((answer.action(), answer.advertise_percent), (plain::MatchmakingAction::Advertise, 50.0));
}

/// S1-37: a hash that is gone is answered with the one to fetch.
#[tokio::test]
async fn a_stale_client_is_told_what_to_fetch() {
    let house = Stage::open().await;
    let stale = plain::MatchmakingSearchRequest { service_configuration_hash: Some(1), ..search() };
    let status = house.client().await.search(stale).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    let details = status.get_error_details();
    assert_eq!(details.error_info().unwrap().metadata["current_hash"], HASH.to_string());
    let nowhere = plain::MatchmakingSearchRequest { matchmaking_set_id: Some(1), ..search() };
    assert_eq!(house.client().await.search(nowhere).await.unwrap_err().code(), Code::NotFound);
}

/// The caller's address is what the proxies noted, where the configuration believes them; nothing else is taken.
#[tokio::test]
async fn the_caller_comes_from_the_connection_and_the_proxies() {
    let house = Stage::open().await;
    let mut client = house.client().await;
    client.search(search()).await.unwrap();
    let mut request = tonic::Request::new(search());
    request.metadata_mut().append("x-forwarded-for", "198.51.100.7, 203.0.113.9".parse().unwrap());
    client.search(request).await.unwrap();
    let callers = house.matchmaker.callers.lock().unwrap();
    let addresses: Vec<String> = callers.iter().map(|caller| caller.ip_address.unwrap().to_string()).collect();
    assert_eq!(addresses, ["127.0.0.1", "203.0.113.9"]);
    assert!(callers.iter().all(|caller| caller.subject.is_none()));
}

/// A decoded request keeps what was absent absent, all the way to the engine.
#[tokio::test]
async fn absence_reaches_the_engine() {
    let house = Stage::open().await;
    let mut client = house.client().await;
    client.search(search()).await.unwrap();
    let mut said = search();
    let composition = said.session_composition.as_mut().unwrap();
    (composition.nat_type, composition.game_in_progress) = (Some(0), Some(false));
    assert_ne!(said.encode_to_vec(), search().encode_to_vec());
    client.search(said).await.unwrap();
    let asked = house.matchmaker.asked.lock().unwrap();
    assert!(asked[0].contains("nat_type: None, game_in_progress: None"), "{asked:?}");
    assert!(asked[1].contains("nat_type: Some(0), game_in_progress: Some(false)"), "{asked:?}");
}
