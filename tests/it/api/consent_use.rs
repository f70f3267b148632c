//! A consent to search is good for the reservations of one search, or for one advertisement. On SQLite, and through two
//! servers on one Postgres.

use fireteam_client::{Error, pb};
use pb::ConsentUse;

use crate::support::party_site::{PartySite, pairs_ruleset, reason};
use crate::support::queue_server::{SET_ID, wait_until};
use crate::support::test_server::{advertise_request, party_session};

fn party(token: &[u8]) -> pb::SessionCompositionData {
    let mut session = party_session(&[("ana", 20.0), ("ben", 20.0)]);
    session.players[1].consent_token = token.to_vec();
    session
}

fn session_of(name: &str) -> pb::MatchmakingUpdateAdvertisementRequest {
    pb::MatchmakingUpdateAdvertisementRequest {
        matchmaking_set_id: Some(SET_ID),
        ..advertise_request(&[(name, 20.0)], 8)
    }
}

fn assert_spent(error: &Error, field: &str) {
    let fields: Vec<&str> = error.fields().iter().map(|problem| problem.field.as_str()).collect();
    assert_eq!(fields, [field], "{error}");
}

/// The first search that reserves takes the consent: its reservations and their retries go on, and all else is refused.
async fn first_reservation_takes_the_consent(mut site: PartySite) {
    let (zoe, yan) = (site.player("zoe").await, site.player("yan").await);
    let first = zoe.advertise(session_of("zoe")).await.expect("advertise");
    let second = yan.advertise(session_of("yan")).await.expect("advertise");
    let token = site.consent("ben", "ana", false, ConsentUse::Search).await;
    let reserve = |advertisement: &str, search_token: &[u8], key: &str| pb::MatchmakingReserveRequest {
        advertisement_id: advertisement.to_owned(),
        search_token: search_token.to_vec(),
        session_composition: Some(party(&token)),
        idempotency_key: key.to_owned(),
        ..Default::default()
    };
    let search = pb::MatchmakingSearchRequest {
        session_composition: Some(party(&token)),
        matchmaking_set_id: Some(SET_ID),
        ..Default::default()
    };
    let (here, elsewhere) = (site.player("ana").await, site.player_elsewhere("ana").await);
    wait_until("the other server knows both sessions", async || {
        elsewhere.search(search.clone()).await.expect("search").candidates.len() == 2
    })
    .await;
    // Searches take nothing. One search is that of a token and of the tokens that renew it.
    let taking = here.search(search.clone()).await.expect("search").search_token;
    site.clock.advance_ms(1);
    let other = elsewhere.search(search.clone()).await.expect("search").search_token;
    let renewed = pb::MatchmakingSearchRequest { search_token: taking.clone(), ..search.clone() };
    let renewed = elsewhere.search(renewed).await.expect("search").search_token;
    let held = here.reserve(reserve(first.id(), &taking, "key 1")).await.expect("reserve").reservation.expect("seats");
    let again = elsewhere.reserve(reserve(first.id(), &taking, "key 1")).await.expect("the same request");
    assert_eq!(again.reservation.expect("seats").reservation_id, held.reservation_id);
    let release = pb::MatchmakingReleaseRequest {
        reservation_id: held.reservation_id,
        reservation_token: held.reservation_token,
        ..Default::default()
    };
    here.release(release).await.expect("release");
    elsewhere.reserve(reserve(second.id(), &renewed, "key 2")).await.expect("of the same search");

    site.restart_first().await;
    for client in [site.player("ana").await, site.player_elsewhere("ana").await] {
        let error = client.reserve(reserve(first.id(), &other, "key 3")).await.expect_err("of another search");
        assert_spent(&error, "session_composition.players[1].consent_token");
        let advertise =
            pb::MatchmakingUpdateAdvertisementRequest { session_composition: Some(party(&token)), ..session_of("ana") };
        let error = client.advertise(advertise).await.expect_err("the search took it");
        assert_spent(&error, "session_composition.players[1].consent_token");
    }
    site.shut_down().await;
}

/// A member releases its own seat, through any server, also if another player reserved it. The other seats stay; strangers change nothing.
async fn member_releases_its_own_seat(mut site: PartySite) {
    let mut hosted = site.player("zoe").await.advertise(session_of("zoe")).await.expect("advertise");
    let token = site.consent("ben", "ana", false, ConsentUse::Search).await;
    let mut search_session = site.player("ana").await.new_search(SET_ID, party(&token));
    search_session.search().await.expect("search");
    search_session.reserve(hosted.id()).await.expect("reserve");
    let seats = async |hosted: &mut fireteam_client::Advertisement| -> Vec<u32> {
        let answer = hosted.heartbeat().await.expect("heartbeat");
        answer.reservations.iter().map(|reservation| reservation.seats).collect()
    };
    assert_eq!(seats(&mut hosted).await, [2]);
    site.player_elsewhere("eve").await.release_own_seat(hosted.id()).await.expect("no effect");
    site.player_elsewhere("ben").await.release_own_seat(&"0".repeat(32)).await.expect("no effect");
    let error = site.backend().await.release_own_seat(hosted.id()).await.expect_err("no user");
    assert_eq!(reason(&error), "NOT_OWNER");
    let ben = site.player_elsewhere("ben").await;
    wait_until("the seat is released", async || {
        ben.release_own_seat(hosted.id()).await.expect("release");
        seats(&mut hosted).await == [1]
    })
    .await;
    ben.release_own_seat(hosted.id()).await.expect("released before");
    let (id, token) = (hosted.id().to_owned(), hosted.token().to_owned());
    site.restart_first().await;
    let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: id.clone(),
        advertisement_token: token,
        ..Default::default()
    };
    let zoe = site.player("zoe").await;
    let answer = zoe.update_advertisement(heartbeat.clone()).await.expect("heartbeat");
    assert_eq!(answer.reservations.iter().map(|reservation| reservation.seats).collect::<Vec<_>>(), [1]);
    site.player("ana").await.release_own_seat(&id).await.expect("release");
    let answer = zoe.update_advertisement(heartbeat).await.expect("heartbeat");
    assert_eq!(answer.reservations.len(), 0, "the last seat");
    site.shut_down().await;
}

/// An advertisement takes the consent: repeated creates go on. A revoked consent reserves and advertises nothing.
async fn advertisement_takes_the_consent(site: PartySite) {
    let token = site.consent("ben", "ana", false, ConsentUse::Search).await;
    let advertise = |key: &str| pb::MatchmakingUpdateAdvertisementRequest {
        session_composition: Some(party(&token)),
        idempotency_key: key.to_owned(),
        ..session_of("ana")
    };
    let (here, elsewhere) = (site.player("ana").await, site.player_elsewhere("ana").await);
    let created = here.update_advertisement(advertise("key 1")).await.expect("advertise");
    let again = elsewhere.update_advertisement(advertise("key 1")).await.expect("the same request");
    assert_eq!(again.advertisement_id, created.advertisement_id);
    let error = elsewhere.update_advertisement(advertise("key 2")).await.expect_err("used");
    assert_spent(&error, "session_composition.players[1].consent_token");

    let zoe = site.player("zoe").await.advertise(session_of("zoe")).await.expect("advertise");
    let revoked = site.consent("ben", "ana", false, ConsentUse::Search).await;
    let mut search_session = here.new_search(SET_ID, party(&revoked));
    search_session.search().await.expect("search");
    site.player_elsewhere("ben").await.revoke_party_consent(&revoked).await.expect("revoke");
    let error = search_session.reserve(zoe.id()).await.expect_err("revoked");
    assert_spent(&error, "session_composition.players[1].consent_token");
    let token = site.consent("ben", "ana", false, ConsentUse::Queue).await;
    let error = here.new_search(SET_ID, party(&token)).search().await.expect_err("for a queue");
    assert_spent(&error, "session_composition.players[1].consent_token");
    site.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_reservation_takes_the_consent_on_sqlite() {
    first_reservation_takes_the_consent(PartySite::on_sqlite(&pairs_ruleset("")).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_reservation_takes_the_consent_on_postgres() {
    if let Some(site) = PartySite::on_postgres("first_reservation_takes_the_consent", &pairs_ruleset("")).await {
        first_reservation_takes_the_consent(site).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_releases_its_own_seat_on_sqlite() {
    member_releases_its_own_seat(PartySite::on_sqlite(&pairs_ruleset("")).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn member_releases_its_own_seat_on_postgres() {
    if let Some(site) = PartySite::on_postgres("member_releases_its_own_seat", &pairs_ruleset("")).await {
        member_releases_its_own_seat(site).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advertisement_takes_the_consent_on_sqlite() {
    advertisement_takes_the_consent(PartySite::on_sqlite(&pairs_ruleset("")).await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advertisement_takes_the_consent_on_postgres() {
    if let Some(site) = PartySite::on_postgres("advertisement_takes_the_consent", &pairs_ruleset("")).await {
        advertisement_takes_the_consent(site).await;
    }
}
