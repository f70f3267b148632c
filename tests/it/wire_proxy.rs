//! The PROXY protocol on the client port: who may say for whom he comes, and what follows from it.

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

use crate::stage::{Counted, PATIENCE};
use crate::wire_edge::until_closed;

/// Where the one trusted proxy is; connections of strangers come from elsewhere.
const PROXY: &str = "127.0.0.9";

struct Port {
    incoming: IncomingConnections,
    counted: Arc<Counted>,
}

impl Port {
    fn open(edge: EdgeLimits) -> Self {
        let counted = Arc::new(Counted::default());
        let proxy: IpAddr = PROXY.parse().unwrap();
        let proxies =
            ProxySettings { is_trusted: Arc::new(move |address| address == proxy), require_proxy_header: true };
        let clock = Arc::new(SystemClock::start());
        let entrance =
            ConnectionHandshaker::new(Arc::new(edge), clock, counted.clone(), CancellationToken::new(), None, proxies);
        Self { incoming: IncomingConnections::bind("127.0.0.1:0".parse().unwrap(), entrance).unwrap(), counted }
    }

    /// A connection from `address` that says `header`.
    async fn connect(&self, address: &str, header: &[u8]) -> TcpStream {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
        let mut socket = socket.connect(self.incoming.address()).await.unwrap();
        socket.write_all(header).await.unwrap();
        socket
    }

    /// Whose connection the next one is.
    async fn arrived(&mut self) -> IpAddr {
        let next = tokio::time::timeout(PATIENCE, self.incoming.next()).await.expect("it arrives");
        next.unwrap().unwrap().connect_info().address
    }

    /// Nobody arrives, and somebody is turned away because of `why`.
    async fn turns_away(&mut self, socket: &mut TcpStream, why: &'static str) {
        tokio::select! {
            _ = self.incoming.next() => panic!("let in, and not turned away because of {why}"),
            () = self.counted.wait_for_turned_away(why) => {}
        }
        assert_eq!(until_closed(socket).await, b"");
    }
}

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[tokio::test]
async fn a_trusted_proxy_says_for_whom_it_comes() {
    let mut port = Port::open(EdgeLimits::default());
    let two = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xcb\0\x71\x09\xc0\0\x02\x01\x30\x39\x01\xbb";
    let _first = port.connect(PROXY, b"PROXY TCP4 203.0.113.9 192.0.2.1 12345 443\r\n").await;
    assert_eq!(port.arrived().await, address("203.0.113.9"));
    let _second = port.connect(PROXY, two).await;
    assert_eq!(port.arrived().await, address("203.0.113.9"));
    let _third = port.connect(PROXY, b"PROXY TCP6 ::ffff:203.0.113.7 ::1 12345 443\r\n").await;
    assert_eq!(port.arrived().await, address("203.0.113.7"), "in canonical form");
}

/// The proxy's own look at whether we live.
#[tokio::test]
async fn a_proxy_that_speaks_for_itself_keeps_its_address() {
    let mut port = Port::open(EdgeLimits::default());
    let _check = port.connect(PROXY, b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0").await;
    assert_eq!(port.arrived().await, address(PROXY));
}

/// SEC-7: a header from anybody else has no effect, because its sender is not listened to.
#[tokio::test]
async fn a_strangers_header_is_not_read() {
    for header in [&b"PROXY TCP4 203.0.113.9 192.0.2.1 12345 443\r\n"[..], b""] {
        // Another one each time: what has been counted once stays counted.
        let mut port = Port::open(EdgeLimits::default());
        let mut socket = port.connect("127.0.0.1", header).await;
        port.turns_away(&mut socket, "no_proxy").await;
    }
}

#[tokio::test]
async fn a_proxy_without_a_header_is_refused() {
    let mut port = Port::open(EdgeLimits::default());
    let mut socket = port.connect(PROXY, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    port.turns_away(&mut socket, "proxy_header").await;
}

#[tokio::test]
async fn a_header_must_come_in_time() {
    let mut port = Port::open(EdgeLimits { first_bytes_timeout: Duration::from_millis(50), ..EdgeLimits::default() });
    let mut socket = port.connect(PROXY, b"PROXY TCP4 203.0.113.9 ").await;
    port.turns_away(&mut socket, "too_slow").await;
}

/// SEC-2: what is counted is the client, not the proxy that all clients come by.
#[tokio::test]
async fn limits_are_the_clients_own() {
    let mut port = Port::open(EdgeLimits { connections_per_prefix_max: 1, ..EdgeLimits::default() });
    let header = b"PROXY TCP4 203.0.113.9 192.0.2.1 12345 443\r\n";
    let _socket = port.connect(PROXY, header).await;
    let _first = tokio::time::timeout(PATIENCE, port.incoming.next()).await.expect("it arrives");
    let mut second = port.connect(PROXY, header).await;
    port.turns_away(&mut second, "too_many_from_one_place").await;
    let _other = port.connect(PROXY, b"PROXY TCP4 203.0.113.10 192.0.2.1 12345 443\r\n").await;
    assert_eq!(port.arrived().await, address("203.0.113.10"));
}
