//! Stopping in good order: health first, streams end with a status, and nothing that is open keeps the server up.

use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio_stream::StreamExt;
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use fireteam::server::limits::EdgeLimits;

use crate::plain;
use crate::scripted::{WAITS_MS, id, updated};
use crate::stage::{PATIENCE, Stage, publish, search};

/// R11, G1: with open streams of every kind and a silent connection the server stops by itself, long before it would be
/// made to; every stream ends with UNAVAILABLE, and whoever watches health heard first.
#[tokio::test]
async fn streams_and_silent_connections_do_not_keep_the_server() {
    let mut house = Stage::open().await;
    let mut talk = house.client().await;
    let mut talk =
        talk.connect(tokio_stream::pending::<plain::MatchmakingConnectRequest>()).await.unwrap().into_inner();
    let mut health = HealthClient::new(house.channel().await);
    let mut watch = health.watch(HealthCheckRequest::default()).await.unwrap().into_inner();
    assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::Serving);
    let mut silent = house.socket().await;
    let mut caller = house.client().await;
    caller.search(search()).await.unwrap();

    let grace = EdgeLimits::default().shutdown_grace;
    let took = house.shut_down().await;
    assert!(took < grace, "it had to be made to stop: {took:?}");
    assert_eq!(watch.next().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    assert_eq!(watch.next().await.unwrap().unwrap_err().code(), Code::Unavailable);
    let status = talk.next().await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("going away"), "{status:?}");
    let mut rest = Vec::new();
    drop(tokio::time::timeout(PATIENCE, silent.read_to_end(&mut rest)).await.expect("the silent connection is closed"));
    assert!(tokio::net::TcpStream::connect(house.address).await.is_err(), "the port is closed");
    assert!(tokio::net::TcpStream::connect(house.operator_address).await.is_err());
}

/// What a conversation had submitted when the server began to go is still answered.
#[tokio::test]
async fn the_last_answers_are_given_before_the_stream_ends() {
    let mut house = Stage::open().await;
    let update = plain::MatchmakingUpdateAdvertisementRequest { time_to_live_ms: Some(WAITS_MS), ..publish() };
    let core = plain::MatchmakingCoreRequest {
        request_type: Some(2),
        request_nonce: Some(1),
        update_advertisement_request: Some(update),
        ..Default::default()
    };
    let request = plain::MatchmakingConnectRequest { core: Some(core) };
    let requests = tokio_stream::once(request).chain(tokio_stream::pending());
    let mut answers = house.client().await.connect(requests).await.unwrap().into_inner();
    while house.matchmaker.waiting.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    let matchmaker = house.matchmaker.clone();
    let stopping = tokio::spawn(async move { house.shut_down().await });
    let (_, waiting) = matchmaker.waiting.lock().unwrap().remove(0);
    waiting.send(Ok(updated(id(1), true))).unwrap();
    assert!(answers.next().await.unwrap().is_ok(), "the answer comes");
    assert_eq!(answers.next().await.unwrap().unwrap_err().code(), Code::Unavailable);
    stopping.await.unwrap();
}

/// F5: a call that never ends is cut off when the grace period is over.
#[tokio::test]
async fn what_does_not_end_is_cut_off() {
    let edge = EdgeLimits {
        shutdown_grace: Duration::from_millis(100),
        drain_delay: Duration::ZERO,
        unary_deadline: Duration::from_secs(3_600),
        ..EdgeLimits::default()
    };
    let mut house = Stage::with_edge(edge).await;
    let update = plain::MatchmakingUpdateAdvertisementRequest { time_to_live_ms: Some(WAITS_MS), ..publish() };
    let core = plain::MatchmakingCoreRequest {
        request_type: Some(2),
        request_nonce: Some(1),
        update_advertisement_request: Some(update),
        ..Default::default()
    };
    let mut client = house.client().await;
    let call = tokio::spawn(async move { client.core(core).await });
    while house.matchmaker.waiting.lock().unwrap().is_empty() {
        tokio::task::yield_now().await;
    }
    house.shut_down().await;
    let ended = tokio::time::timeout(PATIENCE, call).await.expect("the call is cut off").unwrap();
    assert!(ended.is_err());
}
