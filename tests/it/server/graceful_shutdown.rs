//! Graceful shutdown: health changes first, streams end with a status, open connections do not delay it.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use fireteam::server::limits::EdgeLimits;

use crate::support::generated_client;
use crate::support::scripted_engine::{PENDING_UPDATE_TTL_MS, advertisement_id, update_answer};
use crate::support::scripted_server::{ScriptedServer, TEST_TIMEOUT, publish_request, search_request};

/// R11, G1: with open streams of every kind and a silent connection, the server stops before its grace period ends.
/// Every stream ends with UNAVAILABLE, and health watchers are notified first.
#[tokio::test]
async fn shutdown_ends_open_streams_and_silent_connections() {
    let mut server = ScriptedServer::start().await;
    let mut stream = server.matchmaking_client().await;
    let mut stream = stream
        .connect(tokio_stream::pending::<generated_client::MatchmakingConnectRequest>())
        .await
        .unwrap()
        .into_inner();
    let mut health = HealthClient::new(server.client_channel().await);
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let mut silent = server.raw_connection().await;
    let mut caller = server.matchmaking_client().await;
    caller.search(search_request()).await.unwrap();

    let grace = EdgeLimits::default().shutdown_grace;
    let took = server.shutdown().await;
    assert!(took < grace, "the grace period had to end: {took:?}");
    assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert_eq!(watch.next().await.unwrap().unwrap_err().code(), Code::Unavailable);
    let status = stream.next().await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("shutting down"), "{status:?}");
    let mut rest = Vec::new();
    drop(
        tokio::time::timeout(TEST_TIMEOUT, silent.read_to_end(&mut rest))
            .await
            .expect("the silent connection is closed"),
    );
    assert!(tokio::net::TcpStream::connect(server.address).await.is_err(), "the port is closed");
    assert!(tokio::net::TcpStream::connect(server.operator_address).await.is_err());
}

/// Requests submitted on a stream before the shutdown are still answered.
#[tokio::test]
async fn shutdown_answers_submitted_requests_before_ending_the_stream() {
    let mut server = ScriptedServer::start().await;
    let update = generated_client::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(PENDING_UPDATE_TTL_MS),
        ..publish_request()
    };
    let core = generated_client::MatchmakingCoreRequest {
        request_type: Some(2),
        request_nonce: Some(1),
        update_advertisement_request: Some(update),
        ..Default::default()
    };
    let request = generated_client::MatchmakingConnectRequest { core: Some(core) };
    let requests = tokio_stream::once(request).chain(tokio_stream::pending());
    let mut answers = server.matchmaking_client().await.connect(requests).await.unwrap().into_inner();
    while server.engine.pending_updates.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let matchmaker = server.engine.clone();
    let stopping = tokio::spawn(async move { server.shutdown().await });
    let (_, waiting) = matchmaker.pending_updates.lock().unwrap().remove(0);
    waiting.send(Ok(update_answer(advertisement_id(1), true))).unwrap();
    assert!(answers.next().await.unwrap().is_ok(), "the pending response arrives");
    assert_eq!(answers.next().await.unwrap().unwrap_err().code(), Code::Unavailable);
    stopping.await.unwrap();
}

/// F5: a call that never ends is cut off after the grace period.
#[tokio::test]
async fn shutdown_cuts_off_calls_after_the_grace_period() {
    let edge = EdgeLimits {
        shutdown_grace: Duration::from_millis(100),
        drain_delay: Duration::ZERO,
        unary_deadline: Duration::from_secs(3_600),
        ..EdgeLimits::default()
    };
    let mut server = ScriptedServer::start_with_limits(edge).await;
    let update = generated_client::MatchmakingUpdateAdvertisementRequest {
        time_to_live_ms: Some(PENDING_UPDATE_TTL_MS),
        ..publish_request()
    };
    let core = generated_client::MatchmakingCoreRequest {
        request_type: Some(2),
        request_nonce: Some(1),
        update_advertisement_request: Some(update),
        ..Default::default()
    };
    let mut client = server.matchmaking_client().await;
    let call = tokio::spawn(async move { client.core(core).await });
    while server.engine.pending_updates.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    server.shutdown().await;
    let ended = tokio::time::timeout(TEST_TIMEOUT, call).await.expect("the call is cut off").unwrap();
    assert!(ended.is_err());
}
