//! What strangers may do to a connection, and what they are told: limits, deadlines, panics, pages for browsers.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

use fireteam::server::limits::EdgeLimits;

use crate::plain;
use crate::plain::matchmaking_service_client::MatchmakingServiceClient;
use crate::scripted::{PANICS_SILO, SET, WAITS_MS};
use crate::stage::{PATIENCE, Stage, publish, search};

/// Reads until the other side closes.
pub(crate) async fn until_closed(socket: &mut TcpStream) -> Vec<u8> {
    let mut read = Vec::new();
    // A reset is an end too.
    let reading = socket.read_to_end(&mut read);
    drop(tokio::time::timeout(PATIENCE, reading).await.expect("the server closes the connection"));
    read
}

/// F3: whoever says nothing, or too little, is sent away; whoever has begun to speak is not.
#[tokio::test]
async fn a_connection_must_begin_in_time() {
    let house =
        Stage::with_edge(EdgeLimits { first_bytes_timeout: Duration::from_millis(50), ..EdgeLimits::default() }).await;
    let mut client = house.client().await;
    client.search(search()).await.unwrap();
    let mut silent = house.socket().await;
    until_closed(&mut silent).await;
    let mut slow = house.socket().await;
    slow.write_all(b"PRI * HTTP/2.0\r\n").await.unwrap();
    until_closed(&mut slow).await;
    client.search(search()).await.expect("the first connection outlives both");
}

#[tokio::test]
async fn a_connection_does_not_outlive_its_lifetime() {
    let age = Duration::from_millis(50);
    let house =
        Stage::with_edge(EdgeLimits { connection_age: age, connection_age_grace: age, ..EdgeLimits::default() }).await;
    let mut socket = house.socket().await;
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let said = until_closed(&mut socket).await;
    // The type byte of a GOAWAY frame on stream 0: the client is asked to go before it is sent.
    assert!(said.windows(6).any(|bytes| bytes == [8, 7, 0, 0, 0, 0]), "no GOAWAY in {said:?}");
}

/// SEC-1, F2: a connection that breaks the protocol again and again is told to go; without the limit the server would
/// queue an answer to each of these for as long as they come.
#[tokio::test]
async fn a_connection_that_keeps_breaking_the_protocol_is_ended() {
    let house = Stage::open().await;
    let mut socket = house.socket().await;
    socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    for stream in (1..2_000u32).step_by(2) {
        // HEADERS, the end of headers and of the stream, with nothing but `:method: GET`.
        let mut frame = vec![0, 0, 1, 1, 5];
        frame.extend(stream.to_be_bytes());
        frame.push(0x82);
        if socket.write_all(&frame).await.is_err() {
            break;
        }
    }
    let said = until_closed(&mut socket).await;
    let calm_down = [0, 0, 0, 11];
    let goaway = said.windows(17).find(|frame| frame[3] == 7 && frame[13..17] == calm_down);
    assert!(goaway.is_some(), "no GOAWAY with ENHANCE_YOUR_CALM among {} bytes", said.len());
    house.client().await.search(search()).await.expect("others are served");
}

/// SEC-2: what is too many is closed at once and counted.
#[tokio::test]
async fn too_many_connections_from_one_place_are_turned_away() {
    let house = Stage::with_edge(EdgeLimits { connections_per_trusted_peer_max: 2, ..EdgeLimits::default() }).await;
    let (_one, _two) = (house.client().await, house.socket().await);
    let mut three = house.socket().await;
    assert_eq!(until_closed(&mut three).await, b"");
    assert_eq!(*house.counted.turned_away.lock().unwrap(), ["too_many_from_one_place"]);
}

#[tokio::test]
async fn a_connection_may_have_few_streams_open() {
    let house = Stage::with_edge(EdgeLimits { streams_per_trusted_connection_max: 1, ..EdgeLimits::default() }).await;
    let mut client = house.client().await;
    let open = async |client: &mut MatchmakingServiceClient<Channel>| {
        let (to, requests) = mpsc::channel::<plain::MatchmakingConnectRequest>(1);
        let from = client.connect(ReceiverStream::new(requests)).await?;
        Ok::<_, Status>((to, from.into_inner()))
    };
    let (to, mut from) = open(&mut client).await.unwrap();
    assert_eq!(open(&mut client).await.unwrap_err().code(), Code::ResourceExhausted);
    client.search(search()).await.expect("calls are no streams");
    drop(to);
    assert!(from.next().await.is_none(), "whoever has said all is let go");
    open(&mut client).await.expect("the first one's place is free again");
}

/// G3: a call that the server ends is DEADLINE_EXCEEDED, and a client cannot ask for more time than the server gives.
#[tokio::test]
async fn a_call_that_takes_too_long_says_so() {
    let house =
        Stage::with_edge(EdgeLimits { unary_deadline: Duration::from_millis(50), ..EdgeLimits::default() }).await;
    let stuck = || {
        let update = plain::MatchmakingUpdateAdvertisementRequest { time_to_live_ms: Some(WAITS_MS), ..publish() };
        plain::MatchmakingCoreRequest {
            request_type: Some(2),
            request_nonce: Some(1),
            update_advertisement_request: Some(update),
            ..Default::default()
        }
    };
    let mut client = house.client().await;
    assert_eq!(client.core(stuck()).await.unwrap_err().code(), Code::DeadlineExceeded);
    let mut request = tonic::Request::new(stuck());
    request.metadata_mut().insert("grpc-timeout", "90000S".parse().unwrap());
    assert_eq!(client.core(request).await.unwrap_err().code(), Code::DeadlineExceeded);
    house.counted.wait_for("fireteam.v1.MatchmakingService/Core", "DEADLINE_EXCEEDED").await;
}

/// R20: a panic is that call's INTERNAL; the connection and the server go on.
#[tokio::test]
async fn a_panic_is_internal_to_one_call() {
    let house = Stage::open().await;
    let mut client = house.client().await;
    let mut cursed = search();
    cursed.session_composition.as_mut().unwrap().silo_id = Some(PANICS_SILO);
    let status = client.search(cursed).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(!status.message().contains("script"), "{status:?} tells of the inside");
    client.search(search()).await.unwrap();
    house.counted.wait_for("fireteam.v1.MatchmakingService/Search", "INTERNAL").await;
    house.counted.wait_for("fireteam.v1.MatchmakingService/Search", "OK").await;
}

/// G4: a message over 64 KiB is OUT_OF_RANGE.
#[tokio::test]
async fn a_message_that_is_too_large_is_refused() {
    let house = Stage::open().await;
    let large = plain::MatchmakingSearchRequest { search_token: vec![0; 64 * 1024], ..search() };
    assert_eq!(house.client().await.search(large).await.unwrap_err().code(), Code::OutOfRange);
}

/// SEC-19: whatever a stranger calls a method, it is counted as one thing.
#[tokio::test]
async fn unknown_methods_share_one_name() {
    let house = Stage::open().await;
    for name in ["Guess", "Guess2"] {
        let path = format!("/fireteam.v1.MatchmakingService/{name}").parse().unwrap();
        let mut client = tonic::client::Grpc::new(house.channel().await);
        client.ready().await.unwrap();
        let codec = tonic_prost::ProstCodec::<_, plain::MatchmakingSearchResponse>::default();
        let status = client.unary(tonic::Request::new(search()), path, codec).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
    }
    house.counted.wait_for("other", "UNIMPLEMENTED").await;
    assert!(house.counted.calls.lock().unwrap().iter().all(|call| *call == ("other", "UNIMPLEMENTED")));
}

/// One HTTP/1.1 exchange.
async fn http(address: std::net::SocketAddr, head: &str, body: &[u8]) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    socket
        .write_all(format!("{head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n", body.len()).as_bytes())
        .await
        .unwrap();
    socket.write_all(body).await.unwrap();
    String::from_utf8_lossy(&until_closed(&mut socket).await).into_owned()
}

/// G12: a browser's page may call, and may read the status.
#[tokio::test]
async fn browsers_are_served_on_the_same_port() {
    use prost::Message;
    let house = Stage::open().await;
    let preflight = "OPTIONS /fireteam.v1.MatchmakingService/ChooseAction HTTP/1.1\r\nhost: x\r\norigin: https://game.example\r\n\
                     access-control-request-method: POST\r\naccess-control-request-headers: x-grpc-web,content-type";
    let answer = http(house.address, preflight, b"").await.to_lowercase();
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    assert!(answer.contains("access-control-allow-origin: *"), "{answer}");

    let wire = plain::MatchmakingChooseActionRequest { matchmaking_set_id: Some(SET), party_size: 2 }.encode_to_vec();
    let mut framed = vec![0, 0, 0, 0, u8::try_from(wire.len()).unwrap()];
    framed.extend(wire);
    let call = "POST /fireteam.v1.MatchmakingService/ChooseAction HTTP/1.1\r\nhost: x\r\norigin: https://game.example\r\n\
                content-type: application/grpc-web+proto\r\nx-grpc-web: 1";
    let answer = http(house.address, call, &framed).await.to_lowercase();
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    assert!(answer.contains("grpc-status:0"), "the trailers are in the body: {answer}");
    let exposed = answer.lines().find(|line| line.starts_with("access-control-expose-headers")).unwrap();
    for header in ["grpc-status", "grpc-message", "grpc-status-details-bin"] {
        assert!(exposed.contains(header), "{exposed}");
    }
}

/// Health answers for the server and its service, as a call and as a stream.
#[tokio::test]
async fn health_is_told_by_name() {
    use tonic_health::pb::health_client::HealthClient;
    use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};
    let house = Stage::open().await;
    let mut health = HealthClient::new(house.channel().await);
    for service in ["", "fireteam.v1.MatchmakingService"] {
        let request = HealthCheckRequest { service: service.into() };
        assert_eq!(health.check(request.clone()).await.unwrap().into_inner().status(), ServingStatus::Serving);
        let first = health.watch(request).await.unwrap().into_inner().next().await.unwrap().unwrap();
        assert_eq!(first.status(), ServingStatus::Serving);
    }
    let unknown = HealthCheckRequest { service: "nothing".into() };
    assert_eq!(health.check(unknown).await.unwrap_err().code(), Code::NotFound);
}
