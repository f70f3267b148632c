//! One MaxMind-format file on the heap: read, looked over before it is trusted, asked.

use std::fmt;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use maxminddb::{MaxMindDbError, Reader, WithinOptions};
use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::geo::{FILE_BYTES_MAX, GeoError};

/// Records read in order before a file is trusted: all of a small file's, enough of a large one's (a tenth of a second).
const WALKED_MAX: usize = 1 << 17;
/// Addresses asked besides, spread evenly over the whole space, because damage need not be at the front.
const PROBES: u32 = 4096;

/// What a file says about an address.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Place {
    /// Degrees north, in [-90, 90].
    pub(super) latitude: f64,
    /// Degrees east, in [-180, 180].
    pub(super) longitude: f64,
    /// How far off the place may be, kilometres, where the file says.
    pub(super) accuracy_radius_km: Option<f64>,
}

/// A sound file.
pub(super) struct File {
    reader: Reader<Vec<u8>>,
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("kind", &self.reader.metadata().database_type).finish_non_exhaustive()
    }
}

impl File {
    /// Reads `path` whole and looks it over. Never mapped: a file that is truncated under a mapping kills the process
    /// (RELIABILITY F9).
    pub(super) fn load(path: &Path) -> Result<Self, GeoError> {
        Self::read(path, read_whole(path)?)
    }

    /// Looks over what was read of `path`.
    pub(super) fn read(path: &Path, bytes: Vec<u8>) -> Result<Self, GeoError> {
        let broken = |why: MaxMindDbError| GeoError::Broken { file: path.into(), what: why.to_string() };
        let reader = Reader::from_source(bytes).map_err(broken)?;
        let file = Self { reader };
        if !file.look_over().map_err(broken)? {
            return Err(GeoError::NoPlaces { file: path.into() });
        }
        Ok(file)
    }

    /// The place of an address in canonical form; `None` when the file does not know it, is of the other IP version, or
    /// cannot be read there.
    pub(super) fn look_up(&self, address: IpAddr) -> Option<Place> {
        self.place_of(address).ok().flatten()
    }

    fn place_of(&self, address: IpAddr) -> Result<Option<Place>, MaxMindDbError> {
        if address.is_ipv6() && self.reader.metadata().ip_version == 4 {
            return Ok(None);
        }
        Ok(self.reader.lookup(address)?.decode::<Record>()?.and_then(Record::place))
    }

    /// Whether any record looked at has a place; an error when any is damaged.
    fn look_over(&self) -> Result<bool, MaxMindDbError> {
        let mut found = false;
        for network in self.reader.networks(WithinOptions::default())?.take(WALKED_MAX) {
            let record = network?.decode::<Record>()?;
            found |= record.and_then(Record::place).is_some();
        }
        for probe in 0..PROBES {
            let spread = probe.wrapping_mul(u32::MAX / PROBES);
            found |= self.place_of(Ipv4Addr::from_bits(spread).into())?.is_some();
            // Addresses given out to anyone lie in 2000::/3.
            let global = Ipv6Addr::from_bits((0x2000_0000_u128 | u128::from(spread >> 3)) << 96);
            found |= self.place_of(global.into())?.is_some();
        }
        Ok(found)
    }
}

/// Reads at most `FILE_BYTES_MAX` bytes, and only a file that stays as it is meanwhile.
fn read_whole(path: &Path) -> Result<Vec<u8>, GeoError> {
    let unreadable = |why| GeoError::Unreadable { file: path.into(), why };
    let mut source = std::fs::File::open(path).map_err(unreadable)?;
    let before = source.metadata().map_err(unreadable)?;
    if FILE_BYTES_MAX < before.len() {
        return Err(GeoError::TooLarge { file: path.into() });
    }
    let mut bytes = Vec::with_capacity(before.len() as usize);
    source.by_ref().take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    let after = source.metadata().map_err(unreadable)?;
    let settled = before.modified().ok() == after.modified().ok() && bytes.len() as u64 == after.len();
    if !settled {
        return Err(GeoError::Changing { file: path.into() });
    }
    Ok(bytes)
}

/// Both layouts that city editions come in: MaxMind's own (`location.latitude`, doubles) and the flat one of packaged
/// editions (`latitude`, floats). Every other field is passed over.
#[derive(serde::Deserialize)]
struct Record {
    location: Option<Location>,
    latitude: Option<Num>,
    longitude: Option<Num>,
    accuracy_radius: Option<Num>,
}

#[derive(serde::Deserialize)]
struct Location {
    latitude: Option<Num>,
    longitude: Option<Num>,
    accuracy_radius: Option<Num>,
}

impl Record {
    /// A place of exactly 0, 0 is how some files spell "unknown": nobody lives there, in the open sea.
    fn place(self) -> Option<Place> {
        let flat =
            Location { latitude: self.latitude, longitude: self.longitude, accuracy_radius: self.accuracy_radius };
        let location = self.location.unwrap_or(flat);
        let (latitude, longitude) = (location.latitude?.0, location.longitude?.0);
        let valid = latitude.abs() <= 90.0 && longitude.abs() <= 180.0 && (latitude, longitude) != (0.0, 0.0);
        let accuracy_radius_km = location.accuracy_radius.map(|radius| radius.0);
        valid.then_some(Place { latitude, longitude, accuracy_radius_km })
    }
}

/// A number of whatever type the file chose: the format keeps float and double apart, and readers are strict about it.
struct Num(f64);

impl<'de> Deserialize<'de> for Num {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyNumber;
        impl Visitor<'_> for AnyNumber {
            type Value = Num;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number")
            }
            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Num, E> {
                Ok(Num(number))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Num, E> {
                Ok(Num(number as f64))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Num, E> {
                Ok(Num(number as f64))
            }
        }
        deserializer.deserialize_any(AnyNumber)
    }
}
