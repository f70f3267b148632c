//! What every chapter has: a turn, a seed, a scale, and a line of figures at the end.

use std::time::Duration;

use fireteam::clock::{Clock, ManualClock, SystemClock};
use fireteam::domain::time::UnixMs;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::support::server_process::TEST_TIMEOUT;

/// One chapter at work. The others wait for their turn: each wants the whole machine.
pub(crate) struct Chapter {
    name: &'static str,
    seed: u64,
    figures: Vec<(&'static str, String)>,
    violations: Vec<String>,
    _turn: MutexGuard<'static, ()>,
}

/// Dice that fall alike for the same seed.
pub(crate) struct Dice(ManualClock);

impl Dice {
    /// A whole number below `end`.
    pub(crate) fn below(&self, end: usize) -> usize {
        (self.0.random_unit_f64() * end as f64) as usize
    }

    /// True this often.
    pub(crate) fn chance(&self, often: f64) -> bool {
        self.0.random_unit_f64() < often
    }
}

/// Waits for whoever is at work. Nobody else is until what this answers is dropped.
pub(crate) async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

/// `SCALE`, 1 by default.
pub(crate) fn scale() -> f64 {
    std::env::var_os("SCALE").map_or(1.0, |it| it.to_str().and_then(|it| it.parse().ok()).expect("a number"))
}

/// So many, in the short form.
pub(crate) fn scaled(count: usize) -> usize {
    (count as f64 * scale()).ceil() as usize
}

impl Chapter {
    /// Waits for its turn. The seed is `TEST_SEED`, or another each time.
    pub(crate) async fn begin(name: &'static str) -> Self {
        let turn = turn().await;
        let given =
            std::env::var_os("TEST_SEED").map(|it| it.to_str().and_then(|it| it.parse().ok()).expect("a number"));
        let seed =
            given.unwrap_or_else(|| u64::from_be_bytes(SystemClock::start().random_bytes()[..8].try_into().unwrap()));
        println!("{name}: TEST_SEED={seed} SCALE={}", scale());
        Self { name, seed, figures: Vec::new(), violations: Vec::new(), _turn: turn }
    }

    /// Dice of their own for number `number`.
    pub(crate) fn dice(&self, number: u64) -> Dice {
        Dice(ManualClock::new(UnixMs(0), self.seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// Adds to the line of figures.
    pub(crate) fn figure(&mut self, name: &'static str, value: impl std::fmt::Display) {
        self.figures.push((name, value.to_string()));
    }

    /// Something that was promised has not been kept.
    pub(crate) fn violated(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    /// Several such things.
    pub(crate) fn all_violated(&mut self, what: Vec<String>) {
        self.violations.extend(what);
    }

    /// Whether a planted fault has been noticed, so that looking further would only take time.
    pub(crate) fn is_enough(&self) -> bool {
        !self.violations.is_empty() && std::env::var_os("MUTANT").is_some()
    }

    /// Prints the figures, and fails if there were violations.
    #[track_caller]
    pub(crate) fn end(self) {
        let figures: Vec<String> = self.figures.iter().map(|(name, value)| format!("{name} {value}")).collect();
        println!("| {} | {} | violations {} |", self.name, figures.join(" | "), self.violations.len());
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

/// Asks again and again until the answer is right; says how long that took.
pub(crate) async fn until(what: &str, mut right: impl AsyncFnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !right().await {
        assert!(begun.elapsed() < TEST_TIMEOUT, "it never came about: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    begun.elapsed()
}
