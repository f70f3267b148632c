//! GeoIP: locality of an IP address, from MaxMind-format files that can be reloaded while the server runs.
//!
//! Addresses are never logged, stored, or named in an error.

mod error;
mod mmdb_file;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwapOption;

use crate::domain::locality::{self, Locality, snap_to_degree_grid};
use crate::domain::location_privacy::{self, RegionPlaces, snap_to_equal_width_grid};

use mmdb_file::MmdbFile;

pub use error::{GEOIP_FILE_BYTES_MAX, GeoError};

/// Settings for the conversion of GeoIP records to localities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LocatorSettings {
    /// Grid that coordinates are rounded to, degrees; 0 disables rounding.
    pub grid_degrees: f64,
    /// Coarser grid for advertised sessions and for parties in queues, which others find and are matched with, degrees.
    /// If it is not coarser, `grid_degrees` is used for them too.
    pub session_grid_degrees: f64,
    /// Maximum accuracy radius of a record, kilometres. A record above it counts as unknown: it is the center of a
    /// country (docs/decisions/0002-accuracy-radius.md).
    pub geoip_max_accuracy_radius_km: f64,
}

impl Default for LocatorSettings {
    fn default() -> Self {
        Self {
            grid_degrees: locality::DEFAULT_LOCATION_GRID_DEGREES,
            session_grid_degrees: location_privacy::DEFAULT_SESSION_GRID_DEGREES,
            geoip_max_accuracy_radius_km: 500.0,
        }
    }
}

impl LocatorSettings {
    /// Center of the cell of a place, in the grid for sessions and parties.
    fn session_cell_center(&self, (latitude, longitude): (f64, f64)) -> Option<Locality> {
        let (latitude, longitude) = if self.session_grid_degrees <= self.grid_degrees {
            snap_to_degree_grid(latitude, longitude, self.grid_degrees)
        } else {
            snap_to_equal_width_grid(latitude, longitude, self.session_grid_degrees)
        };
        Locality::from_degrees(latitude, longitude)
    }
}

/// Place of an address, and what others may know of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlaceInCell {
    /// Place as in the file. It is never stored or told.
    pub place: Locality,
    /// Center of its cell in the grid for sessions and parties.
    pub center: Locality,
}

/// GeoIP lookup over several files, in order of precedence.
#[derive(Debug)]
pub struct GeoIpLocator {
    files: Vec<MmdbFile>,
    settings: LocatorSettings,
}

impl GeoIpLocator {
    /// Reads all files into memory and validates each. If one fails, all fail, so that a partly replaced set is never used.
    pub fn load_files(files: &[PathBuf], settings: LocatorSettings) -> Result<Self, GeoError> {
        let files = files.iter().map(|path| MmdbFile::load(path)).collect::<Result<_, _>>()?;
        Ok(Self { files, settings })
    }

    /// Time at which the oldest file was built, seconds since the Unix epoch; `None` without files.
    pub fn oldest_build_time_s(&self) -> Option<u64> {
        self.files.iter().map(MmdbFile::build_time_s).min()
    }

    /// Reads one file from memory; errors call it `name`.
    pub fn from_bytes(name: &Path, bytes: Vec<u8>, settings: LocatorSettings) -> Result<Self, GeoError> {
        Ok(Self { files: vec![MmdbFile::from_bytes(name, bytes)?], settings })
    }

    /// Locality of `address`, from the first file that contains it.
    ///
    /// `None` for private and unknown addresses, for records above the maximum accuracy radius, and for damaged records;
    /// never a default position. An IPv4-mapped IPv6 address (`::ffff:1.2.3.4`) is looked up as IPv4.
    pub fn locate(&self, address: IpAddr) -> Option<Locality> {
        let (latitude, longitude) = self.coordinates_of(address)?;
        let (latitude, longitude) = snap_to_degree_grid(latitude, longitude, self.settings.grid_degrees);
        Locality::from_degrees(latitude, longitude)
    }

    /// Place of `address`, and the center of its cell in the session grid: the precision that other players may see.
    pub fn locate_in_session_cell(&self, address: IpAddr) -> Option<PlaceInCell> {
        let (latitude, longitude) = self.coordinates_of(address)?;
        let place = Locality::from_degrees(latitude, longitude)?;
        Some(PlaceInCell { place, center: self.settings.session_cell_center((latitude, longitude))? })
    }

    /// Center of the cell of `address` in the session grid.
    pub fn locate_on_session_grid(&self, address: IpAddr) -> Option<Locality> {
        Some(self.locate_in_session_cell(address)?.center)
    }

    /// Latitude and longitude of `address`, degrees, without rounding.
    fn coordinates_of(&self, address: IpAddr) -> Option<(f64, f64)> {
        let address = address.to_canonical();
        if !may_be_public(address) {
            return None;
        }
        let record = self.files.iter().find_map(|file| file.lookup(address))?;
        if record.accuracy_radius_km.unwrap_or(0.0) > self.settings.geoip_max_accuracy_radius_km {
            return None;
        }
        Some((record.latitude, record.longitude))
    }
}

/// Whether an address may be public: not private, loopback, link-local, unspecified or multicast.
fn may_be_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            !(v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_unspecified() || v4.is_multicast())
        }
        IpAddr::V6(v6) => {
            let is_local = v6.is_unique_local() || v6.is_unicast_link_local();
            !(is_local || v6.is_loopback() || v6.is_unspecified() || v6.is_multicast())
        }
    }
}

/// Shared locator whose files can be reloaded. Without files no address has a locality.
#[derive(Debug)]
pub struct ReloadableLocator {
    files: Vec<PathBuf>,
    settings: LocatorSettings,
    region_places: RegionPlaces,
    current: ArcSwapOption<GeoIpLocator>,
}

impl ReloadableLocator {
    /// Stores the paths; reads no file yet.
    pub fn new(files: Vec<PathBuf>, settings: LocatorSettings) -> Self {
        Self { files, settings, region_places: RegionPlaces::default(), current: ArcSwapOption::empty() }
    }

    /// Locator that also knows the places of regions.
    pub fn with_region_places(self, region_places: RegionPlaces) -> Self {
        Self { region_places, ..self }
    }

    /// Known places of regions.
    pub fn region_places(&self) -> &RegionPlaces {
        &self.region_places
    }

    /// Center of the cell of `place` in the grid for sessions and parties. The center of a cell is its own center.
    pub fn session_cell_center(&self, place: Locality) -> Locality {
        let has_cells = self.settings.grid_degrees.max(self.settings.session_grid_degrees) > 0.0;
        let center = has_cells.then(|| self.settings.session_cell_center(place.to_degrees())).flatten();
        center.unwrap_or(place)
    }

    /// Paths of the files, for a file watcher.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path)
    }

    /// Loads the files again; on an error the old ones stay in use. Blocks.
    pub fn reload(&self) -> Result<(), GeoError> {
        if !self.files.is_empty() {
            self.current.store(Some(Arc::new(GeoIpLocator::load_files(&self.files, self.settings)?)));
        }
        Ok(())
    }

    /// Whether any file is loaded.
    pub fn is_loaded(&self) -> bool {
        self.current.load().is_some()
    }

    /// As [`GeoIpLocator::locate`]; `None` while no file is loaded.
    pub fn locate(&self, address: IpAddr) -> Option<Locality> {
        self.current.load().as_ref()?.locate(address)
    }

    /// As [`GeoIpLocator::locate_in_session_cell`]; `None` while no file is loaded.
    pub fn locate_in_session_cell(&self, address: IpAddr) -> Option<PlaceInCell> {
        self.current.load().as_ref()?.locate_in_session_cell(address)
    }
}

#[cfg(test)]
mod tests;
