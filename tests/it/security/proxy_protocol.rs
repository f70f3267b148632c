//! The PROXY protocol on the client port: trusted senders, client addresses, limits per client.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;
use tonic::transport::server::Connected;

use fireteam::clock::SystemClock;
use fireteam::server::accept::IncomingConnections;
use fireteam::server::handshake::{ConnectionHandshaker, ProxySettings};
use fireteam::server::limits::EdgeLimits;

use crate::api::limits_wire::read_until_closed;
use crate::support::scripted_server::{RecordingObserver, TEST_TIMEOUT};

/// Address of the trusted proxy; other connections use other addresses.
const TRUSTED_PROXY: &str = "127.0.0.9";

struct ProxyPort {
    incoming: IncomingConnections,
    observer: Arc<RecordingObserver>,
}

impl ProxyPort {
    fn open(edge: EdgeLimits) -> Self {
        let counted = Arc::new(RecordingObserver::default());
        let proxy: IpAddr = TRUSTED_PROXY.parse().unwrap();
        let proxies =
            ProxySettings { is_trusted_proxy: Arc::new(move |address| address == proxy), require_proxy_header: true };
        let clock = Arc::new(SystemClock::start());
        let handshaker =
            ConnectionHandshaker::new(Arc::new(edge), clock, counted.clone(), CancellationToken::new(), None, proxies);
        Self {
            incoming: IncomingConnections::bind(&["127.0.0.1:0".parse().unwrap()], handshaker).unwrap(),
            observer: counted,
        }
    }

    /// Connects from `address` and sends `header`.
    async fn connect(&self, address: &str, header: &[u8]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
        let mut socket = socket.connect(self.incoming.address()).await.unwrap();
        socket.write_all(header).await.unwrap();
        socket
    }

    /// Client address of the next accepted connection.
    async fn next_client_address(&mut self) -> IpAddr {
        let next = tokio::time::timeout(TEST_TIMEOUT, self.incoming.next()).await.expect("a connection in time");
        next.unwrap().unwrap().connect_info().address
    }

    /// Asserts that no connection is accepted and one is rejected for `reason`.
    async fn assert_rejected(&mut self, socket: &mut TcpStream, reason: &'static str) {
        tokio::select! {
            _ = self.incoming.next() => panic!("accepted instead of rejected for {reason}"),
            () = self.observer.wait_for_rejection(reason) => {}
        }
        assert_eq!(read_until_closed(socket).await, b"");
    }
}

fn ip_address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[tokio::test]
async fn proxy_header_from_a_trusted_proxy_sets_the_client_address() {
    let mut port = ProxyPort::open(EdgeLimits::default());
    let version_2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x09\xc0\0\x02\x01\x30\x39\x01\xbb";
    let _first = port.connect(TRUSTED_PROXY, b"PROXY TCP4 203.0.113.9 192.0.2.1 12345 443\r\n").await;
    assert_eq!(port.next_client_address().await, ip_address("203.0.113.9"));
    let _second = port.connect(TRUSTED_PROXY, version_2).await;
    assert_eq!(port.next_client_address().await, ip_address("203.0.113.9"));
    let _third = port.connect(TRUSTED_PROXY, b"PROXY TCP6 ::ffff:203.0.113.7 ::1 12345 443\r\n").await;
    assert_eq!(port.next_client_address().await, ip_address("203.0.113.7"), "in canonical form");
}

/// A health check of the proxy itself (LOCAL command).
#[tokio::test]
async fn proxy_local_header_keeps_the_proxy_address() {
    let mut port = ProxyPort::open(EdgeLimits::default());
    let _check = port.connect(TRUSTED_PROXY, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").await;
    assert_eq!(port.next_client_address().await, ip_address(TRUSTED_PROXY));
}

/// SEC-7: a header from an untrusted peer has no effect: its connection is rejected.
#[tokio::test]
async fn proxy_header_from_an_untrusted_peer_is_rejected() {
    for header in [&b"PROXY TCP4 203.0.113.9 192.0.2.1 12345 443\r\n"[..], b""] {
        // A new port per case, because recorded rejections stay.
        let mut port = ProxyPort::open(EdgeLimits::default());
        let mut socket = port.connect("127.0.0.1", header).await;
        port.assert_rejected(&mut socket, "untrusted_peer").await;
    }
}

#[tokio::test]
async fn proxy_without_a_header_is_rejected() {
    let mut port = ProxyPort::open(EdgeLimits::default());
    let mut socket = port.connect(TRUSTED_PROXY, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    port.assert_rejected(&mut socket, "proxy_header").await;
}

#[tokio::test]
async fn proxy_header_that_is_incomplete_times_out() {
    let mut port =
        ProxyPort::open(EdgeLimits { first_bytes_timeout: Duration::from_millis(50), ..EdgeLimits::default() });
    let mut socket = port.connect(TRUSTED_PROXY, b"PROXY TCP4 203.0.113.9 ").await;
    port.assert_rejected(&mut socket, "handshake_timeout").await;
}

/// SEC-2: limits count the client's address, not the proxy's.
#[tokio::test]
async fn proxied_connection_limits_apply_to_the_client() {
    let mut port = ProxyPort::open(EdgeLimits { connections_per_host_max: 1, ..EdgeLimits::default() });
    let header = b"PROXY TCP4 203.0.113.9 192.0.2.1 12345 443\r\n";
    let _socket = port.connect(TRUSTED_PROXY, header).await;
    let _first = tokio::time::timeout(TEST_TIMEOUT, port.incoming.next()).await.expect("a connection in time");
    let mut second = port.connect(TRUSTED_PROXY, header).await;
    port.assert_rejected(&mut second, "max_per_ip").await;
    let _other = port.connect(TRUSTED_PROXY, b"PROXY TCP4 203.0.113.10 192.0.2.1 12345 443\r\n").await;
    assert_eq!(port.next_client_address().await, ip_address("203.0.113.10"));
}
