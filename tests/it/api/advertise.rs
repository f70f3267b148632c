//! Advertisements through the client: creation, heartbeats, replacement, expiry, deletion, ownership.

use std::sync::Arc;

use fireteam::config::{PostgresUrl, StoreTarget};
use fireteam_client::{Code, pb};

use crate::support::database::create_test_database;
use crate::support::queue_server::wait_until;
use crate::support::test_server::{TestClock, TestServer, advertise_request, party_session};

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

/// Heartbeats that name no TTL grant the advertisement's own, also after a restart and at another server on the store.
async fn keeps_its_ttl(server: TestServer, other: Option<TestServer>) {
    const OWN_TTL_MS: u64 = 240_000;
    // The stored expiry is two TTLs after a write and is never shortened. After this time, a heartbeat extends it.
    const PAST_PADDING_MS: u64 = OWN_TTL_MS + 10_000;
    let request = pb::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(OWN_TTL_MS),
        ..advertise_request(&[("host", 0.0)], 5)
    };
    let advertised = server.client().await.advertise(request).await.expect("advertise");
    let heartbeat = pb::MatchmakingUpdateAdvertisementRequest {
        advertisement_id: advertised.id().into(),
        advertisement_token: advertised.token().to_vec(),
        ..Default::default()
    };
    if let Some(other) = other {
        let mut searching = other.client().await.new_search(1, party_session(&[("guest", 0.0)]));
        wait_until("the other server has the advertisement", async || {
            searching.search().await.is_ok_and(|found| !found.candidates.is_empty())
        })
        .await;
        // The first server keeps it alive meanwhile, or it might expire it.
        server.clock.advance_ms(OWN_TTL_MS - 10_000);
        server.client().await.update_advertisement(heartbeat.clone()).await.expect("heartbeat");
        server.clock.advance_ms(PAST_PADDING_MS - (OWN_TTL_MS - 10_000));
        let answer = other.client().await.update_advertisement(heartbeat.clone()).await.expect("heartbeat");
        assert_eq!(answer.expires_in_ms, OWN_TTL_MS, "at another server");
        // It would expire the advertisement while the first one is down.
        other.shut_down().await;
    }
    let server = server.restart_after(PAST_PADDING_MS).await;
    let answer = server.client().await.update_advertisement(heartbeat.clone()).await.expect("heartbeat");
    assert_eq!(answer.expires_in_ms, OWN_TTL_MS, "after a restart");
    server.clock.advance_ms(OWN_TTL_MS - 1);
    server.client().await.update_advertisement(heartbeat).await.expect("heartbeat within the TTL");
}

/// S1-45: an advertisement keeps its own TTL over a restart.
#[tokio::test]
async fn advertisement_keeps_its_ttl_after_a_restart_on_sqlite() {
    let folder = tempfile::tempdir().expect("create a temporary directory");
    let path = folder.path().join("fireteam.db");
    let mut server = TestServer::start_with_config(|config| config.store = StoreTarget::Sqlite(path)).await;
    server.keep_folder(folder);
    keeps_its_ttl(server, None).await;
}

/// S1-45 on Postgres, where another server grants the same TTL.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advertisement_keeps_its_ttl_after_a_restart_on_postgres() {
    let test = "advertisement_keeps_its_ttl_after_a_restart_on_postgres";
    let Some(database) = create_test_database(test).await else { return };
    let (clock, keys) = (Arc::new(TestClock::new()), tempfile::tempdir().expect("create a temporary directory"));
    let start = async || {
        TestServer::start_on_clock(Arc::clone(&clock), |config| {
            config.store = StoreTarget::Postgres(PostgresUrl::parse(&database.url).expect("a URL"));
            config.token_key_file = Some(keys.path().join("token-key"));
            config.match_key_file = Some(keys.path().join("match-key.pem"));
        })
        .await
    };
    let (server, other) = (start().await, start().await);
    keeps_its_ttl(server, Some(other)).await;
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
    let mut searching = client.new_search(1, party_session(&[("guest", 0.0)]));
    server.clock.advance_ms(9_999);
    assert_eq!(searching.search().await.expect("search").candidates.len(), 1, "before the TTL ends");
    advertised.heartbeat().await.expect("heartbeat");
    server.clock.advance_ms(9_999);
    assert_eq!(searching.search().await.expect("search").candidates.len(), 1, "extended");
    server.clock.advance_ms(1);
    let found = searching.search().await.expect("search");
    assert!(found.candidates.is_empty(), "expired, although not yet swept");
    server.sweep_expired_adverts_and_wait().await;
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
