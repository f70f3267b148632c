//! Measured data that is not part of the project: beside it, where `FIRETEAM_SHARED_DATA` says, or missing.

use std::path::PathBuf;

/// A file or folder of the shared data; `None`, said loudly, when it is not there.
pub(crate) fn shared_data(name: &str) -> Option<PathBuf> {
    let root = std::env::var_os("FIRETEAM_SHARED_DATA")
        .map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data")), PathBuf::from);
    let found = Some(root.join(name)).filter(|path| path.exists());
    if found.is_none() {
        eprintln!("SKIPPED: no {name} in {}; set FIRETEAM_SHARED_DATA to where it is", root.display());
    }
    found
}
