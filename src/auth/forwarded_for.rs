//! Client address behind proxies: trusts `x-forwarded-for` entries that a configured proxy wrote.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

/// Maximum number of hops read; no deployment has more proxies of its own.
pub const FORWARDED_HOPS_MAX: usize = 16;
/// Bytes read at the end of one header value. Earlier bytes come from the client, not from a proxy.
pub const FORWARDED_FOR_BYTES_MAX: usize = 2048;

/// Returns the address of the client behind `peer`, for locality and rate limits.
///
/// `forwarded_for` has the values of all `x-forwarded-for` headers, in the order received. They count only if `peer` lies
/// in `trusted`. The hops are read from the right, the end that proxies append to.
///
/// An address outside `trusted` ends the walk and is the result. Text that is no address ends the walk too; the result is
/// then the last valid hop. Addresses are returned in canonical form, never as `::ffff:1.2.3.4`.
///
/// | peer       | header                    | trusted       | result    |
/// |------------|---------------------------|---------------|-----------|
/// | `9.9.9.9`  | `1.1.1.1`                 | `10.0.0.0/8`  | `9.9.9.9` |
/// | `10.0.0.1` | `1.1.1.1, 2.2.2.2`        | `10.0.0.0/8`  | `2.2.2.2` |
/// | `10.0.0.1` | `1.1.1.1, 10.0.0.2`       | `10.0.0.0/8`  | `1.1.1.1` |
/// | `10.0.0.1` | `1.1.1.1, junk, 10.0.0.2` | `10.0.0.0/8`  | `10.0.0.2`|
pub fn client_address(peer: IpAddr, forwarded_for: &[&str], trusted: &[IpNet]) -> IpAddr {
    let mut client = peer.to_canonical();
    let hops = forwarded_for.iter().rev().flat_map(|value| last_header_bytes(value).rsplit(','));
    for hop in hops.take(FORWARDED_HOPS_MAX) {
        if !is_trusted_proxy(client, trusted) {
            break;
        }
        let Some(address) = parse_hop_address(hop.trim()) else { break };
        client = address;
    }
    client
}

/// Whether an address, in canonical form, belongs to a trusted proxy.
pub fn is_trusted_proxy(address: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|network| network.contains(&address))
}

/// The last `FORWARDED_FOR_BYTES_MAX` bytes of a header value.
///
/// The first entry may be cut. It then fails to parse, or it is further left than `FORWARDED_HOPS_MAX` hops reach.
fn last_header_bytes(value: &str) -> &str {
    let mut start = value.len().saturating_sub(FORWARDED_FOR_BYTES_MAX);
    while !value.is_char_boundary(start) {
        start += 1;
    }
    &value[start..]
}

/// Parses one address: bare, in brackets, or with a port.
fn parse_hop_address(hop: &str) -> Option<IpAddr> {
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
        let found = client_address(peer.parse().unwrap(), headers, &trusted);
        assert_eq!(found, expected.parse::<IpAddr>().unwrap(), "{peer} {headers:?}");
    }

    /// SEC-7: the header of an untrusted peer has no effect.
    #[test]
    fn forwarded_for_from_an_untrusted_peer_is_ignored() {
        assert_client_address("9.9.9.9", &["1.1.1.1"], "9.9.9.9");
        assert_client_address("9.9.9.9", &["10.0.0.1"], "9.9.9.9");
        assert_client_address("::ffff:9.9.9.9", &["1.1.1.1"], "9.9.9.9");
        assert_eq!(client_address(IpAddr::from([10, 0, 0, 1]), &["1.1.1.1"], &[]), IpAddr::from([10, 0, 0, 1]));
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
    }

    /// Oracle for `client_address`: the same rule over the complete list of hops.
    fn client_address_oracle(peer: IpAddr, hops: &[Option<IpAddr>], trusted: &[IpNet]) -> IpAddr {
        let mut path = vec![Some(peer)];
        path.extend(hops.iter().rev());
        let is_untrusted = |address: IpAddr| !trusted.iter().any(|network| network.contains(&address));
        let stop = path.iter().position(|hop| hop.is_none_or(is_untrusted));
        let end = stop.map_or(path.len() - 1, |index| if path[index].is_some() { index } else { index - 1 });
        path[end].unwrap_or(peer)
    }

    proptest! {
        /// SEC-7: with an untrusted peer no header has any effect; with a trusted one the result equals the oracle's.
        #[test]
        fn forwarded_for_agrees_with_the_oracle(
            peer in 0_u32..4,
            hops in proptest::collection::vec(proptest::option::of(0_u32..4), 0..8),
            split in 0_usize..8,
        ) {
            let address = |n: u32| IpAddr::from([if n.is_multiple_of(2) { 10 } else { 9 }, 0, 0, n as u8]);
            let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap()];
            let texts: Vec<String> = hops.iter().map(|hop| hop.map_or("junk".into(), |n| address(n).to_string())).collect();
            let (first, second) = texts.split_at(split.min(texts.len()));
            let values = [first, second].into_iter().filter(|part| !part.is_empty()).map(|part| part.join(", "));
            let values: Vec<String> = values.collect();
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            let found = client_address(address(peer), &values, &trusted);
            let addresses: Vec<Option<IpAddr>> = hops.iter().map(|hop| hop.map(address)).collect();
            prop_assert_eq!(found, client_address_oracle(address(peer), &addresses, &trusted));
            if peer % 2 == 1 {
                prop_assert_eq!(found, address(peer));
            }
        }

        /// SEC-3: random header text never panics; for an untrusted peer the result is the peer.
        #[test]
        fn forwarded_for_with_random_text_never_panics(values in proptest::collection::vec(".{0,64}", 0..4)) {
            let values: Vec<&str> = values.iter().map(String::as_str).collect();
            let trusted: Vec<IpNet> = vec!["10.0.0.0/8".parse().unwrap()];
            client_address(IpAddr::from([10, 0, 0, 1]), &values, &trusted);
            let untrusted = IpAddr::from([9, 9, 9, 9]);
            prop_assert_eq!(client_address(untrusted, &values, &trusted), untrusted);
        }
    }
}
