//! Entry of a string list that was chosen for those who play together, such as the map.

/// Entry chosen for sessions that play together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChosenValue {
    /// Name of the string list attribute.
    pub attribute: Box<str>,
    /// Entry that all of them have.
    pub value: Box<str>,
}
