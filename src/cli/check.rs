//! Stub.

use std::io::Write;
use std::path::PathBuf;

/// Stub.
pub fn check(_paths: &[PathBuf], _out: &mut dyn Write) -> bool {
    true
}
