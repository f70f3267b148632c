//! Measures between two sessions: attribute difference, latency, distance.

/// Measure between two sessions that a limit, a hard filter or a soft filter uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Difference between the two sides' values of a number attribute, given by its index in `Ruleset::attributes`.
    AttributeDifference(usize),
    /// Round trip between the two sides, milliseconds.
    Latency,
    /// Round trip between the two sides, less the least round trip of one side to a region, milliseconds: how much worse the other
    /// side is than the best that the searcher can have. Below 0 if the other side is nearer than each region. Unknown without round
    /// trips to regions. In soft filters only.
    DeltaPing,
    /// Chord between the two sides' localities, miles.
    Distance,
    /// Share of lost packets of the searcher's probe, percent. Unknown without a probe. In soft filters only.
    PacketLoss,
    /// Spread of the round trips of the searcher's probe, milliseconds. Unknown without a probe. In soft filters only.
    Jitter,
}
