//! The only file that may ask what time it is or roll dice.

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
    fn dice(&self) -> f64;

    /// Sixteen bytes that nobody can guess.
    fn random_bytes(&self) -> [u8; 16];
}

/// The machine's time and the system's randomness.
///
/// The wall clock is read once, at the start; from there on time is what has elapsed, so that an administrator or a time
/// service that sets the clock moves no deadline (R10).
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started_at: UnixMs,
    started: Instant,
}

impl SystemClock {
    /// Reads the wall clock. A machine that believes to live before 1970 starts at 0.
    #[expect(clippy::disallowed_methods, reason = "this is the file that others ask")]
    pub fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let started_at = UnixMs(u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX));
        Self { started_at, started: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn now(&self) -> UnixMs {
        self.started_at.after(u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn dice(&self) -> f64 {
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
        state.0 = state.0.after(ms);
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

    fn dice(&self) -> f64 {
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
    fn the_system_clock_goes_forward_from_a_sensible_moment() {
        let clock = SystemClock::start();
        let moments: Vec<UnixMs> = (0..1_000).map(|_| clock.now()).collect();
        assert!(moments.is_sorted());
        // 2020-09-13; a machine before that has no clock at all.
        assert!(UnixMs(1_600_000_000_000) < moments[0]);
    }

    #[test]
    fn dice_are_fair_enough_and_bytes_differ() {
        let clock = SystemClock::start();
        let throws: Vec<f64> = (0..2_000).map(|_| clock.dice()).collect();
        assert!(throws.iter().all(|dice| (0.0..1.0).contains(dice)));
        let mean = throws.iter().sum::<f64>() / throws.len() as f64;
        assert!((0.4..0.6).contains(&mean), "{mean}");
        assert_ne!(clock.random_bytes(), clock.random_bytes());
    }

    #[test]
    fn the_manual_clock_is_turned_by_hand_and_never_back() {
        let clock = ManualClock::new(UnixMs(5), 1);
        clock.advance_ms(10);
        clock.set(UnixMs(7));
        assert_eq!(clock.now(), UnixMs(15));
        clock.set(UnixMs(100));
        assert_eq!(clock.now(), UnixMs(100));
    }

    #[test]
    fn the_same_seed_throws_the_same_dice() {
        let (one, other) = (ManualClock::new(UnixMs(0), 7), ManualClock::new(UnixMs(0), 7));
        for _ in 0..10 {
            assert_eq!(one.dice().to_bits(), other.dice().to_bits());
            assert_eq!(one.random_bytes(), other.random_bytes());
        }
        assert_ne!(one.random_bytes(), ManualClock::new(UnixMs(0), 8).random_bytes());
    }
}
