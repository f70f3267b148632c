//! Rate limits per caller and kind of call. A caller above its limit gets a retry delay; other callers are not affected.
//!
//! Each limit is two leaky buckets (GCRA). One admits a burst and then a rate per second; the other limits the average
//! over five minutes.
//!
//! A call consumes its cost when it is admitted, and nothing is refunded: a cancelled or invalid call has used resources
//! too. A rejected call consumes nothing, so a client that calls fifty times too often still gets its rate.

mod caller;
mod token_buckets;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::middleware::NoOpMiddleware;
use governor::{Quota, RateLimiter};

use crate::auth::policy::RateLimitKind;
use crate::clock::{Clock, SystemClock};
use crate::config::{CallRateOrOpenStreamsMax, RateLimitRule};
use crate::domain::time::UnixMs;

pub use caller::{CallerClass, RateLimitKey, client_prefix_of};

use token_buckets::{BucketCountLimit, GovernorClock, TokenBuckets};

/// Maximum number of buckets for authenticated callers, about 64 bytes each.
const AUTHENTICATED_BUCKETS_MAX: usize = 262_144;
/// Maximum number of buckets for the addresses of anonymous callers. They are counted apart, so anonymous callers cannot
/// displace authenticated ones.
const ADDRESS_BUCKETS_MAX: usize = 65_536;
/// Maximum number of buckets for the addresses of players' clients. Only callers with an account use them.
const CLIENT_NETWORK_BUCKETS_MAX: usize = 65_536;
/// Maximum number of buckets for the health checks of trusted proxies.
const HEALTH_CHECK_BUCKETS_MAX: usize = 1_024;
/// Interval at which refilled buckets are dropped, milliseconds. A later call starts with a new bucket, which is the same.
const SWEEP_INTERVAL_MS: u64 = 10_000;
/// Period of the sustained rate.
const SUSTAINED_PERIOD: Duration = Duration::from_secs(300);
/// A tenth of the calls per five minutes may arrive at once, so no five minutes exceed the limit by more than a tenth.
const SUSTAINED_BURST_DIVISOR: u32 = 10;
/// Retry delay of a rejected stream, milliseconds: another stream has to end first.
const STREAM_RETRY_AFTER_MS: u32 = 1_000;
/// Error of a call above its rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitExceeded {
    /// Class of the caller.
    pub caller_class: CallerClass,
    /// Kind of the exceeded limit.
    pub kind: RateLimitKind,
    /// Milliseconds until the call would be admitted; at least 1.
    pub retry_after_ms: u32,
}

/// Callback for every rejected call, for metrics. It receives class and kind, never the caller.
pub type OnRateLimited = Box<dyn Fn(CallerClass, RateLimitKind) + Send + Sync>;

/// All rate limits and their buckets. Each server process counts on its own.
pub struct RateLimits {
    /// Limits by class and kind; `None`: unlimited.
    limits: Vec<Option<RateLimit>>,
    /// Maximum number of open streams per caller.
    stream_limits: HashMap<CallerClass, u32>,
    open_streams: Arc<OpenStreams>,
    clock: Arc<dyn Clock>,
    next_sweep_ms: AtomicU64,
    on_rate_limited: OnRateLimited,
}

type KeyedRateLimiter = RateLimiter<RateLimitKey, TokenBuckets, GovernorClock, NoOpMiddleware<Duration>>;

/// One limit: the burst and sustained buckets of all callers of a class.
struct RateLimit {
    burst: RefundableLimiter,
    sustained_limiter: RefundableLimiter,
}

/// Buckets of one size.
struct RefundableLimiter {
    limiter: KeyedRateLimiter,
    /// The same buckets as those of `limiter`, which does not give them out.
    buckets: TokenBuckets,
    /// Time in which one token is added.
    interval: Duration,
    max: NonZeroU32,
}

/// Number of open streams per caller. Callers without a stream have no entry.
#[derive(Debug, Default)]
struct OpenStreams(Mutex<HashMap<RateLimitKey, u32>>);

/// Permit of one open stream; returned on drop.
#[derive(Debug)]
pub struct StreamPermit {
    open_streams: Arc<OpenStreams>,
    key: RateLimitKey,
}

impl RateLimitExceeded {
    /// Name of the limit in settings, such as `client.search`.
    pub fn limit_name(&self) -> String {
        format!("{}.{}", self.caller_class.as_str(), self.kind.as_str())
    }
}

impl RateLimits {
    /// Limits by these rules; a kind without a rule is unlimited. Rejected calls are passed to `on_rate_limited`.
    pub fn new(rules: &[RateLimitRule], clock: Arc<dyn Clock>, on_rate_limited: OnRateLimited) -> Self {
        let [authenticated, client_networks, addresses, health_checks] =
            [AUTHENTICATED_BUCKETS_MAX, CLIENT_NETWORK_BUCKETS_MAX, ADDRESS_BUCKETS_MAX, HEALTH_CHECK_BUCKETS_MAX]
                .map(BucketCountLimit::with_capacity);
        let mut limits: Vec<Option<RateLimit>> = Vec::new();
        limits.resize_with(CallerClass::ALL.len() * RateLimitKind::ALL.len(), || None);
        let mut stream_limits = HashMap::new();
        for rule in rules {
            let class = CallerClass::ALL.into_iter().find(|class| class.as_str() == rule.role);
            let kind = RateLimitKind::ALL.into_iter().find(|kind| kind.as_str() == rule.limit);
            let (Some(class), Some(kind)) = (class, kind) else { continue };
            match rule.allowance {
                CallRateOrOpenStreamsMax::OpenStreams(max) => {
                    stream_limits.insert(class, max);
                }
                CallRateOrOpenStreamsMax::Calls { per_second, burst, per_5_min } => {
                    let budget = match class {
                        CallerClass::Authenticated(_) => &authenticated,
                        CallerClass::ClientNetwork => &client_networks,
                        CallerClass::Anonymous => &addresses,
                        CallerClass::HealthCheck => &health_checks,
                    };
                    let limit = RateLimit::new(per_second, burst, per_5_min, budget, &clock);
                    limits[limit_index(class, kind)] = Some(limit);
                }
            }
        }
        let next_sweep_ms = AtomicU64::new(clock.now().plus_ms(SWEEP_INTERVAL_MS).0);
        Self { limits, stream_limits, open_streams: Arc::default(), clock, next_sweep_ms, on_rate_limited }
    }

    /// No limits: every call is admitted, and no state is kept.
    pub fn unlimited() -> Self {
        Self::new(&[], Arc::new(SystemClock::start()), Box::new(|_, _| {}))
    }

    /// Consumes `cost` from the buckets of `key`, or returns the retry delay.
    ///
    /// A cost above the burst size counts as a full burst, so a valid call can always be admitted at some time.
    pub fn consume(&self, key: RateLimitKey, kind: RateLimitKind, cost: u32) -> Result<(), RateLimitExceeded> {
        let class = key.caller_class();
        let Some(limit) = self.limit(class, kind) else { return Ok(()) };
        let now = self.clock.now();
        self.sweep_if_due(now);
        limit.consume(key, cost, now).map_err(|wait| {
            let retry_after_ms = u32::try_from(wait.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX).max(1);
            self.report_rate_limited(class, kind, retry_after_ms)
        })
    }

    /// Consumes `cost` for an authenticated caller, and then for all clients of its `network`. The caller's own limit comes
    /// first, so that a caller above it spends nothing of its neighbors.
    pub fn consume_for_caller_and_network(
        &self,
        key: RateLimitKey,
        network: Option<IpAddr>,
        kind: RateLimitKind,
        cost: u32,
    ) -> Result<(), RateLimitExceeded> {
        self.consume(key, kind, cost)?;
        let is_limited = self.limit(CallerClass::ClientNetwork, kind).is_some();
        match network.filter(|_| is_limited) {
            Some(network) => self.consume(RateLimitKey::for_client_network(network), kind, cost),
            None => Ok(()),
        }
    }

    /// Gives back what `consume_for_caller_and_network` has taken with the same arguments.
    pub fn refund_to_caller_and_network(
        &self,
        key: RateLimitKey,
        network: Option<IpAddr>,
        kind: RateLimitKind,
        cost: u32,
    ) {
        self.refund(key, kind, cost);
        if let Some(network) = network {
            self.refund(RateLimitKey::for_client_network(network), kind, cost);
        }
    }

    /// Gives back what `consume` has taken with the same arguments.
    pub fn refund(&self, key: RateLimitKey, kind: RateLimitKind, cost: u32) {
        if let Some(limit) = self.limit(key.caller_class(), kind) {
            limit.refund(key, cost);
        }
    }

    /// Whether any class has a limit of this kind.
    pub fn has_limit_for_any_class(&self, kind: RateLimitKind) -> bool {
        CallerClass::ALL.into_iter().any(|class| self.limit(class, kind).is_some())
    }

    fn limit(&self, class: CallerClass, kind: RateLimitKind) -> Option<&RateLimit> {
        self.limits.get(limit_index(class, kind))?.as_ref()
    }

    /// Counts a failed authentication for an address.
    ///
    /// Above the limit the caller should receive this error instead of the reason: guessing credentials then reveals
    /// nothing.
    pub fn consume_auth_failure(&self, address: Option<IpAddr>) -> Result<(), RateLimitExceeded> {
        self.consume(RateLimitKey::for_caller(None, address), RateLimitKind::AuthFailure, 1)
    }

    /// Acquires a permit for one more stream of `key`; `None` if its class has no stream limit.
    pub fn acquire_stream_permit(&self, key: RateLimitKey) -> Result<Option<StreamPermit>, RateLimitExceeded> {
        let class = key.caller_class();
        let Some(&max) = self.stream_limits.get(&class) else { return Ok(None) };
        let mut open_streams = self.open_streams.lock();
        let count = open_streams.entry(key).or_default();
        if *count >= max {
            drop(open_streams);
            return Err(self.report_rate_limited(class, RateLimitKind::ConcurrentStreams, STREAM_RETRY_AFTER_MS));
        }
        *count += 1;
        drop(open_streams);
        Ok(Some(StreamPermit { open_streams: Arc::clone(&self.open_streams), key }))
    }

    fn report_rate_limited(
        &self,
        caller_class: CallerClass,
        kind: RateLimitKind,
        retry_after_ms: u32,
    ) -> RateLimitExceeded {
        (self.on_rate_limited)(caller_class, kind);
        RateLimitExceeded { caller_class, kind, retry_after_ms }
    }

    /// Drops refilled buckets at most once per `SWEEP_INTERVAL_MS`, on the thread of the caller that finds it due.
    fn sweep_if_due(&self, now: UnixMs) {
        let due_ms = self.next_sweep_ms.load(Ordering::Relaxed);
        let next_ms = now.plus_ms(SWEEP_INTERVAL_MS).0;
        let claimed = due_ms <= now.0
            && self.next_sweep_ms.compare_exchange(due_ms, next_ms, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if claimed {
            for limit in self.limits.iter().flatten() {
                limit.burst.limiter.retain_recent();
                limit.sustained_limiter.limiter.retain_recent();
            }
        }
    }

    /// Current number of buckets.
    pub fn bucket_count(&self) -> usize {
        self.limits
            .iter()
            .flatten()
            .map(|limit| limit.burst.limiter.len() + limit.sustained_limiter.limiter.len())
            .sum()
    }
}

impl RateLimit {
    fn new(
        per_second: f64,
        burst: u32,
        per_5_min: u32,
        budget: &Arc<BucketCountLimit>,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let limiter = |interval: Duration, max: NonZeroU32| {
            // The configuration bounds the rates, so the interval is never zero.
            let interval = interval.max(Duration::from_nanos(1));
            let quota = Quota::with_period(interval).map(|quota| quota.allow_burst(max));
            let quota = quota.unwrap_or(Quota::per_second(max));
            let buckets = TokenBuckets::new(Arc::clone(budget));
            let limiter = KeyedRateLimiter::new(quota, buckets.clone(), GovernorClock(Arc::clone(clock)));
            RefundableLimiter { limiter, buckets, interval, max }
        };
        let sustained_burst = burst.max(per_5_min / SUSTAINED_BURST_DIVISOR);
        Self {
            burst: limiter(Duration::from_secs_f64(1.0 / per_second), at_least_one(burst)),
            sustained_limiter: limiter(SUSTAINED_PERIOD / per_5_min.max(1), at_least_one(sustained_burst)),
        }
    }

    /// Consumes `cost` from both buckets, or returns the time to wait.
    fn consume(&self, key: RateLimitKey, cost: u32, now: UnixMs) -> Result<(), Duration> {
        let now = Duration::from_millis(now.0);
        for RefundableLimiter { limiter, max, .. } in [&self.burst, &self.sustained_limiter] {
            match limiter.check_key_n(&key, at_least_one(cost).min(*max)) {
                Ok(Ok(())) => {}
                Ok(Err(not_until)) => return Err(not_until.wait_time_from(now)),
                // Unreachable, because costs are capped at the bucket size. Rejects the call to be safe.
                Err(_insufficient_capacity) => return Err(Duration::from_secs(1)),
            }
        }
        Ok(())
    }

    fn refund(&self, key: RateLimitKey, cost: u32) {
        for RefundableLimiter { buckets, interval, max, .. } in [&self.burst, &self.sustained_limiter] {
            buckets.refund(&key, *interval * at_least_one(cost).min(*max).get());
        }
    }
}

/// Place of a limit in `RateLimits::limits`.
fn limit_index(class: CallerClass, kind: RateLimitKind) -> usize {
    class.index() * RateLimitKind::ALL.len() + kind as usize
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
        let mut open_streams = self.open_streams.lock();
        if let Some(count) = open_streams.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                open_streams.remove(&self.key);
            }
        }
    }
}

impl fmt::Debug for RateLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimits").field("limits", &self.limits.iter().flatten().count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
