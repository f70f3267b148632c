//! A run of probes to one host: its round trips, their statistics, and when it has been probed enough.
//!
//! The least round trip is that of the path itself; queues and busy machines only add. The median is what a player feels. Loss has an
//! interval, because few packets tell little of it.

/// Probes of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProbeRun {
    answered_or_lost: u32,
    /// In ascending order, milliseconds.
    sorted_round_trips_ms: Vec<f64>,
}

/// Statistics of a run. What is not known is `None`, and never 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RoundTripStatistics {
    /// Packets sent.
    pub sent: u32,
    /// Packets answered in time, each counted once.
    pub answered: u32,
    /// Least round trip, milliseconds.
    pub floor_ms: Option<f64>,
    /// Median by nearest rank, milliseconds.
    pub p50_ms: Option<f64>,
    /// 90th percentile less the median, by nearest rank, milliseconds; from two answers on.
    pub jitter_ms: Option<f64>,
    /// Share of packets without an answer, 0 to 1.
    pub loss: LossInterval,
}

/// Share of lost packets, with Wilson's 95 % interval (Wilson 1927).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossInterval {
    /// Lost share of the packets that were sent.
    pub share: f64,
    /// Low end of the interval.
    pub low: f64,
    /// High end of the interval.
    pub high: f64,
}

/// Standard normal quantile of a two-sided 95 % interval.
const Z_95: f64 = 1.959_963_984_540_054;

/// Packets of a run to a host that has not answered.
pub const PACKETS_TO_SILENT_HOST_MAX: u32 = 3;
/// Packets of a run, quick or involved, to one host.
pub const PACKETS_PER_RUN_MAX: u32 = 10;
/// Answers from which a run may be enough.
const ANSWERS_FOR_EARLY_END_MIN: usize = 4;
/// Difference of the two least round trips of a run that is enough: this, milliseconds, or this share of the least.
const LEAST_TWO_DIFFERENCE_MAX_MS: f64 = 1.0;
const LEAST_TWO_DIFFERENCE_MAX_SHARE: f64 = 0.02;

/// Most and least time in which an answer counts, milliseconds.
const TIMEOUT_RANGE_MS: [f64; 2] = [250.0, 1_000.0];

/// Time in which an answer counts, milliseconds: twice the estimated round trip, at its high end, from 250 ms to a second.
pub fn answer_timeout_from_estimate_ms(high_estimate_to_advert_ms: f64) -> f64 {
    let [least, most] = TIMEOUT_RANGE_MS;
    (2.0 * high_estimate_to_advert_ms).max(least).min(most)
}

impl ProbeRun {
    /// Records a packet whose answer came in time, or was not awaited any longer. Leave out duplicates, and answers after the timeout.
    pub fn record_answer_or_loss(&mut self, round_trip_ms: Option<f64>) {
        self.answered_or_lost += 1;
        if let Some(ms) = round_trip_ms.filter(|ms| ms.is_finite()) {
            let at = self.sorted_round_trips_ms.partition_point(|known| *known <= ms);
            self.sorted_round_trips_ms.insert(at, ms.max(0.0));
        }
    }

    /// Whether enough packets were sent, of at most `packets_max`: three without any answer, or four and more answers of which the two
    /// least agree within a millisecond or 2 %.
    pub fn has_sent_enough(&self, packets_max: u32) -> bool {
        let agrees = match self.sorted_round_trips_ms[..] {
            [least, next, ..] if ANSWERS_FOR_EARLY_END_MIN <= self.sorted_round_trips_ms.len() => {
                next - least <= LEAST_TWO_DIFFERENCE_MAX_MS.max(LEAST_TWO_DIFFERENCE_MAX_SHARE * least)
            }
            _ => false,
        };
        packets_max <= self.answered_or_lost || agrees || self.is_silent()
    }

    /// Whether the host counts as silent.
    pub fn is_silent(&self) -> bool {
        PACKETS_TO_SILENT_HOST_MAX <= self.answered_or_lost && self.sorted_round_trips_ms.is_empty()
    }

    /// Statistics so far.
    pub fn statistics(&self) -> RoundTripStatistics {
        let count = self.sorted_round_trips_ms.len();
        let percentile = |percent: usize| {
            let rank = (percent * count).div_ceil(100);
            rank.checked_sub(1).and_then(|at| self.sorted_round_trips_ms.get(at)).copied()
        };
        let (p50_ms, p90_ms) = (percentile(50), percentile(90));
        let jitter_ms = if 2 <= count { p90_ms.zip(p50_ms).map(|(p90, p50)| p90 - p50) } else { None };
        RoundTripStatistics {
            sent: self.answered_or_lost,
            answered: count as u32,
            floor_ms: self.sorted_round_trips_ms.first().copied(),
            p50_ms,
            jitter_ms,
            loss: LossInterval::new(self.answered_or_lost - count as u32, self.answered_or_lost),
        }
    }
}

impl LossInterval {
    /// Interval of this many lost packets of `sent`. Of none sent, anything is possible.
    pub fn new(lost: u32, sent: u32) -> Self {
        if sent == 0 {
            return Self { share: 0.0, low: 0.0, high: 1.0 };
        }
        let (count, z2) = (f64::from(sent), Z_95 * Z_95);
        let share = f64::from(lost) / count;
        let center = share + z2 / (2.0 * count);
        let spread = Z_95 * (share * (1.0 - share) / count + z2 / (4.0 * count * count)).sqrt();
        let end = |at: f64| (at / (1.0 + z2 / count)).clamp(0.0, 1.0);
        // Rounding may put an end beyond the share itself, where nothing or all was lost.
        Self { share, low: end(center - spread).min(share), high: end(center + spread).max(share) }
    }
}
