//! The only file that may ask what time it is or roll dice.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use rand::rngs::{OsRng, StdRng};
use rand::{Rng, SeedableRng, TryRngCore};

use crate::domain::time::UnixMs;

/// Where time and chance come from; tests turn theirs by hand.
pub trait Clock: Send + Sync + 'static {
    /// Now. Never runs backwards within one process.
    fn now(&self) -> UnixMs;

    /// Uniform in [0, 1).
    fn random_unit_f64(&self) -> f64;

    /// Sixteen bytes that nobody can guess.
    fn random_bytes(&self) -> [u8; 16];

    /// From here on goes by a store's clock, which said that it was `theirs` at some moment since this one said `asked`. Servers
    /// that share a store must agree on the time, and its clock is the one that they all have (R10).
    fn sync_to_store_clock(&self, theirs: UnixMs, asked: UnixMs) {
        let _ = (theirs, asked);
    }
}

/// The machine's time and the system's randomness.
///
/// The wall clock is read once, at the start; from there on time is what has elapsed, so that an administrator or a time
/// service that sets the clock moves no deadline (R10). When it follows a store's clock, the wall clock no longer counts.
#[derive(Debug)]
pub struct SystemClock {
    started_at: UnixMs,
    started_instant: Instant,
    /// What to add to go by a store's clock, milliseconds; two's complement.
    offset_ms: AtomicI64,
    is_synced: AtomicBool,
    /// The latest moment that was told while following: a store's clock may be set back, this one may not.
    last_returned_ms: AtomicU64,
}

/// What two clocks may differ by before one is moved: less is the time that an answer takes, and moving is not free.
const OFFSET_TOLERANCE_MS: u64 = 20;

/// What they may differ by at first before somebody should know.
const OFFSET_WARNING_MS: u64 = 2_000;

impl SystemClock {
    /// Reads the wall clock. A machine that believes to live before 1970 starts at 0.
    #[expect(clippy::disallowed_methods, reason = "this is the file that others ask")]
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_at = UnixMs(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX));
        Self::starting_at(started_at)
    }

    #[expect(clippy::disallowed_methods, reason = "this is the file that others ask")]
    fn starting_at(started_at: UnixMs) -> Self {
        Self {
            started_at,
            started_instant: Instant::now(),
            offset_ms: AtomicI64::new(0),
            is_synced: AtomicBool::new(false),
            last_returned_ms: AtomicU64::new(0),
        }
    }

    /// By what has elapsed, and by the store's clock where one is followed.
    fn elapsed_plus_offset(&self) -> UnixMs {
        let own =
            self.started_at.plus_ms(u64::try_from(self.started_instant.elapsed().as_millis()).unwrap_or(u64::MAX));
        UnixMs(own.0.saturating_add_signed(self.offset_ms.load(Ordering::Relaxed)))
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

    fn sync_to_store_clock(&self, theirs: UnixMs, asked: UnixMs) {
        let ours = self.elapsed_plus_offset();
        // The answer may have taken long: the two need not differ where they were alike at any moment since it was asked for.
        let apart = |ours: UnixMs| theirs.0.cast_signed().saturating_sub(ours.0.cast_signed());
        let apart_ms = 0_i64.clamp(apart(ours), apart(asked.min(ours)));
        let first = !self.is_synced.load(Ordering::Relaxed);
        if first {
            self.last_returned_ms.store(ours.0.min(theirs.0), Ordering::Relaxed);
        }
        if apart_ms.unsigned_abs() <= OFFSET_TOLERANCE_MS && !first {
            return;
        }
        if OFFSET_WARNING_MS < apart_ms.unsigned_abs() {
            tracing::warn!(apart_ms, "this machine's clock is not the store's: going by the store's");
        }
        self.offset_ms.fetch_add(apart_ms, Ordering::Relaxed);
        self.is_synced.store(true, Ordering::Relaxed);
    }

    fn random_unit_f64(&self) -> f64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.random_bytes()[..8]);
        // The upper 53 bits: as many as a double holds.
        (u64::from_be_bytes(bytes) >> 11) as f64 / (1_u64 << 53) as f64
    }

    #[expect(
        clippy::expect_used,
        reason = "a system without randomness can sign nothing; better no server than that one"
    )]
    fn random_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        OsRng.try_fill_bytes(&mut bytes).expect("the system has randomness");
        bytes
    }
}

/// Time that stands still until it is turned, and dice that fall alike for the same seed.
#[derive(Debug)]
pub struct ManualClock {
    state: Mutex<(UnixMs, StdRng)>,
}

impl ManualClock {
    /// Starts at `now`, with dice from `seed`.
    pub fn new(now: UnixMs, seed: u64) -> Self {
        Self { state: Mutex::new((now, StdRng::seed_from_u64(seed))) }
    }

    /// Turns the clock forward.
    pub fn advance_ms(&self, ms: u64) {
        let mut state = self.state();
        state.0 = state.0.plus_ms(ms);
    }

    /// Sets the clock; a moment that has passed leaves it as it is, for no clock here runs backwards.
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
        let moments: Vec<UnixMs> = (0..1_000).map(|_| clock.now()).collect();
        assert!(moments.is_sorted());
        // 2020-09-13; a machine before that has no clock at all.
        assert!(UnixMs(1_600_000_000_000) < moments[0]);
    }

    /// R10: whatever a machine's own clock says, servers of one store agree, and none goes back.
    #[test]
    fn system_clock_synced_to_the_store_clock_never_runs_backwards() {
        let hour = 3_600_000;
        let store = UnixMs(1_800_000_000_000);
        for wrong in [store.0 - hour, store.0, store.0 + hour] {
            let clock = SystemClock::starting_at(UnixMs(wrong));
            clock.sync_to_store_clock(store, clock.now());
            let told = clock.now();
            assert!(told.ms_since(store) < 1_000, "{told:?} by {wrong}");
            clock.sync_to_store_clock(UnixMs(store.0 - hour), clock.now());
            assert!(told <= clock.now(), "it stands still until the store's clock has caught up");
            clock.sync_to_store_clock(UnixMs(store.0 + hour), clock.now());
            assert!(hour <= clock.now().ms_since(store));
        }
    }

    /// R10: a store that takes four seconds to load a million rows has not got a clock that is four seconds slow.
    #[test]
    fn system_clock_sync_ignores_the_response_delay() {
        let started = UnixMs(1_800_000_000_000);
        let clock = SystemClock::starting_at(started);
        let asked = UnixMs(started.0 - 4_000);
        for theirs in [asked.0, asked.0 + 2_000, started.0] {
            clock.sync_to_store_clock(UnixMs(theirs), asked);
            assert!(clock.now().ms_since(started) < 1_000, "{theirs}");
        }
        clock.sync_to_store_clock(UnixMs(asked.0 - 10_000), asked);
        assert_eq!(clock.offset_ms.load(Ordering::Relaxed), -10_000, "what no delay explains is a difference");
    }

    #[test]
    fn system_clock_random_numbers_are_uniform_and_bytes_differ() {
        let clock = SystemClock::start();
        let throws: Vec<f64> = (0..2_000).map(|_| clock.random_unit_f64()).collect();
        assert!(throws.iter().all(|dice| (0.0..1.0).contains(dice)));
        let mean = throws.iter().sum::<f64>() / throws.len() as f64;
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
        assert_eq!(clock.now(), UnixMs(100));
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
