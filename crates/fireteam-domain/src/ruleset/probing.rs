//! `<Latency>`: how searchers probe candidates, and what their measurements do.

/// Settings for probes of candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbingSpec {
    /// Number of best candidates for the quick probe, 1 to 50.
    pub quick_probe_candidates: u8,
    /// Number of best candidates for the involved probe, 0 to 10.
    pub involved_probe_candidates: u8,
    /// Players' own machines that searchers may probe.
    pub players: ProbedPlayers,
    /// Round trip of a probe that filters and scores use.
    pub figure: RoundTripFigure,
    /// Only sessions that the searcher has measured may be reserved.
    pub must_measure: bool,
    /// Round trips to regions and beacons that count.
    pub region_latency_trust: LatencyTrust,
    /// Estimate of round trips that were not measured.
    pub latency_estimate_policy: LatencyEstimatePolicy,
    /// Hard filters compare the high end of a predicted round trip's interval with limits.
    pub filters_by_interval_high_end: bool,
}

/// Estimate of the round trip between two parties that have not measured it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatencyEstimatePolicy {
    /// By regions that both have measured, or by distance.
    #[default]
    Distance,
    /// Predicted from both parties' round trips to beacons, by version 1 of the predictor; where that is not possible, by regions
    /// or distance.
    PredictedV1,
    /// As by distance, but an estimate never passes a hard filter of a search: the round trip counts as missing.
    Measured,
}

/// Round trips to regions that count, the most trusted first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LatencyTrust {
    /// Only those that a beacon has signed.
    Proven,
    /// Also those that the server has observed at the client's connection.
    Observed,
    /// Also what clients state.
    #[default]
    Claimed,
}

/// Players' own machines that searchers may probe. A probe shows the searcher's address to the player.
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

/// Round trip of a probe that counts.
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
    quick_probe_candidates: 8,
    involved_probe_candidates: 3,
    players: ProbedPlayers::Never,
    figure: RoundTripFigure::Median,
    must_measure: false,
    region_latency_trust: LatencyTrust::Claimed,
    latency_estimate_policy: LatencyEstimatePolicy::Distance,
    filters_by_interval_high_end: false,
};

impl ProbingSpec {
    /// Number of candidates of a search whose players' machines searchers may probe at once.
    pub fn max_probed_players_in_search(&self) -> usize {
        if self.players == ProbedPlayers::Quick { self.quick_probe_candidates.into() } else { 0 }
    }

    /// Number of best candidates after the quick probe whose players' machines searchers may probe.
    pub fn player_probes_after_quick_probe(&self) -> usize {
        if self.players == ProbedPlayers::Involved { self.involved_probe_candidates.into() } else { 0 }
    }
}
