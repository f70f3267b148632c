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

use crate::measure::Measure;

/// One step: from `start_ms` of waiting on, the limit is `value`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpansionStep {
    /// Milliseconds waited when the step begins.
    pub start_ms: u64,
    /// The limit, in the measure's unit.
    pub limit: f64,
}

/// A limit that never tightens. Invariant: at least one step, the first at 0, starts strictly increase, values never
/// decrease (S1-32: it must converge).
#[derive(Clone, Debug, PartialEq)]
pub struct Expansion {
    /// The handle that filters refer to.
    pub name: Box<str>,
    /// What is limited.
    pub measure: Measure,
    steps: Box<[ExpansionStep]>,
}

impl Expansion {
    /// Builds an expansion from steps that keep the invariant; `None` if they do not.
    pub fn new(name: &str, measure: Measure, steps: Vec<ExpansionStep>) -> Option<Self> {
        let begins_at_zero = steps.first().is_some_and(|step| step.start_ms == 0);
        let grows = steps.windows(2).all(|pair| pair[0].start_ms < pair[1].start_ms && pair[0].limit <= pair[1].limit);
        let finite = steps.iter().all(|step| step.limit.is_finite());
        (begins_at_zero && grows && finite).then(|| Self { name: name.into(), measure, steps: steps.into() })
    }

    /// A limit that does not change.
    pub fn constant(name: &str, measure: Measure, value: f64) -> Option<Self> {
        Self::new(name, measure, vec![ExpansionStep { start_ms: 0, limit: value }])
    }

    /// The steps, first to last.
    pub fn steps(&self) -> &[ExpansionStep] {
        &self.steps
    }

    /// The limit after `waited_ms`.
    pub fn limit_at(&self, waited_ms: u64) -> f64 {
        let passed = self.steps.partition_point(|step| step.start_ms <= waited_ms);
        self.steps[passed - 1].limit
    }

    /// Milliseconds until the limit next grows; `None` when it is as wide as it gets.
    pub fn ms_until_next_growth(&self, waited_ms: u64) -> Option<u64> {
        let passed = self.steps.partition_point(|step| step.start_ms <= waited_ms);
        let limit = self.steps[passed - 1].limit;
        let next = self.steps[passed..].iter().find(|step| limit < step.limit)?;
        Some(next.start_ms - waited_ms)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps(steps: &[(u64, f64)]) -> Vec<ExpansionStep> {
        steps.iter().map(|&(start_ms, value)| ExpansionStep { start_ms, limit: value }).collect()
    }

    /// S1-32: what would tighten, or begin late, or never be a number, is no expansion.
    #[test]
    fn expansion_rejects_steps_that_tighten_or_start_late() {
        let refused: [&[(u64, f64)]; 6] = [
            &[],
            &[(1, 5.0)],
            &[(0, 5.0), (0, 6.0)],
            &[(0, 5.0), (10, 4.0)],
            &[(0, f64::NAN)],
            &[(0, 5.0), (10, f64::INFINITY)],
        ];
        for case in refused {
            assert_eq!(Expansion::new("a", Measure::Latency, steps(case)), None, "{case:?}");
        }
        assert!(Expansion::new("a", Measure::Latency, steps(&[(0, 5.0), (10, 5.0)])).is_some(), "equal neighbours");
        assert!(Expansion::constant("a", Measure::Latency, f64::NAN).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Judged by walking the steps one by one, as the file lists them.
        #[test]
        fn limits_are_those_of_the_step_one_is_in(
            written in proptest::collection::vec((1_u64..50, 0_u32..3), 1..8),
            waited_ms in 0_u64..400,
        ) {
            let (mut start_ms, mut value, mut all) = (0, 0.0, Vec::new());
            for &(duration_ms, more) in &written {
                value += f64::from(more);
                all.push(ExpansionStep { start_ms, limit: value });
                start_ms += duration_ms;
            }
            let slow = |waited_ms: u64| {
                let mut left = waited_ms;
                for (&(duration_ms, _), step) in written.iter().zip(&all) {
                    if left < duration_ms {
                        return step.limit;
                    }
                    left -= duration_ms;
                }
                value
            };
            let expansion = Expansion::new("a", Measure::Distance, all.clone()).unwrap();
            prop_assert_eq!(expansion.limit_at(waited_ms), slow(waited_ms));
            let slow_next = (waited_ms + 1..1_000).find(|&later| slow(waited_ms) < slow(later));
            prop_assert_eq!(expansion.ms_until_next_growth(waited_ms), slow_next.map(|later| later - waited_ms));
        }
    }
}
