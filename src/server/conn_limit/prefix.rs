//! Client prefixes: the units by which connections are counted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::server::conn_limit::limits::ConnectionLimits;
use crate::server::token_bucket::{Rate, TokenBucket};
use crate::telemetry::label::ConnectionRejection;

/// Prefix length of an IPv6 host or home network, bits.
const IPV6_HOST_BITS: u32 = 64;
/// Prefix length of an IPv6 customer with several networks, bits.
const IPV6_SITE_BITS: u32 = 56;
/// Prefix length of an IPv6 customer of a hosting provider, bits.
const IPV6_NETWORK_BITS: u32 = 48;
/// Prefix length of an IPv4 network that one customer may hold, bits.
const IPV4_NETWORK_BITS: u32 = 24;

/// Unit of counting. Its size, and its first address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClientPrefix {
    size: PrefixSize,
    first_address: IpAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PrefixSize {
    /// An IPv4 address, or an IPv6 /64.
    Host,
    /// An IPv6 /56.
    Site,
    /// An IPv4 /24, or an IPv6 /48.
    Network,
}

/// State of one client prefix.
#[derive(Debug)]
pub(super) struct PrefixState {
    pub(super) open_connections: u32,
    /// Token bucket of new connections.
    pub(super) connect_bucket: TokenBucket,
    /// Token bucket of control frames, shared by the prefix's connections. Used for hosts only.
    pub(super) prefix_frame_bucket: Arc<Mutex<TokenBucket>>,
}

impl ClientPrefix {
    /// The host of an address.
    pub(super) fn host(address: IpAddr) -> Self {
        let network = match address.to_canonical() {
            IpAddr::V4(address) => IpAddr::V4(address),
            IpAddr::V6(address) => mask_ipv6(address, IPV6_HOST_BITS),
        };
        Self { size: PrefixSize::Host, first_address: network }
    }

    /// All prefixes of an address, the narrowest first.
    pub(super) fn all_of(address: IpAddr) -> [Option<Self>; 3] {
        let wider = |size, network| Some(Self { size, first_address: network });
        let [site, network] = match address.to_canonical() {
            IpAddr::V4(address) => {
                let first = Ipv4Addr::from_bits(address.to_bits() & u32::MAX << (32 - IPV4_NETWORK_BITS));
                [None, wider(PrefixSize::Network, first.into())]
            }
            IpAddr::V6(address) => [
                wider(PrefixSize::Site, mask_ipv6(address, IPV6_SITE_BITS)),
                wider(PrefixSize::Network, mask_ipv6(address, IPV6_NETWORK_BITS)),
            ],
        };
        [Some(Self::host(address)), site, network]
    }

    /// Limit of open connections.
    pub(super) fn connections_max(self, limits: &ConnectionLimits) -> u32 {
        match self.size {
            PrefixSize::Host => limits.per_host,
            PrefixSize::Site => limits.per_site,
            PrefixSize::Network => limits.per_network,
        }
    }

    /// Reason for a rejection by the limit of open connections.
    pub(super) fn max_reason(self) -> ConnectionRejection {
        match self.size {
            PrefixSize::Host => ConnectionRejection::MaxPerIp,
            PrefixSize::Site | PrefixSize::Network => ConnectionRejection::MaxPerNetwork,
        }
    }

    /// Reason for a rejection by the rate of new connections.
    pub(super) fn rate_reason(self) -> ConnectionRejection {
        match self.size {
            PrefixSize::Host => ConnectionRejection::RatePerIp,
            PrefixSize::Site | PrefixSize::Network => ConnectionRejection::RatePerNetwork,
        }
    }
}

fn mask_ipv6(address: Ipv6Addr, bits: u32) -> IpAddr {
    Ipv6Addr::from_bits(address.to_bits() & u128::MAX << (128 - bits)).into()
}

impl PrefixState {
    /// State of a prefix without connections.
    pub(super) fn new(prefix: ClientPrefix, limits: &ConnectionLimits, now: Instant) -> Self {
        let interval = match prefix.size {
            PrefixSize::Host => limits.host_connect_interval,
            PrefixSize::Site | PrefixSize::Network => limits.network_connect_interval,
        };
        let connect_rate = Rate { burst: prefix.connections_max(limits), interval };
        Self {
            open_connections: 0,
            connect_bucket: TokenBucket::new(connect_rate, now),
            prefix_frame_bucket: Arc::new(Mutex::new(TokenBucket::new(limits.control_frame_rate_per_host, now))),
        }
    }

    /// Whether the state differs from that of a new prefix, so that it must be kept.
    pub(super) fn differs_from_new(&self, now: Instant) -> bool {
        self.open_connections > 0
            || !self.connect_bucket.is_full(now)
            || !self.prefix_frame_bucket.lock().unwrap_or_else(PoisonError::into_inner).is_full(now)
    }
}
