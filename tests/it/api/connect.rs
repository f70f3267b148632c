//! The long-lived connection of a whole server: many in flight, order where order matters, news, and how one comes
//! back.

use fireteam_client::{Code, Connection, Error, PendingResponse, pb};

use crate::support::test_server::{TestServer, advertise_request, party_session};
use crate::store::replicas::until;

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

async fn send(connection: &Connection, core: pb::MatchmakingCoreRequest) -> PendingResponse {
    connection.send(core).await.expect("send")
}

/// S1-16: sixty requests of three kinds are on their way at once; each answer finds its question.
#[tokio::test]
async fn connect_answers_sixty_concurrent_requests() {
    let house = TestServer::start().await;
    let (connection, _events) = house.client().await.open_stream().await.expect("open");
    let mut answers = Vec::new();
    for round in 0..20 {
        let mut update = advertise_request(&[(&format!("host {round}"), 0.0)], 3);
        update.idempotency_key = format!("a key of its own {round}");
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
        assert!(nonces.insert(core.request_nonce), "each nonce once");
        match at % 3 {
            0 => assert!(core.update_advertisement_response.expect("of an update").created),
            1 => assert!(core.search_response.is_some()),
            _ => assert_eq!(core.get_configuration_response.expect("of a get").matchmaking_set_id, 1 + round % 3),
        }
    }
    let found = connection.search(search_envelope("guest").search_request.expect("a search")).await.expect("search");
    assert_eq!(found.candidates.len(), 20, "acknowledged is searchable");
}

/// Updates about one advertisement take effect in the order sent, none waiting for the answer of the one before; a
/// heartbeat right behind an update overtakes nothing, and a refused one in between changes nothing and ends nothing.
#[tokio::test]
async fn connect_applies_updates_of_one_advertisement_in_order() {
    let house = TestServer::start().await;
    let client = house.client().await;
    let (connection, _events) = client.open_stream().await.expect("open");
    let advertised = connection.advertise(advertise_request(&[("host", 0.0)], 3)).await.expect("advertise");
    let about = |update: pb::MatchmakingUpdateAdvertisementRequest| {
        update_envelope(pb::MatchmakingUpdateAdvertisementRequest {
            advertisement_id: advertised.id().into(),
            advertisement_token: advertised.token().to_vec(),
            matchmaking_set_id: Some(1),
            ..update
        })
    };
    let said = |data: String| pb::MatchmakingUpdateAdvertisementRequest {
        connect_data: data.into(),
        time_to_live_ms: Some(10_000),
        ..advertise_request(&[("host", 0.0)], 3)
    };
    let heartbeat = pb::MatchmakingUpdateAdvertisementRequest { time_to_live_ms: Some(20_000), ..Default::default() };
    for round in 0..25 {
        house.clock.advance_ms(1);
        let first = send(&connection, about(said(format!("first {round}")))).await;
        let wrong = send(
            &connection,
            about(pb::MatchmakingUpdateAdvertisementRequest {
                connect_data: b"not in a heartbeat".to_vec(),
                ..Default::default()
            }),
        )
        .await;
        let second = send(&connection, about(said(format!("second {round}")))).await;
        let beat = send(&connection, about(heartbeat.clone())).await;
        let of =
            |core: pb::MatchmakingCoreResponse| core.update_advertisement_response.expect("of an update").expires_in_ms;
        assert_eq!(of(first.wait().await.expect("first")), 10_000);
        let refusal = wrong.wait().await.expect_err("refused");
        assert_eq!(
            (refusal.code(), &*refusal.fields()[0].field),
            (Some(Code::InvalidArgument), "update_advertisement_request.connect_data")
        );
        assert_eq!(of(second.wait().await.expect("second")), 10_000);
        assert_eq!(of(beat.wait().await.expect("heartbeat")), 20_000, "after the second update, which said less");
        let found = client.search_session(1, party_session(&[("guest", 0.0)])).search().await.expect("search");
        assert_eq!(found.candidates[0].connect_data, format!("second {round}").into_bytes());
    }
    let delete = pb::MatchmakingCoreRequest {
        request_type: Some(pb::MatchmakingCoreRequestType::DeleteAdvertisement.into()),
        delete_advertisement_request: Some(pb::MatchmakingDeleteAdvertisementRequest {
            advertisement_id: advertised.id().into(),
            advertisement_token: advertised.token().to_vec(),
        }),
        ..Default::default()
    };
    let gone = send(&connection, delete).await;
    let late = send(&connection, about(said("late".into()))).await;
    let beat = send(&connection, about(heartbeat)).await;
    gone.wait().await.expect("delete");
    assert_eq!(late.wait().await.expect_err("deleted").code(), Some(Code::FailedPrecondition));
    assert_eq!(beat.wait().await.expect_err("deleted").code(), Some(Code::NotFound));
}

/// A host that is away while seats are taken hears of all of them with its next update, and of those that come after it
/// on its new connection; the old connection hears no more.
#[tokio::test]
async fn reconnect_returns_all_reservations() {
    let house = TestServer::start().await;
    let client = house.client().await;
    let (connection, mut events) = client.open_stream().await.expect("open");
    let advertised = connection.advertise(advertise_request(&[("host", 0.0)], 4)).await.expect("advertise");
    let take = async |name: &str| {
        let mut searching = client.search_session(1, party_session(&[(name, 0.0)]));
        searching.search().await.expect("search");
        searching.reserve(advertised.id()).await.expect("reserve")
    };
    let first = take("first").await;
    let heard = events.next().await.expect("news");
    assert_eq!((&*heard.advertisement_id, heard.state()), (advertised.id(), pb::ReservationState::Held));
    let reservation = heard.reservation.expect("a reservation");
    assert_eq!((&*reservation.reservation_id, reservation.seats), (&*first.id, 1));
    assert!(reservation.reservation_token.is_empty(), "only the taker may release it");
    assert_eq!(reservation.expires_in_ms, 30_000);

    let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: advertised.id().into(),
        advertisement_token: advertised.token().to_vec(),
        ..Default::default()
    };
    drop((connection, events));
    let second = take("second").await;
    let (connection, mut events) = client.open_stream().await.expect("open again");
    let answer = connection.update_advertisement(heartbeat.clone()).await.expect("heartbeat");
    let mut known: Vec<&str> = answer.reservations.iter().map(|it| &*it.reservation_id).collect();
    known.sort_unstable();
    let mut wanted = [&*first.id, &*second.id];
    wanted.sort_unstable();
    assert_eq!(known, wanted);
    first.release().await.expect("release");
    let heard = events.next().await.expect("news");
    assert_eq!(heard.state(), pb::ReservationState::Released);
    connection.update_advertisement(heartbeat).await.expect("heartbeat");
    take("third").await;
    assert_eq!(events.next().await.expect("news").state(), pb::ReservationState::Held, "once, though updated twice");
}

/// A hold whose deadline has passed is never shown as one without a deadline, swept or not: not to the host, not to the
/// taker who asks again; and the user may take a seat anew at once.
#[tokio::test]
async fn expired_reservation_is_gone_before_the_sweep() {
    let house = TestServer::start().await;
    let client = house.client().await;
    let mut advertised = client.advertise(advertise_request(&[("host", 0.0)], 2)).await.expect("advertise");
    let mut searching = client.search_session(1, party_session(&[("guest", 0.0)]));
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
    house.clock.advance_ms(1_000);
    assert!(advertised.heartbeat().await.expect("heartbeat").reservations.is_empty());
    let error = client.reserve(request.clone()).await.expect_err("lapsed");
    assert_eq!(error.server_error().and_then(|it| it.reason.as_deref()), Some("RESERVATION_ENDED"), "{error}");
    let anew = pb::MatchmakingReserveRequest { idempotency_key: "another sixteen characters".into(), ..request };
    client.reserve(anew).await.expect("the same user, a new key");
}

/// A skill left out of `players` is the one that the party searched with: it does not slip past a limit as unknown.
#[tokio::test]
async fn reserve_uses_the_skill_of_the_search() {
    let house = TestServer::start().await;
    let client = house.client().await;
    let mut advertised = client.advertise(advertise_request(&[("host", 0.0)], 2)).await.expect("advertise");
    let guest = party_session(&[("guest", 100.0)]);
    let mut searching = client.search_session(1, guest.clone());
    let request = pb::MatchmakingReserveRequest {
        advertisement_id: advertised.id().into(),
        search_token: searching.search().await.expect("search").search_token,
        players: vec![pb::PlayerData { user_id: "guest".into(), ..Default::default() }],
        session_composition: Some(guest),
        ..Default::default()
    };
    advertised.update(advertise_request(&[("host", 300.0)], 2)).await.expect("update");
    let error = client.reserve(request.clone()).await.expect_err("200 points apart");
    assert_eq!(error.server_error().expect("a status").metadata["rule"], "skill", "{error}");
    let other = pb::MatchmakingReserveRequest {
        players: vec![pb::PlayerData { user_id: "friend".into(), ..Default::default() }],
        ..request.clone()
    };
    let error = client.reserve(other).await.expect_err("not the party that searched");
    assert_eq!(error.fields()[0].field, "search_token", "{error}");
    advertised.update(advertise_request(&[("host", 0.0)], 2)).await.expect("update");
    let alone = pb::MatchmakingReserveRequest { session_composition: None, ..request };
    assert_eq!(client.reserve(alone).await.expect("players alone").reservation.expect("seats").seats, 1);
}

/// An advertisement whose time is over, swept or not, is alive again by its next whole update, with the waiting it had.
#[tokio::test]
async fn update_of_an_expired_advertisement_keeps_its_waiting_time() {
    let house = TestServer::start().await;
    let client = house.client().await;
    for sweeps in [false, true] {
        let request =
            pb::MatchmakingUpdateAdvertisementRequest { time_to_live_ms: Some(12_000), ..advertise_request(&[("host", 0.0)], 2) };
        let mut advertised = client.advertise(request.clone()).await.expect("advertise");
        house.clock.advance_ms(12_000);
        if sweeps {
            house.sweep_expired().await;
        }
        let mut searching = client.search_session(1, party_session(&[("guest", 0.0)]));
        assert!(searching.search().await.expect("search").candidates.is_empty());
        let answer = advertised.update(request).await.expect("update");
        assert_eq!((answer.advertisement_id.as_str(), answer.expires_in_ms), (advertised.id(), 12_000));
        // Skill is in its second step, which began after 10 s; latency's first growth is 3 s away.
        assert_eq!(answer.next_expansion_in_ms, Some(3_000), "swept: {sweeps}");
        assert_eq!(searching.search().await.expect("search").candidates.len(), 1);
        advertised.delete().await.expect("delete");
    }
}

/// Whoever does not read is not waited for: the connection ends, by the server's word or by the client's own limit, and
/// the next one is told everything.
#[tokio::test]
async fn slow_reader_loses_its_connection_but_no_reservation() {
    let house = TestServer::start().await;
    let client = house.client().await;
    let (connection, mut events) = client.open_stream().await.expect("open");
    let advertised = connection.advertise(advertise_request(&[("host", 0.0)], 1)).await.expect("advertise");
    let mut searching = client.search_session(1, party_session(&[("guest", 0.0)]));
    searching.search().await.expect("search");
    // Two events a round: more than the client keeps (256) and more than the server does (64).
    for _ in 0..200 {
        searching.reserve(advertised.id()).await.expect("reserve").release().await.expect("release");
    }
    let last = searching.reserve(advertised.id()).await.expect("reserve");
    let why = loop {
        match events.next().await {
            Ok(_) => {}
            Err(why) => break why,
        }
    };
    let told = matches!(why, Error::EventBufferOverflow) || why.code() == Some(Code::ResourceExhausted);
    assert!(told, "{why}");
    let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: advertised.id().into(),
        advertisement_token: advertised.token().to_vec(),
        ..Default::default()
    };
    let (connection, _events) = client.open_stream().await.expect("open again");
    let answer = connection.update_advertisement(heartbeat).await.expect("heartbeat");
    assert_eq!(answer.reservations.iter().map(|it| &*it.reservation_id).collect::<Vec<_>>(), [&*last.id]);
}

/// What is open is counted, and what has ended no longer.
#[tokio::test]
async fn connection_and_stream_gauges_count_open_ones() {
    let house = TestServer::start().await;
    let shows = |name: &str, count: u32| {
        let line = format!("{name} {count}");
        house.app.metrics.render().lines().any(|it| it == line)
    };
    assert!(shows("fireteam_connections", 0) && shows("fireteam_streams", 0));
    let client = house.client().await;
    let (connection, events) = client.open_stream().await.expect("open");
    send(&connection, search_envelope("guest")).await.wait().await.expect("an answer");
    assert!(shows("fireteam_connections", 1) && shows("fireteam_streams", 1));
    drop((connection, events, client));
    until("nothing is open", async || shows("fireteam_connections", 0) && shows("fireteam_streams", 0)).await;
}
