//! Settings of a beacon: its place, its region, and the address that it announces.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use crate::config::listen_address::ListenAddress;
use crate::domain::limit;
use crate::domain::locality::Locality;

/// Packets that a beacon answers per second, of all senders together.
pub const BEACON_PACKETS_PER_SECOND_RANGE: RangeInclusive<u32> = 100..=1_000_000;

/// Default of [`BEACON_PACKETS_PER_SECOND_RANGE`].
pub const DEFAULT_BEACON_PACKETS_PER_SECOND: u32 = 50_000;

/// Beacon that a server runs itself.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnBeacon {
    /// UDP address to listen at.
    pub listen: ListenAddress,
    /// Id, from 1.
    pub id: u32,
    /// Region that it stands for; empty for none.
    pub region: String,
    /// Place of the machine.
    pub place: BeaconPlace,
    /// Address at which clients reach it.
    pub announce_address: IpAddr,
    /// Packets that are answered per second, in [`BEACON_PACKETS_PER_SECOND_RANGE`].
    pub packets_per_second: u32,
}

/// Place of a beacon on Earth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BeaconPlace {
    /// Degrees north, -90 to 90.
    pub latitude: f64,
    /// Degrees east, -180 to 180.
    pub longitude: f64,
}

impl BeaconPlace {
    /// Parses `LATITUDE/LONGITUDE`. The error says how to write it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let place = parse_latitude_longitude(text).map(|(latitude, longitude)| Self { latitude, longitude });
        place.ok_or_else(|| {
            format!(
                "`{text}` is not a place; write LATITUDE/LONGITUDE in degrees, -90 to 90 and -180 to 180, such as 50.1/8.7"
            )
        })
    }
}

impl fmt::Display for BeaconPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.latitude, self.longitude)
    }
}

/// Latitude and longitude of a text with `/` between them; `None` if they are no place.
pub(super) fn parse_latitude_longitude(text: &str) -> Option<(f64, f64)> {
    let (latitude, longitude) = text.split_once('/')?;
    let (latitude, longitude) = (latitude.trim().parse().ok()?, longitude.trim().parse().ok()?);
    Locality::from_degrees(latitude, longitude).map(|_| (latitude, longitude))
}

/// Checks the name of a beacon's region. The error says what is allowed.
pub fn check_region_syntax(name: &str) -> Result<String, String> {
    if name.is_empty() || name.len() > limit::STRING_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(format!("not valid; give 1 to {} bytes without control characters", limit::STRING_BYTES_MAX));
    }
    Ok(name.into())
}

/// Parses the address at which clients reach a beacon. The error says what is allowed.
pub fn parse_announce_address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr =
        text.parse().map_err(|_| format!("`{text}` is not an IP address; use one such as 192.0.2.7 or 2001:db8::7"))?;
    let address = address.to_canonical();
    let is_broadcast = matches!(address, IpAddr::V4(address) if address.is_broadcast());
    if address.is_unspecified() || address.is_multicast() || is_broadcast {
        return Err(format!(
            "{address} is not the address of a machine; use the one at which clients reach the beacon"
        ));
    }
    Ok(address)
}
