//! Wishes under a ruleset, which says by attribute which are allowed.

use crate::attribute::ValueType;
use crate::attribute_values::FieldProblem;
use crate::ruleset::Ruleset;
use crate::wish::{LATENCY_WISH, Wish, WishSubject};

/// Subject of a wish in force. `None` if the ruleset does not allow it, or if the attribute has had another type since it was stated.
#[inline]
pub fn subject_in_force(ruleset: &Ruleset, wish: &Wish) -> Option<WishSubject> {
    let subject = ruleset.wish_subject(&wish.subject_name)?;
    applies_to_subject_type(ruleset, subject, wish).then_some(subject)
}

/// Whether a wish accepts values of the type that its subject has.
fn applies_to_subject_type(ruleset: &Ruleset, subject: WishSubject, wish: &Wish) -> bool {
    wish.steps().iter().all(|step| step.accepted.applies_to_type(type_of_subject(ruleset, subject)))
}

fn type_of_subject(ruleset: &Ruleset, subject: WishSubject) -> ValueType {
    match subject {
        WishSubject::Latency => ValueType::Number,
        WishSubject::Attribute(index) => ruleset.attributes[index].value_type,
    }
}

/// Milliseconds until the first of `wishes` that are in force relaxes.
pub fn ms_until_next_step(ruleset: &Ruleset, wishes: &[Wish], waited_ms: u64) -> Option<u64> {
    let allowed = wishes.iter().filter(|wish| subject_in_force(ruleset, wish).is_some());
    allowed.filter_map(|wish| wish.ms_until_next_step(waited_ms)).min()
}

/// Wishes that a ruleset does not allow, or that do not fit the attribute. Paths are relative to the session composition.
pub fn validate_wishes(ruleset: &Ruleset, wishes: &[Wish]) -> Vec<FieldProblem> {
    let problem = |index: usize, wish: &Wish| {
        let (name, playlist) = (&wish.subject_name, &ruleset.name);
        let mismatch = |value_type: ValueType| {
            let accepted = match value_type {
                ValueType::Number => "min, max or both",
                ValueType::String | ValueType::StringList => "strings",
                ValueType::Bool => "flag",
            };
            format!("does not fit `{name}`, a {}; give {accepted}", value_type.as_str())
        };
        let message = match ruleset.wish_subject(name) {
            Some(subject) => {
                let is_mismatch = !applies_to_subject_type(ruleset, subject, wish);
                is_mismatch.then(|| mismatch(type_of_subject(ruleset, subject)))?
            }
            None if ruleset.attribute_index(name).is_none() && **name != *LATENCY_WISH => {
                format!(
                    "names `{name}`, which ruleset `{playlist}` does not declare; use an attribute that it declares"
                )
            }
            None => format!("names `{name}`, for which ruleset `{playlist}` allows no wishes; leave the wish out"),
        };
        Some(FieldProblem { path: format!("wishes[{index}]"), message })
    };
    wishes.iter().enumerate().filter_map(|(index, wish)| problem(index, wish)).collect()
}
