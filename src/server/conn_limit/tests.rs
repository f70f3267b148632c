//! Connection limits: places, prefixes, rates, and the connections that give way to others.

use std::time::Duration;

use super::*;
use crate::server::token_bucket::Rate;

const SECOND: Duration = Duration::from_secs(1);
const LIMITS: ConnectionLimits = ConnectionLimits {
    untrusted_total: 9,
    trusted_total: 9,
    per_host: 3,
    per_site: 1_000,
    per_network: 1_000,
    per_trusted_peer: 3,
    host_connect_interval: SECOND,
    network_connect_interval: SECOND,
    crowded_unidentified_age_max: SECOND,
    control_frame_rate_per_host: Rate { burst: 10, interval: SECOND },
};

fn limiter(limits: ConnectionLimits) -> (Arc<ConnectionLimiter>, Instant) {
    (ConnectionLimiter::new(limits, CancellationToken::new()), Instant::now())
}

/// Acquires a permit from the address `text`; loopback is a trusted peer.
fn acquire(
    limiter: &Arc<ConnectionLimiter>,
    text: &str,
    now: Instant,
) -> Result<ConnectionPermit, ConnectionRejection> {
    let address = text.parse().unwrap();
    let trust = if is_localhost_address(address) { PeerTrust::TrustedPeer } else { PeerTrust::Untrusted };
    limiter.acquire(address, trust, now)
}

/// Places that are taken, and closed connections that have not ended.
fn counts_of(limiter: &ConnectionLimiter) -> (usize, usize) {
    let counts = limiter.counts.lock().unwrap();
    (counts.untrusted_places, counts.closing_reasons.len())
}

fn identify(permit: &ConnectionPermit) {
    permit.has_identity().store(true, Ordering::Relaxed);
}

/// SEC-2: connections are limited per prefix and in total; a closed connection makes room. Trusted peers have places of
/// their own.
#[test]
fn connection_limit_per_prefix_leaves_room_for_other_prefixes() {
    let (limiter, mut now) = limiter(ConnectionLimits { untrusted_total: 4, per_host: 2, ..LIMITS });
    let mut acquire = |text: &str| {
        now += 10 * SECOND;
        acquire(&limiter, text, now).inspect(identify)
    };
    let mut permits = Vec::new();
    permits.push(acquire("203.0.113.9").unwrap());
    permits.push(acquire("::ffff:203.0.113.9").unwrap());
    assert_eq!(acquire("203.0.113.9").unwrap_err(), ConnectionRejection::MaxPerIp);
    permits.push(acquire("2001:db8:0:1::1").unwrap());
    permits.push(acquire("2001:db8:0:1:ffff::2").unwrap());
    assert_eq!(acquire("2001:db8:0:1::3").unwrap_err(), ConnectionRejection::MaxPerIp);
    assert_eq!(acquire("198.51.100.1").unwrap_err(), ConnectionRejection::MaxConnections, "all have an identity");
    let trusted = ["127.0.0.1"; 3].map(|local| acquire(local).unwrap());
    assert_eq!(acquire("127.0.0.1").unwrap_err(), ConnectionRejection::MaxPerIp);
    permits.pop();
    permits.push(acquire("198.51.100.1").unwrap());
    permits.clear();
    drop(trusted);
    let mut counts = limiter.counts.lock().unwrap();
    assert_eq!(
        (counts.untrusted_places, counts.trusted, counts.unidentified.len(), counts.closing_reasons.len()),
        (0, 0, 0, 0)
    );
    counts.prune(now + 60 * SECOND);
    assert_eq!(counts.prefixes.len(), 0);
}

/// SEC-2: when no place is free, the oldest connection without an identity is closed at once for a new one, and those with
/// an identity are kept.
#[test]
fn full_limiter_closes_the_oldest_connection_without_an_identity() {
    let (limiter, now) = limiter(ConnectionLimits { untrusted_total: 4, ..LIMITS });
    let permits: Vec<_> = (1..=4).map(|host| acquire(&limiter, &format!("203.0.{host}.1"), now).unwrap()).collect();
    identify(&permits[0]);
    let newcomer = acquire(&limiter, "198.51.100.1", now).unwrap();
    let closed: Vec<bool> = permits.iter().map(|permit| permit.stop_token().is_cancelled()).collect();
    assert_eq!(closed, [false, true, false, false]);
    assert_eq!(counts_of(&limiter), (4, 1));
    // The closed one has not ended yet. Places are given away for a bounded number of such connections only.
    assert_eq!(acquire(&limiter, "198.51.101.1", now).unwrap_err(), ConnectionRejection::MaxConnections);
    drop(permits);
    assert_eq!(counts_of(&limiter), (1, 0));
    drop(newcomer);
    assert_eq!(counts_of(&limiter), (0, 0));
}

/// SEC-2: from 80 % of the places on, a connection without an identity is closed when it is too old. Below that it may
/// stay.
#[test]
fn crowded_limiter_closes_old_connections_without_an_identity() {
    let (limiter, start) = limiter(ConnectionLimits { untrusted_total: 10, ..LIMITS });
    let open = |host: u32, at| acquire(&limiter, &format!("203.0.{host}.1"), at).unwrap();
    let mut permits: Vec<_> = (0..7).map(|host| open(host, start)).collect();
    assert_eq!(limiter.shed_unidentified_connections(start + 60 * SECOND), None, "7 of 10 places");
    identify(&permits[0]);
    permits.push(open(7, start + 60 * SECOND));
    assert_eq!(limiter.shed_unidentified_connections(start), Some(start + SECOND), "the second has no identity");
    assert_eq!(limiter.shed_unidentified_connections(start + 61 * SECOND - SECOND / 2), None, "7 of 10 again");
    let closed: Vec<bool> = permits.iter().map(|permit| permit.stop_token().is_cancelled()).collect();
    assert_eq!(closed, [false, true, false, false, false, false, false, false]);
    permits.extend((8..10).map(|host| open(host, start + 60 * SECOND)));
    assert_eq!(limiter.shed_unidentified_connections(start + 60 * SECOND), None, "the old ones are closed first");
    assert_eq!(permits.iter().filter(|permit| permit.stop_token().is_cancelled()).count(), 3);
}

/// SEC-2: the /64s of one /56, the /64s of one /48 and the addresses of one IPv4 /24 are limited together, and so is their
/// rate.
#[test]
fn networks_are_limited_together() {
    let small = ConnectionLimits { untrusted_total: 100, per_site: 4, per_network: 6, ..LIMITS };
    let check = |addresses: &dyn Fn(u32) -> String, open: usize| {
        let (limiter, start) = limiter(small);
        let mut permits = Vec::new();
        let mut rejected = None;
        for number in 0..50 {
            match acquire(&limiter, &addresses(number), start) {
                Ok(permit) => permits.push(permit),
                Err(reason) => rejected = Some(reason),
            }
        }
        assert_eq!((permits.len(), rejected), (open, Some(ConnectionRejection::MaxPerNetwork)), "{}", addresses(0));
        permits.clear();
        assert_eq!(acquire(&limiter, &addresses(60), start).unwrap_err(), ConnectionRejection::RatePerNetwork);
        acquire(&limiter, &addresses(60), start + SECOND).unwrap();
        assert_eq!(acquire(&limiter, &addresses(61), start + SECOND).unwrap_err(), ConnectionRejection::RatePerNetwork);
    };
    check(&|number| format!("2001:db8:0:{number:x}::1"), 4);
    check(&|number| format!("2001:db8:0:{number:x}00::1"), 6);
    check(&|number| format!("203.0.113.{number}"), 6);
}

/// SEC-2: 65,536 /64s of one customer, each with as many connections as it may have, take a small part of the places. A
/// flood from as many /48s leaves a place to each newcomer, who is not the next to be closed.
#[test]
fn flood_of_65_536_ipv6_networks_leaves_places_to_others() {
    let limits = ConnectionLimits {
        untrusted_total: 10_000,
        per_host: 64,
        per_site: 256,
        per_network: 2_048,
        host_connect_interval: Duration::from_millis(100),
        network_connect_interval: Duration::from_millis(10),
        ..LIMITS
    };
    let (one_customer, start) = limiter(limits);
    let open = |limiter: &Arc<ConnectionLimiter>, bits: u128| {
        limiter.acquire(Ipv6Addr::from_bits(bits).into(), PeerTrust::Untrusted, start)
    };
    let permits: Vec<_> =
        (0..65_536_u128).filter_map(|net| open(&one_customer, 0x2001_0db8 << 96 | net << 64).ok()).collect();
    assert_eq!(permits.len(), 2_048);

    // The flood's closed connections end at once, as they do when the runtime keeps up.
    let (many, _) = limiter(limits);
    let mut flood: std::collections::VecDeque<ConnectionPermit> = std::collections::VecDeque::new();
    let mut newcomer: Option<ConnectionPermit> = None;
    for network in 0..65_536_u128 {
        flood.push_back(open(&many, 0x2001 << 112 | network << 80).unwrap());
        while flood.front().is_some_and(|permit| permit.stop_token().is_cancelled()) {
            flood.pop_front();
        }
        if network % 1_000 == 0 {
            assert!(newcomer.is_none_or(|earlier| !earlier.stop_token().is_cancelled()), "{network}");
            newcomer = Some(open(&many, 0x2002 << 112 | network << 80).unwrap());
        }
    }
    assert!(many.counts.lock().unwrap().untrusted_places <= 10_000);
    assert!(many.counts.lock().unwrap().prefixes.len() <= 2 * PREFIXES_MAX + 1);
}

/// SEC-2: a prefix may open a burst of connections, then one per interval; trusted peers are not limited.
#[test]
fn connect_rate_per_prefix_allows_a_burst_and_then_one_per_interval() {
    let (limiter, start) = limiter(LIMITS);
    let connect = |address: &str, trust, at| limiter.acquire(address.parse().unwrap(), trust, at).map(drop);
    let untrusted = |at| connect("203.0.113.9", PeerTrust::Untrusted, start + at);
    for _ in 0..3 {
        untrusted(Duration::ZERO).unwrap();
    }
    assert_eq!(untrusted(Duration::ZERO), Err(ConnectionRejection::RatePerIp));
    assert_eq!(untrusted(SECOND / 2), Err(ConnectionRejection::RatePerIp));
    untrusted(SECOND).unwrap();
    assert_eq!(untrusted(SECOND), Err(ConnectionRejection::RatePerIp));
    connect("203.0.113.10", PeerTrust::Untrusted, start).unwrap();
    for _ in 0..9 {
        connect("127.0.0.1", PeerTrust::TrustedPeer, start).unwrap();
    }
    for _ in 0..3 {
        untrusted(SECOND * 60).unwrap();
    }
}

/// SEC-1: the control frame bucket of a prefix survives reconnecting until it is full; trusted peers have none.
#[test]
fn frame_bucket_of_a_prefix_survives_reconnecting() {
    let (limiter, start) = limiter(LIMITS);
    let untrusted = || limiter.acquire("203.0.113.9".parse().unwrap(), PeerTrust::Untrusted, start).unwrap();
    let prefix_frame_bucket = untrusted().prefix_frame_bucket().expect("an untrusted connection has a frame bucket");
    prefix_frame_bucket.lock().unwrap().take(10, start).unwrap();
    drop(prefix_frame_bucket);
    let reconnected = untrusted();
    limiter.counts.lock().unwrap().prune(start + 5 * SECOND);
    assert!(reconnected.prefix_frame_bucket().unwrap().lock().unwrap().take(6, start + 5 * SECOND).is_err());
    drop(reconnected);
    limiter.counts.lock().unwrap().prune(start + 9 * SECOND);
    assert_eq!(limiter.counts.lock().unwrap().prefixes.len(), 1);
    limiter.counts.lock().unwrap().prune(start + 10 * SECOND);
    assert_eq!(limiter.counts.lock().unwrap().prefixes.len(), 0);
    let trusted = limiter.acquire("127.0.0.1".parse().unwrap(), PeerTrust::TrustedPeer, start).unwrap();
    assert!(trusted.prefix_frame_bucket().is_none());
}

/// SEC-2: a flood of addresses with one connection each does not fill the memory.
#[test]
fn idle_prefixes_are_pruned() {
    let (limiter, start) = limiter(LIMITS);
    for number in 0..20_000u32 {
        let now = start + SECOND * number;
        limiter.acquire(Ipv4Addr::from_bits(number << 8).into(), PeerTrust::Untrusted, now).unwrap();
    }
    assert!(limiter.counts.lock().unwrap().prefixes.len() <= PREFIXES_PRUNE_MIN + 2);
}
