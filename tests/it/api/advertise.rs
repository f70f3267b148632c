//! Advertisements through the client: creation, heartbeats, replacement, expiry, deletion, ownership.

use fireteam_client::{Code, pb};

use crate::support::test_server::{TestServer, advertise_request, party_session};

/// S1-44: after the store was lost, an update with the token recreates the advertisement and keeps its waiting time.
#[tokio::test]
async fn update_after_store_loss_recreates_the_advertisement() {
    let server = TestServer::start().await;
    let mut advertised =
        server.client().await.advertise(advertise_request(&[("host", 0.0)], 5)).await.expect("advertise");
    server.clock.advance_ms(31_000);
    let empty = server.restart().await;
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
    let error = client.update_advertisement(heartbeat).await.expect_err("heartbeat of a lost advertisement");
    assert_eq!(error.code(), Some(Code::NotFound), "{error}");
    let answer = client.update_advertisement(request).await.expect("update");
    assert!(answer.created);
    assert_eq!(answer.advertisement_id, advertised.id());
    // 31 s of waiting count: skill is at its third step (30-50 s), which ends in 19 s.
    assert_eq!(answer.next_expansion_in_ms, Some(19_000));
    advertised.heartbeat().await.expect_err("the old server has stopped");
}

/// S1-45: an advertisement is found until its TTL ends and never after. A heartbeat only extends the TTL.
#[tokio::test]
async fn advertisement_expires_exactly_at_its_ttl() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(10_000),
        ..advertise_request(&[("host", 0.0)], 5)
    };
    let mut advertised = client.advertise(request).await.expect("advertise");
    assert_eq!(advertised.expires_in_ms, 10_000);
    let mut searching = client.search_session(1, party_session(&[("guest", 0.0)]));
    server.clock.advance_ms(9_999);
    assert_eq!(searching.search().await.expect("search").candidates.len(), 1, "before the TTL ends");
    advertised.heartbeat().await.expect("heartbeat");
    server.clock.advance_ms(9_999);
    assert_eq!(searching.search().await.expect("search").candidates.len(), 1, "extended");
    server.clock.advance_ms(1);
    let found = searching.search().await.expect("search");
    assert!(found.candidates.is_empty(), "expired, although not yet swept");
    server.sweep_expired().await;
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: advertised.id().into(),
        advertisement_token: advertised.token().to_vec(),
        ..Default::default()
    };
    let error = client.update_advertisement(request).await.expect_err("heartbeat after expiry");
    assert_eq!(error.code(), Some(Code::NotFound), "{error}");
}

/// S1-47, SEC-5: delete is idempotent and permanent. A delete with a forged token gets the same error whether the
/// advertisement exists or not.
#[tokio::test]
async fn delete_advertisement_is_idempotent_and_permanent() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let advertised = client.advertise(advertise_request(&[("host", 0.0)], 5)).await.expect("advertise");
    let (id, token) = (advertised.id().to_owned(), advertised.token().to_vec());
    let forged = |id: &str| pb::MatchmakingDeleteAdvertisementRequest {
        advertisement_id: id.into(),
        advertisement_token: vec![1; 48],
    };
    let existing = client.delete_advertisement(forged(&id)).await.expect_err("a forged token");
    let missing = client.delete_advertisement(forged(&"0".repeat(32))).await.expect_err("no such advertisement");
    assert_eq!(existing.code(), Some(Code::PermissionDenied));
    assert_eq!(existing.to_string(), missing.to_string(), "the same error for not owned and not found");

    let delete = pb::MatchmakingDeleteAdvertisementRequest { advertisement_id: id.clone(), advertisement_token: token };
    client.delete_advertisement(delete.clone()).await.expect("delete");
    client.delete_advertisement(delete.clone()).await.expect("delete again");
    let late = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: id,
        advertisement_token: delete.advertisement_token,
        ..advertise_request(&[("host", 0.0)], 5)
    };
    let error = client.update_advertisement(late).await.expect_err("update after delete");
    assert_eq!(error.code(), Some(Code::FailedPrecondition), "{error}");
}

/// S1-16, R5: a retried create returns the same advertisement. An anonymous caller's idempotency key must have at least
/// 16 characters.
#[tokio::test]
async fn create_advertisement_retried_with_the_same_key_returns_the_same_id() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        idempotency_key: "0123456789abcdef".into(),
        ..advertise_request(&[("host", 0.0)], 5)
    };
    let first = client.update_advertisement(request.clone()).await.expect("create");
    let again = client.update_advertisement(request.clone()).await.expect("create again");
    assert!(first.created && !again.created);
    assert_eq!(first.advertisement_id, again.advertisement_id);
    let short = pb::MatchmakingUpdateAdvertisementRequest { idempotency_key: "short".into(), ..request };
    let error = client.update_advertisement(short).await.expect_err("short key");
    assert_eq!(error.code(), Some(Code::InvalidArgument));
    assert_eq!(error.fields()[0].field, "idempotency_key");
}

/// B-37: a field from a source that the ruleset does not trust is ignored and listed. The locality that a client states
/// is never used.
#[tokio::test]
async fn untrusted_fields_are_listed_as_ignored() {
    let server = TestServer::start().await;
    let client = server.client().await;
    let mut request = advertise_request(&[("host", 0.0)], 5);
    if let Some(session) = &mut request.session_composition {
        session.locality_info = Some(pb::LocalityData {
            locality_x: Some(4000.0),
            locality_y: Some(0.0),
            locality_z: Some(0.0),
            ..Default::default()
        });
    }
    let answer = client.update_advertisement(request).await.expect("create");
    assert_eq!(answer.ignored_fields, vec!["session_composition.locality_info"]);
}
