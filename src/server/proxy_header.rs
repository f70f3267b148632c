//! Reads the PROXY protocol's header, versions 1 and 2, with which a proxy says whose connection it passes on.
//!
//! Source: HAProxy's "The PROXY protocol, versions 1 & 2" (2020). A header is read to its last byte and no further, so
//! that whatever comes after it, TLS or HTTP, is left to whoever speaks that.

use std::net::IpAddr;

use ppp::{v1, v2};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Bytes of a header at most: sections of their own that a proxy may add to version 2 included.
pub const BYTES_MAX: usize = 536;

/// What version 2 begins with.
const V2_SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of version 2 before addresses: signature, version and command, families, length.
const V2_FIXED_BYTES: usize = 16;
/// What version 1 begins with. No header is shorter than the signature of version 2, so so much can be read of either.
const V1_PREFIX: &[u8; 6] = b"PROXY ";
/// Bytes of a version 1 header at most, its end of line included.
const V1_BYTES_MAX: usize = 107;

/// Why a header cannot be read.
#[derive(Debug, Error)]
pub enum ProxyHeaderError {
    /// The connection ended or broke.
    #[error("the connection ended in the header")]
    Io(#[from] std::io::Error),
    /// It is of neither version, or what it holds is none of what may be there.
    #[error("not a PROXY header of version 1 or 2")]
    Malformed,
    /// It is longer than `BYTES_MAX`.
    #[error("longer than {BYTES_MAX} bytes")]
    TooLong,
}

/// The client's address that a header says; none when the proxy speaks for itself, as it does to see whether we live, or
/// does not know.
pub async fn read_client_address(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<IpAddr>, ProxyHeaderError> {
    let mut header = [0; BYTES_MAX];
    from.read_exact(&mut header[..V2_SIGNATURE.len()]).await?;
    if header.starts_with(V2_SIGNATURE) {
        from.read_exact(&mut header[V2_SIGNATURE.len()..V2_FIXED_BYTES]).await?;
        let end = V2_FIXED_BYTES + usize::from(u16::from_be_bytes([header[14], header[15]]));
        let rest = header.get_mut(V2_FIXED_BYTES..end).ok_or(ProxyHeaderError::TooLong)?;
        from.read_exact(rest).await?;
        return parse_v2(&header[..end]);
    }
    if !header.starts_with(V1_PREFIX) {
        return Err(ProxyHeaderError::Malformed);
    }
    let mut length = V2_SIGNATURE.len();
    // A byte at a time: the line is short, it comes once, and what is behind it is not ours to take.
    while !header[..length].ends_with(b"\r\n") {
        if length == V1_BYTES_MAX {
            return Err(ProxyHeaderError::TooLong);
        }
        header[length] = from.read_u8().await?;
        length += 1;
    }
    parse_v1(&header[..length])
}

fn parse_v1(line: &[u8]) -> Result<Option<IpAddr>, ProxyHeaderError> {
    match v1::Header::try_from(line).map_err(|_| ProxyHeaderError::Malformed)?.addresses {
        v1::Addresses::Tcp4(four) => Ok(Some(four.source_address.into())),
        v1::Addresses::Tcp6(six) => Ok(Some(six.source_address.into())),
        v1::Addresses::Unknown => Ok(None),
    }
}

fn parse_v2(bytes: &[u8]) -> Result<Option<IpAddr>, ProxyHeaderError> {
    let header = v2::Header::try_from(bytes).map_err(|_| ProxyHeaderError::Malformed)?;
    match (header.command, header.addresses) {
        (v2::Command::Local, _) => Ok(None),
        (v2::Command::Proxy, _) if header.protocol == v2::Protocol::Datagram => Err(ProxyHeaderError::Malformed),
        (v2::Command::Proxy, v2::Addresses::IPv4(four)) => Ok(Some(four.source_address.into())),
        (v2::Command::Proxy, v2::Addresses::IPv6(six)) => Ok(Some(six.source_address.into())),
        (v2::Command::Proxy, v2::Addresses::Unspecified | v2::Addresses::Unix(_)) => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::runtime::Builder;

    use super::*;

    /// What is read of `bytes`, and how many are left.
    fn read_header(bytes: &[u8]) -> (Result<Option<IpAddr>, ProxyHeaderError>, usize) {
        let mut rest = bytes;
        let read = Builder::new_current_thread().build().unwrap().block_on(read_client_address(&mut rest));
        (read, rest.len())
    }

    /// A version 2 header: command, families, addresses and what else.
    fn v2_header(command: u8, families: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&V2_SIGNATURE[..], &[command, families], &length, body].concat()
    }

    const IPV4_ADDRESSES: [u8; 12] = [203, 0, 113, 9, 192, 0, 2, 1, 0x30, 0x39, 1, 0xbb];

    fn check_address(header: &[u8], expected: Option<&str>) {
        let (read, left) = read_header(&[header, b"PRI * HTTP/2.0"].concat());
        assert_eq!(read.unwrap(), expected.map(|it| it.parse().unwrap()), "{}", header.escape_ascii());
        assert_eq!(left, 14, "what follows is left: {}", header.escape_ascii());
    }

    #[test]
    fn proxy_header_of_both_versions_yields_the_client_address() {
        check_address(b"PROXY TCP4 203.0.113.9 192.0.2.1 12345 443\r\n", Some("203.0.113.9"));
        check_address(b"PROXY TCP6 2001:db8::9 2001:db8::1 12345 443\r\n", Some("2001:db8::9"));
        check_address(b"PROXY UNKNOWN\r\n", None);
        check_address(b"PROXY UNKNOWN ffff:f...f:ffff 65535 65535\r\n", None);
        check_address(&v2_header(0x21, 0x11, &IPV4_ADDRESSES), Some("203.0.113.9"));
        let mut six = [0; 36];
        six[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        six[15] = 9;
        check_address(&v2_header(0x21, 0x21, &six), Some("2001:db8::9"));
        check_address(
            &v2_header(0x21, 0x11, &[&IPV4_ADDRESSES[..], &[3, 0, 4, 1, 2, 3, 4]].concat()),
            Some("203.0.113.9"),
        );
    }

    /// A proxy that asks for itself whether we live, or does not know for whom.
    #[test]
    fn proxy_header_without_a_client_yields_no_address() {
        check_address(&v2_header(0x20, 0x00, b""), None);
        check_address(&v2_header(0x20, 0x11, &IPV4_ADDRESSES), None);
        check_address(&v2_header(0x21, 0x00, b""), None);
        check_address(&v2_header(0x21, 0x31, &[b'x'; 216]), None);
    }

    #[test]
    fn proxy_header_that_is_malformed_is_rejected() {
        let bad: [&[u8]; 10] = [
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
        for header in bad {
            assert!(read_header(header).0.is_err(), "{}", header.escape_ascii());
        }
        for (command, families) in [(0x11, 0x11), (0x22, 0x11), (0x21, 0x12), (0x21, 0x41), (0x21, 0x13)] {
            assert!(read_header(&v2_header(command, families, &IPV4_ADDRESSES)).0.is_err(), "{command:x} {families:x}");
        }
        assert!(read_header(&v2_header(0x21, 0x11, &IPV4_ADDRESSES[..11])).0.is_err(), "an address is cut off");
        assert!(read_header(&v2_header(0x21, 0x11, &IPV4_ADDRESSES)[..27]).0.is_err(), "the header is cut off");
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
        let (read, left) = read_header(&endless);
        assert!(matches!(read, Err(ProxyHeaderError::TooLong)));
        assert_eq!(left, endless.len() - V1_BYTES_MAX);
    }

    proptest! {
        /// SEC-3: any bytes at all are an address or a refusal, and no more is taken than a header may have.
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

        /// SEC-3: so are headers that are right but for a few bytes.
        #[test]
        fn proxy_header_parser_survives_mutated_headers(
            changes in proptest::collection::vec((0_usize..64, any::<u8>()), 1..4),
            first in any::<bool>(),
        ) {
            let mut bytes = match first {
                true => b"PROXY TCP4 203.0.113.9 192.0.2.1 12345 443\r\n".to_vec(),
                false => v2_header(0x21, 0x11, &IPV4_ADDRESSES),
            };
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            let (_, left) = read_header(&bytes);
            prop_assert!(bytes.len() - left <= BYTES_MAX);
        }
    }
}
