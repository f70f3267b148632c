//! Beacons in the store, one row each, so that every server knows all of them, also after a restart.

use std::net::IpAddr;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::domain::locality::Locality;
use crate::domain::time::UnixMs;
use crate::store::error::StoreError;

/// Beacon as announced.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredBeacon {
    /// Id, for ever.
    pub id: u32,
    /// Last announcement.
    pub announced_at: UnixMs,
    /// Content of the announcement.
    pub body: BeaconJson,
}

/// Content of an announcement, as stored in JSON.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct BeaconJson {
    /// Region that it stands for; empty for none.
    pub region: String,
    /// Address at which clients reach it.
    pub address: IpAddr,
    /// UDP port.
    pub port: u16,
    /// Degrees north.
    pub latitude: f64,
    /// Degrees east.
    pub longitude: f64,
    /// Id of its key.
    pub key_id: [u8; 4],
    /// Least round trips to other beacons of the last hour: beacon id and milliseconds.
    pub round_trips: Vec<(u32, f32)>,
}

impl BeaconJson {
    /// Its place; `None` for degrees that are no place.
    pub fn locality(&self) -> Option<Locality> {
        Locality::from_degrees(self.latitude, self.longitude)
    }

    /// Whether it is at the same place as another one. A beacon that moves gets a new id: with the old one, older round trips would
    /// count from the new place.
    pub fn has_place_of(&self, other: &Self) -> bool {
        (self.latitude, self.longitude) == (other.latitude, other.longitude)
    }
}

/// Announcement of a beacon, and which rows are out of date.
#[derive(Clone, Debug, PartialEq)]
pub struct BeaconAnnouncement {
    /// The beacon.
    pub beacon: StoredBeacon,
    /// Beacons that were last announced before this time are deleted.
    pub purge_before: UnixMs,
}

/// Store of beacons.
#[async_trait]
pub trait BeaconStore: Send + Sync + 'static {
    /// Writes the row of a beacon, unless the stored one has another place, and deletes rows that are out of date. Returns all rows as
    /// they are then, by id. Durable on return.
    async fn announce_beacon(&self, announcement: &BeaconAnnouncement) -> Result<Vec<StoredBeacon>, StoreError>;

    /// All rows, by id.
    async fn read_beacons(&self) -> Result<Vec<StoredBeacon>, StoreError>;
}

/// Decodes a row; `None` for one of a newer server, or a damaged one.
pub(super) fn decode_beacon(id: i64, announced_at_ms: i64, body: &str) -> Option<StoredBeacon> {
    Some(StoredBeacon {
        id: u32::try_from(id).ok()?,
        announced_at: UnixMs(u64::try_from(announced_at_ms).ok()?),
        body: serde_json::from_str(body).ok()?,
    })
}

/// Text of the body.
pub(super) fn encode_beacon_json(body: &BeaconJson) -> Result<String, StoreError> {
    serde_json::to_string(body).map_err(|error| StoreError::Unavailable(format!("encode a beacon: {error}")))
}

/// Whether an announcement may replace the stored row.
pub(super) fn is_new_or_at_same_place(stored: Option<&StoredBeacon>, announced: &StoredBeacon) -> bool {
    stored.is_none_or(|stored| stored.body.has_place_of(&announced.body))
}
