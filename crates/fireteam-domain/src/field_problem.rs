//! Invalid field of a session, and messages about its attributes.

use crate::attribute::{Attribute, AttributeValue, SourceField};
use crate::ruleset::Ruleset;

/// Invalid field of a session. Paths are relative to the session composition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// Field path, for example `attributes["mode"]`.
    pub path: String,
    /// The problem and its remedy.
    pub message: String,
}

/// Message for a value of another type than the declared one.
pub(crate) fn wrong_type_message(attribute: &Attribute, value: &AttributeValue) -> String {
    let (declared, given) = (attribute.value_type.as_str(), value.value_type().as_str());
    format!("has type {given}; the ruleset declares type {declared}")
}

/// Message for the name of an attribute that is not declared; `is_known` says which sources could be meant, and `kind` names
/// them.
pub(crate) fn unknown_attribute_message(
    ruleset: &Ruleset,
    name: &str,
    kind: &str,
    is_known: impl Fn(SourceField) -> bool,
) -> String {
    let known = ruleset.attributes.iter().filter(|attribute| is_known(attribute.source));
    let known: Vec<&str> = known.map(|attribute| &*attribute.name).collect();
    if known.is_empty() {
        return format!("`{name}` is not declared; ruleset `{}` declares no {kind}", ruleset.name);
    }
    format!("`{name}` is not declared by ruleset `{}`; use one of: {}", ruleset.name, known.join(", "))
}
