//! Token buckets per caller (GCRA) in a sharded table of bounded size, and the clock adapter for `governor`.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use governor::nanos::Nanos;
use governor::state::StateStore;
use governor::state::keyed::ShrinkableKeyedStateStore;
use hashbrown::HashTable;

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

/// Buckets for callers that the budget has no place for.
const OVERFLOW_BUCKETS: usize = 1_024;

/// Theoretical arrival time of each caller's next call, nanoseconds (GCRA). A clone is the same table.
///
/// Callers beyond the budget share a fixed number of buckets, chosen by a random hash of the caller's network or account. So
/// a caller that fills the table shares a bucket with a thousandth of the others.
#[derive(Clone, Debug)]
pub(super) struct TokenBuckets(Arc<BucketTable>);

#[derive(Debug)]
struct BucketTable {
    /// Keyed by one hash per call, which also selects the shard.
    shards: [Mutex<HashTable<Bucket>>; SHARDS],
    /// Randomly keyed, so that a client cannot target one shard or one overflow bucket.
    hasher: RandomState,
    budget: Arc<BucketCountLimit>,
    /// Buckets beyond the budget; empty before their first use. 0 is a full bucket.
    overflow: Mutex<Vec<u64>>,
}

/// Bucket of one caller.
#[derive(Debug)]
struct Bucket {
    key: RateLimitKey,
    next_arrival: u64,
}

impl TokenBuckets {
    /// An empty table whose buckets count against `budget`.
    pub(super) fn new(budget: Arc<BucketCountLimit>) -> Self {
        let (shards, hasher, overflow) = Default::default();
        Self(Arc::new(BucketTable { shards, hasher, budget, overflow }))
    }

    /// Gives back what `key` has paid within `duration` of its rate. A full bucket stays full.
    pub(super) fn refund(&self, key: &RateLimitKey, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let hash = self.0.hasher.hash_one(key);
        if let Some(bucket) = self.0.shard(hash).find_mut(hash, |bucket| bucket.key == *key) {
            bucket.next_arrival = bucket.next_arrival.saturating_sub(nanos);
            return;
        }
        let index = self.0.overflow_index(key);
        if let Some(next_arrival) = self.0.lock_overflow_buckets().get_mut(index) {
            *next_arrival = next_arrival.saturating_sub(nanos);
        }
    }
}

impl BucketTable {
    /// Shard of a hash. The table inside uses the lowest and the highest bits, so other ones select the shard.
    fn shard(&self, hash: u64) -> MutexGuard<'_, HashTable<Bucket>> {
        let index = (hash >> 40) as usize % SHARDS;
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_overflow_buckets(&self) -> MutexGuard<'_, Vec<u64>> {
        self.overflow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn overflow_index(&self, key: &RateLimitKey) -> usize {
        self.hasher.hash_one(key.overflow_key()) as usize % OVERFLOW_BUCKETS
    }
}

impl StateStore for TokenBuckets {
    type Key = RateLimitKey;

    fn measure_and_replace<T, F, E>(&self, key: &RateLimitKey, decide: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        if *key != RateLimitKey::Shared {
            let hash = self.0.hasher.hash_one(key);
            let mut shard = self.0.shard(hash);
            if let Some(bucket) = shard.find_mut(hash, |bucket| bucket.key == *key) {
                let (outcome, updated) = decide(Some(Nanos::new(bucket.next_arrival)))?;
                bucket.next_arrival = updated.as_u64();
                return Ok(outcome);
            }
            if self.0.budget.try_acquire() {
                // No limit rejects a first call. If one did, the bucket would not be stored.
                let (outcome, next) = decide(None).inspect_err(|_| self.0.budget.release(1))?;
                let bucket = Bucket { key: *key, next_arrival: next.as_u64() };
                shard.insert_unique(hash, bucket, |bucket| self.0.hasher.hash_one(bucket.key));
                return Ok(outcome);
            }
        }
        let index = self.0.overflow_index(key);
        let mut overflow = self.0.lock_overflow_buckets();
        if overflow.is_empty() {
            overflow.resize(OVERFLOW_BUCKETS, 0);
        }
        let before = Some(overflow[index]).filter(|next_arrival| *next_arrival != 0);
        let (outcome, next) = decide(before.map(Nanos::new))?;
        overflow[index] = next.as_u64();
        Ok(outcome)
    }
}

impl ShrinkableKeyedStateStore<RateLimitKey> for TokenBuckets {
    fn retain_recent(&self, drop_below: Nanos) {
        for shard in &self.0.shards {
            let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
            let before = shard.len();
            shard.retain(|bucket| bucket.next_arrival > drop_below.as_u64());
            self.0.budget.release(before - shard.len());
            let capacity = shard.len() * 4;
            if shard.capacity() > capacity {
                shard.shrink_to(capacity, |bucket| self.0.hasher.hash_one(bucket.key));
            }
        }
    }

    fn len(&self) -> usize {
        self.0.shards.iter().map(|shard| shard.lock().unwrap_or_else(PoisonError::into_inner).len()).sum()
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
