//! Token buckets per caller (GCRA) in a sharded table of bounded size, and the clock adapter for `governor`.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::state::keyed::ShrinkableKeyedStateStore;

use crate::auth::rate_limit::caller::RateLimitKey;
use crate::clock::Clock;

/// Number of shards, each with its own lock, so that calls rarely contend.
const SHARDS: usize = 16;

/// Maximum number of buckets that several tables may have together.
#[derive(Debug)]
pub(super) struct BucketCountLimit {
    used: AtomicUsize,
    max: usize,
}

impl BucketCountLimit {
    /// A budget of `max` buckets.
    pub(super) fn with_capacity(max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), max })
    }

    fn try_acquire(&self) -> bool {
        let one_more = |used: usize| (used < self.max).then_some(used + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    fn release(&self, count: usize) {
        self.used.fetch_sub(count, Ordering::Relaxed);
    }
}

/// Theoretical arrival time of each caller's next call, nanoseconds (GCRA). Callers beyond the budget share one bucket.
#[derive(Debug)]
pub(super) struct TokenBuckets {
    shards: [Mutex<HashMap<RateLimitKey, u64>>; SHARDS],
    /// Randomly keyed, so that a client cannot target one shard.
    hasher: RandomState,
    budget: Arc<BucketCountLimit>,
    /// The shared bucket; `None` before its first use.
    shared_bucket: Mutex<Option<u64>>,
}

impl TokenBuckets {
    /// An empty table whose buckets count against `budget`.
    pub(super) fn new(budget: Arc<BucketCountLimit>) -> Self {
        Self { shards: Default::default(), hasher: RandomState::new(), budget, shared_bucket: Mutex::default() }
    }

    fn shard(&self, key: &RateLimitKey) -> MutexGuard<'_, HashMap<RateLimitKey, u64>> {
        let index = self.hasher.hash_one(key) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StateStore for TokenBuckets {
    type Key = RateLimitKey;

    fn measure_and_replace<T, F, E>(&self, key: &RateLimitKey, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        if *key != RateLimitKey::Shared {
            let mut shard = self.shard(key);
            if let Some(next_arrival) = shard.get_mut(key) {
                let (outcome, updated) = decide(Some(Nanos::new(*next_arrival)))?;
                *next_arrival = updated.as_u64();
                return Ok(outcome);
            }
            if self.budget.try_acquire() {
                // No limit rejects a first call. If one did, the bucket would not be stored.
                let (outcome, next) = decide(None).inspect_err(|_| self.budget.release(1))?;
                shard.insert(*key, next.as_u64());
                return Ok(outcome);
            }
        }
        let mut shared = self.shared_bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let (outcome, next) = decide(shared.map(Nanos::new))?;
        *shared = Some(next.as_u64());
        Ok(outcome)
    }
}

impl ShrinkableKeyedStateStore<RateLimitKey> for TokenBuckets {
    fn retain_recent(&self, drop_below: Nanos) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let before = shard.len();
            shard.retain(|_, next_arrival| *next_arrival > drop_below.as_u64());
            self.budget.release(before - shard.len());
            let capacity = shard.len() * 4;
            if shard.capacity() > capacity {
                shard.shrink_to(capacity);
            }
        }
    }

    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Adapter from the server's clock to `governor`'s.
#[derive(Clone)]
pub(super) struct GovernorClock(pub(super) Arc<dyn Clock>);

impl governor::clock::Clock for GovernorClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        Duration::from_millis(self.0.now().0)
    }
}
