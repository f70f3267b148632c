//! Reservations: all seats of a party or none, idempotent, never beyond capacity under concurrency.

use std::collections::BTreeSet;

use fireteam_client::{Code, pb};

use crate::support::test_server::{TestServer, advertise_request, party_session};

/// Starts a server with one advertisement of `seats` open seats.
async fn start_server_with_advertisement(seats: i32) -> (TestServer, fireteam_client::Advertisement) {
    let server = TestServer::start().await;
    let client = server.client().await;
    let advertised = client.advertise(advertise_request(&[("host", 0.0)], seats)).await.expect("advertise");
    (server, advertised)
}

/// S1-40, R1: 64 parties reserve 10 seats over 64 connections; exactly 10 succeed, and the advertisement lists the same
/// 10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reserve_by_64_concurrent_parties_never_exceeds_the_seats() {
    let (server, mut advertised) = start_server_with_advertisement(10).await;
    let mut takers = tokio::task::JoinSet::new();
    for taker in 0..64 {
        let client = server.client().await;
        let id = advertised.id().to_owned();
        takers.spawn(async move {
            let mut searching = client.new_search(1, party_session(&[(&format!("taker {taker}"), 0.0)]));
            searching.search().await.expect("search");
            searching.reserve(&id).await
        });
    }
    let mut taken = 0;
    let mut refused = 0;
    while let Some(answer) = takers.join_next().await {
        match answer.expect("no task panics") {
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
    let mut late = server.client().await.new_search(1, party_session(&[("late", 0.0)]));
    let found = late.search().await.expect("search");
    assert!(found.candidates.is_empty(), "a full session is not found");
    let full = found
        .refusals
        .iter()
        .find(|count| count.kind() == pb::RefusalKind::Full)
        .expect("a refusal count for full sessions");
    assert_eq!(full.count, 1);
}

/// R5: the same key returns the same reservation; the same key for another party is rejected.
#[tokio::test]
async fn reserve_retried_with_the_same_key_takes_no_second_seat() {
    let (server, advertised) = start_server_with_advertisement(2).await;
    let client = server.client().await;
    let mut searching = client.new_search(1, party_session(&[("guest", 0.0)]));
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

    let mut other = client.new_search(1, party_session(&[("other", 0.0)]));
    let token = other.search().await.expect("search").search_token;
    let reused = pb::MatchmakingReserveRequest {
        search_token: token,
        session_composition: Some(party_session(&[("other", 0.0)])),
        ..request
    };
    let error = client.reserve(reused).await.expect_err("the same key for another party");
    assert_eq!(error.code(), Some(Code::AlreadyExists), "{error}");
}

/// Released seats are open again at once. Release is idempotent. A forged token releases nothing.
#[tokio::test]
async fn release_reopens_the_seats() {
    let (server, advertised) = start_server_with_advertisement(1).await;
    let client = server.client().await;
    let mut first = client.new_search(1, party_session(&[("first", 0.0)]));
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
        ..Default::default()
    };
    let forged = pb::MatchmakingReleaseRequest { reservation_token: vec![7; 40], ..release.clone() };
    let error = client.release(forged).await.expect_err("a forged token");
    assert_eq!(error.code(), Some(Code::PermissionDenied), "{error}");
    client.release(release.clone()).await.expect("release");
    client.release(release).await.expect("release again");

    let mut second = client.new_search(1, party_session(&[("second", 0.0)]));
    assert_eq!(second.search().await.expect("search").candidates.len(), 1);
    second.reserve(advertised.id()).await.expect("reserve the released seat");
}

/// A hold expires at its deadline and not before; a confirmed reservation does not expire. The host receives an event
/// for each.
#[tokio::test]
async fn unconfirmed_reservation_expires_and_confirmed_one_stays() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let (connection, mut events) = client.open_stream().await.expect("open a stream");
    let mut advertised = connection.advertise(advertise_request(&[("host", 0.0)], 2)).await.expect("advertise");
    let mut ids = Vec::new();
    for name in ["confirms", "expires"] {
        let mut searching = client.new_search(1, party_session(&[(name, 0.0)]));
        searching.search().await.expect("search");
        ids.push(searching.reserve(advertised.id()).await.expect("reserve").id);
        let event = events.next_reservation_event().await.expect("an event");
        assert_eq!(event.state(), pb::ReservationState::Held);
    }
    advertised.confirm_reservations(vec![ids[0].clone()]).await.expect("confirm");
    assert_eq!(events.next_reservation_event().await.expect("an event").state(), pb::ReservationState::Confirmed);

    server.clock.advance_ms(29_999);
    server.sweep_expired_adverts_and_wait().await;
    assert_eq!(advertised.heartbeat().await.expect("heartbeat").reservations.len(), 2, "before the deadline");
    server.clock.advance_ms(1);
    server.sweep_expired_adverts_and_wait().await;
    let expired = events.next_reservation_event().await.expect("an event");
    assert_eq!(expired.state(), pb::ReservationState::Expired);
    assert_eq!(expired.reservation.expect("a reservation").reservation_id, ids[1]);
    let left = advertised.heartbeat().await.expect("heartbeat").reservations;
    assert_eq!(
        left.iter().map(|reservation| reservation.reservation_id.clone()).collect::<Vec<_>>(),
        vec![ids[0].clone()]
    );
}

/// Joining ends the reservation in the same step as the lowered seat count: no seat is counted twice or lost.
#[tokio::test]
async fn joined_reservation_ends_when_its_players_are_added() {
    let (server, mut advertised) = start_server_with_advertisement(3).await;
    let client = server.client().await;
    let mut searching = client.new_search(1, party_session(&[("guest", 0.0)]));
    searching.search().await.expect("search");
    let reserved = searching.reserve(advertised.id()).await.expect("reserve");
    let mut update = advertise_request(&[("host", 0.0), ("guest", 0.0)], 2);
    update.joined_reservation_ids = vec![reserved.id.clone()];
    let answer = advertised.replace_published(update).await.expect("update");
    assert!(answer.reservations.is_empty());
    let mut third = client.new_search(1, party_session(&[("third", 0.0)]));
    assert_eq!(third.search().await.expect("search").candidates[0].open_seats, 2);
}

/// Reserve checks the hard filters again; the error names the rule.
#[tokio::test]
async fn reserve_checks_the_hard_filters_again() {
    let (server, mut advertised) = start_server_with_advertisement(4).await;
    let client = server.client().await;
    let mut searching = client.new_search(1, party_session(&[("guest", 0.0)]));
    assert_eq!(searching.search().await.expect("search").candidates.len(), 1);
    advertised.replace_published(advertise_request(&[("host", 900.0)], 4)).await.expect("update");
    let error = searching.reserve(advertised.id()).await.expect_err("the skill difference is now too large");
    assert_eq!(error.code(), Some(Code::FailedPrecondition), "{error}");
    assert!(error.to_string().contains("skill"), "the error names the rule: {error}");
}

/// A user never joins a session twice, whether it is a player or holds a reservation.
#[tokio::test]
async fn reserve_rejects_a_user_already_in_the_session() {
    let (server, advertised) = start_server_with_advertisement(4).await;
    let client = server.client().await;
    let mut own = client.new_search(1, party_session(&[("host", 0.0)]));
    assert!(own.search().await.expect("search").candidates.is_empty(), "S1-50: a user's own session is not found");
    let mut searching = client.new_search(1, party_session(&[("guest", 0.0)]));
    searching.search().await.expect("search");
    searching.reserve(advertised.id()).await.expect("reserve");
    let again = searching.reserve(advertised.id()).await.expect_err("the same user with a new key");
    assert_eq!(again.code(), Some(Code::FailedPrecondition), "{again}");
    let again = again.as_server_error().expect("a status");
    assert_eq!(again.reason_metadata.get("rule").map(String::as_str), Some("own"));
    assert!(again.message.contains("a player of the party is already in this session"), "{again}");
}
