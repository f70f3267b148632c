//! How often each caller may ask what (SEC-11): who asks more than their share is told when to come back, and nobody else
//! notices.
//!
//! Each quota is two leaky buckets (GCRA): one lets a burst through and then so many a second, the other holds the average
//! of five minutes. A call is charged when it is admitted, by what it may cost, and nothing is given back: whoever cancels
//! has been served as well, and a call that turns out wrong has been looked at. A call that its quota refuses costs
//! nothing, so that a client that asks fifty times too often still gets its share, and no more.

mod token_buckets;

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::middleware::NoOpMiddleware;
use governor::{Quota, RateLimiter};

use crate::auth::identity::Role;
use crate::auth::policy::RateLimitKind;
use crate::clock::{Clock, SystemClock};
use crate::config::{AllowedRate, RateLimitRule};
use crate::domain::id::UserKey;
use crate::domain::time::UnixMs;

use token_buckets::{BucketBudget, GovernorClock, TokenBuckets};

/// Buckets that are kept for people who have shown who they are: some 64 bytes each.
const AUTHENTICATED_BUCKETS_MAX: usize = 262_144;
/// Buckets that are kept for places. Those who have shown nothing cannot take the room of those who have.
const ADDRESS_BUCKETS_MAX: usize = 65_536;
/// How often full buckets are dropped; whoever comes after that begins with a new one, which is the same.
const SWEEP_INTERVAL_MS: u64 = 10_000;
/// The longest burst that is measured by the second: after it the average of five minutes counts.
const SUSTAINED_PERIOD: Duration = Duration::from_secs(300);
/// The share of five minutes' calls that may come at once: so no five minutes have more than a tenth above their quota.
const SUSTAINED_BURST_DIVISOR: u32 = 10;
/// When to try again where a stream has to end first.
const STREAM_RETRY_AFTER_MS: u32 = 1_000;
/// Bits of an IPv6 address that one customer has.
const IPV6_PREFIX_BITS: u32 = 64;

/// Who is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RateLimitKey {
    /// Somebody who has shown who they are.
    Authenticated(Role, UserKey),
    /// Everybody at one IPv4 address or in one IPv6 /64.
    Address(IpAddr),
    /// Whoever is neither, and those for whom there is no room: they share.
    Shared,
}

/// For whom there are quotas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallerClass {
    /// Those who have shown that they have this role.
    Authenticated(Role),
    /// All others.
    Anonymous,
}

/// A quota that is used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitExceeded {
    /// For whom the quota is.
    pub caller_class: CallerClass,
    /// What it is for.
    pub kind: RateLimitKind,
    /// When there is room again, milliseconds; at least 1.
    pub retry_after_ms: u32,
}

/// Hears of every refusal, to count it: by class and charge, never by who.
pub type OnRateLimited = Box<dyn Fn(CallerClass, RateLimitKind) + Send + Sync>;

/// All quotas and what has been used of them. Each server counts for itself.
pub struct RateLimits {
    limits: HashMap<(CallerClass, RateLimitKind), RateLimit>,
    /// Streams at once.
    stream_limits: HashMap<CallerClass, u32>,
    open_streams: Arc<OpenStreams>,
    clock: Arc<dyn Clock>,
    next_sweep_ms: AtomicU64,
    on_rate_limited: OnRateLimited,
}

type KeyedRateLimiter = RateLimiter<RateLimitKey, TokenBuckets, GovernorClock, NoOpMiddleware<Duration>>;

/// One quota's two buckets for everybody.
struct RateLimit {
    burst_limiter: KeyedRateLimiter,
    burst_max: NonZeroU32,
    sustained_limiter: KeyedRateLimiter,
    sustained_max: NonZeroU32,
}

/// Streams that are open, by who opened them. As large as there are streams.
#[derive(Debug, Default)]
struct OpenStreams(Mutex<HashMap<RateLimitKey, u32>>);

/// A stream's place among those of its opener; given back when dropped.
#[derive(Debug)]
pub struct StreamPermit {
    open_streams: Arc<OpenStreams>,
    key: RateLimitKey,
}

impl RateLimitKey {
    /// Who pays for a call by somebody who has shown to be `known`, or else from `address`.
    pub fn for_caller(known: Option<(Role, UserKey)>, address: Option<IpAddr>) -> Self {
        match (known, address) {
            (Some((role, key)), _) => RateLimitKey::Authenticated(role, key),
            (None, Some(address)) => RateLimitKey::Address(address_prefix(address)),
            (None, None) => RateLimitKey::Shared,
        }
    }

    fn caller_class(self) -> CallerClass {
        match self {
            RateLimitKey::Authenticated(role, _) => CallerClass::Authenticated(role),
            RateLimitKey::Address(_) | RateLimitKey::Shared => CallerClass::Anonymous,
        }
    }
}

/// The address of an IPv4 host; of an IPv6 host, that of its network.
fn address_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(four) => four.into(),
        IpAddr::V6(six) => {
            Ipv6Addr::from_bits(six.to_bits() >> (128 - IPV6_PREFIX_BITS) << (128 - IPV6_PREFIX_BITS)).into()
        }
    }
}

impl CallerClass {
    /// Every class.
    pub const ALL: [CallerClass; 4] = [
        CallerClass::Authenticated(Role::Client),
        CallerClass::Authenticated(Role::GameServer),
        CallerClass::Authenticated(Role::Operator),
        CallerClass::Anonymous,
    ];

    /// The word in settings, metrics and refusals.
    pub fn as_str(self) -> &'static str {
        match self {
            CallerClass::Authenticated(role) => role.as_str(),
            CallerClass::Anonymous => "anonymous",
        }
    }
}

impl RateLimitExceeded {
    /// `client.search`: what the quota is called in settings.
    pub fn limit_name(&self) -> String {
        format!("{}.{}", self.caller_class.as_str(), self.kind.as_str())
    }
}

impl RateLimits {
    /// Quotas by these rules, none when there are none. `on_refusal` hears of each refusal.
    pub fn new(rules: &[RateLimitRule], clock: Arc<dyn Clock>, on_refusal: OnRateLimited) -> Self {
        let (known, places) =
            (BucketBudget::with_capacity(AUTHENTICATED_BUCKETS_MAX), BucketBudget::with_capacity(ADDRESS_BUCKETS_MAX));
        let (mut limits, mut streams) = (HashMap::new(), HashMap::new());
        for rule in rules {
            let class = CallerClass::ALL.into_iter().find(|class| class.as_str() == rule.role);
            let charge = RateLimitKind::ALL.into_iter().find(|charge| charge.as_str() == rule.limit);
            let (Some(class), Some(charge)) = (class, charge) else { continue };
            match rule.allowance {
                AllowedRate::OpenStreams(most) => {
                    streams.insert(class, most);
                }
                AllowedRate::Calls { per_second, burst, per_5_min } => {
                    let budget = if class == CallerClass::Anonymous { &places } else { &known };
                    let limit = RateLimit::new(per_second, burst, per_5_min, budget, &clock);
                    limits.insert((class, charge), limit);
                }
            }
        }
        let next_sweep_ms = AtomicU64::new(clock.now().plus_ms(SWEEP_INTERVAL_MS).0);
        Self {
            limits,
            stream_limits: streams,
            open_streams: Arc::default(),
            clock,
            next_sweep_ms,
            on_rate_limited: on_refusal,
        }
    }

    /// No quotas: nobody is held back, and nothing is kept.
    pub fn unlimited() -> Self {
        Self::new(&[], Arc::new(SystemClock::start()), Box::new(|_, _| {}))
    }

    /// Takes `cost` from what `payer` may ask, or says when there is enough again. A cost beyond a whole burst is a whole
    /// burst: whatever may be asked at all can be asked now and then.
    pub fn consume(&self, payer: RateLimitKey, charge: RateLimitKind, cost: u32) -> Result<(), RateLimitExceeded> {
        let class = payer.caller_class();
        let Some(limit) = self.limits.get(&(class, charge)) else { return Ok(()) };
        let now = self.clock.now();
        self.sweep_if_due(now);
        limit.consume(payer, cost, now).map_err(|wait| {
            let retry_after_ms = u32::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX).max(1);
            self.report_rate_limited(class, charge, retry_after_ms)
        })
    }

    /// Whether anybody has a quota of `charge`.
    pub fn has_limit(&self, charge: RateLimitKind) -> bool {
        self.limits.keys().any(|(_, known)| *known == charge)
    }

    /// Charges a place for a proof of identity that was worth nothing. When the quota is used up, that is what to answer:
    /// whoever tries keys by the thousand learns nothing more about them.
    pub fn consume_auth_failure(&self, address: Option<IpAddr>) -> Result<(), RateLimitExceeded> {
        self.consume(RateLimitKey::for_caller(None, address), RateLimitKind::AuthFailure, 1)
    }

    /// A place for one more stream of `payer`, for as long as it is kept.
    pub fn acquire_stream_permit(&self, payer: RateLimitKey) -> Result<Option<StreamPermit>, RateLimitExceeded> {
        let class = payer.caller_class();
        let Some(&most) = self.stream_limits.get(&class) else { return Ok(None) };
        let mut open = self.open_streams.lock();
        let count = open.entry(payer).or_default();
        if most <= *count {
            drop(open);
            return Err(self.report_rate_limited(class, RateLimitKind::Stream, STREAM_RETRY_AFTER_MS));
        }
        *count += 1;
        drop(open);
        Ok(Some(StreamPermit { open_streams: Arc::clone(&self.open_streams), key: payer }))
    }

    fn report_rate_limited(&self, class: CallerClass, charge: RateLimitKind, retry_after_ms: u32) -> RateLimitExceeded {
        (self.on_rate_limited)(class, charge);
        RateLimitExceeded { caller_class: class, kind: charge, retry_after_ms }
    }

    /// One caller in ten seconds drops what is no longer needed, for all.
    fn sweep_if_due(&self, now: UnixMs) {
        let due = self.next_sweep_ms.load(Ordering::Relaxed);
        let next = now.plus_ms(SWEEP_INTERVAL_MS).0;
        let is_mine = due <= now.0
            && self.next_sweep_ms.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_mine {
            for limit in self.limits.values() {
                limit.burst_limiter.retain_recent();
                limit.sustained_limiter.retain_recent();
            }
        }
    }

    /// Buckets that are kept now.
    pub fn bucket_count(&self) -> usize {
        self.limits.values().map(|limit| limit.burst_limiter.len() + limit.sustained_limiter.len()).sum()
    }
}

impl RateLimit {
    fn new(per_second: f64, burst: u32, per_5_min: u32, budget: &Arc<BucketBudget>, clock: &Arc<dyn Clock>) -> Self {
        let limiter = |interval: Duration, burst: NonZeroU32| {
            // An interval of nothing cannot be: the rates are bounded where they are read.
            let interval = interval.max(Duration::from_nanos(1));
            let quota = Quota::with_period(interval).map(|quota| quota.allow_burst(burst));
            let quota = quota.unwrap_or(Quota::per_second(burst));
            KeyedRateLimiter::new(quota, TokenBuckets::new(Arc::clone(budget)), GovernorClock(Arc::clone(clock)))
        };
        let burst_max = at_least_one(burst);
        let sustained_max = at_least_one(burst.max(per_5_min / SUSTAINED_BURST_DIVISOR));
        Self {
            burst_limiter: limiter(Duration::from_secs_f64(1.0 / per_second), burst_max),
            burst_max,
            sustained_limiter: limiter(SUSTAINED_PERIOD / per_5_min.max(1), sustained_max),
            sustained_max,
        }
    }

    /// Takes from both buckets, or says how long to wait.
    fn consume(&self, payer: RateLimitKey, cost: u32, now: UnixMs) -> Result<(), Duration> {
        let now = Duration::from_millis(now.0);
        for (limiter, most) in [(&self.burst_limiter, self.burst_max), (&self.sustained_limiter, self.sustained_max)] {
            match limiter.check_key_n(&payer, at_least_one(cost).min(most)) {
                Ok(Ok(())) => {}
                Ok(Err(not_until)) => return Err(not_until.wait_time_from(now)),
                // Costs are cut to what a bucket holds, so this does not happen; were it to, nothing is given away.
                Err(_too_much) => return Err(Duration::from_secs(1)),
            }
        }
        Ok(())
    }
}

fn at_least_one(count: u32) -> NonZeroU32 {
    NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN)
}

impl OpenStreams {
    fn lock(&self) -> MutexGuard<'_, HashMap<RateLimitKey, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.open_streams.lock();
        if let Some(count) = open.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.key);
            }
        }
    }
}

impl fmt::Debug for RateLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Quotas").field("limits", &self.limits.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
