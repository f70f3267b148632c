//! The servers as a beacon sees them: it announces itself there, and learns there of the other beacons.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use thiserror::Error;

/// Facts that a beacon announces, the same for all its life.
#[derive(Clone, Debug, PartialEq)]
pub struct BeaconSite {
    /// Id, from 1; for ever. A beacon that moves gets a new one.
    pub id: u32,
    /// Region of the game that it stands for; empty for none.
    pub region: String,
    /// Degrees north, -90 to 90.
    pub latitude: f64,
    /// Degrees east, -180 to 180.
    pub longitude: f64,
    /// Address at which clients reach it.
    pub address: IpAddr,
    /// UDP port at which clients reach it, from 1.
    pub port: u16,
    /// Id of its key.
    pub key_id: [u8; 4],
}

/// Another beacon, as the servers list it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerBeacon {
    /// Id.
    pub id: u32,
    /// Address and UDP port.
    pub endpoint: SocketAddr,
}

/// Least round trip to another beacon in the last hour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PeerTrip {
    /// Id of the other beacon.
    pub beacon_id: u32,
    /// Milliseconds.
    pub floor_ms: f32,
    /// Time since the last measurement, milliseconds.
    pub age_ms: u32,
}

/// Failure of a call to the servers. The texts are for the log.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum RegistryError {
    /// No server answered, or it cannot now: it is tried again.
    #[error("{0}")]
    Unreachable(String),
    /// The server answered that it does not accept the call. An operator has to change something.
    #[error("{0}")]
    Refused(String),
}

impl RegistryError {
    /// Whether the log needs no second line for this one after `other`.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Unreachable(_), Self::Unreachable(_)) => true,
            _ => self == other,
        }
    }
}

/// Servers that a beacon announces itself to.
#[async_trait]
pub trait BeaconRegistry: Send + Sync + 'static {
    /// Announces the beacon with its round trips to others. Returns the time after which to announce again.
    async fn announce(&self, site: &BeaconSite, trips: Vec<PeerTrip>) -> Result<Duration, RegistryError>;

    /// Live beacons, which may include the caller.
    async fn live_beacons(&self) -> Result<Vec<PeerBeacon>, RegistryError>;
}
