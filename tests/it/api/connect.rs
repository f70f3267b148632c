//! The Connect stream of a complete server: concurrent requests, order of updates, reservation events, reconnect.

use fireteam_client::{Code, Error, MatchmakingStream, PendingResponse, pb};

use crate::store::replicas::until;
use crate::support::test_server::{TestServer, advertise_request, party_session};

fn update_envelope(update: pb::MatchmakingUpdateAdvertisementRequest) -> pb::MatchmakingCoreRequest {
    pb::MatchmakingCoreRequest {
        request_type: Some(pb::MatchmakingCoreRequestType::UpdateAdvertisement.into()),
        update_advertisement_request: Some(update),
        ..Default::default()
    }
}

fn search_envelope(name: &str) -> pb::MatchmakingCoreRequest {
    let request = pb::MatchmakingSearchRequest {
        session_composition: Some(party_session(&[(name, 0.0)])),
        matchmaking_set_id: Some(1),
        ..Default::default()
    };
    pb::MatchmakingCoreRequest {
        request_type: Some(pb::MatchmakingCoreRequestType::Search.into()),
        search_request: Some(request),
        ..Default::default()
    }
}

async fn send(connection: &MatchmakingStream, core: pb::MatchmakingCoreRequest) -> PendingResponse {
    connection.send(core).await.expect("send")
}

/// S1-16: sixty requests of three kinds are sent before the first answer is read; each answer has its request's nonce.
#[tokio::test]
async fn connect_answers_sixty_concurrent_requests() {
    let server = TestServer::start().await;
    let (connection, _events) = server.client().await.open_stream().await.expect("open");
    let mut answers = Vec::new();
    for round in 0..20 {
        let mut update = advertise_request(&[(&format!("host {round}"), 0.0)], 3);
        update.idempotency_key = format!("one key per round {round}");
        update.connect_data = format!("host {round}").into();
        answers.push((round, send(&connection, update_envelope(update)).await));
        answers.push((round, send(&connection, search_envelope("guest")).await));
        let configuration = pb::MatchmakingGetConfigurationRequest {
            matchmaking_set_id: Some(1 + round % 3),
            service_configuration_hash: None,
        };
        let core = pb::MatchmakingCoreRequest {
            request_type: Some(pb::MatchmakingCoreRequestType::GetConfiguration.into()),
            get_configuration_request: Some(configuration),
            ..Default::default()
        };
        answers.push((round, send(&connection, core).await));
    }
    let mut nonces = std::collections::BTreeSet::new();
    for (at, (round, answer)) in answers.into_iter().enumerate() {
        let core = answer.wait().await.expect("an answer");
        assert!(nonces.insert(core.request_nonce), "each nonce is used once");
        match at % 3 {
            0 => assert!(core.update_advertisement_response.expect("an update response").created),
            1 => assert!(core.search_response.is_some()),
            _ => assert_eq!(
                core.get_configuration_response.expect("a configuration response").matchmaking_set_id,
                1 + round % 3
            ),
        }
    }
    let found = connection.search(search_envelope("guest").search_request.expect("a search")).await.expect("search");
    assert_eq!(found.candidates.len(), 20, "acknowledged advertisements are searchable");
}

/// Updates of one advertisement are applied in the order sent, without waiting for earlier answers. A heartbeat does
/// not overtake an update. A refused request in between changes nothing and ends nothing.
#[tokio::test]
async fn connect_applies_updates_of_one_advertisement_in_order() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let (connection, _events) = client.open_stream().await.expect("open");
    let advertised = connection.advertise(advertise_request(&[("host", 0.0)], 3)).await.expect("advertise");
    let update_of_host = |update: pb::MatchmakingUpdateAdvertisementRequest| {
        update_envelope(pb::MatchmakingUpdateAdvertisementRequest {
            advertisement_id: advertised.id().into(),
            advertisement_token: advertised.token().to_vec(),
            matchmaking_set_id: Some(1),
            ..update
        })
    };
    let update_with = |seats: i32| pb::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(10_000),
        ..advertise_request(&[("host", 0.0)], seats)
    };
    let heartbeat = pb::MatchmakingUpdateAdvertisementRequest { time_to_live_ms: Some(20_000), ..Default::default() };
    for round in 0..25 {
        server.clock.advance_ms(1);
        let first = send(&connection, update_of_host(update_with(100 + round))).await;
        let wrong = send(
            &connection,
            update_of_host(pb::MatchmakingUpdateAdvertisementRequest {
                connect_data: b"not in a heartbeat".to_vec(),
                ..Default::default()
            }),
        )
        .await;
        let second = send(&connection, update_of_host(update_with(200 + round))).await;
        let heartbeat_response = send(&connection, update_of_host(heartbeat.clone())).await;
        let of = |core: pb::MatchmakingCoreResponse| {
            core.update_advertisement_response.expect("an update response").expires_in_ms
        };
        assert_eq!(of(first.wait().await.expect("first")), 10_000);
        let refusal = wrong.wait().await.expect_err("rejected");
        assert_eq!(
            (refusal.code(), &*refusal.fields()[0].field),
            (Some(Code::InvalidArgument), "update_advertisement_request.connect_data")
        );
        assert_eq!(of(second.wait().await.expect("second")), 10_000);
        assert_eq!(
            of(heartbeat_response.wait().await.expect("heartbeat")),
            20_000,
            "after the second update, which has a shorter TTL"
        );
        let found = client.new_search(1, party_session(&[("guest", 0.0)])).search().await.expect("search");
        assert_eq!(found.candidates[0].open_seats, 200 + round as u32, "of the second update");
    }
    let delete = pb::MatchmakingCoreRequest {
        request_type: Some(pb::MatchmakingCoreRequestType::DeleteAdvertisement.into()),
        delete_advertisement_request: Some(pb::MatchmakingDeleteAdvertisementRequest {
            advertisement_id: advertised.id().into(),
            advertisement_token: advertised.token().to_vec(),
        }),
        ..Default::default()
    };
    let deleted = send(&connection, delete).await;
    let late = send(&connection, update_of_host(update_with(300))).await;
    let heartbeat_response = send(&connection, update_of_host(heartbeat)).await;
    deleted.wait().await.expect("delete");
    for (response, code, reason) in [
        (late, Code::FailedPrecondition, "ADVERTISEMENT_DELETED"),
        (heartbeat_response, Code::NotFound, "ADVERTISEMENT_NOT_FOUND"),
    ] {
        let error = response.wait().await.expect_err("deleted");
        assert_eq!(error.code(), Some(code), "{error}");
        assert_eq!(error.as_server_error().and_then(|error| error.reason.as_deref()), Some(reason), "{error}");
    }
}

/// A host that was disconnected while seats were reserved receives all reservations with its next update. Later events
/// arrive on its new connection only.
#[tokio::test]
async fn reconnect_returns_all_reservations() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let (connection, mut events) = client.open_stream().await.expect("open");
    let advertised = connection.advertise(advertise_request(&[("host", 0.0)], 4)).await.expect("advertise");
    let reserve_as = async |name: &str| {
        let mut searching = client.new_search(1, party_session(&[(name, 0.0)]));
        searching.search().await.expect("search");
        searching.reserve(advertised.id()).await.expect("reserve")
    };
    let first = reserve_as("first").await;
    let event = events.next_reservation_event().await.expect("an event");
    assert_eq!((&*event.advertisement_id, event.state()), (advertised.id(), pb::ReservationState::Held));
    let reservation = event.reservation.expect("a reservation");
    assert_eq!((&*reservation.reservation_id, reservation.seats), (&*first.id, 1));
    assert!(reservation.reservation_token.is_empty(), "only its owner may release it");
    assert_eq!(reservation.expires_in_ms, 30_000);

    let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: advertised.id().into(),
        advertisement_token: advertised.token().to_vec(),
        ..Default::default()
    };
    drop((connection, events));
    let second = reserve_as("second").await;
    let (connection, mut events) = client.open_stream().await.expect("open again");
    let answer = connection.update_advertisement(heartbeat.clone()).await.expect("heartbeat");
    let mut known: Vec<&str> = answer.reservations.iter().map(|reservation| &*reservation.reservation_id).collect();
    known.sort_unstable();
    let mut expected = [&*first.id, &*second.id];
    expected.sort_unstable();
    assert_eq!(known, expected);
    first.release().await.expect("release");
    let event = events.next_reservation_event().await.expect("an event");
    assert_eq!(event.state(), pb::ReservationState::Released);
    connection.update_advertisement(heartbeat).await.expect("heartbeat");
    reserve_as("third").await;
    assert_eq!(
        events.next_reservation_event().await.expect("an event").state(),
        pb::ReservationState::Held,
        "one event after two updates"
    );
}

/// A reservation whose hold has expired is never shown as one without a deadline, swept or not. The same user may
/// reserve again at once.
#[tokio::test]
async fn expired_reservation_is_gone_before_the_sweep() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let mut advertised = client.advertise(advertise_request(&[("host", 0.0)], 2)).await.expect("advertise");
    let mut searching = client.new_search(1, party_session(&[("guest", 0.0)]));
    let request = pb::MatchmakingReserveRequest {
        advertisement_id: advertised.id().into(),
        search_token: searching.search().await.expect("search").search_token,
        session_composition: Some(party_session(&[("guest", 0.0)])),
        idempotency_key: "sixteen characters or more".into(),
        hold_for_ms: Some(1_000),
        ..Default::default()
    };
    assert_eq!(
        client.reserve(request.clone()).await.expect("reserve").reservation.expect("seats").expires_in_ms,
        1_000
    );
    server.clock.advance_ms(1_000);
    assert!(advertised.heartbeat().await.expect("heartbeat").reservations.is_empty());
    let error = client.reserve(request.clone()).await.expect_err("expired hold");
    assert_eq!(
        error.as_server_error().and_then(|status| status.reason.as_deref()),
        Some("RESERVATION_ENDED"),
        "{error}"
    );
    let new_request = pb::MatchmakingReserveRequest { idempotency_key: "another sixteen characters".into(), ..request };
    client.reserve(new_request).await.expect("the same user, a new key");
}

/// A skill missing in `players` is taken from the search. It does not pass a limit as unknown.
#[tokio::test]
async fn reserve_uses_the_skill_of_the_search() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let mut advertised = client.advertise(advertise_request(&[("host", 0.0)], 2)).await.expect("advertise");
    let guest = party_session(&[("guest", 100.0)]);
    let mut searching = client.new_search(1, guest.clone());
    let request = pb::MatchmakingReserveRequest {
        advertisement_id: advertised.id().into(),
        search_token: searching.search().await.expect("search").search_token,
        players: vec![pb::PlayerData { user_id: "guest".into(), ..Default::default() }],
        session_composition: Some(guest),
        ..Default::default()
    };
    advertised.replace_published(advertise_request(&[("host", 300.0)], 2)).await.expect("update");
    let error = client.reserve(request.clone()).await.expect_err("200 points apart");
    assert_eq!(error.as_server_error().expect("a status").reason_metadata["rule"], "skill", "{error}");
    let other = pb::MatchmakingReserveRequest {
        players: vec![pb::PlayerData { user_id: "friend".into(), ..Default::default() }],
        ..request.clone()
    };
    let error = client.reserve(other).await.expect_err("another party searched");
    assert_eq!(error.fields()[0].field, "search_token", "{error}");
    advertised.replace_published(advertise_request(&[("host", 0.0)], 2)).await.expect("update");
    let without_session = pb::MatchmakingReserveRequest { session_composition: None, ..request };
    assert_eq!(
        client.reserve(without_session).await.expect("players without a session").reservation.expect("seats").seats,
        1
    );
}

/// An expired advertisement, swept or not, is restored by its next full update and keeps its waiting time.
#[tokio::test]
async fn update_of_an_expired_advertisement_keeps_its_waiting_time() {
    let server = TestServer::start().await;
    let client = server.client().await;
    for is_swept in [false, true] {
        let request = pb::MatchmakingUpdateAdvertisementRequest {
            time_to_live_ms: Some(12_000),
            ..advertise_request(&[("host", 0.0)], 2)
        };
        let mut advertised = client.advertise(request.clone()).await.expect("advertise");
        server.clock.advance_ms(12_000);
        if is_swept {
            server.sweep_expired_adverts_and_wait().await;
        }
        let mut searching = client.new_search(1, party_session(&[("guest", 0.0)]));
        assert!(searching.search().await.expect("search").candidates.is_empty());
        let answer = advertised.replace_published(request).await.expect("update");
        assert_eq!((answer.advertisement_id.as_str(), answer.expires_in_ms), (advertised.id(), 12_000));
        // Skill is in its second step, which started after 10 s. The next latency step starts in 3 s.
        assert_eq!(answer.next_expansion_in_ms, Some(3_000), "swept: {is_swept}");
        assert_eq!(searching.search().await.expect("search").candidates.len(), 1);
        advertised.delete().await.expect("delete");
    }
}

/// The server does not wait for a slow reader: its connection ends, by the server's or by the client's event limit. The
/// next connection receives the full state.
#[tokio::test]
async fn slow_reader_loses_its_connection_but_no_reservation() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let (connection, mut events) = client.open_stream().await.expect("open");
    let advertised = connection.advertise(advertise_request(&[("host", 0.0)], 1)).await.expect("advertise");
    let mut searching = client.new_search(1, party_session(&[("guest", 0.0)]));
    searching.search().await.expect("search");
    // Two events per round: more than the client buffers (256) and more than the server buffers (64).
    for _ in 0..200 {
        searching.reserve(advertised.id()).await.expect("reserve").release().await.expect("release");
    }
    let last = searching.reserve(advertised.id()).await.expect("reserve");
    let end_error = loop {
        match events.next_reservation_event().await {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    let is_overflow =
        matches!(end_error, Error::EventBufferOverflow) || end_error.code() == Some(Code::ResourceExhausted);
    assert!(is_overflow, "{end_error}");
    let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: advertised.id().into(),
        advertisement_token: advertised.token().to_vec(),
        ..Default::default()
    };
    let (connection, _events) = client.open_stream().await.expect("open again");
    let answer = connection.update_advertisement(heartbeat).await.expect("heartbeat");
    assert_eq!(
        answer.reservations.iter().map(|reservation| &*reservation.reservation_id).collect::<Vec<_>>(),
        [&*last.id]
    );
}

/// Gauges count open connections and streams, and no longer count closed ones.
#[tokio::test]
async fn connection_and_stream_gauges_count_open_ones() {
    let server = TestServer::start().await;
    let has_gauge = |name: &str, count: u32| {
        let line = format!("{name} {count}");
        server.app.metrics.render().lines().any(|metric| metric == line)
    };
    assert!(has_gauge("fireteam_connections", 0) && has_gauge("fireteam_streams", 0));
    let client = server.client().await;
    let (connection, events) = client.open_stream().await.expect("open");
    send(&connection, search_envelope("guest")).await.wait().await.expect("an answer");
    assert!(has_gauge("fireteam_connections", 1) && has_gauge("fireteam_streams", 1));
    drop((connection, events, client));
    until("all connections are closed", async || {
        has_gauge("fireteam_connections", 0) && has_gauge("fireteam_streams", 0)
    })
    .await;
}
