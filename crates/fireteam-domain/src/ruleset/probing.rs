//! `<Latency>`: how searchers probe candidates, and what their measurements do.

/// How searchers probe candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbingSpec {
    /// Number of best candidates for the quick probe, 1 to 50.
    pub quick_probe: u8,
    /// Number of best candidates for the involved probe, 0 to 10.
    pub involved_probe: u8,
    /// Which players' own machines searchers may probe.
    pub players: ProbedPlayers,
    /// Which round trip of a probe filters and scores use.
    pub figure: RoundTripFigure,
    /// Only sessions that the searcher has measured may be reserved.
    pub must_measure: bool,
}

/// Which players' own machines searchers may probe. A probe shows the searcher's address to the player.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProbedPlayers {
    /// None.
    #[default]
    Never,
    /// The best candidates after the quick probe, as many as get the involved probe.
    Involved,
    /// The best candidates of a search, as many as get the quick probe.
    Quick,
}

/// Which round trip of a probe counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RoundTripFigure {
    /// The median: what players feel.
    #[default]
    Median,
    /// The least: that of the path itself.
    Floor,
}

/// Time after which a quick probe ends with the answers that it has, milliseconds.
pub const QUICK_PROBE_TIMEOUT_MS: u32 = 3_000;

/// Settings of a ruleset without `<Latency>`.
pub const DEFAULT_PROBING: ProbingSpec = ProbingSpec {
    quick_probe: 8,
    involved_probe: 3,
    players: ProbedPlayers::Never,
    figure: RoundTripFigure::Median,
    must_measure: false,
};

impl ProbingSpec {
    /// Number of candidates of a search whose players' machines searchers may probe at once.
    pub fn players_in_search(&self) -> usize {
        if self.players == ProbedPlayers::Quick { self.quick_probe.into() } else { 0 }
    }

    /// Number of best candidates after the quick probe whose players' machines searchers may probe.
    pub fn players_after_quick_probe(&self) -> usize {
        if self.players == ProbedPlayers::Involved { self.involved_probe.into() } else { 0 }
    }
}
