//! PROXY protocol header, versions 1 and 2: the client address that a proxy sends at the start of a connection.
//!
//! Source: HAProxy, "The PROXY protocol, versions 1 & 2" (2020). Reads exactly the header, so that the TLS or HTTP
//! bytes after it stay in the stream.

use std::net::IpAddr;

use ppp::{v1, v2};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Size limit of a header, bytes, including the extensions of version 2.
pub const BYTES_MAX: usize = 536;

/// First bytes of version 2.
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Length of the fixed part of version 2, bytes: signature, version and command, families, length.
const V2_FIXED_BYTES: usize = 16;
/// First bytes of version 1. Each header is at least as long as the version 2 signature, so those bytes can be read
/// first.
const V1_PREFIX: &[u8; 6] = b"PROXY ";
/// Size limit of a version 1 header with its line end, bytes.
const V1_BYTES_MAX: usize = 107;

/// Reason why a header cannot be read.
#[derive(Debug, Error)]
pub enum ProxyHeaderError {
    /// The connection closed or failed in the header.
    #[error("the connection closed inside the header")]
    Io(#[from] std::io::Error),
    /// The bytes are not a valid header of version 1 or 2.
    #[error("not a PROXY header of version 1 or 2")]
    Malformed,
    /// The header is longer than its limit.
    #[error("longer than {BYTES_MAX} bytes")]
    TooLong,
}

/// Reads a header; returns the client address. `None` if the proxy opened the connection for itself, such as a health
/// check, or does not know the client.
pub async fn read_client_address(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<IpAddr>, ProxyHeaderError> {
    let mut header = [0; BYTES_MAX];
    stream.read_exact(&mut header[..V2_SIGNATURE.len()]).await?;
    if header.starts_with(V2_SIGNATURE) {
        stream.read_exact(&mut header[V2_SIGNATURE.len()..V2_FIXED_BYTES]).await?;
        let end = V2_FIXED_BYTES + usize::from(u16::from_be_bytes([header[14], header[15]]));
        let rest = header.get_mut(V2_FIXED_BYTES..end).ok_or(ProxyHeaderError::TooLong)?;
        stream.read_exact(rest).await?;
        return parse_v2(&header[..end]);
    }
    if !header.starts_with(V1_PREFIX) {
        return Err(ProxyHeaderError::Malformed);
    }
    let mut length = V2_SIGNATURE.len();
    // Byte by byte, because the bytes after the line must stay in the stream. The line is short and comes once.
    while !header[..length].ends_with(b"\r\n") {
        if length == V1_BYTES_MAX {
            return Err(ProxyHeaderError::TooLong);
        }
        header[length] = stream.read_u8().await?;
        length += 1;
    }
    parse_v1(&header[..length])
}

fn parse_v1(line: &[u8]) -> Result<Option<IpAddr>, ProxyHeaderError> {
    match v1::Header::try_from(line).map_err(|_| ProxyHeaderError::Malformed)?.addresses {
        v1::Addresses::Tcp4(addresses) => Ok(Some(addresses.source_address.into())),
        v1::Addresses::Tcp6(addresses) => Ok(Some(addresses.source_address.into())),
        v1::Addresses::Unknown => Ok(None),
    }
}

fn parse_v2(bytes: &[u8]) -> Result<Option<IpAddr>, ProxyHeaderError> {
    let header = v2::Header::try_from(bytes).map_err(|_| ProxyHeaderError::Malformed)?;
    match (header.command, header.addresses) {
        (v2::Command::Local, _) => Ok(None),
        (v2::Command::Proxy, _) if header.protocol == v2::Protocol::Datagram => Err(ProxyHeaderError::Malformed),
        (v2::Command::Proxy, v2::Addresses::IPv4(addresses)) => Ok(Some(addresses.source_address.into())),
        (v2::Command::Proxy, v2::Addresses::IPv6(addresses)) => Ok(Some(addresses.source_address.into())),
        (v2::Command::Proxy, v2::Addresses::Unspecified | v2::Addresses::Unix(_)) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::runtime::Builder;

    use super::*;

    /// Result of reading `bytes`, and the number of bytes left.
    fn read_header(bytes: &[u8]) -> (Result<Option<IpAddr>, ProxyHeaderError>, usize) {
        let mut remaining = bytes;
        let result = Builder::new_current_thread().build().unwrap().block_on(read_client_address(&mut remaining));
        (result, remaining.len())
    }

    /// Version 2 header with command byte, families byte and body.
    fn v2_header(command: u8, families: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&V2_SIGNATURE[..], &[command, families], &length, body].concat()
    }

    const IPV4_ADDRESSES: [u8; 12] = [203, 0, 113, 9, 192, 0, 2, 1, 0x30, 0x39, 1, 0xbb];

    fn check_address(header: &[u8], expected: Option<&str>) {
        let (result, left) = read_header(&[header, b"PRI * HTTP/2.0"].concat());
        assert_eq!(result.unwrap(), expected.map(|address| address.parse().unwrap()), "{}", header.escape_ascii());
        assert_eq!(left, 14, "the following bytes stay in the stream: {}", header.escape_ascii());
    }

    #[test]
    fn proxy_header_of_both_versions_yields_the_client_address() {
        check_address(b"PROXY TCP4 203.0.113.9 192.0.2.1 12345 443\r\n", Some("203.0.113.9"));
        check_address(b"PROXY TCP6 2001:db8::9 2001:db8::1 12345 443\r\n", Some("2001:db8::9"));
        check_address(b"PROXY UNKNOWN\r\n", None);
        check_address(b"PROXY UNKNOWN ffff:f...f:ffff 65535 65535\r\n", None);
        check_address(&v2_header(0x21, 0x11, &IPV4_ADDRESSES), Some("203.0.113.9"));
        let mut ipv6_addresses = [0; 36];
        ipv6_addresses[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        ipv6_addresses[15] = 9;
        check_address(&v2_header(0x21, 0x21, &ipv6_addresses), Some("2001:db8::9"));
        check_address(
            &v2_header(0x21, 0x11, &[&IPV4_ADDRESSES[..], &[3, 0, 4, 1, 2, 3, 4]].concat()),
            Some("203.0.113.9"),
        );
    }

    /// A proxy's own connection, such as a health check, or a client that the proxy does not know.
    #[test]
    fn proxy_header_without_a_client_yields_no_address() {
        check_address(&v2_header(0x20, 0x00, b""), None);
        check_address(&v2_header(0x20, 0x11, &IPV4_ADDRESSES), None);
        check_address(&v2_header(0x21, 0x00, b""), None);
        check_address(&v2_header(0x21, 0x31, &[b'x'; 216]), None);
    }

    #[test]
    fn proxy_header_that_is_malformed_is_rejected() {
        let invalid: [&[u8]; 10] = [
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03\0\0",
            b"proxy tcp4 1.1.1.1 2.2.2.2 1 2\r\n",
            b"PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n",
            b"PROXY TCP4 1.1.1.999 2.2.2.2 1 2\r\n",
            b"PROXY TCP4 ::1 ::1 1 2\r\n",
            b"PROXY UDP4 1.1.1.1 2.2.2.2 1 2\r\n",
            b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2",
            b"PROXY",
            b"",
        ];
        for header in invalid {
            assert!(read_header(header).0.is_err(), "{}", header.escape_ascii());
        }
        for (command, families) in [(0x11, 0x11), (0x22, 0x11), (0x21, 0x12), (0x21, 0x41), (0x21, 0x13)] {
            assert!(read_header(&v2_header(command, families, &IPV4_ADDRESSES)).0.is_err(), "{command:x} {families:x}");
        }
        assert!(read_header(&v2_header(0x21, 0x11, &IPV4_ADDRESSES[..11])).0.is_err(), "truncated address");
        assert!(read_header(&v2_header(0x21, 0x11, &IPV4_ADDRESSES)[..27]).0.is_err(), "truncated header");
    }

    #[test]
    fn proxy_header_longer_than_the_limit_is_rejected() {
        check_address(
            &v2_header(0x21, 0x11, &[&IPV4_ADDRESSES[..], &[0; BYTES_MAX - V2_FIXED_BYTES - 12]].concat()),
            Some("203.0.113.9"),
        );
        let longer = v2_header(0x21, 0x11, &[&IPV4_ADDRESSES[..], &[0; BYTES_MAX - V2_FIXED_BYTES - 11]].concat());
        assert!(matches!(read_header(&longer).0, Err(ProxyHeaderError::TooLong)));
        let endless = [&b"PROXY UNKNOWN "[..], &[b'x'; 1_000]].concat();
        let (result, left) = read_header(&endless);
        assert!(matches!(result, Err(ProxyHeaderError::TooLong)));
        assert_eq!(left, endless.len() - V1_BYTES_MAX);
    }

    proptest! {
        /// SEC-3: arbitrary bytes yield an address or an error, and no byte beyond the size limit is read.
        #[test]
        fn proxy_header_parser_never_reads_past_its_limit(
            bytes in proptest::collection::vec(any::<u8>(), 0..700),
            opening in 0_usize..3,
        ) {
            let opening: &[u8] = [&b""[..], V2_SIGNATURE, b"PROXY TCP4 "][opening];
            let bytes = [opening, &bytes].concat();
            let (_, left) = read_header(&bytes);
            prop_assert!(bytes.len() - left <= BYTES_MAX);
        }

        /// SEC-3: so do valid headers with a few bytes changed.
        #[test]
        fn proxy_header_parser_survives_mutated_headers(
            changes in proptest::collection::vec((0_usize..64, any::<u8>()), 1..4),
            is_v1 in any::<bool>(),
        ) {
            let mut bytes = if is_v1 {
                b"PROXY TCP4 203.0.113.9 192.0.2.1 12345 443\r\n".to_vec()
            } else {
                v2_header(0x21, 0x11, &IPV4_ADDRESSES)
            };
            for (position, byte) in changes {
                let position = position % bytes.len();
                bytes[position] = byte;
            }
            let (_, left) = read_header(&bytes);
            prop_assert!(bytes.len() - left <= BYTES_MAX);
        }
    }
}
