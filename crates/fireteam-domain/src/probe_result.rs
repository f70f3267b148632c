//! Results of the latency probes of a searching party. They live as long as its search, and count in no other.

use crate::id::AdvertisementId;

/// Maximum number of probe results of a search.
pub const PROBE_RESULTS_MAX: usize = 64;

/// Age from which a measured round trip counts only where it is longer than the estimated one, milliseconds.
pub const FRESH_MEASUREMENT_MS: u64 = 60_000;

/// Result of probing the host of one advertisement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeResult {
    /// First eight bytes of the advertisement id.
    pub id_prefix: [u8; 8],
    /// Finding of the probe.
    pub finding: ProbeFinding,
    /// The result is older than [`FRESH_MEASUREMENT_MS`].
    pub is_old: bool,
}

/// Finding of a probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ProbeFinding {
    /// The host answered.
    Answered(MeasuredRoundTrip),
    /// The host did not answer.
    Silent,
    /// The host answered that the games are incompatible.
    Incompatible,
}

/// Round trip that a party measured, with the spread of its packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeasuredRoundTrip {
    /// Median or least round trip, as the ruleset says, milliseconds.
    pub round_trip_ms: f64,
    /// 90th percentile of the round trips less their median, milliseconds; `None` if unknown.
    pub jitter_ms: Option<f64>,
    /// Lost packets; `None` if unknown.
    pub loss: Option<PacketLossPercent>,
}

/// Share of the packets that were lost.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PacketLossPercent {
    /// Lost share, percent.
    pub percent: f64,
    /// Low end of its 95 % interval, percent.
    pub low_percent: f64,
}

/// Round trip that counts between two parties in place of the estimate from regions or distance.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MeasuredOrPredictedRoundTrip {
    /// Measured by a searching party.
    Measured {
        /// The measurement, with the round trip that counts.
        measured: MeasuredRoundTrip,
        /// The round trip is the measured one. Otherwise it is longer: what light would take, or the estimate if the measurement
        /// is old. Then answers round it, as they round estimates.
        is_as_measured: bool,
        /// The measurement is older than [`FRESH_MEASUREMENT_MS`].
        is_old: bool,
    },
    /// Predicted from both parties' round trips to beacons.
    Predicted(PredictedRoundTrip),
}

/// Round trip that was predicted, and the interval that holds nine of ten measured ones, milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictedRoundTrip {
    /// Expected round trip.
    pub round_trip_ms: f64,
    /// Low end of the interval.
    pub low_ms: f64,
    /// High end of the interval.
    pub high_ms: f64,
}

impl MeasuredOrPredictedRoundTrip {
    /// The round trip, milliseconds.
    pub fn round_trip_ms(&self) -> f64 {
        match self {
            Self::Measured { measured, .. } => measured.round_trip_ms,
            Self::Predicted(predicted) => predicted.round_trip_ms,
        }
    }

    /// The measurement; `None` if the round trip was predicted.
    pub fn measured(&self) -> Option<MeasuredRoundTrip> {
        match self {
            Self::Measured { measured, .. } => Some(*measured),
            Self::Predicted(_) => None,
        }
    }
}

/// Probe results of a search, each advertisement at most once.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProbeResults<'a>(&'a [ProbeResult]);

impl<'a> ProbeResults<'a> {
    /// Takes results that are sorted by `id_prefix`.
    pub fn from_sorted(results: &'a [ProbeResult]) -> Self {
        debug_assert!(results.is_sorted_by(|one, other| one.id_prefix < other.id_prefix));
        Self(results)
    }

    /// All results.
    pub fn all(&self) -> &'a [ProbeResult] {
        self.0
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Result of an advertisement.
    pub fn of_advert(&self, id: AdvertisementId) -> Option<&'a ProbeResult> {
        self.0.binary_search_by_key(&id.first_eight_bytes(), |result| result.id_prefix).ok().map(|at| &self.0[at])
    }

    /// Whether the host of an advertisement did not answer, or is incompatible.
    pub fn is_silent_or_incompatible(&self, id: AdvertisementId) -> bool {
        self.of_advert(id).is_some_and(|result| !matches!(result.finding, ProbeFinding::Answered(_)))
    }
}
