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
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of version 2 before addresses: signature, version and command, families, length.
const FIXED: usize = 16;
/// What version 1 begins with. No header is shorter than the signature of version 2, so so much can be read of either.
const WORD: &[u8; 6] = b"PROXY ";
/// Bytes of a version 1 header at most, its end of line included.
const LINE_MAX: usize = 107;

/// Why a header cannot be read.
#[derive(Debug, Error)]
pub enum BadHeader {
    /// The connection ended or broke.
    #[error("the connection ended in the header")]
    Ended(#[from] std::io::Error),
    /// It is of neither version, or what it holds is none of what may be there.
    #[error("not a PROXY header of version 1 or 2")]
    Malformed,
    /// It is longer than `BYTES_MAX`.
    #[error("longer than {BYTES_MAX} bytes")]
    TooLong,
}

/// The client's address that a header says; none when the proxy speaks for itself, as it does to see whether we live, or
/// does not know.
pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> Result<Option<IpAddr>, BadHeader> {
    let mut header = [0; BYTES_MAX];
    from.read_exact(&mut header[..SIGNATURE.len()]).await?;
    if header.starts_with(SIGNATURE) {
        from.read_exact(&mut header[SIGNATURE.len()..FIXED]).await?;
        let end = FIXED + usize::from(u16::from_be_bytes([header[14], header[15]]));
        let rest = header.get_mut(FIXED..end).ok_or(BadHeader::TooLong)?;
        from.read_exact(rest).await?;
        return version_2(&header[..end]);
    }
    if !header.starts_with(WORD) {
        return Err(BadHeader::Malformed);
    }
    let mut length = SIGNATURE.len();
    // A byte at a time: the line is short, it comes once, and what is behind it is not ours to take.
    while !header[..length].ends_with(b"\r\n") {
        if length == LINE_MAX {
            return Err(BadHeader::TooLong);
        }
        header[length] = from.read_u8().await?;
        length += 1;
    }
    version_1(&header[..length])
}

fn version_1(line: &[u8]) -> Result<Option<IpAddr>, BadHeader> {
    match v1::Header::try_from(line).map_err(|_| BadHeader::Malformed)?.addresses {
        v1::Addresses::Tcp4(four) => Ok(Some(four.source_address.into())),
        v1::Addresses::Tcp6(six) => Ok(Some(six.source_address.into())),
        v1::Addresses::Unknown => Ok(None),
    }
}

fn version_2(bytes: &[u8]) -> Result<Option<IpAddr>, BadHeader> {
    let header = v2::Header::try_from(bytes).map_err(|_| BadHeader::Malformed)?;
    match (header.command, header.addresses) {
        (v2::Command::Local, _) => Ok(None),
        (v2::Command::Proxy, _) if header.protocol == v2::Protocol::Datagram => Err(BadHeader::Malformed),
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
    fn read_of(bytes: &[u8]) -> (Result<Option<IpAddr>, BadHeader>, usize) {
        let mut rest = bytes;
        let read = Builder::new_current_thread().build().unwrap().block_on(read(&mut rest));
        (read, rest.len())
    }

    /// A version 2 header: command, families, addresses and what else.
    fn two(command: u8, families: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[command, families], &length, body].concat()
    }

    const FOUR: [u8; 12] = [203, 0, 113, 9, 192, 0, 2, 1, 0x30, 0x39, 1, 0xbb];

    fn check(header: &[u8], expected: Option<&str>) {
        let (read, left) = read_of(&[header, b"PRI * HTTP/2.0"].concat());
        assert_eq!(read.unwrap(), expected.map(|it| it.parse().unwrap()), "{}", header.escape_ascii());
        assert_eq!(left, 14, "what follows is left: {}", header.escape_ascii());
    }

    #[test]
    fn both_versions_say_who_the_client_is() {
        check(b"PROXY TCP4 203.0.113.9 192.0.2.1 12345 443\r\n", Some("203.0.113.9"));
        check(b"PROXY TCP6 2001:db8::9 2001:db8::1 12345 443\r\n", Some("2001:db8::9"));
        check(b"PROXY UNKNOWN\r\n", None);
        check(b"PROXY UNKNOWN ffff:f...f:ffff 65535 65535\r\n", None);
        check(&two(0x21, 0x11, &FOUR), Some("203.0.113.9"));
        let mut six = [0; 36];
        six[..4].copy_from_slice(&[0x20, 1, 0xd, 0xb8]);
        six[15] = 9;
        check(&two(0x21, 0x21, &six), Some("2001:db8::9"));
        check(&two(0x21, 0x11, &[&FOUR[..], &[3, 0, 4, 1, 2, 3, 4]].concat()), Some("203.0.113.9"));
    }

    /// A proxy that asks for itself whether we live, or does not know for whom.
    #[test]
    fn a_proxy_may_speak_for_itself() {
        check(&two(0x20, 0x00, b""), None);
        check(&two(0x20, 0x11, &FOUR), None);
        check(&two(0x21, 0x00, b""), None);
        check(&two(0x21, 0x31, &[b'x'; 216]), None);
    }

    #[test]
    fn what_is_no_header_is_refused() {
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
            assert!(read_of(header).0.is_err(), "{}", header.escape_ascii());
        }
        for (command, families) in [(0x11, 0x11), (0x22, 0x11), (0x21, 0x12), (0x21, 0x41), (0x21, 0x13)] {
            assert!(read_of(&two(command, families, &FOUR)).0.is_err(), "{command:x} {families:x}");
        }
        assert!(read_of(&two(0x21, 0x11, &FOUR[..11])).0.is_err(), "an address is cut off");
        assert!(read_of(&two(0x21, 0x11, &FOUR)[..27]).0.is_err(), "the header is cut off");
    }

    #[test]
    fn a_header_has_its_length_and_no_more() {
        check(&two(0x21, 0x11, &[&FOUR[..], &[0; BYTES_MAX - FIXED - 12]].concat()), Some("203.0.113.9"));
        let longer = two(0x21, 0x11, &[&FOUR[..], &[0; BYTES_MAX - FIXED - 11]].concat());
        assert!(matches!(read_of(&longer).0, Err(BadHeader::TooLong)));
        let endless = [&b"PROXY UNKNOWN "[..], &[b'x'; 1_000]].concat();
        let (read, left) = read_of(&endless);
        assert!(matches!(read, Err(BadHeader::TooLong)));
        assert_eq!(left, endless.len() - LINE_MAX);
    }

    proptest! {
        /// SEC-3: any bytes at all are an address or a refusal, and no more is taken than a header may have.
        #[test]
        fn any_bytes_are_survived(
            bytes in proptest::collection::vec(any::<u8>(), 0..700),
            opening in 0_usize..3,
        ) {
            let opening: &[u8] = [&b""[..], SIGNATURE, b"PROXY TCP4 "][opening];
            let bytes = [opening, &bytes].concat();
            let (_, left) = read_of(&bytes);
            prop_assert!(bytes.len() - left <= BYTES_MAX);
        }

        /// SEC-3: so are headers that are right but for a few bytes.
        #[test]
        fn headers_with_a_few_bytes_wrong_are_survived(
            changes in proptest::collection::vec((0_usize..64, any::<u8>()), 1..4),
            first in any::<bool>(),
        ) {
            let mut bytes = match first {
                true => b"PROXY TCP4 203.0.113.9 192.0.2.1 12345 443\r\n".to_vec(),
                false => two(0x21, 0x11, &FOUR),
            };
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            let (_, left) = read_of(&bytes);
            prop_assert!(bytes.len() - left <= BYTES_MAX);
        }
    }
}
