//! Control frame limits: a connection that floods the server with HTTP/2 control frames is ended, and normal clients of
//! any library are not. Clients connect from loopback; a forwarder gives them an untrusted address.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use fireteam::server::limits::EdgeLimits;
use fireteam::server::token_bucket::Rate;

use crate::api::cpp_client::{run_demo, session_demo};
use crate::api::limits_wire::read_until_closed;
use crate::support::generated_client;
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::scripted_server::{ScriptedServer, TEST_TIMEOUT, publish_request, search_request};
use crate::support::test_server::TestServer;

/// A loopback address that is not a trusted peer.
const UNTRUSTED_ADDRESS: &str = "127.0.0.77";

async fn connect_untrusted(to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(SocketAddr::new(UNTRUSTED_ADDRESS.parse().unwrap(), 0)).unwrap();
    socket.connect(to).await.unwrap()
}

/// Starts a forwarder to `server` from the untrusted address and returns its address.
async fn start_untrusted_forwarder(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut server = connect_untrusted(server).await;
                tokio::io::copy_bidirectional(&mut client, &mut server).await
            });
        }
    });
    address
}

const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const PING_FRAME: &[u8] = b"\0\0\x08\x06\0\0\0\0\0_is_it__";
const WINDOW_UPDATE_FRAME: &[u8] = b"\0\0\x04\x08\0\0\0\0\0\0\0\0\x01";

/// Reads until the server has acknowledged `pings` PING frames.
async fn wait_for_ping_acks(socket: &mut TcpStream, pings: usize) {
    let mut received = Vec::new();
    while received.windows(8).filter(|bytes| bytes == b"_is_it__").count() < pings {
        let read = tokio::time::timeout(TEST_TIMEOUT, socket.read_buf(&mut received)).await;
        assert_ne!(read.expect("an answer in time").unwrap(), 0, "the connection is open");
    }
}

/// SEC-1: too many frames end their connection. Connections from one address share a limit. Other addresses are served,
/// and a trusted peer has no limit.
#[tokio::test]
async fn control_frame_flood_ends_its_connection() {
    let rate = Rate { burst: 20, interval: Duration::from_secs(3_600) };
    let edge = EdgeLimits {
        control_frame_rate_per_connection: rate,
        control_frame_rate_per_host: Rate { burst: 30, ..rate },
        ..EdgeLimits::default()
    };
    let server = ScriptedServer::start_with_limits(edge).await;
    let frames = |frame: &[u8], count| [HTTP2_PREFACE, &frame.repeat(count)].concat();
    let mut below_limit = connect_untrusted(server.address).await;
    below_limit.write_all(&frames(PING_FRAME, 19)).await.unwrap();
    wait_for_ping_acks(&mut below_limit, 19).await;
    // Too many for one connection; and, with those of the first connection, too many for one address.
    for (frame, count) in [(PING_FRAME, 20), (WINDOW_UPDATE_FRAME, 10)] {
        let mut socket = connect_untrusted(server.address).await;
        socket.write_all(&frames(frame, count)).await.unwrap();
        drop(read_until_closed(&mut socket).await);
    }
    assert_eq!(*server.observer.rejected_connections.lock().unwrap(), ["frame_rate"; 2]);
    let mut trusted_peer = server.raw_connection().await;
    trusted_peer.write_all(&frames(PING_FRAME, 1_000)).await.unwrap();
    wait_for_ping_acks(&mut trusted_peer, 1_000).await;
    server.matchmaking_client().await.search(search_request()).await.expect("others are served");
    assert_eq!(server.observer.rejected_connections.lock().unwrap().len(), 2);
}

/// SEC-1: twenty busy clients of one address stay below the limits: thousands of calls, cancelled calls, long streams,
/// pings, adaptive windows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_frame_limit_allows_busy_clients() {
    let server = ScriptedServer::start().await;
    let uri = format!("http://{}", start_untrusted_forwarder(server.address).await);
    let endpoint = Endpoint::from_shared(uri).unwrap();
    // The smallest windows, for many WINDOW_UPDATE frames; and a PING as often as the library allows.
    let busy_endpoint = endpoint
        .clone()
        .initial_stream_window_size(1_024)
        .initial_connection_window_size(65_535)
        .http2_keep_alive_interval(Duration::from_millis(20))
        .keep_alive_while_idle(true);
    let clients = (0..20).map(|number| {
        let endpoint =
            if number % 2 == 0 { busy_endpoint.clone() } else { endpoint.clone().http2_adaptive_window(true) };
        tokio::spawn(async move {
            let mut client = MatchmakingServiceClient::new(endpoint.connect().await.unwrap());
            for number in 0..100 {
                client.search(search_request()).await.unwrap();
                let mut other = client.clone();
                let cancelled = other.search(search_request());
                drop(tokio::time::timeout(Duration::from_micros(number * 10), cancelled).await);
            }
            let (to, requests) = mpsc::channel(64);
            let mut from = client.connect(ReceiverStream::new(requests)).await.unwrap().into_inner();
            for nonce in 0..300 {
                let core = generated_client::MatchmakingCoreRequest {
                    request_type: Some(2),
                    request_nonce: Some(nonce),
                    update_advertisement_request: Some(publish_request()),
                    ..Default::default()
                };
                to.send(generated_client::MatchmakingConnectRequest { core: Some(core) }).await.unwrap();
                from.next().await.unwrap().unwrap();
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    assert_eq!(*server.observer.rejected_connections.lock().unwrap(), [""; 0]);
}

/// SEC-1: the same for gRPC's C++ library.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_frame_limit_allows_the_cpp_client() {
    let Some(demo) = tokio::task::spawn_blocking(session_demo).await.unwrap() else { return };
    let server = TestServer::start_with_config(|config| config.trusted_proxies.clear()).await;
    let target = start_untrusted_forwarder(server.app.server.address).await.to_string();
    for _ in 0..5 {
        let (demo, target) = (demo.clone(), target.clone());
        let output = tokio::task::spawn_blocking(move || run_demo(&demo, &target)).await.unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let metrics = server.app.metrics.render();
    assert!(metrics.contains("reason=\"frame_rate\"} 0"), "{metrics}");
}
