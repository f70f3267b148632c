//! Client address of a call, from the connection's peer and the `x-forwarded-for` header.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use http::{Extensions, HeaderMap, HeaderName};

/// Lines of `x-forwarded-for` that are read, the last ones. Proxies append to the last line, or add one.
const FORWARDED_FOR_LINES_MAX: usize = 16;

/// Parsed once: a lookup by text parses the name again.
static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Remote end of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionPeer {
    /// IP address; an IPv4-mapped IPv6 address is converted to IPv4.
    pub address: IpAddr,
    /// Streams open on this connection.
    pub open_streams: Arc<AtomicU32>,
    /// Limit of `open_streams`.
    pub streams_max: u32,
    /// Client certificate that TLS has verified, DER.
    pub certificate: Option<Arc<[u8]>>,
    /// Whether the peer is loopback or a trusted proxy, which carry many clients.
    pub is_trusted: bool,
    /// Whether an identity was accepted on this connection. If places run out, connections without one are closed first.
    pub has_identity: Arc<AtomicBool>,
    /// Least round trip of the connection, if the client's own host is at its other end.
    pub tcp_floor: TcpRoundTripFloor,
}

/// Least round trip of a connection, as the kernel has measured it so far; clones share it.
#[derive(Clone, Debug)]
pub struct TcpRoundTripFloor(pub Arc<AtomicU32>);

impl Default for TcpRoundTripFloor {
    /// Unknown.
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(u32::MAX)))
    }
}

impl TcpRoundTripFloor {
    /// Microseconds; `None` if unknown.
    pub fn known_floor_us(&self) -> Option<u32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|us| *us != u32::MAX)
    }
}

impl ConnectionPeer {
    /// Peer without streams, certificate and identity.
    pub fn new(address: IpAddr, streams_max: u32) -> Self {
        let (open_streams, has_identity) = (Arc::default(), Arc::default());
        let tcp_floor = TcpRoundTripFloor::default();
        Self { address, open_streams, streams_max, certificate: None, is_trusted: false, has_identity, tcp_floor }
    }

    /// Records that a call on this connection was authenticated, or admitted if authentication is off.
    pub fn set_identified(&self) {
        if !self.has_identity.load(Ordering::Relaxed) {
            self.has_identity.store(true, Ordering::Relaxed);
        }
    }
}

/// Derives the client's address from the peer's address and the bytes of the `x-forwarded-for` lines, in the order received.
pub type ResolveClientAddress = Arc<dyn Fn(IpAddr, &[&[u8]]) -> IpAddr + Send + Sync>;

/// Finds the client address of a request.
#[derive(Clone)]
pub struct ClientAddressResolver {
    resolve: ResolveClientAddress,
}

/// Client address of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResolvedAddress {
    /// The address, in canonical form.
    pub address: IpAddr,
    /// Whether it is known to be a client's: a trusted peer that names none carries many clients.
    pub is_of_client: bool,
}

impl ClientAddressResolver {
    /// Uses `resolve` to skip trusted proxies.
    pub fn new(resolve: ResolveClientAddress) -> Self {
        Self { resolve }
    }

    /// Client address of a request; `None` for a request without a network connection, as in tests.
    pub fn resolve(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<ResolvedAddress> {
        let peer = extensions.get::<ConnectionPeer>()?;
        let address = self.address_behind(peer, headers);
        Some(ResolvedAddress { address, is_of_client: !peer.is_trusted || address != peer.address.to_canonical() })
    }

    /// Address of `resolve`.
    pub fn client_address(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<IpAddr> {
        self.resolve(headers, extensions).map(|resolved| resolved.address)
    }

    /// Address of `resolve`, if it is known to be a client's.
    pub fn known_client_address(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<IpAddr> {
        self.resolve(headers, extensions).filter(|resolved| resolved.is_of_client).map(|resolved| resolved.address)
    }

    /// Address of a trusted peer that calls for itself, as the health checks of a load balancer do; `None` for all others.
    pub fn address_of_trusted_peer_calling_for_itself(
        &self,
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Option<IpAddr> {
        let peer = extensions.get::<ConnectionPeer>().filter(|peer| peer.is_trusted)?;
        (!headers.contains_key(&FORWARDED_FOR)).then(|| peer.address.to_canonical())
    }

    fn address_behind(&self, peer: &ConnectionPeer, headers: &HeaderMap) -> IpAddr {
        let mut lines: Vec<&[u8]> = headers.get_all(&FORWARDED_FOR).iter().map(http::HeaderValue::as_bytes).collect();
        lines.drain(..lines.len().saturating_sub(FORWARDED_FOR_LINES_MAX));
        (self.resolve)(peer.address, &lines).to_canonical()
    }
}

impl std::fmt::Debug for ClientAddressResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientAddressResolver").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(is_trusted: bool) -> Extensions {
        let mut extensions = Extensions::new();
        extensions.insert(ConnectionPeer { is_trusted, ..ConnectionPeer::new("::ffff:10.0.0.1".parse().unwrap(), 4) });
        extensions
    }

    fn headers(lines: &[&[u8]]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for line in lines {
            map.append(&FORWARDED_FOR, http::HeaderValue::from_bytes(line).unwrap());
        }
        map
    }

    /// SEC-7: the resolver receives the peer and all bytes of the last 16 lines, in order. The trust rule itself is tested
    /// in `auth::forwarded_for`.
    #[test]
    fn client_address_receives_the_last_16_forwarded_lines_in_order() {
        let check = |lines: &[&[u8]], expected: &'static [&'static [u8]]| {
            let resolver = ClientAddressResolver::new(Arc::new(move |given, forwarded| {
                assert_eq!((given, forwarded), ("::ffff:10.0.0.1".parse().unwrap(), expected));
                given
            }));
            assert_eq!(resolver.client_address(&headers(lines), &peer(true)), Some("10.0.0.1".parse().unwrap()));
        };
        check(&[], &[]);
        check(&[b"1.1.1.1, 2.2.2.2", b"3.3.3.3"], &[b"1.1.1.1, 2.2.2.2", b"3.3.3.3"]);
        check(&[b"\xff, \x80", b" 3.3.3.3"], &[b"\xff, \x80", b" 3.3.3.3"]);
        let mut lines = vec![&b"x"[..]; 20];
        lines.extend([&b"y"[..]; 16]);
        const LAST: [&[u8]; 16] = [b"y"; 16];
        check(&lines, &LAST);
    }

    /// SEC-11: a trusted peer calls for itself without the header only, and its address is no client's network.
    #[test]
    fn trusted_peer_itself_is_a_call_without_forwarded_addresses() {
        let resolver = ClientAddressResolver::new(Arc::new(|peer, lines| match lines {
            [b"1.1.1.1"] => "1.1.1.1".parse().unwrap(),
            _ => peer,
        }));
        let proxy: IpAddr = "10.0.0.1".parse().unwrap();
        assert_eq!(resolver.address_of_trusted_peer_calling_for_itself(&headers(&[]), &peer(true)), Some(proxy));
        assert_eq!(resolver.address_of_trusted_peer_calling_for_itself(&headers(&[b"1.1.1.1"]), &peer(true)), None);
        assert_eq!(resolver.address_of_trusted_peer_calling_for_itself(&headers(&[b"junk"]), &peer(true)), None);
        assert_eq!(resolver.address_of_trusted_peer_calling_for_itself(&headers(&[]), &peer(false)), None);
        assert_eq!(
            resolver.known_client_address(&headers(&[b"1.1.1.1"]), &peer(true)),
            Some("1.1.1.1".parse().unwrap())
        );
        assert_eq!(resolver.known_client_address(&headers(&[]), &peer(true)), None);
        assert_eq!(resolver.known_client_address(&headers(&[]), &peer(false)), Some(proxy));
    }
}
