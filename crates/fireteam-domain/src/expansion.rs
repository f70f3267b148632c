//! Expansion: a limit that relaxes in steps with the time waited.
//!
//! | waited   | limit (`skill_pvp_exponential` in the thesis) |
//! |----------|-----------------------------------------------|
//! | 0–10 s   | 150                                           |
//! | 10–30 s  | 300                                           |
//! | 30–50 s  | 600                                           |
//! | 50 s +   | 2000                                          |
//!
//! Rulesets give a duration per step and an absolute limit. A step includes its start and excludes its end. The last
//! limit holds for the rest of the wait.

use crate::measure::Measure;

/// One step of an expansion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpansionStep {
    /// Start of the step, milliseconds waited.
    pub start_ms: u64,
    /// Limit during the step, in the unit of the measure.
    pub limit: f64,
}

/// Limit that never tightens with the time waited. Invariant: at least one step, the first at 0 ms; starts strictly
/// increase; limits are finite and never decrease.
#[derive(Clone, Debug, PartialEq)]
pub struct Expansion {
    /// Name by which filters refer to it.
    pub name: Box<str>,
    /// The limited measure.
    pub measure: Measure,
    steps: Box<[ExpansionStep]>,
}

impl Expansion {
    /// Builds an expansion; `None` if `steps` violate the invariant.
    pub fn new(name: &str, measure: Measure, steps: Vec<ExpansionStep>) -> Option<Self> {
        let starts_at_zero = steps.first().is_some_and(|step| step.start_ms == 0);
        let grows = steps.windows(2).all(|pair| pair[0].start_ms < pair[1].start_ms && pair[0].limit <= pair[1].limit);
        let finite = steps.iter().all(|step| step.limit.is_finite());
        (starts_at_zero && grows && finite).then(|| Self { name: name.into(), measure, steps: steps.into() })
    }

    /// Expansion with one constant limit; `None` if `value` is not finite.
    pub fn constant(name: &str, measure: Measure, value: f64) -> Option<Self> {
        Self::new(name, measure, vec![ExpansionStep { start_ms: 0, limit: value }])
    }

    /// Steps in order of start.
    pub fn steps(&self) -> &[ExpansionStep] {
        &self.steps
    }

    /// Limit after `waited_ms` of waiting.
    pub fn limit_at(&self, waited_ms: u64) -> f64 {
        let started = self.steps.partition_point(|step| step.start_ms <= waited_ms);
        self.steps[started - 1].limit
    }

    /// Milliseconds until the limit next grows; `None` if it has reached its maximum.
    pub fn ms_until_next_growth(&self, waited_ms: u64) -> Option<u64> {
        let started = self.steps.partition_point(|step| step.start_ms <= waited_ms);
        let limit = self.steps[started - 1].limit;
        let next = self.steps[started..].iter().find(|step| step.limit > limit)?;
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

    /// S1-32: limits must not tighten; steps must start at 0 and be finite.
    #[test]
    fn expansion_rejects_steps_that_tighten_or_start_late() {
        let invalid: [&[(u64, f64)]; 6] = [
            &[],
            &[(1, 5.0)],
            &[(0, 5.0), (0, 6.0)],
            &[(0, 5.0), (10, 4.0)],
            &[(0, f64::NAN)],
            &[(0, 5.0), (10, f64::INFINITY)],
        ];
        for case in invalid {
            assert_eq!(Expansion::new("a", Measure::Latency, steps(case)), None, "{case:?}");
        }
        assert!(Expansion::new("a", Measure::Latency, steps(&[(0, 5.0), (10, 5.0)])).is_some(), "equal limits");
        assert!(Expansion::constant("a", Measure::Latency, f64::NAN).is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// The oracle walks the steps one by one.
        #[test]
        fn expansion_limit_matches_the_current_step(
            durations_and_increments in proptest::collection::vec((1_u64..50, 0_u32..3), 1..8),
            waited_ms in 0_u64..400,
        ) {
            let (mut start_ms, mut value, mut all) = (0, 0.0, Vec::new());
            for &(duration_ms, increment) in &durations_and_increments {
                value += f64::from(increment);
                all.push(ExpansionStep { start_ms, limit: value });
                start_ms += duration_ms;
            }
            let oracle = |waited_ms: u64| {
                let mut remaining_ms = waited_ms;
                for (&(duration_ms, _), step) in durations_and_increments.iter().zip(&all) {
                    if remaining_ms < duration_ms {
                        return step.limit;
                    }
                    remaining_ms -= duration_ms;
                }
                value
            };
            let expansion = Expansion::new("a", Measure::Distance, all.clone()).unwrap();
            prop_assert_eq!(expansion.limit_at(waited_ms), oracle(waited_ms));
            let next_growth = (waited_ms + 1..1_000).find(|&later| oracle(waited_ms) < oracle(later));
            prop_assert_eq!(expansion.ms_until_next_growth(waited_ms), next_growth.map(|later| later - waited_ms));
        }
    }
}
