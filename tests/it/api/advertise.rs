//! Advertisements through the client: created once, kept alive, replaced, expired, deleted for good, never by a
//! stranger.

use fireteam_client::{Code, pb};

use crate::support::test_server::{TestServer, advertise_request, party_session};

/// S1-44: a missing entry is created by its update, with its token, and keeps since when it was advertised.
#[tokio::test]
async fn update_after_store_loss_recreates_the_advertisement() {
    let house = TestServer::start().await;
    let mut advertised = house.client().await.advertise(advertise_request(&[("host", 0.0)], 5)).await.expect("advertise");
    house.clock.advance_ms(31_000);
    let empty = house.restart().await;
    let client = empty.client().await;
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: advertised.id().into(),
        advertisement_token: advertised.token().to_vec(),
        ..advertise_request(&[("host", 0.0)], 5)
    };
    let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
        session_composition: None,
        connect_data: Vec::new(),
        ..request.clone()
    };
    let error = client.update_advertisement(heartbeat).await.expect_err("a heartbeat of a lost row");
    assert_eq!(error.code(), Some(Code::NotFound), "send it whole: {error}");
    let answer = client.update_advertisement(request).await.expect("update");
    assert!(answer.created);
    assert_eq!(answer.advertisement_id, advertised.id());
    // 31 s of waiting have gone into its limits: skill is at its third step (30-50 s), whose end is 19 s away.
    assert_eq!(answer.next_expansion_in_ms, Some(19_000));
    advertised.heartbeat().await.expect_err("the old server is gone");
}

/// S1-45: believed until its time to live is over, invisible from then on, never before; a heartbeat only extends.
#[tokio::test]
async fn advertisement_expires_exactly_at_its_ttl() {
    let house = TestServer::start().await;
    let client = house.client().await;
    let request =
        pb::MatchmakingUpdateAdvertisementRequest { time_to_live_ms: Some(10_000), ..advertise_request(&[("host", 0.0)], 5) };
    let mut advertised = client.advertise(request).await.expect("advertise");
    assert_eq!(advertised.expires_in_ms, 10_000);
    let mut searching = client.search_session(1, party_session(&[("guest", 0.0)]));
    house.clock.advance_ms(9_999);
    assert_eq!(searching.search().await.expect("search").candidates.len(), 1, "not before its time");
    advertised.heartbeat().await.expect("heartbeat");
    house.clock.advance_ms(9_999);
    assert_eq!(searching.search().await.expect("search").candidates.len(), 1, "extended");
    house.clock.advance_ms(1);
    let gone = searching.search().await.expect("search");
    assert!(gone.candidates.is_empty(), "over is over, swept or not");
    house.sweep_expired().await;
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: advertised.id().into(),
        advertisement_token: advertised.token().to_vec(),
        ..Default::default()
    };
    let error = client.update_advertisement(request).await.expect_err("a heartbeat too late");
    assert_eq!(error.code(), Some(Code::NotFound), "{error}");
}

/// S1-47, SEC-5: deleting twice succeeds; a stranger's delete is refused alike whether the thing exists or not; what
/// was deleted stays deleted.
#[tokio::test]
async fn delete_advertisement_is_idempotent_and_permanent() {
    let house = TestServer::start().await;
    let client = house.client().await;
    let advertised = client.advertise(advertise_request(&[("host", 0.0)], 5)).await.expect("advertise");
    let (id, token) = (advertised.id().to_owned(), advertised.token().to_vec());
    let forged = |id: &str| pb::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: id.into(),
        advertisement_token: vec![1; 48],
    };
    let there = client.delete_advertisement(forged(&id)).await.expect_err("a forged token");
    let nowhere = client.delete_advertisement(forged(&"0".repeat(32))).await.expect_err("nothing there");
    assert_eq!(there.code(), Some(Code::PermissionDenied));
    assert_eq!(there.to_string(), nowhere.to_string(), "not yours and not there look the same");

    let mine = pb::MatchmakingDeleteAdvertisementRequest { advertisement_id: id.clone(), advertisement_token: token };
    client.delete_advertisement(mine.clone()).await.expect("delete");
    client.delete_advertisement(mine.clone()).await.expect("delete again");
    let late = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: id,
        advertisement_token: mine.advertisement_token,
        ..advertise_request(&[("host", 0.0)], 5)
    };
    let error = client.update_advertisement(late).await.expect_err("a late update");
    assert_eq!(error.code(), Some(Code::FailedPrecondition), "{error}");
}

/// S1-16, R5: a retried create is the same advertisement; an anonymous key must be long; another set is another one.
#[tokio::test]
async fn create_advertisement_retried_with_the_same_key_returns_the_same_id() {
    let house = TestServer::start().await;
    let client = house.client().await;
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        idempotency_key: "0123456789abcdef".into(),
        ..advertise_request(&[("host", 0.0)], 5)
    };
    let first = client.update_advertisement(request.clone()).await.expect("create");
    let again = client.update_advertisement(request.clone()).await.expect("create again");
    assert!(first.created && !again.created);
    assert_eq!(first.advertisement_id, again.advertisement_id);
    let short = pb::MatchmakingUpdateAdvertisementRequest { idempotency_key: "short".into(), ..request };
    let error = client.update_advertisement(short).await.expect_err("a short key");
    assert_eq!(error.code(), Some(Code::InvalidArgument));
    assert_eq!(error.fields()[0].field, "idempotency_key");
}

/// B-37: a field from a source that the ruleset does not trust is set aside and said so; a client's own place is never
/// used.
#[tokio::test]
async fn untrusted_fields_are_listed_as_ignored() {
    let house = TestServer::start().await;
    let client = house.client().await;
    let mut request = advertise_request(&[("host", 0.0)], 5);
    if let Some(session) = &mut request.session_composition {
        session.locality_info =
            Some(pb::LocalityData { locality_x: Some(4000.0), locality_y: Some(0.0), locality_z: Some(0.0) , ..Default::default()});
    }
    let answer = client.update_advertisement(request).await.expect("create");
    assert_eq!(answer.ignored_fields, vec!["session_composition.locality_info"]);
}
