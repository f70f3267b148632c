//! Where a call comes from: read from the connection and the headers, in this one place.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use http::{Extensions, HeaderMap};

/// Hops of a forwarded-for header that are looked at, from the right: what is further left was written by strangers.
const FORWARDED_FOR_HOPS_MAX: usize = 16;

/// The other end of a connection.
#[derive(Clone, Debug)]
pub struct ConnectionPeer {
    /// Its address; an IPv4 address written as IPv6 is IPv4.
    pub address: IpAddr,
    /// Streams that it has open on this connection.
    pub open_streams: Arc<AtomicU32>,
    /// Streams that it may have open at once.
    pub streams_max: u32,
    /// The certificate that it has shown and TLS has verified, DER.
    pub certificate: Option<Arc<[u8]>>,
}

/// The client's address, from the peer's and the hops that proxies noted, left to right as they came.
pub type ResolveClientAddress = Arc<dyn Fn(IpAddr, &[&str]) -> IpAddr + Send + Sync>;

/// Tells where callers are.
#[derive(Clone)]
pub struct ClientAddressResolver {
    resolve: ResolveClientAddress,
}

impl ClientAddressResolver {
    /// Uses `client_address` to look past proxies.
    pub fn new(client_address: ResolveClientAddress) -> Self {
        Self { resolve: client_address }
    }

    /// The address that a request came from, as far as proxies are believed; none without a network.
    pub fn client_address(&self, headers: &HeaderMap, extensions: &Extensions) -> Option<IpAddr> {
        extensions.get::<ConnectionPeer>().map(|peer| {
            let mut hops: Vec<&str> = headers
                .get_all("x-forwarded-for")
                .iter()
                .filter_map(|value| value.to_str().ok())
                .flat_map(|value| value.split(','))
                .map(str::trim)
                .collect();
            hops.drain(..hops.len().saturating_sub(FORWARDED_FOR_HOPS_MAX));
            (self.resolve)(peer.address, &hops).to_canonical()
        })
    }
}

impl std::fmt::Debug for ClientAddressResolver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callers").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SEC-7 asks the rule of the configuration; here: it sees the peer and every hop in order, never more than 16.
    #[test]
    fn client_address_receives_the_last_16_forwarded_hops_in_order() {
        let check = |headers: &[&'static str], wanted: &'static [&'static str]| {
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
            let callers = ClientAddressResolver::new(Arc::new(move |given, hops| {
                assert_eq!((given, hops), (peer, wanted));
                given
            }));
            assert_eq!(callers.client_address(&map, &extensions), Some("10.0.0.1".parse().unwrap()));
        };
        check(&[], &[]);
        check(&["1.1.1.1, 2.2.2.2", "3.3.3.3"], &["1.1.1.1", "2.2.2.2", "3.3.3.3"]);
        check(
            &["x,x,x,x,x,0,1,2,3,4,5,6,7,8,9,a,b,c,d,e,f"],
            &["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b", "c", "d", "e", "f"],
        );
    }
}
