//! Frames that ask for nothing: whoever floods the server with them is sent away, and no client that means well is, whatever
//! library it is made with. Clients here come from this machine, and are passed on as if from elsewhere.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Endpoint;

use fireteam::server::h2_frame_limit::Rate;
use fireteam::server::limits::EdgeLimits;

use crate::api::cpp_client::{session_demo, run_demo};
use crate::support::test_server::TestServer;
use crate::support::generated_client;
use crate::support::generated_client::matchmaking_service_client::MatchmakingServiceClient;
use crate::support::scripted_server::{TEST_TIMEOUT, ScriptedServer, publish_request, search_request};
use crate::api::limits_wire::read_until_closed;

/// An address of this machine that is no neighbour's.
const UNTRUSTED_ADDRESS: &str = "127.0.0.77";

async fn connect_untrusted(to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.bind(SocketAddr::new(UNTRUSTED_ADDRESS.parse().unwrap(), 0)).unwrap();
    socket.connect(to).await.unwrap()
}

/// Where to connect to be passed on to `server` as a stranger.
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

/// Reads until the server has answered so many PINGs.
async fn wait_for_ping_acks(socket: &mut TcpStream, pings: usize) {
    let mut said = Vec::new();
    while said.windows(8).filter(|bytes| bytes == b"_is_it__").count() < pings {
        let read = tokio::time::timeout(TEST_TIMEOUT, socket.read_buf(&mut said)).await;
        assert_ne!(read.expect("an answer in time").unwrap(), 0, "it is not closed");
    }
}

/// SEC-1: a flood of frames ends its connection; what one connection of a place has sent another may not; whoever is
/// elsewhere is served, and a neighbour may send what it likes.
#[tokio::test]
async fn control_frame_flood_ends_its_connection() {
    let share = Rate { burst: 20, interval: Duration::from_secs(3_600) };
    let edge = EdgeLimits {
        control_frame_rate: share,
        control_frame_rate_per_prefix: Rate { burst: 30, ..share },
        ..EdgeLimits::default()
    };
    let house = ScriptedServer::start_with_limits(edge).await;
    let said = |frame: &[u8], count| [HTTP2_PREFACE, &frame.repeat(count)].concat();
    let mut quiet = connect_untrusted(house.address).await;
    quiet.write_all(&said(PING_FRAME, 19)).await.unwrap();
    wait_for_ping_acks(&mut quiet, 19).await;
    // Too many for a connection; and, with those of the first, too many for a place.
    for (frame, count) in [(PING_FRAME, 20), (WINDOW_UPDATE_FRAME, 10)] {
        let mut socket = connect_untrusted(house.address).await;
        socket.write_all(&said(frame, count)).await.unwrap();
        drop(read_until_closed(&mut socket).await);
    }
    assert_eq!(*house.observer.rejected_connections.lock().unwrap(), ["frame_rate"; 2]);
    let mut neighbour = house.raw_connection().await;
    neighbour.write_all(&said(PING_FRAME, 1_000)).await.unwrap();
    wait_for_ping_acks(&mut neighbour, 1_000).await;
    house.matchmaking_client().await.search(search_request()).await.expect("others are served");
    assert_eq!(house.observer.rejected_connections.lock().unwrap().len(), 2);
}

/// SEC-1: a client that means well, calls by the thousand, takes some of them back, talks on a stream and is told much on it,
/// pings, and fits its windows to the line, is never taken for a flood; nor are twenty of them at one place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_frame_limit_allows_busy_clients() {
    let house = ScriptedServer::start().await;
    let at = format!("http://{}", start_untrusted_forwarder(house.address).await);
    let endpoint = Endpoint::from_shared(at).unwrap();
    // The least room there can be, so that it is made again and again; and a PING as often as the library allows.
    let restless = endpoint
        .clone()
        .initial_stream_window_size(1_024)
        .initial_connection_window_size(65_535)
        .http2_keep_alive_interval(Duration::from_millis(20))
        .keep_alive_while_idle(true);
    let clients = (0..20).map(|number| {
        let endpoint = if number % 2 == 0 { restless.clone() } else { endpoint.clone().http2_adaptive_window(true) };
        tokio::spawn(async move {
            let mut client = MatchmakingServiceClient::new(endpoint.connect().await.unwrap());
            for number in 0..100 {
                client.search(search_request()).await.unwrap();
                let mut other = client.clone();
                let taken_back = other.search(search_request());
                drop(tokio::time::timeout(Duration::from_micros(number * 10), taken_back).await);
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
    assert_eq!(*house.observer.rejected_connections.lock().unwrap(), [""; 0]);
}

/// SEC-1: the same for gRPC's own library, as games in C++ have it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_frame_limit_allows_the_cpp_client() {
    let Some(demo) = tokio::task::spawn_blocking(session_demo).await.unwrap() else { return };
    let house = TestServer::start_with_config(|config| config.trusted_proxies.clear()).await;
    let target = start_untrusted_forwarder(house.app.server.address).await.to_string();
    for _ in 0..5 {
        let (demo, target) = (demo.clone(), target.clone());
        let output = tokio::task::spawn_blocking(move || run_demo(&demo, &target)).await.unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    let metrics = house.app.metrics.render();
    assert!(metrics.contains("reason=\"frame_rate\"} 0"), "{metrics}");
}
