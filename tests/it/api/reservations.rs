//! Seats are taken here and nowhere else: all or none, once, never over capacity, whoever races.

use std::collections::BTreeSet;

use fireteam_client::{Code, pb};

use crate::support::test_server::{TestServer, advertise_request, party_session};

/// A house with one session that has `seats` open seats, and a searcher for each name that has found it.
async fn start_server_with_advertisement(seats: i32) -> (TestServer, fireteam_client::Advertisement) {
    let house = TestServer::start().await;
    let client = house.client().await;
    let advertised = client.advertise(advertise_request(&[("host", 0.0)], seats)).await.expect("advertise");
    (house, advertised)
}

/// S1-40, R1: 64 parties fight for 10 seats over 64 connections; exactly 10 get one, and the table says the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reserve_by_64_concurrent_parties_never_exceeds_the_seats() {
    let (house, mut advertised) = start_server_with_advertisement(10).await;
    let mut takers = tokio::task::JoinSet::new();
    for taker in 0..64 {
        let client = house.client().await;
        let id = advertised.id().to_owned();
        takers.spawn(async move {
            let mut searching = client.search_session(1, party_session(&[(&format!("taker {taker}"), 0.0)]));
            searching.search().await.expect("search");
            searching.reserve(&id).await
        });
    }
    let mut taken = 0;
    let mut refused = 0;
    while let Some(answer) = takers.join_next().await {
        match answer.expect("no taker panics") {
            Ok(_) => taken += 1,
            Err(error) => {
                assert_eq!(error.code(), Some(Code::FailedPrecondition), "{error}");
                refused += 1;
            }
        }
    }
    assert_eq!((taken, refused), (10, 54));
    let answer = advertised.heartbeat().await.expect("heartbeat");
    let ids: BTreeSet<&str> = answer.reservations.iter().map(|held| held.reservation_id.as_str()).collect();
    assert_eq!(ids.len(), 10);
    let mut late = house.client().await.search_session(1, party_session(&[("late", 0.0)]));
    let found = late.search().await.expect("search");
    assert!(found.candidates.is_empty(), "a full session is shown to nobody");
    let full = found.refusals.iter().find(|it| it.kind() == pb::RefusalKind::Full).expect("the refusal is counted");
    assert_eq!(full.count, 1);
}

/// R5: the same key is the same reservation; the same key for another party is refused.
#[tokio::test]
async fn reserve_retried_with_the_same_key_takes_no_second_seat() {
    let (house, advertised) = start_server_with_advertisement(2).await;
    let client = house.client().await;
    let mut searching = client.search_session(1, party_session(&[("guest", 0.0)]));
    let found = searching.search().await.expect("search");
    let request = pb::MatchmakingReserveRequest {
        advertisement_id: advertised.id().into(),
        idempotency_key: "sixteen characters or more".into(),
        search_token: found.search_token,
        session_composition: Some(party_session(&[("guest", 0.0)])),
        ..Default::default()
    };
    let first = client.reserve(request.clone()).await.expect("reserve").reservation.expect("a reservation");
    let again = client.reserve(request.clone()).await.expect("reserve again").reservation.expect("a reservation");
    assert_eq!(first.reservation_id, again.reservation_id);

    let mut other = client.search_session(1, party_session(&[("stranger", 0.0)]));
    let token = other.search().await.expect("search").search_token;
    let stolen = pb::MatchmakingReserveRequest {
        search_token: token,
        session_composition: Some(party_session(&[("stranger", 0.0)])),
        ..request
    };
    let error = client.reserve(stolen).await.expect_err("another payload under the same key");
    assert_eq!(error.code(), Some(Code::AlreadyExists), "{error}");
}

/// Released seats are open again at once; releasing twice succeeds; a stranger's token releases nothing.
#[tokio::test]
async fn release_reopens_the_seats() {
    let (house, advertised) = start_server_with_advertisement(1).await;
    let client = house.client().await;
    let mut first = client.search_session(1, party_session(&[("first", 0.0)]));
    let found = first.search().await.expect("search");
    let reserve = pb::MatchmakingReserveRequest {
        advertisement_id: advertised.id().into(),
        idempotency_key: "sixteen characters or more".into(),
        search_token: found.search_token,
        session_composition: Some(party_session(&[("first", 0.0)])),
        ..Default::default()
    };
    let held = client.reserve(reserve).await.expect("reserve").reservation.expect("a reservation");
    let release = pb::MatchmakingReleaseRequest {
        reservation_id: held.reservation_id,
        reservation_token: held.reservation_token,
    };
    let forged = pb::MatchmakingReleaseRequest { reservation_token: vec![7; 40], ..release.clone() };
    let error = client.release(forged).await.expect_err("a forged token");
    assert_eq!(error.code(), Some(Code::PermissionDenied), "{error}");
    client.release(release.clone()).await.expect("release");
    client.release(release).await.expect("release again");

    let mut second = client.search_session(1, party_session(&[("second", 0.0)]));
    assert_eq!(second.search().await.expect("search").candidates.len(), 1);
    second.reserve(advertised.id()).await.expect("the seat is open again");
}

/// A hold lapses at its deadline, not before; a confirmed one does not lapse; the host hears of each on its connection.
#[tokio::test]
async fn unconfirmed_reservation_expires_and_confirmed_one_stays() {
    let house = TestServer::start().await;
    let client = house.client().await;
    let (connection, mut events) = client.open_stream().await.expect("open a connection");
    let mut advertised = connection.advertise(advertise_request(&[("host", 0.0)], 2)).await.expect("advertise");
    let mut ids = Vec::new();
    for name in ["stays", "goes"] {
        let mut searching = client.search_session(1, party_session(&[(name, 0.0)]));
        searching.search().await.expect("search");
        ids.push(searching.reserve(advertised.id()).await.expect("reserve").id);
        let heard = events.next().await.expect("an event");
        assert_eq!(heard.state(), pb::ReservationState::Held);
    }
    advertised.confirm(vec![ids[0].clone()]).await.expect("confirm");
    assert_eq!(events.next().await.expect("an event").state(), pb::ReservationState::Confirmed);

    house.clock.advance_ms(29_999);
    house.sweep_expired().await;
    assert_eq!(advertised.heartbeat().await.expect("heartbeat").reservations.len(), 2, "not before its time");
    house.clock.advance_ms(1);
    house.sweep_expired().await;
    let lapsed = events.next().await.expect("an event");
    assert_eq!(lapsed.state(), pb::ReservationState::Expired);
    assert_eq!(lapsed.reservation.expect("a reservation").reservation_id, ids[1]);
    let left = advertised.heartbeat().await.expect("heartbeat").reservations;
    assert_eq!(left.iter().map(|it| it.reservation_id.clone()).collect::<Vec<_>>(), vec![ids[0].clone()]);
}

/// Settling a reservation ends it in the same step as the lowered seat count: no seat is counted twice or lost.
#[tokio::test]
async fn joined_reservation_ends_when_its_players_are_added() {
    let (house, mut advertised) = start_server_with_advertisement(3).await;
    let client = house.client().await;
    let mut searching = client.search_session(1, party_session(&[("guest", 0.0)]));
    searching.search().await.expect("search");
    let reserved = searching.reserve(advertised.id()).await.expect("reserve");
    let mut whole = advertise_request(&[("host", 0.0), ("guest", 0.0)], 2);
    whole.joined_reservation_ids = vec![reserved.id.clone()];
    let answer = advertised.update(whole).await.expect("update");
    assert!(answer.reservations.is_empty());
    let mut looking = client.search_session(1, party_session(&[("third", 0.0)]));
    assert_eq!(looking.search().await.expect("search").candidates[0].open_seats, 2);
}

/// The rules are judged again at the moment of taking: who no longer fits is refused by name.
#[tokio::test]
async fn reserve_checks_the_hard_filters_again() {
    let (house, mut advertised) = start_server_with_advertisement(4).await;
    let client = house.client().await;
    let mut searching = client.search_session(1, party_session(&[("guest", 0.0)]));
    assert_eq!(searching.search().await.expect("search").candidates.len(), 1);
    advertised.update(advertise_request(&[("host", 900.0)], 4)).await.expect("update");
    let error = searching.reserve(advertised.id()).await.expect_err("skill is now too far");
    assert_eq!(error.code(), Some(Code::FailedPrecondition), "{error}");
    assert!(error.to_string().contains("skill"), "names the rule: {error}");
}

/// Two players of one user are never put together, whether among the players or among those with seats.
#[tokio::test]
async fn reserve_rejects_a_user_already_in_the_session() {
    let (house, advertised) = start_server_with_advertisement(4).await;
    let client = house.client().await;
    let mut own = client.search_session(1, party_session(&[("host", 0.0)]));
    assert!(own.search().await.expect("search").candidates.is_empty(), "S1-50: never one's own");
    let mut searching = client.search_session(1, party_session(&[("guest", 0.0)]));
    searching.search().await.expect("search");
    searching.reserve(advertised.id()).await.expect("reserve");
    let again = searching.reserve(advertised.id()).await.expect_err("the same user under a new key");
    assert_eq!(again.code(), Some(Code::FailedPrecondition), "{again}");
}
