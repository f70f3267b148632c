//! Unary calls: retries, idempotency keys, metadata, tokens, and the state of the handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

use crate::client::Client;
use crate::error::Error;
use crate::pb;
use crate::retry::RetryPolicy;
use crate::token_source::{Token, TokenSource};

use super::scripted_server::ServerScript;

const FAST_RETRIES: RetryPolicy =
    RetryPolicy { max_attempts: 3, initial_backoff: Duration::from_millis(1), max_backoff: Duration::from_millis(5) };

fn script_with_failures(failures: Vec<Status>) -> ServerScript {
    ServerScript { failures: failures.into(), ..Default::default() }
}

fn party() -> pb::SessionCompositionData {
    pb::SessionCompositionData { party_size_composition: vec![2], ..Default::default() }
}

fn publish_request() -> pb::MatchmakingUpdateAdvertisementRequest {
    pb::MatchmakingUpdateAdvertisementRequest {
        session_composition: Some(party()),
        matchmaking_set_id: Some(7),
        ..Default::default()
    }
}

/// The client's part of exactly-once delivery: a retried create or reservation has the idempotency key of its first
/// attempt; another create has another key.
#[tokio::test]
async fn retry_of_a_create_keeps_its_idempotency_key() {
    let (script, client) = script_with_failures(vec![Status::unavailable("b"), Status::unavailable("a")]).start().await;
    let client = client.with_retry_policy(FAST_RETRIES);
    client.advertise(publish_request()).await.unwrap();
    client.advertise(publish_request()).await.unwrap();
    let keys: Vec<String> =
        script.updates.lock().unwrap().iter().map(|update| update.idempotency_key.clone()).collect();
    assert_eq!(keys.len(), 4);
    assert!(keys[0] == keys[1] && keys[1] == keys[2], "all attempts of a create have one key: {keys:?}");
    assert_ne!(keys[2], keys[3]);
    assert!(keys[0].len() >= 16);

    script.failures.lock().unwrap().push(Status::unavailable(""));
    let reservation = client.new_search(7, party()).reserve("ad").await.unwrap();
    let reserves = script.reserves.lock().unwrap().clone();
    assert_eq!(reserves.len(), 2);
    assert!(!reserves[0].idempotency_key.is_empty());
    assert_eq!(reserves[0], reserves[1]);
    assert_eq!((reservation.seats, reservation.connect_data.as_slice()), (2, b"host:1".as_slice()));
}

#[tokio::test]
async fn retry_ends_with_the_last_error() {
    let retry_after = |ms| {
        let details = ErrorDetails::with_retry_info(Some(Duration::from_millis(ms)));
        Status::with_error_details(Code::Unavailable, "draining", details)
    };
    let (script, client) = script_with_failures(vec![retry_after(60_000), retry_after(1)]).start().await;
    let error = client.with_retry_policy(FAST_RETRIES).search(Default::default()).await.unwrap_err();
    // The first failure asks for 1 ms and is retried; the second asks for more than `max_backoff`.
    assert_eq!(script.searches.lock().unwrap().len(), 2);
    assert_eq!(error.code(), Some(Code::Unavailable));
    assert_eq!(error.retry_after(), Some(Duration::from_secs(60)));
}

#[tokio::test]
async fn retry_never_repeats_an_invalid_request() {
    let details = ErrorDetails::with_bad_request_violation("matchmaking_set_id", "a set that has a ruleset");
    let invalid = Status::with_error_details(Code::InvalidArgument, "unknown set", details);
    let (script, client) = script_with_failures(vec![invalid]).start().await;
    let error = client.with_retry_policy(FAST_RETRIES).search(Default::default()).await.unwrap_err();
    assert_eq!(script.searches.lock().unwrap().len(), 1);
    assert_eq!(error.fields()[0].field, "matchmaking_set_id");
}

#[tokio::test]
async fn retry_sends_metadata_and_deadline_with_every_attempt() {
    let (script, client) = script_with_failures(vec![Status::unavailable("")]).start().await;
    let client = client.with_retry_policy(FAST_RETRIES).with_metadata("x-forwarded-for", "203.0.113.9").unwrap();
    client.search(Default::default()).await.unwrap();
    let metadata = script.metadata.lock().unwrap();
    assert_eq!(metadata.len(), 2);
    for sent in metadata.iter() {
        assert_eq!(sent.get("x-forwarded-for").unwrap(), "203.0.113.9");
        assert!(sent.contains_key("grpc-timeout"));
    }
    assert!(matches!(client.clone().with_metadata("no good", ""), Err(Error::InvalidMetadata(_))));
}

#[tokio::test]
async fn connect_without_a_listener_fails_at_once() {
    assert!(matches!(Client::connect("not a uri").await, Err(Error::InvalidEndpoint(_))));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let error = Client::connect(uri).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unavailable));
}

#[tokio::test]
async fn retry_follows_a_connection_lost_during_the_call() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri = format!("http://{}", listener.local_addr().unwrap());
    let lost_connections = Arc::new(AtomicU32::new(0));
    let counter = lost_connections.clone();
    let server = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
            // Sends SETTINGS to complete the handshake, reads the start of the call, then closes the connection.
            socket.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await.unwrap();
            socket.read_exact(&mut [0; 24]).await.unwrap();
        }
    });
    let client = Client::connect(uri).await.unwrap().with_retry_policy(FAST_RETRIES);
    let error = client.search(Default::default()).await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unavailable), "{error}");
    // One connection may be lost before the call; a call without retries would lose at most one more.
    assert!(lost_connections.load(Ordering::SeqCst) >= FAST_RETRIES.max_attempts);
    server.abort();
}

#[tokio::test]
async fn search_session_sends_the_latest_search_token() {
    let (script, client) = ServerScript::default().start().await;
    let mut search_session = client.new_search(7, party());
    search_session.search().await.unwrap();
    search_session.exclude("gone");
    search_session.search().await.unwrap();
    assert_eq!(search_session.next_expansion_in_ms, Some(10_000));
    search_session.report_latency(pb::LatencyPhase::Quick, [("ad".to_owned(), Some(12.0))]).await.unwrap();
    search_session.reserve("ad").await.unwrap().release().await.unwrap();

    let searches = script.searches.lock().unwrap();
    assert_eq!(searches[0].search_token, b"");
    assert_eq!(searches[1].search_token, b"+");
    assert_eq!(searches[1].exclude_advertisement_ids, ["gone"]);
    assert_eq!(script.reports.lock().unwrap()[0].search_token, b"++");
    assert_eq!(script.reserves.lock().unwrap()[0].search_token, b"++!", "the token of the report");
    let releases = script.releases.lock().unwrap();
    assert_eq!((releases[0].reservation_id.as_str(), releases[0].reservation_token.as_slice()), ("seat", &b"ours"[..]));
}

/// S1-44, the client's part: if the server does not know the advertisement, a heartbeat publishes it again with its token.
#[tokio::test]
async fn heartbeat_of_an_unknown_advertisement_publishes_it_again() {
    let (script, client) = ServerScript::default().start().await;
    let mut advertisement = client.advertise(publish_request()).await.unwrap();
    script.failures.lock().unwrap().push(Status::not_found("unknown advertisement"));
    advertisement.heartbeat().await.unwrap();
    advertisement.delete().await.unwrap();

    let updates = script.updates.lock().unwrap();
    assert_eq!(updates.len(), 3);
    assert_eq!(updates[1].session_composition, None, "a heartbeat has no session");
    assert_eq!(updates[2].session_composition, Some(party()));
    assert_eq!((updates[2].advertisement_id.as_str(), updates[2].advertisement_token.as_slice()), ("ad", &b"mine"[..]));
    assert_eq!(script.deletes.lock().unwrap()[0].advertisement_token, b"mine");
}

#[tokio::test]
async fn update_sends_joined_reservations_once() {
    let (script, client) = ServerScript::default().start().await;
    let mut advertisement = client.advertise(publish_request()).await.unwrap();
    advertisement.confirm_reservations(vec!["seat".into()]).await.unwrap();
    let request =
        pb::MatchmakingUpdateAdvertisementRequest { joined_reservation_ids: vec!["seat".into()], ..publish_request() };
    advertisement.replace_published(request).await.unwrap();
    script.failures.lock().unwrap().push(Status::not_found(""));
    advertisement.heartbeat().await.unwrap();

    let updates = script.updates.lock().unwrap();
    assert_eq!(updates[1].confirmed_reservation_ids, ["seat"]);
    assert_eq!(updates[2].joined_reservation_ids, ["seat"]);
    assert_eq!(updates[4].session_composition, Some(party()));
    assert!(updates[4].joined_reservation_ids.is_empty());
}

/// `authorization` headers that the server received, in order.
fn authorization_headers(script: &ServerScript) -> Vec<String> {
    let metadata = script.metadata.lock().unwrap();
    metadata.iter().map(|sent| sent.get("authorization").unwrap().to_str().unwrap().to_owned()).collect()
}

/// Tokens numbered from 1, each with the lifetime `expires_in`.
fn numbered_tokens(expires_in: Option<Duration>) -> TokenSource {
    let fetch_count = Arc::new(AtomicU32::new(0));
    TokenSource::from_fn(move || {
        let text = format!("t{}", fetch_count.fetch_add(1, Ordering::SeqCst) + 1);
        async move { Ok(Token { text, expires_in }) }
    })
}

#[tokio::test]
async fn token_is_replaced_when_the_server_rejects_it() {
    let (script, client) =
        script_with_failures(vec![Status::unauthenticated(""), Status::unavailable("")]).start().await;
    let client = client.with_retry_policy(FAST_RETRIES).with_token_source(numbered_tokens(None));
    client.new_search(7, party()).search().await.unwrap();
    client.new_search(7, party()).search().await.unwrap();
    assert_eq!(
        authorization_headers(&script),
        ["Bearer t1", "Bearer t1", "Bearer t2", "Bearer t2"],
        "one more attempt, with a new token"
    );

    script.failures.lock().unwrap().extend([Status::unauthenticated(""), Status::unauthenticated("")]);
    let error = client.new_search(7, party()).search().await.unwrap_err();
    assert_eq!(error.code(), Some(Code::Unauthenticated), "a second rejection is final");
}

#[tokio::test]
async fn token_is_replaced_before_it_expires() {
    let (script, client) = script_with_failures(Vec::new()).start().await;
    let client = client.with_token_source(numbered_tokens(Some(Duration::ZERO)));
    for _ in 0..2 {
        client.new_search(7, party()).search().await.unwrap();
    }
    assert_eq!(authorization_headers(&script), ["Bearer t1", "Bearer t2"]);
}

#[tokio::test]
async fn token_that_is_fixed_is_never_replaced_or_printed() {
    let (script, client) = script_with_failures(vec![Status::unauthenticated("")]).start().await;
    let client = client.with_token_source(TokenSource::fixed("secret").unwrap());
    assert!(!format!("{client:?}").contains("secret"));
    assert_eq!(client.new_search(7, party()).search().await.unwrap_err().code(), Some(Code::Unauthenticated));
    assert_eq!(authorization_headers(&script), ["Bearer secret"]);
    assert!(matches!(TokenSource::fixed("no\ngood"), Err(Error::InvalidMetadata(_))));

    let failing = client.with_token_source(TokenSource::from_fn(|| async { Err("no user is logged in".to_owned()) }));
    let error = failing.new_search(7, party()).search().await.unwrap_err();
    assert_eq!(error.to_string(), "no token available: no user is logged in");
}
