//! Commands about beacons, and their answers.

use std::net::IpAddr;

use crate::auth::receipt_check::ReceiptVerdict;
use crate::domain::time::UnixMs;

/// Interval of announcements, milliseconds.
pub const ANNOUNCE_INTERVAL_MS: u32 = 10_000;

/// Number of beacons that a client measures: its nearest. More do not predict better.
pub const BEACONS_WANTED: usize = 12;

/// Time after which a client asks for the list again, milliseconds.
pub const BEACON_LIST_GOOD_FOR_MS: u32 = 600_000;

/// Live beacons, for a client.
#[derive(Clone, Debug, PartialEq)]
pub struct BeaconList {
    /// Beacons by id.
    pub beacons: Vec<ListedBeacon>,
    /// Binding of the caller's receipts; `None` without fleet keys.
    pub binding: Option<[u8; 16]>,
}

/// A live beacon, for a client.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedBeacon {
    /// Id.
    pub id: u32,
    /// Region; empty for none.
    pub region: String,
    /// Address at which clients reach it.
    pub address: IpAddr,
    /// UDP port.
    pub port: u16,
    /// Degrees north.
    pub latitude: f64,
    /// Degrees east.
    pub longitude: f64,
    /// One of the nearest to the client.
    pub measure_first: bool,
}

/// Receipts and claims of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportTripsCommand {
    /// Receipt packets.
    pub receipts: Vec<Vec<u8>>,
    /// The client's own measurements.
    pub claims: Vec<ClaimedBeaconRoundTrip>,
}

/// A client's own measurement of a beacon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClaimedBeaconRoundTrip {
    /// Id of the beacon.
    pub beacon_id: u32,
    /// Least round trip, milliseconds.
    pub floor_ms: f64,
}

/// Verdicts on receipts, and the token that follows from them.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportTripsAnswer {
    /// Token with the round trips.
    pub latency_token: Vec<u8>,
    /// Time until which it is good.
    pub fresh_until: UnixMs,
    /// Verdict of each receipt.
    pub verdicts: Vec<ReceiptVerdict>,
    /// Round trips to the regions of beacons, milliseconds, and whether they are only claimed; by region.
    pub region_round_trips: Vec<(String, f64, bool)>,
}

/// Sign of life of a beacon.
#[derive(Clone, Debug, PartialEq)]
pub struct AnnounceBeaconCommand {
    /// Id, not 0.
    pub id: u32,
    /// Region; empty for none.
    pub region: String,
    /// Address at which clients reach it.
    pub address: IpAddr,
    /// UDP port, not 0.
    pub port: u16,
    /// Degrees north.
    pub latitude: f64,
    /// Degrees east.
    pub longitude: f64,
    /// Id of its key.
    pub key_id: [u8; 4],
    /// Round trips to other beacons, milliseconds.
    pub round_trips: Vec<(u32, f32)>,
}
