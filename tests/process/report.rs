//! Parts that all tests here share: exclusive use of the machine, a seed, a scale, and a report line at the end.

use std::time::Duration;

use fireteam::clock::{Clock, ManualClock, SystemClock};
use fireteam::domain::time::UnixMs;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::support::server_process::TEST_TIMEOUT;

/// Measured values and violations of one running test. Tests run one at a time, because each needs the whole machine.
pub(crate) struct TestReport {
    name: &'static str,
    seed: u64,
    values: Vec<(&'static str, String)>,
    violations: Vec<String>,
    _machine_lock: MutexGuard<'static, ()>,
}

/// Random numbers that depend only on the seed.
pub(crate) struct TestRng(ManualClock);

impl TestRng {
    /// Random numbers of this seed.
    pub(crate) fn of_seed(seed: u64) -> Self {
        Self(ManualClock::new(UnixMs(0), seed))
    }

    /// A whole number below `end`.
    pub(crate) fn below(&self, end: usize) -> usize {
        (self.0.random_unit_f64() * end as f64) as usize
    }

    /// True with this probability, from 0 to 1.
    pub(crate) fn chance(&self, probability: f64) -> bool {
        self.0.random_unit_f64() < probability
    }
}

/// Waits until no other test runs. No other test starts until the returned guard is dropped.
pub(crate) async fn lock_machine() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::const_new(());
    MACHINE.lock().await
}

/// The variable `SCALE`, 1 by default.
pub(crate) fn scale() -> f64 {
    std::env::var_os("SCALE").map_or(1.0, |it| it.to_str().and_then(|it| it.parse().ok()).expect("a number"))
}

/// `count` multiplied by `SCALE`, rounded up.
pub(crate) fn scaled(count: usize) -> usize {
    (count as f64 * scale()).ceil() as usize
}

impl TestReport {
    /// Waits until no other test runs. The seed is `TEST_SEED`, or random.
    pub(crate) async fn start(name: &'static str) -> Self {
        let machine_lock = lock_machine().await;
        let given =
            std::env::var_os("TEST_SEED").map(|it| it.to_str().and_then(|it| it.parse().ok()).expect("a number"));
        let seed =
            given.unwrap_or_else(|| u64::from_be_bytes(SystemClock::start().random_bytes()[..8].try_into().unwrap()));
        println!("{name}: TEST_SEED={seed} SCALE={}", scale());
        Self { name, seed, values: Vec::new(), violations: Vec::new(), _machine_lock: machine_lock }
    }

    /// Seed of this run, for generators of its own.
    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    /// Random number generator of stream `number`, derived from the seed.
    pub(crate) fn rng(&self, number: u64) -> TestRng {
        TestRng::of_seed(self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Adds a value to the report line.
    pub(crate) fn record(&mut self, name: &'static str, value: impl std::fmt::Display) {
        self.values.push((name, value.to_string()));
    }

    /// Adds one violation of a requirement. The test fails when it finishes.
    pub(crate) fn violation(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    /// Adds several violations.
    pub(crate) fn violations(&mut self, what: Vec<String>) {
        self.violations.extend(what);
    }

    /// Whether an injected fault has been detected, so that further checks would only take time.
    pub(crate) fn has_detected_fault(&self) -> bool {
        !self.violations.is_empty() && std::env::var_os("FAILPOINTS").is_some()
    }

    /// Prints the report line, and fails if there were violations.
    #[track_caller]
    pub(crate) fn finish(self) {
        let values: Vec<String> = self.values.iter().map(|(name, value)| format!("{name} {value}")).collect();
        println!("| {} | {} | violations {} |", self.name, values.join(" | "), self.violations.len());
        let some: Vec<&str> = self.violations.iter().take(20).map(String::as_str).collect();
        assert!(
            self.violations.is_empty(),
            "{} violations, TEST_SEED={}:\n{}",
            self.violations.len(),
            self.seed,
            some.join("\n")
        );
    }
}

/// The value that `share` of `sorted` do not exceed.
pub(crate) fn percentile<T: Copy>(sorted: &[T], share: f64) -> T {
    sorted[((sorted.len() - 1) as f64 * share).ceil() as usize]
}

/// Polls `condition` until it holds, and returns how long that took. Panics after the test timeout.
pub(crate) async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) -> Duration {
    let started = Instant::now();
    while !condition().await {
        assert!(started.elapsed() < TEST_TIMEOUT, "timed out waiting until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    started.elapsed()
}
