//! Clock and source of randomness, as a trait: the system's, and a manual one for tests.
//!
//! No other file reads the time or generates random numbers.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::time::{ClockId, clock_gettime};
use rand::rngs::{OsRng, StdRng};
use rand::{Rng, SeedableRng, TryRngCore};

use crate::domain::time::UnixMs;

/// Runs `work` and returns the processor time that this thread spent on it: unlike the time on the clock, it does not grow with
/// what else the machine does.
pub(crate) fn with_cpu_time<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let thread_time = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from).unwrap_or_default();
    let started_at = thread_time();
    let result = work();
    (result, thread_time().saturating_sub(started_at))
}

/// Processor time that this process has used since its start.
pub fn process_cpu_time() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

/// Source of time and randomness.
pub trait Clock: Send + Sync + 'static {
    /// Current time. Never runs backwards within one process.
    fn now(&self) -> UnixMs;

    /// Time since a fixed moment of this process, microseconds, for measuring durations. Never runs backwards, and no sync changes it.
    /// By default that of [`Self::now`], so that it stands still on a manual clock.
    fn monotonic_us(&self) -> u64 {
        self.now().0.saturating_mul(1_000)
    }

    /// Random number, uniform in [0, 1).
    fn random_unit_f64(&self) -> f64;

    /// Sixteen random bytes from a cryptographic generator.
    fn random_bytes(&self) -> [u8; 16];

    /// Random key of 32 bytes.
    fn random_key(&self) -> [u8; 32] {
        let mut key = [0; 32];
        for half in key.chunks_mut(16) {
            half.copy_from_slice(&self.random_bytes()[..half.len()]);
        }
        key
    }

    /// Adjusts this clock to the store's clock. `store_time` is the store's answer to a request sent at `requested_at` of
    /// this clock.
    ///
    /// Servers that share a store must agree on the time, and all of them can read the store's clock.
    fn sync_to_store_clock(&self, store_time: UnixMs, requested_at: UnixMs) {
        let _ = (store_time, requested_at);
    }
}

/// The system's clock and random number generator.
///
/// The wall clock is read once, at the start. From then on the monotonic clock counts, so setting the wall clock moves no
/// deadline. After a sync to the store's clock, the wall clock no longer matters.
#[derive(Debug)]
pub struct SystemClock {
    started_at: UnixMs,
    started_instant: Instant,
    /// Offset to the store's clock, milliseconds.
    offset_ms: AtomicI64,
    is_synced: AtomicBool,
    /// Latest time returned since the first sync: the store's clock may be set back, this one never runs backwards.
    last_returned_ms: AtomicU64,
}

/// Offset up to which a sync changes nothing, milliseconds: a smaller difference is response time.
const OFFSET_TOLERANCE_MS: u64 = 20;

/// Offset above which a sync logs a warning, milliseconds.
const OFFSET_WARNING_MS: u64 = 2_000;

impl SystemClock {
    /// Reads the wall clock; a time before 1970 counts as 0.
    #[expect(clippy::disallowed_methods, reason = "the only file that reads the system's clock")]
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_at = UnixMs(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX));
        Self::with_wall_clock(started_at)
    }

    #[expect(clippy::disallowed_methods, reason = "the only file that reads the system's clock")]
    fn with_wall_clock(started_at: UnixMs) -> Self {
        Self {
            started_at,
            started_instant: Instant::now(),
            offset_ms: AtomicI64::new(0),
            is_synced: AtomicBool::new(false),
            last_returned_ms: AtomicU64::new(0),
        }
    }

    /// Start time plus elapsed time plus the offset to the store's clock.
    fn elapsed_plus_offset(&self) -> UnixMs {
        let elapsed_ms = u64::try_from(self.started_instant.elapsed().as_millis()).unwrap_or(u64::MAX);
        UnixMs(self.started_at.plus_ms(elapsed_ms).0.saturating_add_signed(self.offset_ms.load(Ordering::Relaxed)))
    }
}

impl Clock for SystemClock {
    fn now(&self) -> UnixMs {
        let now = self.elapsed_plus_offset();
        if !self.is_synced.load(Ordering::Relaxed) {
            return now;
        }
        UnixMs(now.0.max(self.last_returned_ms.fetch_max(now.0, Ordering::Relaxed)))
    }

    fn monotonic_us(&self) -> u64 {
        u64::try_from(self.started_instant.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn sync_to_store_clock(&self, store_time: UnixMs, requested_at: UnixMs) {
        fail::fail_point!("ignore_store_clock", |_| ());
        let own_time = self.elapsed_plus_offset();
        // The response may have been slow: the clocks agree if they agreed at any time since the request.
        let offset_at = |time: UnixMs| store_time.0.cast_signed().saturating_sub(time.0.cast_signed());
        let offset_ms = 0_i64.clamp(offset_at(own_time), offset_at(requested_at.min(own_time)));
        let is_first = !self.is_synced.load(Ordering::Relaxed);
        if is_first {
            self.last_returned_ms.store(own_time.0.min(store_time.0), Ordering::Relaxed);
        }
        if offset_ms.unsigned_abs() <= OFFSET_TOLERANCE_MS && !is_first {
            return;
        }
        if offset_ms.unsigned_abs() > OFFSET_WARNING_MS {
            tracing::warn!(
                offset_ms,
                limit_ms = OFFSET_WARNING_MS,
                "clock offset limit exceeded, synced to the store clock"
            );
        }
        self.offset_ms.fetch_add(offset_ms, Ordering::Relaxed);
        self.is_synced.store(true, Ordering::Relaxed);
    }

    fn random_unit_f64(&self) -> f64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.random_bytes()[..8]);
        // The upper 53 bits: the precision of an f64.
        (u64::from_be_bytes(bytes) >> 11) as f64 / (1_u64 << 53) as f64
    }

    #[expect(clippy::expect_used, reason = "without randomness no token can be signed safely, so the server must stop")]
    fn random_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        OsRng.try_fill_bytes(&mut bytes).expect("the system provides randomness");
        bytes
    }
}

/// Manual clock for tests: time changes only on request, and random numbers depend on the seed only.
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<(UnixMs, StdRng)>,
}

impl ManualClock {
    /// Starts at `now`, with random numbers from `seed`.
    pub fn new(now: UnixMs, seed: u64) -> Self {
        Self { state: Mutex::new((now, StdRng::seed_from_u64(seed))) }
    }

    /// Advances the clock, milliseconds.
    pub fn advance_ms(&self, ms: u64) {
        let mut state = self.state();
        state.0 = state.0.plus_ms(ms);
    }

    /// Sets the clock; ignores a time in the past, because no clock runs backwards.
    pub fn set(&self, now: UnixMs) {
        let mut state = self.state();
        state.0 = state.0.max(now);
    }

    fn state(&self) -> MutexGuard<'_, (UnixMs, StdRng)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> UnixMs {
        self.state().0
    }

    fn random_unit_f64(&self) -> f64 {
        self.state().1.random()
    }

    fn random_bytes(&self) -> [u8; 16] {
        self.state().1.random()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_clock_is_monotonic_and_starts_after_2020() {
        let clock = SystemClock::start();
        let times: Vec<UnixMs> = (0..1_000).map(|_| clock.now()).collect();
        assert!(times.is_sorted());
        // 2020-09-13; an earlier time means that the machine's clock is not set.
        assert!(times[0] > UnixMs(1_600_000_000_000));
        let readings: Vec<u64> = (0..1_000).map(|_| clock.monotonic_us()).collect();
        assert!(readings.is_sorted());
    }

    #[test]
    fn cpu_time_counts_work_and_no_sleep() {
        let pause = Duration::from_millis(50);
        let ((), asleep) = with_cpu_time(|| std::thread::sleep(pause));
        assert!(asleep < pause / 2, "{asleep:?}");
        let clock = SystemClock::start();
        let until_us = clock.monotonic_us() + 10_000;
        let (rounds, busy) = with_cpu_time(|| (0_u64..).find(|_| until_us < clock.monotonic_us()));
        assert!(rounds > Some(0) && Duration::ZERO < busy, "{rounds:?} {busy:?}");
    }

    /// R10: servers of one store agree on the time for any wall clock, and no clock runs backwards.
    #[test]
    fn system_clock_synced_to_the_store_clock_never_runs_backwards() {
        let hour = 3_600_000;
        let store = UnixMs(1_800_000_000_000);
        for wall_clock in [store.0 - hour, store.0, store.0 + hour] {
            let clock = SystemClock::with_wall_clock(UnixMs(wall_clock));
            clock.sync_to_store_clock(store, clock.now());
            let synced = clock.now();
            assert!(synced.ms_since(store) < 1_000, "{synced:?} from {wall_clock}");
            clock.sync_to_store_clock(UnixMs(store.0 - hour), clock.now());
            assert!(clock.now() >= synced, "the clock stands still until the store's clock has caught up");
            clock.sync_to_store_clock(UnixMs(store.0 + hour), clock.now());
            assert!(clock.now().ms_since(store) >= hour);
        }
    }

    /// R10: a store that needs four seconds to respond does not have a clock that is four seconds slow.
    #[test]
    fn system_clock_sync_ignores_the_response_delay() {
        let started = UnixMs(1_800_000_000_000);
        let clock = SystemClock::with_wall_clock(started);
        let requested_at = UnixMs(started.0 - 4_000);
        for store_time in [requested_at.0, requested_at.0 + 2_000, started.0] {
            clock.sync_to_store_clock(UnixMs(store_time), requested_at);
            assert!(clock.now().ms_since(started) < 1_000, "{store_time}");
        }
        clock.sync_to_store_clock(UnixMs(requested_at.0 - 10_000), requested_at);
        assert_eq!(clock.offset_ms.load(Ordering::Relaxed), -10_000, "a difference larger than the delay is an offset");
    }

    #[test]
    fn system_clock_random_numbers_are_uniform_and_bytes_differ() {
        let clock = SystemClock::start();
        let samples: Vec<f64> = (0..2_000).map(|_| clock.random_unit_f64()).collect();
        assert!(samples.iter().all(|sample| (0.0..1.0).contains(sample)));
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        assert!((0.4..0.6).contains(&mean), "{mean}");
        assert_ne!(clock.random_bytes(), clock.random_bytes());
    }

    #[test]
    fn manual_clock_advances_and_never_runs_backwards() {
        let clock = ManualClock::new(UnixMs(5), 1);
        clock.advance_ms(10);
        clock.set(UnixMs(7));
        assert_eq!(clock.now(), UnixMs(15));
        clock.set(UnixMs(100));
        assert_eq!((clock.now(), clock.monotonic_us()), (UnixMs(100), 100_000));
    }

    #[test]
    fn manual_clock_random_numbers_depend_on_the_seed() {
        let (one, other) = (ManualClock::new(UnixMs(0), 7), ManualClock::new(UnixMs(0), 7));
        for _ in 0..10 {
            assert_eq!(one.random_unit_f64().to_bits(), other.random_unit_f64().to_bits());
            assert_eq!(one.random_bytes(), other.random_bytes());
        }
        assert_ne!(one.random_bytes(), ManualClock::new(UnixMs(0), 8).random_bytes());
    }
}
