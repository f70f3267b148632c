//! Errors of loading a GeoIP file.

use std::path::PathBuf;

use thiserror::Error;

/// Maximum size of a GeoIP file, bytes. The largest city editions sold today are a quarter of it.
pub const GEOIP_FILE_BYTES_MAX: u64 = 512 * 1024 * 1024;

/// Failure to load a GeoIP file. The files in use stay in use.
#[derive(Debug, Error)]
pub enum GeoError {
    /// The file could not be read.
    #[error("GeoIP file {}: cannot be read: {error}; check path and permissions", file.display())]
    Unreadable {
        /// Path of the GeoIP file.
        file: PathBuf,
        /// Error of the operating system.
        error: std::io::Error,
    },
    /// The file is larger than `GEOIP_FILE_BYTES_MAX`.
    #[error("GeoIP file {}: larger than {GEOIP_FILE_BYTES_MAX} bytes; use a smaller edition", file.display())]
    TooLarge {
        /// Path of the GeoIP file.
        file: PathBuf,
    },
    /// The file changed while it was read: another process writes it in place.
    #[error("GeoIP file {}: changed while it was read; replace it by renaming a complete file over it", file.display())]
    ChangedWhileRead {
        /// Path of the GeoIP file.
        file: PathBuf,
    },
    /// The file is damaged or not in MaxMind format.
    #[error("GeoIP file {}: damaged or not in MaxMind format ({problem}); use a .mmdb city edition", file.display())]
    InvalidFile {
        /// Path of the GeoIP file.
        file: PathBuf,
        /// Error of the MaxMind reader; never contains an address.
        problem: String,
    },
    /// No checked record has a latitude and a longitude: a country or network edition.
    #[error("GeoIP file {}: contains no coordinates; use a city edition", file.display())]
    NoCoordinates {
        /// Path of the GeoIP file.
        file: PathBuf,
    },
}
