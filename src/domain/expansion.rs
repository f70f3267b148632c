//! How a limit relaxes with time waited.
//!
//! | waited   | limit (`skill_pvp_exponential` of the thesis) |
//! |----------|-----------------------------------------------|
//! | 0–10 s   | 150                                           |
//! | 10–30 s  | 300                                           |
//! | 30–50 s  | 600                                           |
//! | 50 s +   | 2000                                          |
//!
//! Durations are per step, values are absolute, steps are half-open, and the last value holds for ever (S1-35).

use crate::domain::ruleset::Measure;

/// One step: from `start_ms` of waiting on, the limit is `value`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// Milliseconds waited when the step begins.
    pub start_ms: u64,
    /// The limit, in the measure's unit.
    pub value: f64,
}

/// A limit that never tightens. Invariant: at least one step, the first at 0, starts strictly increase, values never
/// decrease (S1-32: it must converge).
#[derive(Clone, Debug, PartialEq)]
pub struct Expansion {
    /// The handle that filters refer to.
    pub name: Box<str>,
    /// What is limited.
    pub measure: Measure,
    steps: Box<[Step]>,
}

impl Expansion {
    /// Builds an expansion from steps that keep the invariant; `None` if they do not.
    pub fn new(name: &str, measure: Measure, steps: Vec<Step>) -> Option<Self> {
        let begins_at_zero = steps.first().is_some_and(|step| step.start_ms == 0);
        let grows = steps.windows(2).all(|pair| pair[0].start_ms < pair[1].start_ms && pair[0].value <= pair[1].value);
        let finite = steps.iter().all(|step| step.value.is_finite());
        (begins_at_zero && grows && finite).then(|| Self { name: name.into(), measure, steps: steps.into() })
    }

    /// A limit that does not change.
    pub fn constant(name: &str, measure: Measure, value: f64) -> Option<Self> {
        Self::new(name, measure, vec![Step { start_ms: 0, value }])
    }

    /// The steps, first to last.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// The limit after `waited_ms`.
    pub fn limit_at(&self, waited_ms: u64) -> f64 {
        let passed = self.steps.partition_point(|step| step.start_ms <= waited_ms);
        self.steps[passed - 1].value
    }

    /// Milliseconds until the limit next grows; `None` when it is as wide as it gets.
    pub fn next_growth_in_ms(&self, waited_ms: u64) -> Option<u64> {
        let limit = self.limit_at(waited_ms);
        let next = self.steps.iter().find(|step| waited_ms < step.start_ms && limit < step.value)?;
        Some(next.start_ms - waited_ms)
    }
}
