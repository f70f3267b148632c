//! What each payer has used, in a table that cannot grow beyond its limit, and the time it is measured by.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::state::keyed::ShrinkableKeyedStateStore;

use crate::auth::rate_limit::RateLimitKey;
use crate::clock::Clock;

/// Parts that are locked on their own, so that calls seldom wait for each other.
const SHARDS: usize = 16;

/// How many entries several books may have together.
#[derive(Debug)]
pub(super) struct BucketBudget {
    used: AtomicUsize,
    max: usize,
}

impl BucketBudget {
    /// Room for `max`.
    pub(super) fn with_capacity(max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), max })
    }

    fn try_acquire(&self) -> bool {
        let one_more = |held: usize| (held < self.max).then_some(held + 1);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    fn release(&self, count: usize) {
        self.used.fetch_sub(count, Ordering::Relaxed);
    }
}

/// The theoretical arrival time of each payer's next call, in nanoseconds (GCRA). Payers for whom there is no room share
/// one entry.
#[derive(Debug)]
pub(super) struct TokenBuckets {
    shards: [Mutex<HashMap<RateLimitKey, u64>>; SHARDS],
    /// Keyed by chance, so that nobody can aim at a shard.
    hasher: RandomState,
    budget: Arc<BucketBudget>,
    /// The shared entry; none before it is needed.
    shared_bucket: Mutex<Option<u64>>,
}

impl TokenBuckets {
    /// An empty book whose entries count against `budget`.
    pub(super) fn new(budget: Arc<BucketBudget>) -> Self {
        Self { shards: Default::default(), hasher: RandomState::new(), budget, shared_bucket: Mutex::default() }
    }

    fn shard(&self, payer: &RateLimitKey) -> MutexGuard<'_, HashMap<RateLimitKey, u64>> {
        let at = self.hasher.hash_one(payer) as usize % SHARDS;
        self.shards[at].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StateStore for TokenBuckets {
    type Key = RateLimitKey;

    fn measure_and_replace<T, F, E>(&self, payer: &RateLimitKey, judge: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        if *payer != RateLimitKey::Shared {
            let mut shard = self.shard(payer);
            if let Some(held) = shard.get_mut(payer) {
                let (outcome, next) = judge(Some(Nanos::new(*held)))?;
                *held = next.as_u64();
                return Ok(outcome);
            }
            if self.budget.try_acquire() {
                // The first is refused by no quota; were it to be, it would leave no trace.
                let (outcome, next) = judge(None).inspect_err(|_| self.budget.release(1))?;
                shard.insert(*payer, next.as_u64());
                return Ok(outcome);
            }
        }
        let mut shared = self.shared_bucket.lock().unwrap_or_else(PoisonError::into_inner);
        let (outcome, next) = judge(shared.map(Nanos::new))?;
        *shared = Some(next.as_u64());
        Ok(outcome)
    }
}

impl ShrinkableKeyedStateStore<RateLimitKey> for TokenBuckets {
    fn retain_recent(&self, drop_below: Nanos) {
        for shard in &self.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let before = shard.len();
            shard.retain(|_, next| drop_below.as_u64() < *next);
            self.budget.release(before - shard.len());
            let room = shard.len() * 4;
            if room < shard.capacity() {
                shard.shrink_to(room);
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

/// The house's clock as the buckets read it.
#[derive(Clone)]
pub(super) struct GovernorClock(pub(super) Arc<dyn Clock>);

impl governor::clock::Clock for GovernorClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        Duration::from_millis(self.0.now().0)
    }
}
