//! Datagrams of loops on a tokio socket.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::net::UdpSocket;

use crate::matching::Transmit;

/// Longest datagram that is received.
pub(crate) const DATAGRAM_BYTES_MAX: usize = 2_048;
/// Pause after the socket failed.
const SOCKET_FAILURE_PAUSE: Duration = Duration::from_millis(20);

/// Sends a datagram. One that cannot be sent counts as lost.
pub(crate) async fn send(socket: &UdpSocket, transmit: Transmit) {
    let _ = socket.send_to(&transmit.packet, address_for_socket(socket, transmit.to)).await;
}

/// Waits for a datagram. `None` after a pause if the socket failed, as some systems let it when a host's port is closed.
pub(crate) async fn receive<'buffer>(
    socket: &UdpSocket,
    buffer: &'buffer mut [u8],
) -> Option<(&'buffer [u8], SocketAddr)> {
    match socket.recv_from(buffer).await {
        Ok((length, from)) => buffer.get(..length).map(|packet| (packet, from)),
        Err(_) => {
            tokio::time::sleep(SOCKET_FAILURE_PAUSE).await;
            None
        }
    }
}

/// Address as the socket takes it: a socket of both families takes IPv4 addresses in their IPv6 form.
fn address_for_socket(socket: &UdpSocket, to: SocketAddr) -> SocketAddr {
    match (socket.local_addr(), to.ip()) {
        (Ok(SocketAddr::V6(_)), IpAddr::V4(address)) => SocketAddr::new(address.to_ipv6_mapped().into(), to.port()),
        _ => to,
    }
}
