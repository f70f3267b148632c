//! Addresses as packets and codes have them.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Network of an address: its IPv4 /24 or IPv6 /56.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AddressPrefix {
    /// The first three bytes of an IPv4 address.
    V4([u8; 3]),
    /// The first seven bytes of an IPv6 address.
    V6([u8; 7]),
}

impl AddressPrefix {
    /// Network of an address. An IPv4 address that is written as IPv6 (`::ffff:a.b.c.d`) is IPv4.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => {
                let [first, second, third, _] = address.octets();
                Self::V4([first, second, third])
            }
            IpAddr::V6(address) => Self::V6(*address.octets().first_chunk().expect("16 bytes")),
        }
    }

    /// First address of the network.
    pub fn first_address(self) -> IpAddr {
        match self {
            Self::V4([a, b, c]) => IpAddr::from([a, b, c, 0]),
            Self::V6([a, b, c, d, e, f, g]) => IpAddr::from([a, b, c, d, e, f, g, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        }
    }

    /// Number of the address family in packets.
    pub fn family(self) -> u8 {
        match self {
            Self::V4(_) => 4,
            Self::V6(_) => 6,
        }
    }

    /// The prefix in eight bytes, padded with zeros.
    pub fn padded_bytes(self) -> [u8; 8] {
        let mut bytes = [0; 8];
        match self {
            Self::V4(prefix) => bytes[..3].copy_from_slice(&prefix),
            Self::V6(prefix) => bytes[..7].copy_from_slice(&prefix),
        }
        bytes
    }

    /// Reverse of [`Self::padded_bytes`]. `None` if the family is unknown or the padding is not zero.
    pub fn from_padded_bytes(family: u8, bytes: [u8; 8]) -> Option<Self> {
        let prefix = match family {
            4 => Self::V4(*bytes.first_chunk()?),
            6 => Self::V6(*bytes.first_chunk()?),
            _ => return None,
        };
        (prefix.padded_bytes() == bytes).then_some(prefix)
    }
}

/// Address and port in 18 bytes, IPv4 as `::ffff:a.b.c.d`.
pub(crate) fn endpoint_bytes(endpoint: SocketAddr) -> [u8; 18] {
    let address: Ipv6Addr = match endpoint.ip() {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    };
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(&address.octets());
    bytes[16..].copy_from_slice(&endpoint.port().to_be_bytes());
    bytes
}

/// Whether two endpoints are the same. A socket of both families has IPv4 addresses in their IPv6 form.
pub(crate) fn is_same_endpoint(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
}
