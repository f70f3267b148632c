//! Client address of a call, from the connection's peer and the `x-forwarded-for` header.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use http::{Extensions, HeaderMap};

/// Entries of `x-forwarded-for` that are read, from the right. Entries further left are set by untrusted clients.
const FORWARDED_FOR_HOPS_MAX: usize = 16;

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
}

/// Derives the client's address from the peer's address and the forwarded entries, left to right.
pub type ResolveClientAddress = Arc<dyn Fn(IpAddr, &[&str]) -> IpAddr + Send + Sync>;

/// Finds the client address of a request.
#[derive(Clone)]
pub struct ClientAddressResolver {
    resolve: ResolveClientAddress,
}

impl ClientAddressResolver {
    /// Uses `resolve` to skip trusted proxies.
    pub fn new(resolve: ResolveClientAddress) -> Self {
        Self { resolve }
    }

    /// Client address of a request; `None` for a request without a network connection, as in tests.
    pub fn client_address(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<IpAddr> {
        extensions.get::<ConnectionPeer>().map(|peer| {
            let mut forwarded: Vec<&str> = headers
                .get_all("x-forwarded-for")
                .iter()
                .filter_map(|value| value.to_str().ok())
                .flat_map(|value| value.split(','))
                .map(str::trim)
                .collect();
            forwarded.drain(..forwarded.len().saturating_sub(FORWARDED_FOR_HOPS_MAX));
            (self.resolve)(peer.address, &forwarded).to_canonical()
        })
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

    /// SEC-7: the resolver receives the peer and the forwarded entries in order, at most 16. The trust rule itself is
    /// tested in `auth::forwarded_for`.
    #[test]
    fn client_address_receives_the_last_16_forwarded_hops_in_order() {
        let check = |headers: &[&'static str], expected: &'static [&'static str]| {
            let mut map = HeaderMap::new();
            for value in headers {
                map.append("x-forwarded-for", value.parse().unwrap());
            }
            let mut extensions = Extensions::new();
            let peer = "::ffff:10.0.0.1".parse().unwrap();
            extensions.insert(ConnectionPeer {
                address: peer,
                open_streams: Arc::default(),
                streams_max: 4,
                certificate: None,
            });
            let resolver = ClientAddressResolver::new(Arc::new(move |given, forwarded| {
                assert_eq!((given, forwarded), (peer, expected));
                given
            }));
            assert_eq!(resolver.client_address(&map, &extensions), Some("10.0.0.1".parse().unwrap()));
        };
        check(&[], &[]);
        check(&["1.1.1.1, 2.2.2.2", "3.3.3.3"], &["1.1.1.1", "2.2.2.2", "3.3.3.3"]);
        check(
            &["x,x,x,x,x,0,1,2,3,4,5,6,7,8,9,a,b,c,d,e,f"],
            &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f"],
        );
    }
}
