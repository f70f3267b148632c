//! Limits of client connections: timeouts, connection and stream limits, panics, message sizes, gRPC-Web and health.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

use fireteam::server::limits::EdgeLimits;

use crate::support::generated_client;
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::scripted_engine::{PANIC_SILO, PENDING_UPDATE_TTL_MS, SET_ID};
use crate::support::scripted_server::{ScriptedServer, TEST_TIMEOUT, publish_request, search_request};

/// Reads until the peer closes the connection.
pub(crate) async fn read_until_closed(socket: &mut TcpStream) -> Vec<u8> {
    let mut read = Vec::new();
    // A reset counts as closed.
    let reading = socket.read_to_end(&mut read);
    drop(tokio::time::timeout(TEST_TIMEOUT, reading).await.expect("the server closes the connection in time"));
    read
}

/// F3: a connection without complete first bytes is closed after the timeout. One with a complete preface stays open.
#[tokio::test]
async fn connection_without_first_bytes_times_out() {
    let server = ScriptedServer::start_with_limits(EdgeLimits {
        first_bytes_timeout: Duration::from_millis(50),
        ..EdgeLimits::default()
    })
    .await;
    let mut client = server.matchmaking_client().await;
    client.search(search_request()).await.unwrap();
    let mut silent = server.raw_connection().await;
    read_until_closed(&mut silent).await;
    let mut slow = server.raw_connection().await;
    slow.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    read_until_closed(&mut slow).await;
    client.search(search_request()).await.expect("the first connection stays open");
}

#[tokio::test]
async fn connection_ends_at_its_maximum_age() {
    let age = Duration::from_millis(50);
    let server = ScriptedServer::start_with_limits(EdgeLimits {
        connection_age: age,
        connection_age_grace: age,
        ..EdgeLimits::default()
    })
    .await;
    let mut socket = server.raw_connection().await;
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let received = read_until_closed(&mut socket).await;
    // Type byte of a GOAWAY frame on stream 0: the server asks the client to leave before it closes.
    assert!(received.windows(6).any(|bytes| bytes == [8, 7, 0, 0, 0, 0]), "no GOAWAY in {received:?}");
}

/// SEC-1, F2: a connection with repeated protocol errors gets GOAWAY. Without the limit the server would queue a reset
/// for each of them.
#[tokio::test]
async fn repeated_protocol_errors_end_the_connection() {
    let server = ScriptedServer::start().await;
    let mut socket = server.raw_connection().await;
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    for stream in (1..2_000u32).step_by(2) {
        // A HEADERS frame that ends the headers and the stream, with `:method: GET` only.
        let mut frame = vec![0, 0, 1, 1, 5];
        frame.extend(stream.to_be_bytes());
        frame.push(0x82);
        if socket.write_all(&frame).await.is_err() {
            break;
        }
    }
    let received = read_until_closed(&mut socket).await;
    let enhance_your_calm = [0, 0, 0, 11];
    let goaway = received.windows(17).find(|frame| frame[3] == 7 && frame[13..17] == enhance_your_calm);
    assert!(goaway.is_some(), "no GOAWAY with ENHANCE_YOUR_CALM among {} bytes", received.len());
    server.matchmaking_client().await.search(search_request()).await.expect("others are served");
}

/// SEC-2: a connection above the limit is closed at once and counted.
#[tokio::test]
async fn connections_beyond_the_per_ip_limit_are_rejected() {
    let server =
        ScriptedServer::start_with_limits(EdgeLimits { connections_per_trusted_peer_max: 2, ..EdgeLimits::default() })
            .await;
    let (_first, _second) = (server.matchmaking_client().await, server.raw_connection().await);
    let mut third = server.raw_connection().await;
    assert_eq!(read_until_closed(&mut third).await, b"");
    assert_eq!(*server.observer.rejected_connections.lock().unwrap(), ["max_per_ip"]);
}

#[tokio::test]
async fn streams_beyond_the_connection_limit_are_rejected() {
    let server = ScriptedServer::start_with_limits(EdgeLimits {
        streaming_calls_per_trusted_connection_max: 1,
        ..EdgeLimits::default()
    })
    .await;
    let mut client = server.matchmaking_client().await;
    let open = async |client: &mut MatchmakingServiceClient<Channel>| {
        let (to, requests) = mpsc::channel::<generated_client::MatchmakingConnectRequest>(1);
        let from = client.connect(ReceiverStream::new(requests)).await?;
        Ok::<_, Status>((to, from.into_inner()))
    };
    let (to, mut from) = open(&mut client).await.unwrap();
    assert_eq!(open(&mut client).await.unwrap_err().code(), Code::ResourceExhausted);
    client.search(search_request()).await.expect("a unary call is not a stream");
    drop(to);
    assert!(from.next().await.is_none(), "the stream ends after the client half-closes it");
    open(&mut client).await.expect("the first stream has ended");
}

/// G3: a call that exceeds the server's deadline is DEADLINE_EXCEEDED, also if the client asks for a longer one.
#[tokio::test]
async fn unary_call_beyond_its_deadline_is_deadline_exceeded() {
    let server = ScriptedServer::start_with_limits(EdgeLimits {
        unary_deadline: Duration::from_millis(50),
        ..EdgeLimits::default()
    })
    .await;
    let pending_update = || {
        let update = generated_client::MatchmakingUpdateAdvertisementRequest {
            time_to_live_ms: Some(PENDING_UPDATE_TTL_MS),
            ..publish_request()
        };
        generated_client::MatchmakingCoreRequest {
            request_type: Some(2),
            request_nonce: Some(1),
            update_advertisement_request: Some(update),
            ..Default::default()
        }
    };
    let mut client = server.matchmaking_client().await;
    assert_eq!(client.core(pending_update()).await.unwrap_err().code(), Code::DeadlineExceeded);
    let mut request = tonic::Request::new(pending_update());
    request.metadata_mut().insert("grpc-timeout", "90000S".parse().unwrap());
    assert_eq!(client.core(request).await.unwrap_err().code(), Code::DeadlineExceeded);
    server.observer.wait_for_call("fireteam.v1.MatchmakingService/Core", "DEADLINE_EXCEEDED").await;
}

/// R20: a panic fails one call with INTERNAL; the connection and the server continue.
#[tokio::test]
async fn panic_fails_one_call_with_internal() {
    let server = ScriptedServer::start().await;
    let mut client = server.matchmaking_client().await;
    let mut panicking = search_request();
    panicking.session_composition.as_mut().unwrap().silo_id = Some(PANIC_SILO);
    let status = client.search(panicking).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(!status.message().contains("scripted"), "{status:?} has internal details");
    client.search(search_request()).await.unwrap();
    server.observer.wait_for_call("fireteam.v1.MatchmakingService/Search", "INTERNAL").await;
    server.observer.wait_for_call("fireteam.v1.MatchmakingService/Search", "OK").await;
}

/// G4: a message over 64 KiB is OUT_OF_RANGE.
#[tokio::test]
async fn message_above_64_kib_is_out_of_range() {
    let server = ScriptedServer::start().await;
    let large = generated_client::MatchmakingSearchRequest { search_token: vec![0; 64 * 1024], ..search_request() };
    assert_eq!(server.matchmaking_client().await.search(large).await.unwrap_err().code(), Code::OutOfRange);
}

/// SEC-19: all unknown methods share one metric name.
#[tokio::test]
async fn unknown_methods_share_one_metric_name() {
    let server = ScriptedServer::start().await;
    for name in ["Guess", "Guess2"] {
        let path = format!("/fireteam.v1.MatchmakingService/{name}").parse().unwrap();
        let mut client = tonic::client::Grpc::new(server.client_channel().await);
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<_, generated_client::MatchmakingSearchResponse>::default();
        let status = client.unary(tonic::Request::new(search_request()), path, codec).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
    }
    server.observer.wait_for_call("other", "UNIMPLEMENTED").await;
    assert!(server.observer.calls.lock().unwrap().iter().all(|call| *call == ("other", "UNIMPLEMENTED")));
}

/// One HTTP/1.1 exchange.
async fn http_exchange(address: std::net::SocketAddr, head: &str, body: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket
        .write_all(format!("{head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len()).as_bytes())
        .await
        .unwrap();
    socket.write_all(body).await.unwrap();
    String::from_utf8_lossy(&read_until_closed(&mut socket).await).into_owned()
}

/// G12: a browser page may call, and may read the status.
#[tokio::test]
async fn grpc_web_is_served_on_the_same_port() {
    use prost::Message;
    let server = ScriptedServer::start().await;
    let preflight = "OPTIONS /fireteam.v1.MatchmakingService/ChooseAction HTTP/1.1\r\nhost: x\r\norigin: https://game.example\r\n\
                     access-control-request-method: POST\r\naccess-control-request-headers: x-grpc-web,content-type";
    let response = http_exchange(server.address, preflight, b"").await.to_lowercase();
    assert!(response.starts_with("http/1.1 200"), "{response}");
    assert!(response.contains("access-control-allow-origin: *"), "{response}");

    let wire = generated_client::MatchmakingChooseActionRequest { matchmaking_set_id: Some(SET_ID), party_size: 2 }
        .encode_to_vec();
    let mut framed = vec![0, 0, 0, 0, u8::try_from(wire.len()).unwrap()];
    framed.extend(wire);
    let call = "POST /fireteam.v1.MatchmakingService/ChooseAction HTTP/1.1\r\nhost: x\r\norigin: https://game.example\r\n\
                content-type: application/grpc-web+proto\r\nx-grpc-web: 1";
    let response = http_exchange(server.address, call, &framed).await.to_lowercase();
    assert!(response.starts_with("http/1.1 200"), "{response}");
    assert!(response.contains("grpc-status:0"), "the trailers are in the body: {response}");
    let exposed = response.lines().find(|line| line.starts_with("access-control-expose-headers")).unwrap();
    for header in ["grpc-status", "grpc-message", "grpc-status-details-bin"] {
        assert!(exposed.contains(header), "{exposed}");
    }
}

/// Health reports the server and its service, as a call and as a stream.
#[tokio::test]
async fn health_is_reported_by_service_name() {
    use tonic_health::pb::health_client::HealthClient;
    use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
    let server = ScriptedServer::start().await;
    let mut health = HealthClient::new(server.client_channel().await);
    for service in ["", "fireteam.v1.MatchmakingService"] {
        let request = HealthCheckRequest { service: service.into() };
        assert_eq!(health.check(request.clone()).await.unwrap().into_inner().status(), ServingStatus::Serving);
        let first = health.watch(request).await.unwrap().into_inner().next().await.unwrap().unwrap();
        assert_eq!(first.status(), ServingStatus::Serving);
    }
    let unknown = HealthCheckRequest { service: "nothing".into() };
    assert_eq!(health.check(unknown).await.unwrap_err().code(), Code::NotFound);
}
