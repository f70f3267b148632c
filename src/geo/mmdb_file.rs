//! One MaxMind-format file (`.mmdb`) in memory: reading, validation and lookup.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use maxminddb::{MaxMindDbError, Reader, WithinOptions};
use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::files::with_regular_file;
use crate::geo::error::{GEOIP_FILE_BYTES_MAX, GeoError};

/// Records validated in file order: all of a small file, a part of a large one (0.1 s).
const VALIDATED_RECORDS_MAX: usize = 1 << 17;
/// Addresses looked up for validation, spread evenly over the address space, because damage may be anywhere.
const VALIDATION_PROBES: u32 = 4096;

/// Deadline of reading a file: half a gigabyte at 20 MB a second.
const GEOIP_READ_DEADLINE: Duration = Duration::from_secs(30);

/// Coordinates that a file gives for an address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct AddressCoordinates {
    /// Degrees north, in [-90, 90].
    pub(super) latitude: f64,
    /// Degrees east, in [-180, 180].
    pub(super) longitude: f64,
    /// Accuracy radius, kilometres, if the file has one.
    pub(super) accuracy_radius_km: Option<f64>,
}

/// A validated file.
pub(super) struct MmdbFile {
    reader: Reader<Vec<u8>>,
}

impl fmt::Debug for MmdbFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MmdbFile").field("kind", &self.reader.metadata().database_type).finish_non_exhaustive()
    }
}

impl MmdbFile {
    /// Reads and validates the file at `path`. The file is never memory-mapped: truncating a mapped file would kill the
    /// process.
    pub(super) fn load(path: &Path) -> Result<Self, GeoError> {
        Self::from_bytes(path, read_unchanging_file(path)?)
    }

    /// Validates the content of the file at `path`.
    pub(super) fn from_bytes(path: &Path, bytes: Vec<u8>) -> Result<Self, GeoError> {
        let invalid = |error: MaxMindDbError| GeoError::InvalidFile { file: path.into(), problem: error.to_string() };
        let reader = Reader::from_source(bytes).map_err(invalid)?;
        let file = Self { reader };
        if !file.validate_records().map_err(invalid)? {
            return Err(GeoError::NoCoordinates { file: path.into() });
        }
        Ok(file)
    }

    /// Time at which the file was built, seconds since the Unix epoch.
    pub(super) fn build_time_s(&self) -> u64 {
        self.reader.metadata().build_epoch
    }

    /// Coordinates of an address in canonical form; `None` if the file does not contain it, has the other IP version, or
    /// is damaged there.
    pub(super) fn lookup(&self, address: IpAddr) -> Option<AddressCoordinates> {
        self.try_lookup(address).ok().flatten()
    }

    fn try_lookup(&self, address: IpAddr) -> Result<Option<AddressCoordinates>, MaxMindDbError> {
        if address.is_ipv6() && self.reader.metadata().ip_version == 4 {
            return Ok(None);
        }
        Ok(self.reader.lookup(address)?.decode::<CityRecord>()?.and_then(CityRecord::into_geo_record))
    }

    /// Whether any checked record has coordinates; an error if any is damaged.
    fn validate_records(&self) -> Result<bool, MaxMindDbError> {
        let mut found = false;
        for network in self.reader.networks(WithinOptions::default())?.take(VALIDATED_RECORDS_MAX) {
            let record = network?.decode::<CityRecord>()?;
            found |= record.and_then(CityRecord::into_geo_record).is_some();
        }
        for probe in 0..VALIDATION_PROBES {
            let spread = probe.wrapping_mul(u32::MAX / VALIDATION_PROBES);
            found |= self.try_lookup(Ipv4Addr::from_bits(spread).into())?.is_some();
            // All global unicast addresses lie in 2000::/3.
            let global = Ipv6Addr::from_bits((0x2000_0000_u128 | u128::from(spread >> 3)) << 96);
            found |= self.try_lookup(global.into())?.is_some();
        }
        Ok(found)
    }
}

/// Reads a file of at most `GEOIP_FILE_BYTES_MAX` bytes; an error if it changes meanwhile. Blocks until a deadline.
fn read_unchanging_file(path: &Path) -> Result<Vec<u8>, GeoError> {
    match with_regular_file(path, GEOIP_READ_DEADLINE, read_open_file) {
        Ok(FileReadOutcome::Complete(bytes)) => Ok(bytes),
        Ok(FileReadOutcome::TooLarge) => Err(GeoError::TooLarge { file: path.into() }),
        Ok(FileReadOutcome::Changed) => Err(GeoError::ChangedWhileRead { file: path.into() }),
        Err(error) => Err(GeoError::Unreadable { file: path.into(), error }),
    }
}

/// Content of a file, or the reason why it is not used.
enum FileReadOutcome {
    Complete(Vec<u8>),
    TooLarge,
    Changed,
}

fn read_open_file(mut file: File) -> io::Result<FileReadOutcome> {
    let before = file.metadata()?;
    if before.len() > GEOIP_FILE_BYTES_MAX {
        return Ok(FileReadOutcome::TooLarge);
    }
    let mut bytes = Vec::with_capacity(before.len() as usize);
    file.by_ref().take(GEOIP_FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    let after = file.metadata()?;
    let is_unchanged = before.modified().ok() == after.modified().ok() && bytes.len() as u64 == after.len();
    Ok(if is_unchanged { FileReadOutcome::Complete(bytes) } else { FileReadOutcome::Changed })
}

/// Record of a city edition, in either layout: MaxMind's own (`location.latitude`, doubles), or the flat one of packaged
/// editions (`latitude`, floats). Other fields are ignored.
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
    /// The record's coordinates; `None` if out of range, or exactly 0, 0, which some files use for "unknown".
    fn into_geo_record(self) -> Option<AddressCoordinates> {
        let flat_location =
            CityLocation { latitude: self.latitude, longitude: self.longitude, accuracy_radius: self.accuracy_radius };
        let location = self.location.unwrap_or(flat_location);
        let (latitude, longitude) = (location.latitude?.0, location.longitude?.0);
        let is_valid = latitude.abs() <= 90.0 && longitude.abs() <= 180.0 && (latitude, longitude) != (0.0, 0.0);
        let accuracy_radius_km = location.accuracy_radius.map(|radius| radius.0);
        is_valid.then_some(AddressCoordinates { latitude, longitude, accuracy_radius_km })
    }
}

/// A number of any type. The format distinguishes float, double and integers, and the reader converts none of them.
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
