//! Claim of a latency token: the least round trips of a client to beacons.

use fireteam_probe::AddressPrefix;

use crate::auth::token::claim::{Claim, ClaimReader, encode_optional_caller};
use crate::domain::id::UserKey;
use crate::domain::time::UnixMs;

/// Maximum number of beacons in a latency token.
pub const LATENCY_ENTRIES_MAX: usize = 32;

/// Claim of a latency token.
#[derive(Clone, Debug, PartialEq)]
pub struct LatencyClaim {
    /// User who has measured; `None` for a caller without identity.
    pub subject: Option<UserKey>,
    /// Network from which the token was asked for.
    pub prefix: AddressPrefix,
    /// Time of issue.
    pub issued_at: UnixMs,
    /// Round trips, each beacon once; at most [`LATENCY_ENTRIES_MAX`].
    pub entries: Vec<BeaconRoundTrip>,
}

/// Least round trip to a beacon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BeaconRoundTrip {
    /// Id of the beacon.
    pub beacon_id: u32,
    /// Milliseconds, rounded up to 1/8.
    pub floor_ms: f64,
    /// Its source.
    pub source: BeaconRoundTripSource,
    /// Age at the issue of the token, milliseconds, in steps of 4 s; at most 1,020 s.
    pub age_ms: u64,
}

/// Source of a round trip to a beacon, the most trusted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BeaconRoundTripSource {
    /// A receipt of the beacon.
    Proven,
    /// The least round trip of the caller's connection, which a changed network stack can shorten.
    Observed,
    /// The client's own word.
    Claimed,
}

const STEPS_PER_MS: f64 = 8.0;
const AGE_STEP_MS: u64 = 4_000;
const ENTRY_BYTES: usize = 8;

impl BeaconRoundTrip {
    /// Round trip as a token has it.
    pub fn new(beacon_id: u32, floor_ms: f64, source: BeaconRoundTripSource, age_ms: u64) -> Self {
        let steps = (floor_ms * STEPS_PER_MS).ceil().clamp(0.0, u16::MAX.into());
        let age_ms = (age_ms / AGE_STEP_MS).min(u8::MAX.into()) * AGE_STEP_MS;
        Self { beacon_id, floor_ms: steps / STEPS_PER_MS, source, age_ms }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.extend(self.beacon_id.to_be_bytes());
        bytes.extend(((self.floor_ms * STEPS_PER_MS).clamp(0.0, u16::MAX.into()) as u16).to_be_bytes());
        bytes.push(match self.source {
            BeaconRoundTripSource::Proven => 1,
            BeaconRoundTripSource::Observed => 2,
            BeaconRoundTripSource::Claimed => 3,
        });
        bytes.push((self.age_ms / AGE_STEP_MS).min(u8::MAX.into()) as u8);
    }

    fn decode(bytes: &[u8; ENTRY_BYTES]) -> Option<Self> {
        let [a, b, c, d, high, low, source, age] = *bytes;
        Some(Self {
            beacon_id: u32::from_be_bytes([a, b, c, d]),
            floor_ms: f64::from(u16::from_be_bytes([high, low])) / STEPS_PER_MS,
            source: match source {
                1 => BeaconRoundTripSource::Proven,
                2 => BeaconRoundTripSource::Observed,
                3 => BeaconRoundTripSource::Claimed,
                _ => return None,
            },
            age_ms: u64::from(age) * AGE_STEP_MS,
        })
    }
}

impl Claim for LatencyClaim {
    const KIND_BYTE: u8 = 12;
    const ENCODED_BYTES_MAX: usize = Self::ENCODED_BYTES_MIN + LATENCY_ENTRIES_MAX * ENTRY_BYTES;
    const ENCODED_BYTES_MIN: usize = 17 + 1 + 8 + 8 + 1;

    fn encode(&self, bytes: &mut Vec<u8>) {
        let entries = &self.entries[..self.entries.len().min(LATENCY_ENTRIES_MAX)];
        bytes.extend(encode_optional_caller(self.subject));
        bytes.push(self.prefix.family());
        bytes.extend(self.prefix.padded_bytes());
        bytes.extend(self.issued_at.0.to_be_bytes());
        bytes.push(entries.len() as u8);
        entries.iter().for_each(|entry| entry.encode(bytes));
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = ClaimReader(bytes);
        let subject = fields.read_optional_caller()?;
        let [family] = fields.read_array()?;
        let prefix = AddressPrefix::from_padded_bytes(family, fields.read_array()?)?;
        let issued_at = fields.read_time()?;
        let [count] = fields.read_array()?;
        let (entries, []) = fields.0.as_chunks() else { return None };
        if entries.len() != usize::from(count) || LATENCY_ENTRIES_MAX < entries.len() {
            return None;
        }
        let entries = entries.iter().map(BeaconRoundTrip::decode).collect::<Option<_>>()?;
        Some(Self { subject, prefix, issued_at, entries })
    }
}
