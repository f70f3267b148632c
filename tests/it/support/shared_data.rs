//! Measured data outside the repository: in the directory `FIRETEAM_SHARED_DATA`, or missing.

use std::path::PathBuf;

/// Path of a file or directory of the measured data. Returns `None` and prints a notice if it is missing.
pub(crate) fn shared_data(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("FIRETEAM_SHARED_DATA")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data")), PathBuf::from);
    let found = Some(root.join(name)).filter(|path| path.exists());
    if found.is_none() {
        eprintln!("SKIPPED: {name} is not in {}; set FIRETEAM_SHARED_DATA to its directory", root.display());
    }
    found
}
