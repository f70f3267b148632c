//! Client address behind proxies: trusts `x-forwarded-for` entries that a configured proxy wrote.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

/// Maximum number of hops read; no deployment has more proxies of its own.
pub const FORWARDED_HOPS_MAX: usize = 16;
/// Bytes read at the end of one header line. Earlier bytes come from the client, not from a proxy.
pub const FORWARDED_FOR_LINE_BYTES_MAX: usize = 2048;
/// Maximum length of the text of an address with brackets, scope and port, bytes.
const HOP_BYTES_MAX: usize = 64;

/// Returns the address of the client behind `peer`, for locality and rate limits.
///
/// `forwarded_for` has the bytes of all `x-forwarded-for` header lines, in the order received; they form one list. They
/// count only if `peer` lies in `trusted`. The hops are read from the right, the end that proxies append to. No byte to
/// the left of a hop changes how that hop is read, so a client cannot hide the hops that proxies have appended to its
/// own bytes.
///
/// An address outside `trusted` ends the walk and is the result. Bytes that are no address end the walk too; the result is
/// then the last valid hop. Addresses are returned in canonical form, never as `::ffff:1.2.3.4`.
///
/// | peer       | header                    | trusted       | result    |
/// |------------|---------------------------|---------------|-----------|
/// | `9.9.9.9`  | `1.1.1.1`                 | `10.0.0.0/8`  | `9.9.9.9` |
/// | `10.0.0.1` | `1.1.1.1, 2.2.2.2`        | `10.0.0.0/8`  | `2.2.2.2` |
/// | `10.0.0.1` | `<0xff>, 2.2.2.2`         | `10.0.0.0/8`  | `2.2.2.2` |
/// | `10.0.0.1` | `1.1.1.1, 10.0.0.2`       | `10.0.0.0/8`  | `1.1.1.1` |
/// | `10.0.0.1` | `1.1.1.1, junk, 10.0.0.2` | `10.0.0.0/8`  | `10.0.0.2`|
pub fn client_address<'a, I>(peer: IpAddr, forwarded_for: I, trusted: &[IpNet]) -> IpAddr
where
    I: IntoIterator<Item = &'a [u8]>,
    I::IntoIter: DoubleEndedIterator,
{
    let mut client = peer.to_canonical();
    let hops = forwarded_for.into_iter().rev().flat_map(|line| last_bytes_of_line(line).rsplit(|byte| *byte == b','));
    for hop in hops.take(FORWARDED_HOPS_MAX) {
        if !is_trusted_proxy(client, trusted) {
            break;
        }
        let Some(address) = parse_hop_address(hop.trim_ascii()) else { break };
        client = address;
    }
    client
}

/// Whether an address, in canonical form, belongs to a trusted proxy.
pub fn is_trusted_proxy(address: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|network| network.contains(&address))
}

/// The last `FORWARDED_FOR_LINE_BYTES_MAX` bytes of a header line.
///
/// A cut entry could parse as another address, so the entry at the cut is left out.
fn last_bytes_of_line(line: &[u8]) -> &[u8] {
    let Some(cut) = line.len().checked_sub(FORWARDED_FOR_LINE_BYTES_MAX).filter(|cut| *cut > 0) else { return line };
    let kept = &line[cut..];
    // The entry before the first comma is junk: it ends the walk, as the bytes before the cut would.
    kept.iter().position(|byte| *byte == b',').map_or(b"", |comma| &kept[comma..])
}

/// Parses one address: bare, in brackets, or with a port.
fn parse_hop_address(hop: &[u8]) -> Option<IpAddr> {
    let hop = std::str::from_utf8(hop).ok().filter(|hop| hop.len() <= HOP_BYTES_MAX)?;
    let bare = hop.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).filter(|inner| inner.contains(':'));
    let address =
        bare.unwrap_or(hop).parse::<IpAddr>().or_else(|_| hop.parse::<SocketAddr>().map(|socket| socket.ip()));
    address.ok().map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn assert_client_address(peer: &str, headers: &[&str], expected: &str) {
        let trusted: Vec<IpNet> = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap()).into();
        let found = client_address(peer.parse().unwrap(), headers.iter().map(|line| line.as_bytes()), &trusted);
        assert_eq!(found, expected.parse::<IpAddr>().unwrap(), "{peer} {headers:?}");
    }

    /// SEC-7: the header of an untrusted peer has no effect.
    #[test]
    fn forwarded_for_from_an_untrusted_peer_is_ignored() {
        assert_client_address("9.9.9.9", &["1.1.1.1"], "9.9.9.9");
        assert_client_address("9.9.9.9", &["10.0.0.1"], "9.9.9.9");
        assert_client_address("::ffff:9.9.9.9", &["1.1.1.1"], "9.9.9.9");
        assert_eq!(client_address(IpAddr::from([10, 0, 0, 1]), [&b"1.1.1.1"[..]], &[]), IpAddr::from([10, 0, 0, 1]));
    }

    #[test]
    fn forwarded_for_yields_the_rightmost_untrusted_address() {
        assert_client_address("10.0.0.1", &[], "10.0.0.1");
        assert_client_address("10.0.0.1", &["1.1.1.1"], "1.1.1.1");
        assert_client_address("10.0.0.1", &["1.1.1.1, 2.2.2.2"], "2.2.2.2");
        assert_client_address("10.0.0.1", &["1.1.1.1, 10.0.0.2"], "1.1.1.1");
        assert_client_address("10.0.0.1", &["1.1.1.1", "2.2.2.2,10.9.9.9"], "2.2.2.2");
        assert_client_address("10.0.0.1", &["10.0.0.3, 10.0.0.2"], "10.0.0.3");
        assert_client_address("::ffff:10.0.0.1", &["1.1.1.1"], "1.1.1.1");
    }

    #[test]
    fn forwarded_for_accepts_ports_brackets_and_mapped_ipv4() {
        for hop in ["1.1.1.1", " 1.1.1.1 ", "1.1.1.1:443", "::ffff:1.1.1.1", "[::ffff:1.1.1.1]:9", "\t1.1.1.1"] {
            assert_client_address("fd00::1", &[hop], "1.1.1.1");
        }
        for hop in ["2a00::1", "[2a00::1]", "[2a00::1]:443"] {
            assert_client_address("fd00::1", &[hop], "2a00::1");
        }
    }

    #[test]
    fn forwarded_for_stops_at_text_that_is_no_address() {
        for junk in ["", "unknown", "1.1.1", "1.1.1.1.1", "[1.1.1.1]", "fe80::1%eth0", "_hidden", "1.1.1.1:99999", "é"]
        {
            assert_client_address("10.0.0.1", &[junk], "10.0.0.1");
            assert_client_address("10.0.0.1", &[&format!("3.3.3.3, {junk}, 10.0.0.2")], "10.0.0.2");
        }
    }

    #[test]
    fn forwarded_for_longer_than_the_limits_keeps_its_last_hops() {
        let stuffed = format!("{}, 2.2.2.2", "é1.1.1.1,".repeat(10_000));
        assert_client_address("10.0.0.1", &[&stuffed], "2.2.2.2");
        let endless = vec!["10.0.0.2"; 1_000].join(",");
        assert_client_address("10.0.0.1", &[&format!("1.1.1.1,{endless}")], "10.0.0.2");
        assert_client_address("10.0.0.1", &[&"x".repeat(100_000)], "10.0.0.1");
        let cut = format!("{}1.1.1.1, 10.0.0.2", " ".repeat(FORWARDED_FOR_LINE_BYTES_MAX));
        for taken in 0..20 {
            let padded = format!("{cut}{}", " ".repeat(taken));
            assert_client_address("10.0.0.1", &[&padded[..]], "10.0.0.2");
        }
    }

    /// SEC-7: no byte that a client sends hides the hop that its proxy has appended, in the same line or in another one.
    #[test]
    fn forwarded_for_keeps_the_hops_of_proxies_behind_any_byte() {
        let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap()];
        let proxy = IpAddr::from([10, 0, 0, 1]);
        for byte in 0..=u8::MAX {
            let line = [&[byte][..], b", 2.2.2.2"].concat();
            assert_eq!(client_address(proxy, [&line[..]], &trusted), IpAddr::from([2, 2, 2, 2]), "byte {byte}");
            let lines = [&[byte][..], b"2.2.2.2"];
            assert_eq!(client_address(proxy, lines, &trusted), IpAddr::from([2, 2, 2, 2]), "byte {byte}");
        }
    }

    /// Oracle for `client_address`: all lines joined by commas, split into entries, and read from the right, one by one.
    fn client_address_oracle(peer: IpAddr, lines: &[Vec<u8>], trusted: &[IpNet]) -> IpAddr {
        let joined = lines.join(&b","[..]);
        let mut client = peer;
        for entry in joined.split(|byte| *byte == b',').rev() {
            let is_trusted = trusted.iter().any(|network| network.contains(&client));
            let text = String::from_utf8_lossy(entry);
            let text = text.trim_matches(['\t', '\n', '\x0c', '\r', ' ']);
            let bracketed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
            let address = [text.parse().ok(), text.parse().ok().map(|socket: SocketAddr| socket.ip())];
            let inside = bracketed.and_then(|inner| inner.parse().ok()).filter(IpAddr::is_ipv6);
            match address.into_iter().chain([inside]).flatten().next() {
                Some(address) if is_trusted => client = address.to_canonical(),
                _ => break,
            }
        }
        client
    }

    /// An entry of a header line: an address of a proxy or a client, or arbitrary bytes.
    fn entry() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            (0_u8..4).prop_map(|n| format!("10.0.0.{n}").into_bytes()),
            (0_u8..4).prop_map(|n| format!(" 9.0.0.{n}:80 ").into_bytes()),
            (0_u8..4).prop_map(|n| format!("[fd00::{n}]:443").into_bytes()),
            (0_u8..4).prop_map(|n| format!("[2a00::{n}]").into_bytes()),
            proptest::collection::vec(any::<u8>(), 0..12),
            Just(b"10.0.0.2\xff".to_vec()),
        ]
    }

    proptest! {
        /// SEC-7: with an untrusted peer no header has any effect; with a trusted one the result equals the oracle's, for
        /// arbitrary bytes in several lines.
        #[test]
        fn forwarded_for_agrees_with_the_oracle(
            is_trusted in any::<bool>(),
            lines in proptest::collection::vec(proptest::collection::vec(entry(), 1..6), 0..3),
        ) {
            let trusted: Vec<IpNet> = ["10.0.0.0/8", "fd00::/8"].map(|network| network.parse().unwrap()).into();
            let peer = IpAddr::from([if is_trusted { 10 } else { 9 }, 0, 0, 9]);
            let lines: Vec<Vec<u8>> = lines.iter().map(|entries| entries.join(&b","[..])).collect();
            let found = client_address(peer, lines.iter().map(Vec::as_slice), &trusted);
            prop_assert_eq!(found, client_address_oracle(peer, &lines, &trusted));
            prop_assert!(is_trusted || found == peer);
        }

        /// SEC-7: for any bytes that a client sends, in any lines, the hop that the proxy appends is the client.
        #[test]
        fn forwarded_for_of_a_proxy_survives_any_bytes_before_it(
            sent in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..3_000), 0..4),
            appends_line in any::<bool>(),
        ) {
            let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap()];
            let mut lines = sent;
            match lines.last_mut().filter(|_| !appends_line) {
                Some(last) => last.extend_from_slice(b", 2.2.2.2"),
                None => lines.push(b"2.2.2.2".to_vec()),
            }
            let found = client_address(IpAddr::from([10, 0, 0, 1]), lines.iter().map(Vec::as_slice), &trusted);
            prop_assert_eq!(found, IpAddr::from([2, 2, 2, 2]));
        }
    }
}
