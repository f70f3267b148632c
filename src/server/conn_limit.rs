//! Counts connections, in all and from one place, and turns away those that are too many or come too fast (SEC-2).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

use crate::api::layer::call_report::RpcObserver;
use crate::server::h2_frame_limit::{Rate, TokenBucket};
use crate::telemetry::label::ConnectionRejection;

/// Places that are remembered only for how fast they came; beyond that they are forgotten, and may come fast once more.
const PREFIXES_MAX: usize = 65_536;

/// Places below which looking for those to forget is not worth it.
const PREFIXES_PRUNE_MIN: usize = 1_024;

/// Lets connections in.
#[derive(Debug)]
pub struct ConnectionLimiter {
    limits: ConnectionLimits,
    counts: Mutex<ConnectionCounts>,
}

/// How many.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// In all.
    pub total: usize,
    /// From one place; also how many may come at once after a pause.
    pub per_prefix: u32,
    /// From one neighbour.
    pub per_trusted_peer: u32,
    /// How often one place may open a connection in the long run; neighbours may as often as they like.
    pub connect_interval: Duration,
    /// Frames that ask for nothing, from one place; neighbours may send what they like.
    pub control_frame_rate: Rate,
}

/// What a connection is to us before it has said who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerTrust {
    /// Anybody.
    Untrusted,
    /// This machine or a trusted proxy, which carries the connections of many.
    TrustedPeer,
}

/// Whether an address is this machine's own, as its proxies have it: 127.0.0.1 and ::1, not the rest of 127/8, where
/// nothing of ours comes from.
pub fn is_loopback_address(address: IpAddr) -> bool {
    address == IpAddr::V4(Ipv4Addr::LOCALHOST) || address == IpAddr::V6(Ipv6Addr::LOCALHOST)
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    total: usize,
    prefixes: HashMap<ClientPrefix, PrefixState>,
    /// The number of places at which those that have nothing open and have not come lately are forgotten.
    prune_at: usize,
}

/// What is known of a place.
#[derive(Debug)]
struct PrefixState {
    open_connections: u32,
    /// When all that it has opened is paid for, at one connection every `opening_every`.
    connect_bucket_full_at: Instant,
    /// What its connections may send together, of frames that ask for nothing.
    frame_bucket: Arc<Mutex<TokenBucket>>,
}

/// What is counted as one: an IPv4 address, or the /64 that one IPv6 customer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ClientPrefix {
    V4([u8; 4]),
    V6([u8; 8]),
}

/// A connection's place among the counted; given back when it is dropped.
pub struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    prefix: ClientPrefix,
    /// None: a neighbour, who is not held to it.
    frame_bucket: Option<Arc<Mutex<TokenBucket>>>,
    observer: Option<Arc<dyn RpcObserver>>,
}

impl ConnectionLimiter {
    /// A gate that nobody has passed.
    pub fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self { limits, counts: Mutex::default() })
    }

    /// Lets a connection from `address` in, or says why not.
    pub fn acquire(
        self: &Arc<Self>,
        address: IpAddr,
        standing: PeerTrust,
        now: Instant,
    ) -> Result<ConnectionPermit, ConnectionRejection> {
        let place = ClientPrefix::from_address(address);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if self.limits.total <= counts.total {
            return Err(ConnectionRejection::MaxConnections);
        }
        let seen =
            counts.prefixes.entry(place).or_insert_with(|| PrefixState::new(now, self.limits.control_frame_rate));
        let purse = match standing {
            PeerTrust::TrustedPeer if self.limits.per_trusted_peer <= seen.open_connections => {
                return Err(ConnectionRejection::MaxPerIp);
            }
            PeerTrust::TrustedPeer => None,
            PeerTrust::Untrusted => {
                if self.limits.per_prefix <= seen.open_connections {
                    return Err(ConnectionRejection::MaxPerIp);
                }
                let paid = seen.connect_bucket_full_at.max(now) + self.limits.connect_interval;
                if now + self.limits.connect_interval * self.limits.per_prefix < paid {
                    return Err(ConnectionRejection::RatePerIp);
                }
                seen.connect_bucket_full_at = paid;
                Some(seen.frame_bucket.clone())
            }
        };
        seen.open_connections += 1;
        counts.total += 1;
        if counts.prune_at.max(PREFIXES_PRUNE_MIN) < counts.prefixes.len() {
            counts.prune(now);
        }
        Ok(ConnectionPermit { limiter: self.clone(), prefix: place, frame_bucket: purse, observer: None })
    }
}

impl PrefixState {
    /// A place that nothing has come from.
    fn new(now: Instant, idle_frames: Rate) -> Self {
        Self {
            open_connections: 0,
            connect_bucket_full_at: now,
            frame_bucket: Arc::new(Mutex::new(TokenBucket::new(idle_frames, now))),
        }
    }

    /// Whether a newcomer could be told from it.
    fn differs_from_new(&self, now: Instant) -> bool {
        0 < self.open_connections
            || now < self.connect_bucket_full_at
            || !self.frame_bucket.lock().unwrap_or_else(PoisonError::into_inner).is_full(now)
    }
}

impl ConnectionCounts {
    /// Forgets places that a newcomer could not be told from. Done whenever their number has doubled.
    fn prune(&mut self, now: Instant) {
        self.prefixes.retain(|_, seen| seen.differs_from_new(now));
        if PREFIXES_MAX < self.prefixes.len() {
            self.prefixes.retain(|_, seen| 0 < seen.open_connections);
        }
        self.prune_at = 2 * self.prefixes.len();
    }
}

impl ConnectionPermit {
    /// The same, which `observer` counts too.
    pub fn with_observer(mut self, observer: &Arc<dyn RpcObserver>) -> Self {
        observer.connection_count_changed(1);
        self.observer = Some(observer.clone());
        self
    }

    /// What its place may send of frames that ask for nothing; none: as many as it likes.
    pub fn frame_bucket(&self) -> Option<Arc<Mutex<TokenBucket>>> {
        self.frame_bucket.clone()
    }

    /// Counts that the connection is ended, and why.
    pub fn report_rejection(&self, why: ConnectionRejection) {
        if let Some(observer) = &self.observer {
            observer.connection_rejected(why.as_str());
        }
    }
}

impl std::fmt::Debug for ConnectionPermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pass").finish_non_exhaustive()
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        if let Some(observer) = &self.observer {
            observer.connection_count_changed(-1);
        }
        let mut counts = self.limiter.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total -= 1;
        if let Some(seen) = counts.prefixes.get_mut(&self.prefix) {
            seen.open_connections -= 1;
        }
    }
}

impl ClientPrefix {
    fn from_address(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(four) => ClientPrefix::V4(four.octets()),
            IpAddr::V6(six) => {
                let mut network = [0; 8];
                network.copy_from_slice(&six.octets()[..8]);
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

    /// SEC-2: few from one place, a limited number in all, and whoever leaves makes room.
    #[test]
    fn connection_limit_per_prefix_leaves_room_for_other_prefixes() {
        let (gate, mut now) =
            limiter(ConnectionLimits { total: 7, per_prefix: 2, connect_interval: Duration::from_nanos(1), ..LIMITS });
        let mut admit = |text: &str| {
            now += SECOND;
            let address = text.parse().unwrap();
            let standing = if is_loopback_address(address) { PeerTrust::TrustedPeer } else { PeerTrust::Untrusted };
            gate.acquire(address, standing, now)
        };
        let mut inside = Vec::new();
        inside.push(admit("203.0.113.9").unwrap());
        inside.push(admit("::ffff:203.0.113.9").unwrap());
        assert_eq!(admit("203.0.113.9").unwrap_err(), ConnectionRejection::MaxPerIp);
        inside.push(admit("2001:db8:0:1::1").unwrap());
        inside.push(admit("2001:db8:0:1:ffff::2").unwrap());
        assert_eq!(admit("2001:db8:0:1::3").unwrap_err(), ConnectionRejection::MaxPerIp);
        inside.extend(["127.0.0.1"; 3].map(|local| admit(local).unwrap()));
        assert_eq!(admit("198.51.100.1").unwrap_err(), ConnectionRejection::MaxConnections);
        inside.pop();
        inside.push(admit("198.51.100.1").unwrap());
        inside.clear();
        let mut counts = gate.counts.lock().unwrap();
        assert_eq!(counts.total, 0);
        counts.prune(now + SECOND);
        assert_eq!(counts.prefixes.len(), 0);
    }

    /// SEC-2: a place may come with all that it may have at once, and after that one by one.
    #[test]
    fn connect_rate_per_prefix_allows_a_burst_and_then_one_per_interval() {
        let (gate, start) = limiter(LIMITS);
        let from = |address: &str, standing, at| gate.acquire(address.parse().unwrap(), standing, at).map(drop);
        let stranger = |at| from("203.0.113.9", PeerTrust::Untrusted, start + at);
        for _ in 0..3 {
            stranger(Duration::ZERO).unwrap();
        }
        assert_eq!(stranger(Duration::ZERO), Err(ConnectionRejection::RatePerIp));
        assert_eq!(stranger(SECOND / 2), Err(ConnectionRejection::RatePerIp));
        stranger(SECOND).unwrap();
        assert_eq!(stranger(SECOND), Err(ConnectionRejection::RatePerIp));
        from("203.0.113.10", PeerTrust::Untrusted, start).unwrap();
        for _ in 0..9 {
            from("127.0.0.1", PeerTrust::TrustedPeer, start).unwrap();
        }
        for _ in 0..3 {
            stranger(SECOND * 60).unwrap();
        }
    }

    /// SEC-1: what a place has sent is remembered when it goes and comes again, as long as it matters; what neighbours send
    /// is not counted.
    #[test]
    fn frame_bucket_of_a_prefix_survives_reconnecting() {
        let (gate, start) = limiter(LIMITS);
        let stranger = || gate.acquire("203.0.113.9".parse().unwrap(), PeerTrust::Untrusted, start).unwrap();
        let purse = stranger().frame_bucket().expect("it has one");
        purse.lock().unwrap().take(10, start).unwrap();
        drop(purse);
        let again = stranger();
        gate.counts.lock().unwrap().prune(start + 5 * SECOND);
        assert!(again.frame_bucket().unwrap().lock().unwrap().take(6, start + 5 * SECOND).is_err());
        drop(again);
        gate.counts.lock().unwrap().prune(start + 9 * SECOND);
        assert_eq!(gate.counts.lock().unwrap().prefixes.len(), 1);
        gate.counts.lock().unwrap().prune(start + 10 * SECOND);
        assert_eq!(gate.counts.lock().unwrap().prefixes.len(), 0);
        let neighbour = gate.acquire("127.0.0.1".parse().unwrap(), PeerTrust::TrustedPeer, start).unwrap();
        assert!(neighbour.frame_bucket().is_none());
    }

    /// A flood of addresses that come once each is forgotten.
    #[test]
    fn idle_prefixes_are_pruned() {
        let (gate, start) = limiter(LIMITS);
        for number in 0..20_000u32 {
            let now = start + SECOND * number;
            gate.acquire(Ipv4Addr::from_bits(number).into(), PeerTrust::Untrusted, now).unwrap();
        }
        assert!(gate.counts.lock().unwrap().prefixes.len() <= PREFIXES_PRUNE_MIN + 1);
    }
}
