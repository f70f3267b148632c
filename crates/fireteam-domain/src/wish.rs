//! Wishes of a party: which values it accepts on the other side, wider with the time that it has waited.

pub mod allowed_wishes;

use crate::attribute::{AttributeValue, ValueType};
use crate::limit::{RULESET_DURATION_MS_MAX, WISH_STEPS_MAX};

/// Name of the wish for the expected round trip, in milliseconds. No attribute can have it.
pub const LATENCY_WISH: &str = "latency";

/// Values that a wish accepts.
#[derive(Clone, Debug, PartialEq)]
pub enum AcceptedValues {
    /// Any value, and also a missing one.
    Any,
    /// Numbers from `min` to `max`, both inclusive; `None` for no limit on that side.
    Numbers {
        /// Lowest accepted number.
        min: Option<f64>,
        /// Highest accepted number.
        max: Option<f64>,
    },
    /// One of these strings, sorted. A string list must have at least one of them.
    Strings(Box<[Box<str>]>),
    /// This value of a boolean.
    Flag(bool),
}

impl AcceptedValues {
    /// Whether it accepts a value. A value of another type is refused.
    pub fn accepts(&self, value: &AttributeValue) -> bool {
        let accepts_text =
            |strings: &[Box<str>], text: &str| strings.binary_search_by(|known| (**known).cmp(text)).is_ok();
        match (self, value) {
            (Self::Any, _) => true,
            (Self::Numbers { .. }, AttributeValue::Number(number)) => self.accepts_number(*number),
            (Self::Strings(strings), AttributeValue::String(text)) => accepts_text(strings, text),
            (Self::Strings(strings), AttributeValue::StringList(texts)) => {
                texts.iter().any(|text| accepts_text(strings, text))
            }
            (Self::Flag(accepted), AttributeValue::Bool(flag)) => accepted == flag,
            _ => false,
        }
    }

    /// Whether it accepts a number.
    pub fn accepts_number(&self, number: f64) -> bool {
        match self {
            Self::Any => true,
            Self::Numbers { min, max } => min.is_none_or(|min| min <= number) && max.is_none_or(|max| number <= max),
            Self::Strings(_) | Self::Flag(_) => false,
        }
    }

    /// Whether it accepts all values that `other` accepts.
    pub fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Any, _) => true,
            (Self::Numbers { min, max }, Self::Numbers { min: other_min, max: other_max }) => {
                let reaches_down = min.is_none_or(|min| other_min.is_some_and(|other| min <= other));
                reaches_down && max.is_none_or(|max| other_max.is_some_and(|other| other <= max))
            }
            (Self::Strings(strings), Self::Strings(others)) => {
                others.iter().all(|text| strings.binary_search(text).is_ok())
            }
            (one, other) => one == other,
        }
    }

    /// Whether it can judge values of this type. Strings judge strings and string lists.
    pub fn applies_to_type(&self, value_type: ValueType) -> bool {
        match self {
            Self::Any => true,
            Self::Numbers { .. } => value_type == ValueType::Number,
            Self::Strings(_) => matches!(value_type, ValueType::String | ValueType::StringList),
            Self::Flag(_) => value_type == ValueType::Bool,
        }
    }
}

/// Accepted values from some time on.
#[derive(Clone, Debug, PartialEq)]
pub struct WishStep {
    /// Start of the step, milliseconds waited.
    pub start_ms: u64,
    /// Values accepted during the step.
    pub accepted: AcceptedValues,
}

/// Wish for one attribute of the other side. Invariant: at least one step, the first at 0 ms; starts strictly increase;
/// each step accepts everything that the one before accepts.
#[derive(Clone, Debug, PartialEq)]
pub struct Wish {
    /// Name of the attribute, or [`LATENCY_WISH`].
    pub subject_name: Box<str>,
    /// Also accepts a side whose value is unknown.
    pub accepts_missing: bool,
    steps: Box<[WishStep]>,
}

impl Wish {
    /// Builds a wish. An error is the index of the first step that violates the invariant, or a limit.
    pub fn new(attribute: &str, accepts_missing: bool, steps: Vec<WishStep>) -> Result<Self, usize> {
        let is_valid = |index: usize| {
            let step: &WishStep = &steps[index];
            let starts_in_order = match index.checked_sub(1) {
                None => step.start_ms == 0,
                Some(before) => {
                    let before = &steps[before];
                    before.start_ms < step.start_ms && step.accepted.includes(&before.accepted)
                }
            };
            starts_in_order && step.start_ms <= RULESET_DURATION_MS_MAX && index <= WISH_STEPS_MAX
        };
        match (0..steps.len().max(1)).find(|&index| steps.is_empty() || !is_valid(index)) {
            Some(invalid) => Err(invalid),
            None => Ok(Self { subject_name: attribute.into(), accepts_missing, steps: steps.into() }),
        }
    }

    /// Steps in order of start.
    pub fn steps(&self) -> &[WishStep] {
        &self.steps
    }

    /// Values accepted after `waited_ms` of waiting.
    pub fn accepted_at(&self, waited_ms: u64) -> &AcceptedValues {
        let started = self.steps.partition_point(|step| step.start_ms <= waited_ms);
        &self.steps[started - 1].accepted
    }

    /// Whether it accepts a value, or a missing one, after `waited_ms` of waiting.
    pub fn accepts_at(&self, waited_ms: u64, value: Option<&AttributeValue>) -> bool {
        let accepted = self.accepted_at(waited_ms);
        match value {
            Some(value) => accepted.accepts(value),
            None => self.accepts_missing || *accepted == AcceptedValues::Any,
        }
    }

    /// Milliseconds until the wish next relaxes; `None` after its last step.
    pub fn ms_until_next_step(&self, waited_ms: u64) -> Option<u64> {
        let next = self.steps.iter().find(|step| waited_ms < step.start_ms)?;
        Some(next.start_ms - waited_ms)
    }
}

/// Subject of a wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WishSubject {
    /// Expected round trip between the two sides, milliseconds.
    Latency,
    /// Attribute of the other side, as index in `Ruleset::attributes`.
    Attribute(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(min: Option<f64>, max: Option<f64>) -> AcceptedValues {
        AcceptedValues::Numbers { min, max }
    }

    fn strings(strings: &[&str]) -> AcceptedValues {
        AcceptedValues::Strings(strings.iter().map(|text| (*text).into()).collect())
    }

    fn step(start_ms: u64, accepted: AcceptedValues) -> WishStep {
        WishStep { start_ms, accepted }
    }

    /// S1-17: a range includes its ends.
    #[test]
    fn accepted_values_are_inclusive_and_of_one_type() {
        let range = numbers(Some(100.0), Some(300.0));
        let accepted = [99.9, 100.0, 300.0, 300.1].map(|number| range.accepts(&AttributeValue::Number(number)));
        assert_eq!(accepted, [false, true, true, false]);
        assert!(!range.accepts(&AttributeValue::Bool(true)));
        let list = AttributeValue::from_string_list(vec!["b".into(), "c".into()]);
        assert!(strings(&["a", "c"]).accepts(&list) && !strings(&["a"]).accepts(&list));
        assert!(AcceptedValues::Flag(true).accepts(&AttributeValue::Bool(true)));
    }

    /// S1-36: a published range relaxes, and never tightens.
    #[test]
    fn wish_steps_must_start_at_zero_and_relax() {
        let narrow = numbers(Some(-10.0), Some(10.0));
        let valid = vec![
            step(0, narrow.clone()),
            step(5_000, numbers(Some(-20.0), Some(10.0))),
            step(9_000, numbers(Some(-20.0), None)),
            step(20_000, AcceptedValues::Any),
        ];
        let wish = Wish::new("skill", false, valid).unwrap();
        let at = |waited_ms, number| wish.accepts_at(waited_ms, Some(&AttributeValue::Number(number)));
        assert_eq!([at(4_999, -15.0), at(5_000, -15.0), at(8_999, 99.0), at(9_000, 99.0)], [false, true, false, true]);
        assert_eq!([wish.accepts_at(19_999, None), wish.accepts_at(20_000, None)], [false, true]);
        assert_eq!((wish.ms_until_next_step(4_999), wish.ms_until_next_step(5_000)), (Some(1), Some(4_000)));
        assert_eq!(wish.ms_until_next_step(20_000), None);
        let invalid = [
            (vec![], 0),
            (vec![step(1, narrow.clone())], 0),
            (vec![step(0, narrow.clone()), step(0, AcceptedValues::Any)], 1),
            (vec![step(0, narrow.clone()), step(9, numbers(Some(-9.0), None))], 1),
            (vec![step(0, numbers(None, Some(1.0))), step(9, numbers(Some(-9.0), Some(1.0)))], 1),
            (vec![step(0, strings(&["a", "b"])), step(9, strings(&["a"]))], 1),
            (vec![step(0, AcceptedValues::Flag(true)), step(9, AcceptedValues::Flag(false))], 1),
            (vec![step(0, strings(&["a"])), step(RULESET_DURATION_MS_MAX + 1, AcceptedValues::Any)], 1),
        ];
        for (steps, index) in invalid {
            assert_eq!(Wish::new("skill", false, steps.clone()), Err(index), "{steps:?}");
        }
        let many = (0..10).map(|start_ms| step(start_ms, AcceptedValues::Any)).collect();
        assert_eq!(Wish::new("skill", false, many), Err(9), "one step and eight relaxations");
    }
}
