//! Callers as rate limits count them: by account, or by address prefix.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::auth::identity::Role;
use crate::domain::id::UserKey;

/// Prefix length of an IPv6 customer network, bits.
const IPV6_CLIENT_PREFIX_BITS: u32 = 64;
/// Prefix length of the IPv6 network that all clients of one household share, bits.
const IPV6_HOUSEHOLD_BITS: u32 = 56;
/// Prefix lengths of networks that share a bucket when the table of addresses is full, bits.
const IPV4_OVERFLOW_BITS: u32 = 24;
const IPV6_OVERFLOW_BITS: u32 = 48;

/// Key of a bucket: the caller that a call counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateLimitKey {
    /// An authenticated caller.
    Authenticated(Role, UserKey),
    /// All players' clients at one IPv4 address or in one IPv6 /56, beside their own limits.
    ClientNetwork(IpAddr),
    /// All unauthenticated callers at one IPv4 address or in one IPv6 /64.
    Address(IpAddr),
    /// Health checks that a trusted proxy makes for itself.
    HealthCheck(IpAddr),
    /// The shared bucket of callers without an address.
    Shared,
}

/// Class of callers with the same limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallerClass {
    /// Authenticated callers in this role.
    Authenticated(Role),
    /// Players' clients of one address together.
    ClientNetwork,
    /// Unauthenticated callers.
    Anonymous,
    /// Health checks of trusted proxies.
    HealthCheck,
}

impl RateLimitKey {
    /// Key of an authenticated caller, or else of the client's address.
    pub fn for_caller(identity: Option<(Role, UserKey)>, address: Option<IpAddr>) -> Self {
        match (identity, address) {
            (Some((role, key)), _) => RateLimitKey::Authenticated(role, key),
            (None, Some(address)) => RateLimitKey::Address(client_prefix_of(address)),
            (None, None) => RateLimitKey::Shared,
        }
    }

    /// Key of all players' clients that share the network of `address`.
    pub fn for_client_network(address: IpAddr) -> Self {
        RateLimitKey::ClientNetwork(first_address_of_network(address, 32, IPV6_HOUSEHOLD_BITS))
    }

    pub(super) fn caller_class(self) -> CallerClass {
        match self {
            // Viewers have the limits of operators, each its own.
            RateLimitKey::Authenticated(Role::Viewer, _) => CallerClass::Authenticated(Role::Operator),
            RateLimitKey::Authenticated(role, _) => CallerClass::Authenticated(role),
            RateLimitKey::ClientNetwork(_) => CallerClass::ClientNetwork,
            RateLimitKey::HealthCheck(_) => CallerClass::HealthCheck,
            RateLimitKey::Address(_) | RateLimitKey::Shared => CallerClass::Anonymous,
        }
    }

    /// Key under which the caller is counted when the table has no place for it. One customer with many addresses has one
    /// such key, so it throttles itself alone.
    pub(super) fn overflow_key(self) -> Self {
        match self {
            RateLimitKey::Address(address) => {
                RateLimitKey::Address(first_address_of_network(address, IPV4_OVERFLOW_BITS, IPV6_OVERFLOW_BITS))
            }
            RateLimitKey::ClientNetwork(address) => {
                RateLimitKey::ClientNetwork(first_address_of_network(address, IPV4_OVERFLOW_BITS, IPV6_OVERFLOW_BITS))
            }
            RateLimitKey::Authenticated(..) | RateLimitKey::HealthCheck(_) | RateLimitKey::Shared => self,
        }
    }
}

/// The address of an IPv4 host; the /64 network of an IPv6 host.
pub fn client_prefix_of(address: IpAddr) -> IpAddr {
    first_address_of_network(address, 32, IPV6_CLIENT_PREFIX_BITS)
}

/// First address of the network with a prefix of that many bits; both counts are from 1 to the length of the address.
fn first_address_of_network(address: IpAddr, ipv4_bits: u32, ipv6_bits: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & u32::MAX << (32 - ipv4_bits)).into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & u128::MAX << (128 - ipv6_bits)).into(),
    }
}

impl CallerClass {
    /// All classes.
    pub const ALL: [CallerClass; 6] = [
        CallerClass::Authenticated(Role::Client),
        CallerClass::Authenticated(Role::GameServer),
        CallerClass::Authenticated(Role::Operator),
        CallerClass::ClientNetwork,
        CallerClass::Anonymous,
        CallerClass::HealthCheck,
    ];

    /// Place in `ALL`.
    pub(super) fn index(self) -> usize {
        match self {
            CallerClass::Authenticated(Role::Client) => 0,
            CallerClass::Authenticated(Role::GameServer) => 1,
            CallerClass::Authenticated(Role::Operator | Role::Viewer) => 2,
            CallerClass::ClientNetwork => 3,
            CallerClass::Anonymous => 4,
            CallerClass::HealthCheck => 5,
        }
    }

    /// Name in settings, metrics and errors.
    pub fn as_str(self) -> &'static str {
        match self {
            CallerClass::Authenticated(role) => role.as_str(),
            CallerClass::ClientNetwork => "client_address",
            CallerClass::Anonymous => "anonymous",
            CallerClass::HealthCheck => "health_check",
        }
    }
}
