//! Results of latency probes in a search token, 14 bytes each: what a search has measured so far.
//!
//! | bytes | meaning                                                                              |
//! |-------|--------------------------------------------------------------------------------------|
//! | 8     | first bytes of the advertisement id                                                  |
//! | 2     | round trip in 1/8 ms, rounded up; 65535 silent, 65534 incompatible                   |
//! | 1     | jitter in ms, rounded up; 255 unknown                                                |
//! | 2     | packets sent (5 bits), answered (5 bits), involved phase (1 bit), time, high 5 bits  |
//! | 1     | time since the start of the search in 4 s, low 8 bits                                |

/// Result of probing the host of one advertisement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProbeRecord {
    /// First eight bytes of the advertisement id.
    pub id_prefix: [u8; 8],
    /// Finding of the probe.
    pub finding: RecordedFinding,
    /// Reported in the involved phase; otherwise in the quick phase.
    pub is_involved: bool,
    /// Time from the start of the search to the report, milliseconds; at most nine hours, in steps of 4 s.
    pub reported_after_ms: u64,
}

/// Finding of a recorded probe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum RecordedFinding {
    /// The host answered.
    Answered {
        /// Round trip, milliseconds, rounded up to 1/8.
        round_trip_ms: f64,
        /// Jitter, milliseconds, rounded up, at most 254; `None` if unknown.
        jitter_ms: Option<u8>,
        /// Packets sent and answered; `None` if unknown.
        packets: Option<PacketCounts>,
    },
    /// The host did not answer.
    Silent,
    /// The host is incompatible.
    Incompatible,
}

/// Packets of a probe. Of more than 31, the counts are in proportion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketCounts {
    sent: u8,
    answered: u8,
}

const PACKETS_MAX: u32 = 31;
const STEPS_PER_MS: f64 = 8.0;
const SILENT: u16 = 65_535;
const INCOMPATIBLE: u16 = 65_534;
const ROUND_TRIP_STEPS_MAX: u16 = 65_533;
const JITTER_UNKNOWN: u8 = 255;
const TIME_STEP_MS: u64 = 4_000;
const TIME_STEPS_MAX: u16 = (1 << 13) - 1;

impl PacketCounts {
    /// Counts of `sent` packets, at least 1, of which at most all were `answered`.
    pub fn new(sent: u32, answered: u32) -> Option<Self> {
        if sent == 0 || sent < answered {
            return None;
        }
        let kept = sent.min(PACKETS_MAX);
        let answered = u64::from(answered) * u64::from(kept) / u64::from(sent);
        Some(Self { sent: u8::try_from(kept).ok()?, answered: u8::try_from(answered).ok()? })
    }

    /// Packets sent.
    pub fn sent(self) -> u32 {
        self.sent.into()
    }

    /// Packets without an answer.
    pub fn lost(self) -> u32 {
        u32::from(self.sent) - u32::from(self.answered)
    }
}

impl RecordedFinding {
    /// An answer; the figures are rounded as they are recorded.
    pub fn new_answered(round_trip_ms: f64, jitter_ms: Option<f64>, packets: Option<PacketCounts>) -> Self {
        let steps = (round_trip_ms * STEPS_PER_MS).ceil().clamp(0.0, ROUND_TRIP_STEPS_MAX.into());
        let jitter_ms = jitter_ms.map(|jitter| jitter.ceil().clamp(0.0, f64::from(JITTER_UNKNOWN - 1)) as u8);
        Self::Answered { round_trip_ms: steps / STEPS_PER_MS, jitter_ms, packets }
    }
}

impl ProbeRecord {
    /// Encoded length, bytes.
    pub const ENCODED_BYTES: usize = 14;

    /// Time of a report so long after the start of the search, as it is recorded.
    pub fn rounded_reported_after_ms(since_start_ms: u64) -> u64 {
        (since_start_ms / TIME_STEP_MS).min(TIME_STEPS_MAX.into()) * TIME_STEP_MS
    }

    pub(super) fn encode(&self, bytes: &mut Vec<u8>) {
        let (round_trip, jitter, packets) = match self.finding {
            RecordedFinding::Silent => (SILENT, JITTER_UNKNOWN, None),
            RecordedFinding::Incompatible => (INCOMPATIBLE, JITTER_UNKNOWN, None),
            RecordedFinding::Answered { round_trip_ms, jitter_ms, packets } => {
                let steps = (round_trip_ms * STEPS_PER_MS).clamp(0.0, ROUND_TRIP_STEPS_MAX.into()) as u16;
                (steps, jitter_ms.map_or(JITTER_UNKNOWN, |jitter| jitter.min(JITTER_UNKNOWN - 1)), packets)
            }
        };
        let (sent, answered) = packets.map_or((0, 0), |counts| (counts.sent.into(), counts.answered.into()));
        let [high, low] = ((self.reported_after_ms / TIME_STEP_MS).min(TIME_STEPS_MAX.into()) as u16).to_be_bytes();
        let counts: u16 = sent << 11 | answered << 6 | u16::from(self.is_involved) << 5 | u16::from(high);
        bytes.extend(self.id_prefix);
        bytes.extend(round_trip.to_be_bytes());
        bytes.push(jitter);
        bytes.extend(counts.to_be_bytes());
        bytes.push(low);
    }

    pub(super) fn decode(bytes: &[u8; Self::ENCODED_BYTES]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, trip_high, trip_low, jitter, counts_high, counts_low, low] = *bytes;
        let counts = u16::from_be_bytes([counts_high, counts_low]);
        let (sent, answered) = (u32::from(counts >> 11), u32::from(counts >> 6 & 31));
        let finding = match u16::from_be_bytes([trip_high, trip_low]) {
            SILENT => RecordedFinding::Silent,
            INCOMPATIBLE => RecordedFinding::Incompatible,
            steps => RecordedFinding::Answered {
                round_trip_ms: f64::from(steps) / STEPS_PER_MS,
                jitter_ms: (jitter != JITTER_UNKNOWN).then_some(jitter),
                packets: if sent == 0 { None } else { Some(PacketCounts::new(sent, answered)?) },
            },
        };
        Some(Self {
            id_prefix: [a, b, c, d, e, f, g, h],
            finding,
            is_involved: counts >> 5 & 1 == 1,
            reported_after_ms: u64::from(u16::from_be_bytes([(counts & 31) as u8, low])) * TIME_STEP_MS,
        })
    }
}
