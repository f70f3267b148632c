//! What can lie between two sessions: a difference of values, a round trip, a distance.

/// What a limit, a hard filter or a soft filter measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// The difference between the two sides' values of a number attribute: its place in `Ruleset::attributes`.
    AttributeDifference(usize),
    /// The round trip between the two sides, milliseconds.
    Latency,
    /// The chord between the two sides' localities, miles.
    Distance,
}
