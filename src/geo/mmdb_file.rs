//! One MaxMind-format file on the heap: read, looked over before it is trusted, asked.

use std::fmt;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use maxminddb::{MaxMindDbError, Reader, WithinOptions};
use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::geo::{GEOIP_FILE_BYTES_MAX, GeoError};

/// Records read in order before a file is trusted: all of a small file's, enough of a large one's (a tenth of a second).
const VALIDATED_RECORDS_MAX: usize = 1 << 17;
/// Addresses asked besides, spread evenly over the whole space, because damage need not be at the front.
const VALIDATION_PROBES: u32 = 4096;

/// What a file says about an address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct GeoRecord {
    /// Degrees north, in [-90, 90].
    pub(super) latitude: f64,
    /// Degrees east, in [-180, 180].
    pub(super) longitude: f64,
    /// How far off the place may be, kilometres, where the file says.
    pub(super) accuracy_radius_km: Option<f64>,
}

/// A sound file.
pub(super) struct MmdbFile {
    reader: Reader<Vec<u8>>,
}

impl fmt::Debug for MmdbFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("kind", &self.reader.metadata().database_type).finish_non_exhaustive()
    }
}

impl MmdbFile {
    /// Reads `path` whole and looks it over. Never mapped: a file that is truncated under a mapping kills the process
    /// (RELIABILITY F9).
    pub(super) fn load(path: &Path) -> Result<Self, GeoError> {
        Self::from_bytes(path, read_unchanging_file(path)?)
    }

    /// Looks over what was read of `path`.
    pub(super) fn from_bytes(path: &Path, bytes: Vec<u8>) -> Result<Self, GeoError> {
        let broken = |why: MaxMindDbError| GeoError::InvalidFile { file: path.into(), what: why.to_string() };
        let reader = Reader::from_source(bytes).map_err(broken)?;
        let file = Self { reader };
        if !file.validate_records().map_err(broken)? {
            return Err(GeoError::NoCoordinates { file: path.into() });
        }
        Ok(file)
    }

    /// The place of an address in canonical form; `None` when the file does not know it, is of the other IP version, or
    /// cannot be read there.
    pub(super) fn lookup(&self, address: IpAddr) -> Option<GeoRecord> {
        self.try_lookup(address).ok().flatten()
    }

    fn try_lookup(&self, address: IpAddr) -> Result<Option<GeoRecord>, MaxMindDbError> {
        if address.is_ipv6() && self.reader.metadata().ip_version == 4 {
            return Ok(None);
        }
        Ok(self.reader.lookup(address)?.decode::<CityRecord>()?.and_then(CityRecord::to_geo_record))
    }

    /// Whether any record looked at has a place; an error when any is damaged.
    fn validate_records(&self) -> Result<bool, MaxMindDbError> {
        let mut found = false;
        for network in self.reader.networks(WithinOptions::default())?.take(VALIDATED_RECORDS_MAX) {
            let record = network?.decode::<CityRecord>()?;
            found |= record.and_then(CityRecord::to_geo_record).is_some();
        }
        for probe in 0..VALIDATION_PROBES {
            let spread = probe.wrapping_mul(u32::MAX / VALIDATION_PROBES);
            found |= self.try_lookup(Ipv4Addr::from_bits(spread).into())?.is_some();
            // Addresses given out to anyone lie in 2000::/3.
            let global = Ipv6Addr::from_bits((0x2000_0000_u128 | u128::from(spread >> 3)) << 96);
            found |= self.try_lookup(global.into())?.is_some();
        }
        Ok(found)
    }
}

/// Reads at most `FILE_BYTES_MAX` bytes, and only a file that stays as it is meanwhile.
fn read_unchanging_file(path: &Path) -> Result<Vec<u8>, GeoError> {
    let unreadable = |why| GeoError::Unreadable { file: path.into(), why };
    let mut source = std::fs::File::open(path).map_err(unreadable)?;
    let before = source.metadata().map_err(unreadable)?;
    if GEOIP_FILE_BYTES_MAX < before.len() {
        return Err(GeoError::TooLarge { file: path.into() });
    }
    let mut bytes = Vec::with_capacity(before.len() as usize);
    source.by_ref().take(GEOIP_FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let after = source.metadata().map_err(unreadable)?;
    let settled = before.modified().ok() == after.modified().ok() && bytes.len() as u64 == after.len();
    if !settled {
        return Err(GeoError::ChangedWhileRead { file: path.into() });
    }
    Ok(bytes)
}

/// Both layouts that city editions come in: MaxMind's own (`location.latitude`, doubles) and the flat one of packaged
/// editions (`latitude`, floats). Every other field is passed over.
#[derive(serde::Deserialize)]
struct CityRecord {
    location: Option<CityLocation>,
    latitude: Option<NumericValue>,
    longitude: Option<NumericValue>,
    accuracy_radius: Option<NumericValue>,
}

#[derive(serde::Deserialize)]
struct CityLocation {
    latitude: Option<NumericValue>,
    longitude: Option<NumericValue>,
    accuracy_radius: Option<NumericValue>,
}

impl CityRecord {
    /// A place of exactly 0, 0 is how some files spell "unknown": nobody lives there, in the open sea.
    fn to_geo_record(self) -> Option<GeoRecord> {
        let flat =
            CityLocation { latitude: self.latitude, longitude: self.longitude, accuracy_radius: self.accuracy_radius };
        let location = self.location.unwrap_or(flat);
        let (latitude, longitude) = (location.latitude?.0, location.longitude?.0);
        let valid = latitude.abs() <= 90.0 && longitude.abs() <= 180.0 && (latitude, longitude) != (0.0, 0.0);
        let accuracy_radius_km = location.accuracy_radius.map(|radius| radius.0);
        valid.then_some(GeoRecord { latitude, longitude, accuracy_radius_km })
    }
}

/// A number of whatever type the file chose: the format keeps float and double apart, and readers are strict about it.
struct NumericValue(f64);

impl<'de> Deserialize<'de> for NumericValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberVisitor;
        impl Visitor<'_> for NumberVisitor {
            type Value = NumericValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<NumericValue, E> {
                Ok(NumericValue(number))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<NumericValue, E> {
                Ok(NumericValue(number as f64))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<NumericValue, E> {
                Ok(NumericValue(number as f64))
            }
        }
        deserializer.deserialize_any(NumberVisitor)
    }
}
