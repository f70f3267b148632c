//! Ranges of numbers that ruleset attributes accept.

use crate::limit::NUMBER_MAGNITUDE_MAX;

/// Accepted range of a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct NumberBounds {
    min: f64,
    max: f64,
    /// `min` itself is not accepted.
    min_is_exclusive: bool,
}

impl NumberBounds {
    /// Numbers from `min` to `max`, both inclusive.
    pub(super) const fn new_inclusive(min: f64, max: f64) -> Self {
        Self { min, max, min_is_exclusive: false }
    }

    /// Greater than `min`, at most `max`.
    pub(super) const fn new_exclusive_min(min: f64, max: f64) -> Self {
        Self { min, max, min_is_exclusive: true }
    }

    /// From 0 to 100, both inclusive.
    pub(super) const PERCENT: Self = Self::new_inclusive(0.0, 100.0);

    /// Greater than 0, at most 1e6: factors, widths, weights, deviations and scales.
    pub(super) const POSITIVE: Self = Self::new_exclusive_min(0.0, 1e6);

    pub(super) fn contains(self, number: f64) -> bool {
        self.min <= number && number <= self.max && !(self.min_is_exclusive && number == self.min)
    }

    /// Text that tells a designer which numbers are accepted.
    pub(super) fn fix_message(self) -> String {
        match (self.min_is_exclusive, self.min, self.max) {
            (true, min, max) => format!("give a number above {min} and at most {max}"),
            (false, min, NUMBER_MAGNITUDE_MAX) if min < 0.0 => "give a number, at most 1e12 away from 0".into(),
            (false, min, NUMBER_MAGNITUDE_MAX) => format!("give a number, {min} or more, at most 1e12"),
            (false, min, max) => format!("give a number from {min} to {max}"),
        }
    }
}
