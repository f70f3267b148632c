//! Where an address is: MaxMind-format files, read whole, swapped whole, turned into localities.
//!
//! An address goes in and a place comes out; no address is ever logged, kept, or named in an error (SEC-9).

mod mmdb_file;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use thiserror::Error;

use crate::domain::locality::{self, Locality, snap_to_degree_grid};
use crate::domain::location_privacy::{self, snap_to_equal_width_grid};

use mmdb_file::MmdbFile;

/// Bytes in one locality file at most. The largest city editions sold today are a quarter of it.
pub const GEOIP_FILE_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// How a place that a file names becomes a locality.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocatorSettings {
    /// The grid that places are snapped to, degrees; 0 leaves them alone.
    pub grid_degrees: f64,
    /// The coarser one that sessions are snapped to, by whose places others find them; where it is no coarser, there is
    /// but one.
    pub session_grid_degrees: f64,
    /// A place that the file itself doubts by more than this, kilometres, counts as unknown: it is the middle of a
    /// country (docs/decisions/0002-accuracy-radius.md).
    pub max_accuracy_radius_km: f64,
}

impl Default for LocatorSettings {
    fn default() -> Self {
        Self {
            grid_degrees: locality::DEFAULT_LOCATION_GRID_DEGREES,
            session_grid_degrees: location_privacy::DEFAULT_SESSION_GRID_DEGREES,
            max_accuracy_radius_km: 500.0,
        }
    }
}

/// Why a file was not adopted. Whatever was in use stays in use.
#[derive(Debug, Error)]
pub enum GeoError {
    /// It could not be read.
    #[error("{}: cannot be read: {why}", file.display())]
    Unreadable {
        /// Which file.
        file: PathBuf,
        /// What the system said.
        #[source]
        why: std::io::Error,
    },
    /// It is larger than `FILE_BYTES_MAX`.
    #[error("{}: larger than {GEOIP_FILE_BYTES_MAX} bytes", file.display())]
    TooLarge {
        /// Which file.
        file: PathBuf,
    },
    /// It grew or shrank while it was read: somebody writes it in place. Replace it by renaming another over it.
    #[error("{}: changed while it was read; replace it by renaming a finished file over it", file.display())]
    ChangedWhileRead {
        /// Which file.
        file: PathBuf,
    },
    /// It is not of MaxMind's format, or it is damaged.
    #[error("{}: not a sound MaxMind-format file: {what}", file.display())]
    InvalidFile {
        /// Which file.
        file: PathBuf,
        /// What is wrong; never an address.
        what: String,
    },
    /// It is sound, but none of the records looked at has a latitude and a longitude: a country or network edition.
    #[error("{}: has no coordinates; a city edition is needed", file.display())]
    NoCoordinates {
        /// Which file.
        file: PathBuf,
    },
}

/// Several files, asked in order.
#[derive(Debug)]
pub struct GeoIpLocator {
    files: Vec<MmdbFile>,
    settings: LocatorSettings,
}

impl GeoIpLocator {
    /// Reads all of `files` to the heap and looks each over. One that fails, fails them all, so that a half-replaced set
    /// is never adopted.
    pub fn load_files(files: &[PathBuf], settings: LocatorSettings) -> Result<Self, GeoError> {
        let files = files.iter().map(|path| MmdbFile::load(path)).collect::<Result<_, _>>()?;
        Ok(Self { files, settings })
    }

    /// The same, of one file that is in memory already; problems call it `name`.
    pub fn from_bytes(name: &Path, bytes: Vec<u8>, settings: LocatorSettings) -> Result<Self, GeoError> {
        Ok(Self { files: vec![MmdbFile::from_bytes(name, bytes)?], settings })
    }

    /// Where `address` is: the first file that knows it decides. `None` for private and unknown addresses, for places
    /// that the file doubts too much, and for damaged records; never the centre of the sphere (S1-27).
    ///
    /// An IPv4 address in IPv6 clothes (`::ffff:1.2.3.4`) is looked up as IPv4.
    pub fn locate(&self, address: IpAddr) -> Option<Locality> {
        let (latitude, longitude) = self.coordinates_of(address)?;
        let (latitude, longitude) = snap_to_degree_grid(latitude, longitude, self.settings.grid_degrees);
        Locality::from_degrees(latitude, longitude)
    }

    /// The same, as coarsely as others may know it (SEC-9).
    pub fn locate_on_session_grid(&self, address: IpAddr) -> Option<Locality> {
        if self.settings.session_grid_degrees <= self.settings.grid_degrees {
            return self.locate(address);
        }
        let (latitude, longitude) = self.coordinates_of(address)?;
        let (latitude, longitude) = snap_to_equal_width_grid(latitude, longitude, self.settings.session_grid_degrees);
        Locality::from_degrees(latitude, longitude)
    }

    /// Latitude and longitude, degrees, as the file has them.
    fn coordinates_of(&self, address: IpAddr) -> Option<(f64, f64)> {
        let address = address.to_canonical();
        if !may_be_public(address) {
            return None;
        }
        let place = self.files.iter().find_map(|file| file.lookup(address))?;
        if self.settings.max_accuracy_radius_km < place.accuracy_radius_km.unwrap_or(0.0) {
            return None;
        }
        Some((place.latitude, place.longitude))
    }
}

/// Whether an address can belong to somebody out there. What is left open is the file's to know.
fn may_be_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            !(v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_unspecified() || v4.is_multicast())
        }
        IpAddr::V6(v6) => {
            let local = v6.is_unique_local() || v6.is_unicast_link_local();
            !(local || v6.is_loopback() || v6.is_unspecified() || v6.is_multicast())
        }
    }
}

/// The locator in use, shared by everyone who asks and replaced whole. Without files nobody is anywhere.
#[derive(Debug)]
pub struct ReloadableLocator {
    files: Vec<PathBuf>,
    settings: LocatorSettings,
    current: ArcSwapOption<GeoIpLocator>,
}

impl ReloadableLocator {
    /// Remembers which files to read; reads none of them yet.
    pub fn new(files: Vec<PathBuf>, settings: LocatorSettings) -> Self {
        Self { files, settings, current: ArcSwapOption::empty() }
    }

    /// The files that it reads, for whoever watches them.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// Reads the files again and swaps them in; on an error the old ones stay (R18). Slow: keep it off the async threads.
    pub fn reload(&self) -> Result<(), GeoError> {
        if !self.files.is_empty() {
            self.current.store(Some(Arc::new(GeoIpLocator::load_files(&self.files, self.settings)?)));
        }
        Ok(())
    }

    /// Whether there is anything to look addresses up in.
    pub fn is_loaded(&self) -> bool {
        self.current.load().is_some()
    }

    /// As [`Locator::locate`]; `None` while nothing is loaded.
    pub fn locate(&self, address: IpAddr) -> Option<Locality> {
        self.current.load().as_ref()?.locate(address)
    }

    /// As [`Locator::locate_coarsely`]; `None` while nothing is loaded.
    pub fn locate_on_session_grid(&self, address: IpAddr) -> Option<Locality> {
        self.current.load().as_ref()?.locate_on_session_grid(address)
    }
}

#[cfg(test)]
mod tests;
