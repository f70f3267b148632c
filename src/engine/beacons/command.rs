//! Commands about beacons, and their answers.

use std::net::IpAddr;

use crate::auth::receipt_check::ReceiptVerdict;
use crate::domain::time::UnixMs;
use crate::store::beacons::StoredBeacon;

/// When the network of a receipt counts as the caller's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReceiptPrefixRule {
    /// Only if they are the same.
    Strict,
    /// Also if both are located at most 300 km apart.
    #[default]
    Place,
}

/// Live beacons, for a client.
#[derive(Clone, Debug, PartialEq)]
pub struct BeaconList {
    /// Beacons by id, and whether the client should measure them first.
    pub beacons: Vec<(StoredBeacon, bool)>,
    /// Binding of the caller's receipts; `None` without fleet keys.
    pub binding: Option<[u8; 16]>,
}

/// Receipts and claims of a client.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportTripsCommand {
    /// Receipt packets.
    pub receipts: Vec<Vec<u8>>,
    /// The client's own measurements.
    pub claims: Vec<BeaconClaim>,
}

/// A client's own measurement of a beacon.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BeaconClaim {
    /// Id of the beacon.
    pub beacon_id: u32,
    /// Least round trip, milliseconds.
    pub floor_ms: f64,
}

/// What receipts are worth.
#[derive(Clone, Debug, PartialEq)]
pub struct ReportTripsAnswer {
    /// Token with the round trips.
    pub latency_token: Vec<u8>,
    /// Time until which it is good.
    pub fresh_until: UnixMs,
    /// Verdict of each receipt.
    pub verdicts: Vec<ReceiptVerdict>,
    /// Round trips to the regions of beacons, milliseconds, and whether they are only claimed; by region.
    pub regions: Vec<(String, f64, bool)>,
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

/// Latency tokens of a party.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LatencyTokens {
    /// The caller's own token; empty for none.
    pub own: Vec<u8>,
    /// Tokens of the players, in player order; empty for none. May be shorter than the player list.
    pub players: Vec<Vec<u8>>,
}

impl LatencyTokens {
    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.players.iter().all(Vec::is_empty)
    }
}
