//! Callers as rate limits count them: by account, or by address prefix.

use std::net::{IpAddr, Ipv6Addr};

use crate::auth::identity::Role;
use crate::domain::id::UserKey;

/// Prefix length of an IPv6 customer network, bits.
const IPV6_PREFIX_BITS: u32 = 64;

/// Key of a bucket: the caller that a call counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateLimitKey {
    /// An authenticated caller.
    Authenticated(Role, UserKey),
    /// All unauthenticated callers at one IPv4 address or in one IPv6 /64.
    Address(IpAddr),
    /// The shared bucket of callers without an address, and of callers beyond the maximum number of buckets.
    Shared,
}

/// Class of callers with the same limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallerClass {
    /// Authenticated callers in this role.
    Authenticated(Role),
    /// Unauthenticated callers.
    Anonymous,
}

impl RateLimitKey {
    /// Key of an authenticated caller, or else of the client's address.
    pub fn for_caller(identity: Option<(Role, UserKey)>, address: Option<IpAddr>) -> Self {
        match (identity, address) {
            (Some((role, key)), _) => RateLimitKey::Authenticated(role, key),
            (None, Some(address)) => RateLimitKey::Address(address_prefix(address)),
            (None, None) => RateLimitKey::Shared,
        }
    }

    pub(super) fn caller_class(self) -> CallerClass {
        match self {
            RateLimitKey::Authenticated(role, _) => CallerClass::Authenticated(role),
            RateLimitKey::Address(_) | RateLimitKey::Shared => CallerClass::Anonymous,
        }
    }
}

/// The address of an IPv4 host; the /64 network of an IPv6 host.
pub fn address_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => {
            Ipv6Addr::from_bits(v6.to_bits() >> (128 - IPV6_PREFIX_BITS) << (128 - IPV6_PREFIX_BITS)).into()
        }
    }
}

impl CallerClass {
    /// All classes.
    pub const ALL: [CallerClass; 4] = [
        CallerClass::Authenticated(Role::Client),
        CallerClass::Authenticated(Role::GameServer),
        CallerClass::Authenticated(Role::Operator),
        CallerClass::Anonymous,
    ];

    /// Name in settings, metrics and errors.
    pub fn as_str(self) -> &'static str {
        match self {
            CallerClass::Authenticated(role) => role.as_str(),
            CallerClass::Anonymous => "anonymous",
        }
    }
}
