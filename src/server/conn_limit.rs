//! Connection limits: in total, per client prefix and per trusted peer, and the rate of new connections per prefix.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

use crate::api::layer::call_report::RpcObserver;
use crate::server::token_bucket::{Rate, TokenBucket};
use crate::telemetry::label::ConnectionRejection;

/// Limit of prefixes kept only for their connect rate. Beyond it, idle prefixes are dropped and get a full burst again.
const PREFIXES_MAX: usize = 65_536;

/// Number of prefixes below which pruning is not worth its cost.
const PREFIXES_PRUNE_MIN: usize = 1_024;

/// Limiter of connections.
#[derive(Debug)]
pub struct ConnectionLimiter {
    limits: ConnectionLimits,
    counts: Mutex<ConnectionCounts>,
}

/// Limits of a `ConnectionLimiter`.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Connections in total.
    pub total: usize,
    /// Connections per client prefix; also the burst of new connections after a pause.
    pub per_prefix: u32,
    /// Connections per trusted peer.
    pub per_trusted_peer: u32,
    /// Interval at which a prefix may open connections; trusted peers are not limited.
    pub connect_interval: Duration,
    /// Rate of control frames per prefix; trusted peers are not limited.
    pub control_frame_rate: Rate,
}

/// Trust in a connection's peer, by its address alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerTrust {
    /// Client on the network.
    Untrusted,
    /// Loopback or a trusted proxy, which carries the connections of many clients.
    TrustedPeer,
}

/// Whether an address is 127.0.0.1 or ::1, as local proxies use. The rest of 127/8 is not trusted, because no local
/// component uses it.
pub fn is_loopback_address(address: IpAddr) -> bool {
    address == IpAddr::V4(Ipv4Addr::LOCALHOST) || address == IpAddr::V6(Ipv6Addr::LOCALHOST)
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    total: usize,
    prefixes: HashMap<ClientPrefix, PrefixState>,
    /// Number of prefixes at which idle ones are pruned.
    prune_at: usize,
}

/// State of one client prefix.
#[derive(Debug)]
struct PrefixState {
    open_connections: u32,
    /// Token bucket of new connections.
    connect_bucket: TokenBucket,
    /// Token bucket of control frames, shared by the prefix's connections.
    prefix_frame_bucket: Arc<Mutex<TokenBucket>>,
}

/// Unit of counting: an IPv4 address, or the IPv6 /64 of one customer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ClientPrefix {
    V4([u8; 4]),
    V6([u8; 8]),
}

/// Permit of one connection; released on drop.
pub struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    prefix: ClientPrefix,
    /// `None`: a trusted peer, whose control frames are not limited.
    prefix_frame_bucket: Option<Arc<Mutex<TokenBucket>>>,
    observer: Option<Arc<dyn RpcObserver>>,
}

impl ConnectionLimiter {
    /// Creates a limiter without connections.
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, counts: Mutex::default() })
    }

    /// Counts a connection from `address`, or returns the limit that it exceeds.
    pub fn acquire(
        self: &Arc<Self>,
        address: IpAddr,
        trust: PeerTrust,
        now: Instant,
    ) -> Result<ConnectionPermit, ConnectionRejection> {
        let prefix = ClientPrefix::from_address(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.total >= self.limits.total {
            return Err(ConnectionRejection::MaxConnections);
        }
        let state = counts.prefixes.entry(prefix).or_insert_with(|| PrefixState::new(&self.limits, now));
        let prefix_frame_bucket = match trust {
            PeerTrust::TrustedPeer if state.open_connections >= self.limits.per_trusted_peer => {
                return Err(ConnectionRejection::MaxPerIp);
            }
            PeerTrust::TrustedPeer => None,
            PeerTrust::Untrusted => {
                if state.open_connections >= self.limits.per_prefix {
                    return Err(ConnectionRejection::MaxPerIp);
                }
                state.connect_bucket.take(1, now).map_err(|_| ConnectionRejection::RatePerIp)?;
                Some(state.prefix_frame_bucket.clone())
            }
        };
        state.open_connections += 1;
        counts.total += 1;
        if counts.prefixes.len() > counts.prune_at.max(PREFIXES_PRUNE_MIN) {
            counts.prune(now);
        }
        Ok(ConnectionPermit { limiter: self.clone(), prefix, prefix_frame_bucket, observer: None })
    }
}

impl PrefixState {
    /// State of a prefix without connections.
    fn new(limits: &ConnectionLimits, now: Instant) -> Self {
        let connect_rate = Rate { burst: limits.per_prefix, interval: limits.connect_interval };
        Self {
            open_connections: 0,
            connect_bucket: TokenBucket::new(connect_rate, now),
            prefix_frame_bucket: Arc::new(Mutex::new(TokenBucket::new(limits.control_frame_rate, now))),
        }
    }

    /// Whether the state differs from that of a new prefix, so that it must be kept.
    fn differs_from_new(&self, now: Instant) -> bool {
        self.open_connections > 0
            || !self.connect_bucket.is_full(now)
            || !self.prefix_frame_bucket.lock().unwrap_or_else(PoisonError::into_inner).is_full(now)
    }
}

impl ConnectionCounts {
    /// Drops prefixes whose state is that of a new prefix. Runs when their number has doubled.
    fn prune(&mut self, now: Instant) {
        self.prefixes.retain(|_, state| state.differs_from_new(now));
        if self.prefixes.len() > PREFIXES_MAX {
            self.prefixes.retain(|_, state| state.open_connections > 0);
        }
        self.prune_at = 2 * self.prefixes.len();
    }
}

impl ConnectionPermit {
    /// Also counts the connection at `observer`.
    pub fn with_observer(mut self, observer: &Arc<dyn RpcObserver>) -> Self {
        observer.connection_count_changed(1);
        self.observer = Some(observer.clone());
        self
    }

    /// Token bucket of the prefix's control frames; `None`: not limited.
    pub fn prefix_frame_bucket(&self) -> Option<Arc<Mutex<TokenBucket>>> {
        self.prefix_frame_bucket.clone()
    }

    /// Counts that a limit has closed the connection.
    pub fn report_rejection(&self, reason: ConnectionRejection) {
        if let Some(observer) = &self.observer {
            observer.connection_rejected(reason.as_str());
        }
    }
}

impl std::fmt::Debug for ConnectionPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectionPermit").finish_non_exhaustive()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some(observer) = &self.observer {
            observer.connection_count_changed(-1);
        }
        let mut counts = self.limiter.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total -= 1;
        if let Some(state) = counts.prefixes.get_mut(&self.prefix) {
            state.open_connections -= 1;
        }
    }
}

impl ClientPrefix {
    fn from_address(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => ClientPrefix::V4(address.octets()),
            IpAddr::V6(address) => {
                let mut network = [0; 8];
                network.copy_from_slice(&address.octets()[..8]);
                ClientPrefix::V6(network)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LIMITS: ConnectionLimits = ConnectionLimits {
        total: 9,
        per_prefix: 3,
        per_trusted_peer: 3,
        connect_interval: SECOND,
        control_frame_rate: Rate { burst: 10, interval: SECOND },
    };

    fn limiter(limits: ConnectionLimits) -> (Arc<ConnectionLimiter>, Instant) {
        (ConnectionLimiter::new(limits), Instant::now())
    }

    /// SEC-2: connections are limited per prefix and in total; a closed connection makes room.
    #[test]
    fn connection_limit_per_prefix_leaves_room_for_other_prefixes() {
        let (limiter, mut now) =
            limiter(ConnectionLimits { total: 7, per_prefix: 2, connect_interval: Duration::from_nanos(1), ..LIMITS });
        let mut acquire = |text: &str| {
            now += SECOND;
            let address = text.parse().unwrap();
            let trust = if is_loopback_address(address) { PeerTrust::TrustedPeer } else { PeerTrust::Untrusted };
            limiter.acquire(address, trust, now)
        };
        let mut permits = Vec::new();
        permits.push(acquire("203.0.113.9").unwrap());
        permits.push(acquire("::ffff:203.0.113.9").unwrap());
        assert_eq!(acquire("203.0.113.9").unwrap_err(), ConnectionRejection::MaxPerIp);
        permits.push(acquire("2001:db8:0:1::1").unwrap());
        permits.push(acquire("2001:db8:0:1:ffff::2").unwrap());
        assert_eq!(acquire("2001:db8:0:1::3").unwrap_err(), ConnectionRejection::MaxPerIp);
        permits.extend(["127.0.0.1"; 3].map(|local| acquire(local).unwrap()));
        assert_eq!(acquire("198.51.100.1").unwrap_err(), ConnectionRejection::MaxConnections);
        permits.pop();
        permits.push(acquire("198.51.100.1").unwrap());
        permits.clear();
        let mut counts = limiter.counts.lock().unwrap();
        assert_eq!(counts.total, 0);
        counts.prune(now + SECOND);
        assert_eq!(counts.prefixes.len(), 0);
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
        let prefix_frame_bucket =
            untrusted().prefix_frame_bucket().expect("an untrusted connection has a frame bucket");
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
            limiter.acquire(Ipv4Addr::from_bits(number).into(), PeerTrust::Untrusted, now).unwrap();
        }
        assert!(limiter.counts.lock().unwrap().prefixes.len() <= PREFIXES_PRUNE_MIN + 1);
    }
}
