//! Settings of the places of regions, `NAME=LATITUDE/LONGITUDE`.

use std::fmt;

use crate::config::beacon::parse_latitude_longitude;
use crate::domain::locality::Locality;

/// Maximum number of places.
pub(super) const REGION_PLACES_MAX: usize = 256;

/// Place of a region to which clients measure round trips.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionPlace {
    /// Name of the region, as clients send it.
    pub region: String,
    /// Degrees north, -90 to 90.
    pub latitude: f64,
    /// Degrees east, -180 to 180.
    pub longitude: f64,
}

impl RegionPlace {
    /// Parses one place. The error says how to write it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let place = text.rsplit_once('=').and_then(|(region, degrees)| {
            let (latitude, longitude) = parse_latitude_longitude(degrees)?;
            let region = Some(region.trim().to_owned()).filter(|region| !region.is_empty())?;
            Some(Self { region, latitude, longitude })
        });
        place.ok_or_else(|| {
            format!(
                "`{text}` is not a place; write NAME=LATITUDE/LONGITUDE in degrees, -90 to 90 and -180 to 180, such as \
                 eu=50.1/8.7"
            )
        })
    }

    /// Place as a point.
    pub fn locality(&self) -> Option<Locality> {
        Locality::from_degrees(self.latitude, self.longitude)
    }
}

impl fmt::Display for RegionPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}/{}", self.region, self.latitude, self.longitude)
    }
}
