//! Connection limits: in total, per client prefix and per trusted peer, and the rate of new connections per prefix.
//!
//! Places of untrusted connections are shared by strangers and by callers with an identity. From `CROWDED_PERCENT` of the
//! places on, a connection on which no identity was accepted is closed `crowded_unidentified_age_max` after its start. When no
//! place is free, the oldest such connection gives its place to a new one. Trusted peers have places of their own.

mod limits;
mod prefix;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api::layer::call_reporter::RpcObserver;
use crate::server::token_bucket::TokenBucket;
use crate::telemetry::label::ConnectionRejection;

pub use limits::ConnectionLimits;

use prefix::{ClientPrefix, PrefixState};

/// Limit of prefixes kept only for their connect rate. Beyond it, idle prefixes are dropped and get a full burst again.
const PREFIXES_MAX: usize = 65_536;

/// Number of prefixes below which pruning is not worth its cost.
const PREFIXES_PRUNE_MIN: usize = 1_024;

/// Share of the places from which on connections without an identity have a short life, percent.
const CROWDED_PERCENT: usize = 80;

/// Share of the places that may be given away before their former connections have ended, percent. Bounds the file
/// descriptors in use.
const CLOSING_PERCENT: usize = 20;

/// Limiter of connections.
#[derive(Debug)]
pub struct ConnectionLimiter {
    limits: ConnectionLimits,
    /// Closes all connections when cancelled.
    hard_stop: CancellationToken,
    counts: Mutex<ConnectionCounts>,
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
pub fn is_localhost_address(address: IpAddr) -> bool {
    address == IpAddr::V4(Ipv4Addr::LOCALHOST) || address == IpAddr::V6(Ipv6Addr::LOCALHOST)
}

#[derive(Debug, Default)]
struct ConnectionCounts {
    /// Places that untrusted connections hold.
    untrusted_places: usize,
    /// Connections of trusted peers.
    trusted: usize,
    /// Connections that no identity is known of, in the order of their start. Identities are noticed when an entry is next
    /// looked at.
    unidentified: BTreeMap<u64, UnidentifiedConnection>,
    /// Connections that were closed for others and have not ended yet, with the reason. They hold no place.
    closing_reasons: HashMap<u64, ConnectionRejection>,
    next_serial: u64,
    prefixes: HashMap<ClientPrefix, PrefixState>,
    /// Number of prefixes at which idle ones are pruned.
    prune_above_count: usize,
}

#[derive(Debug)]
struct UnidentifiedConnection {
    opened_at: Instant,
    has_identity: Arc<AtomicBool>,
    stop: CancellationToken,
}

/// Permit of one connection; released on drop.
pub struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    serial: u64,
    address: IpAddr,
    trust: PeerTrust,
    has_identity: Arc<AtomicBool>,
    stop: CancellationToken,
    /// `None`: a trusted peer, whose control frames are not limited.
    prefix_frame_bucket: Option<Arc<Mutex<TokenBucket>>>,
    observer: Option<Arc<dyn RpcObserver>>,
}

impl ConnectionLimiter {
    /// Creates a limiter without connections. `hard_stop` closes all of them.
    pub fn new(limits: ConnectionLimits, hard_stop: CancellationToken) -> Arc<Self> {
        Arc::new(Self { limits, hard_stop, counts: Mutex::default() })
    }

    /// Counts a connection from `address`, or returns the limit that it exceeds. Closes a connection without an identity if
    /// no place is free otherwise.
    pub fn acquire(
        self: &Arc<Self>,
        address: IpAddr,
        trust: PeerTrust,
        now: Instant,
    ) -> Result<ConnectionPermit, ConnectionRejection> {
        let mut counts = self.lock();
        if counts.prefixes.len() > counts.prune_above_count.max(PREFIXES_PRUNE_MIN) {
            counts.prune(now);
        }
        let frame_bucket = match trust {
            PeerTrust::TrustedPeer => counts.admit_trusted_peer(address, &self.limits, now)?,
            PeerTrust::Untrusted => counts.admit_untrusted(address, &self.limits, now)?,
        };
        let serial = counts.next_serial;
        counts.next_serial += 1;
        let has_identity = Arc::<AtomicBool>::default();
        let stop = match trust {
            PeerTrust::TrustedPeer => self.hard_stop.clone(),
            PeerTrust::Untrusted => {
                let stop = self.hard_stop.child_token();
                let (has_identity, stop_it) = (has_identity.clone(), stop.clone());
                counts
                    .unidentified
                    .insert(serial, UnidentifiedConnection { opened_at: now, has_identity, stop: stop_it });
                stop
            }
        };
        drop(counts);
        Ok(ConnectionPermit {
            limiter: self.clone(),
            serial,
            address,
            trust,
            has_identity,
            stop,
            prefix_frame_bucket: frame_bucket,
            observer: None,
        })
    }

    /// If few places are free, closes the connections without an identity that are too old. Returns the time at which the
    /// next one will be; `None` if more places are free or there is none.
    pub fn shed_unidentified_connections(&self, now: Instant) -> Option<Instant> {
        let mut counts = self.lock();
        while counts.is_crowded(&self.limits) {
            let closes_at = counts.oldest_unidentified()? + self.limits.crowded_unidentified_age_max;
            if now < closes_at {
                return Some(closes_at);
            }
            if !counts.close_oldest_unidentified(ConnectionRejection::NoIdentityTimeout) {
                break;
            }
        }
        None
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionCounts {
    fn admit_trusted_peer(
        &mut self,
        address: IpAddr,
        limits: &ConnectionLimits,
        now: Instant,
    ) -> Result<Option<Arc<Mutex<TokenBucket>>>, ConnectionRejection> {
        if self.trusted >= limits.trusted_total {
            return Err(ConnectionRejection::MaxConnections);
        }
        let state = self.prefix_state(ClientPrefix::host(address), limits, now);
        if state.open_connections >= limits.per_trusted_peer {
            return Err(ConnectionRejection::MaxPerIp);
        }
        state.open_connections += 1;
        self.trusted += 1;
        Ok(None)
    }

    fn admit_untrusted(
        &mut self,
        address: IpAddr,
        limits: &ConnectionLimits,
        now: Instant,
    ) -> Result<Option<Arc<Mutex<TokenBucket>>>, ConnectionRejection> {
        let prefixes = ClientPrefix::all_of(address);
        for prefix in prefixes.into_iter().flatten() {
            if self.prefix_state(prefix, limits, now).open_connections >= prefix.connections_max(limits) {
                return Err(prefix.max_reason());
            }
        }
        // The narrowest first: a prefix above its own rate spends nothing of the rate that its neighbors share.
        for prefix in prefixes.into_iter().flatten() {
            let state = self.prefix_state(prefix, limits, now);
            state.connect_bucket.take(1, now).map_err(|_| prefix.rate_reason())?;
        }
        if self.untrusted_places >= limits.untrusted_total {
            let is_bounded = self.closing_reasons.len() < (limits.untrusted_total * CLOSING_PERCENT).div_ceil(100);
            if !is_bounded || !self.close_oldest_unidentified(ConnectionRejection::NoIdentityReplaced) {
                return Err(ConnectionRejection::MaxConnections);
            }
        }
        let mut frame_bucket = None;
        for prefix in prefixes.into_iter().flatten() {
            let state = self.prefix_state(prefix, limits, now);
            state.open_connections += 1;
            frame_bucket.get_or_insert_with(|| state.prefix_frame_bucket.clone());
        }
        self.untrusted_places += 1;
        Ok(frame_bucket)
    }

    fn prefix_state(&mut self, prefix: ClientPrefix, limits: &ConnectionLimits, now: Instant) -> &mut PrefixState {
        self.prefixes.entry(prefix).or_insert_with(|| PrefixState::new(prefix, limits, now))
    }

    /// Whether so few places are free that connections without an identity have a short life.
    fn is_crowded(&self, limits: &ConnectionLimits) -> bool {
        self.untrusted_places * 100 >= limits.untrusted_total * CROWDED_PERCENT
    }

    /// Start of the oldest connection without an identity. Forgets connections that have one by now.
    fn oldest_unidentified(&mut self) -> Option<Instant> {
        loop {
            let oldest = self.unidentified.first_entry()?;
            if !oldest.get().has_identity.load(Ordering::Relaxed) {
                return Some(oldest.get().opened_at);
            }
            oldest.remove();
        }
    }

    /// Closes the oldest connection without an identity, and frees its place. Returns false if there is none.
    fn close_oldest_unidentified(&mut self, reason: ConnectionRejection) -> bool {
        if self.oldest_unidentified().is_none() {
            return false;
        }
        let Some((serial, oldest)) = self.unidentified.pop_first() else { return false };
        self.closing_reasons.insert(serial, reason);
        self.untrusted_places -= 1;
        oldest.stop.cancel();
        true
    }

    /// Drops prefixes whose state is that of a new prefix. Runs when their number has doubled.
    fn prune(&mut self, now: Instant) {
        self.prefixes.retain(|_, state| state.differs_from_new(now));
        if self.prefixes.len() > PREFIXES_MAX {
            self.prefixes.retain(|_, state| state.open_connections > 0);
        }
        self.prune_above_count = 2 * self.prefixes.len();
    }

    /// Releases the prefixes and the place of a connection that has ended. Returns the reason if it was closed for others.
    fn release(&mut self, permit: &ConnectionPermit) -> Option<ConnectionRejection> {
        let prefixes = match permit.trust {
            PeerTrust::TrustedPeer => [Some(ClientPrefix::host(permit.address)), None, None],
            PeerTrust::Untrusted => ClientPrefix::all_of(permit.address),
        };
        for prefix in prefixes.into_iter().flatten() {
            if let Some(state) = self.prefixes.get_mut(&prefix) {
                state.open_connections -= 1;
            }
        }
        if permit.trust == PeerTrust::TrustedPeer {
            self.trusted -= 1;
            return None;
        }
        self.unidentified.remove(&permit.serial);
        let closed_for = self.closing_reasons.remove(&permit.serial);
        if closed_for.is_none() {
            self.untrusted_places -= 1;
        }
        closed_for
    }
}

impl ConnectionPermit {
    /// Also counts the connection at `observer`.
    pub fn count_at_observer(mut self, observer: &Arc<dyn RpcObserver>) -> Self {
        observer.connection_count_changed(1);
        self.observer = Some(observer.clone());
        self
    }

    /// Token bucket of the prefix's control frames; `None`: not limited.
    pub fn prefix_frame_bucket(&self) -> Option<Arc<Mutex<TokenBucket>>> {
        self.prefix_frame_bucket.clone()
    }

    /// Whether an identity was accepted on the connection; set by its calls.
    pub fn has_identity(&self) -> &Arc<AtomicBool> {
        &self.has_identity
    }

    /// Closes the connection when cancelled.
    pub fn stop_token(&self) -> &CancellationToken {
        &self.stop
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
        let closed_for = self.limiter.lock().release(self);
        if let Some(reason) = closed_for {
            self.report_rejection(reason);
        }
    }
}
