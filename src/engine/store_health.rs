//! Health of a store shared by replicas: last success, last failure, and the age of the data in memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::domain::time::UnixMs;

/// Age above which memory counts as stale. The feed is read at least ten times a second.
const STALE_AFTER_MS: u64 = 1_000;

/// Last accesses to the store; both halves record failures, the advertisement feed records successes.
#[derive(Debug, Default)]
pub(crate) struct StoreHealth {
    /// Last successful read, engine clock, milliseconds.
    success_at: AtomicU64,
    /// The last access succeeded. Not a comparison of times: the clock stands still after the store's clock was set back.
    last_access_succeeded: AtomicBool,
}

impl StoreHealth {
    /// Records a successful read at `now`.
    pub(crate) fn record_success(&self, now: UnixMs) {
        self.success_at.fetch_max(now.0, Ordering::AcqRel);
        self.last_access_succeeded.store(true, Ordering::Release);
    }

    /// Records a failed commit or read.
    pub(crate) fn record_failure(&self) {
        self.last_access_succeeded.store(false, Ordering::Release);
    }

    /// Whether the last access to the store failed, or none has been recorded.
    pub(crate) fn is_down(&self) -> bool {
        !self.last_access_succeeded.load(Ordering::Acquire)
    }

    /// Age of memory, milliseconds.
    pub(crate) fn age_ms(&self, now: UnixMs) -> u64 {
        now.ms_since(UnixMs(self.success_at.load(Ordering::Acquire)))
    }

    /// Age of memory in milliseconds, if above `STALE_AFTER_MS`.
    pub(crate) fn staleness_ms(&self, now: UnixMs) -> Option<u64> {
        let age = self.age_ms(now);
        (age > STALE_AFTER_MS).then_some(age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staleness_grows_until_the_store_is_read() {
        let health = StoreHealth::default();
        health.record_success(UnixMs(10_000));
        assert_eq!(health.staleness_ms(UnixMs(11_000)), None);
        assert_eq!(health.staleness_ms(UnixMs(12_500)), Some(2_500));
    }

    #[test]
    fn store_is_down_until_the_next_read_also_while_the_clock_stands_still() {
        let health = StoreHealth::default();
        health.record_failure();
        assert!(health.is_down());
        health.record_success(UnixMs(12_700));
        assert!(!health.is_down());
        health.record_failure();
        assert!(health.is_down());
        health.record_success(UnixMs(12_700));
        assert!(!health.is_down());
    }
}
