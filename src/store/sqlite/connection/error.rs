//! Errors of SQLite as store errors.

use std::path::Path;

use crate::store::error::StoreError;

/// Maps SQLite's error to a store error. The text contains no row values.
pub(in crate::store::sqlite) fn to_store_error(error: sqlx::Error) -> StoreError {
    const CORRUPT: i32 = 11;
    const FULL: i32 = 13;
    const NOT_A_DATABASE: i32 = 26;
    let code = error.as_database_error().and_then(|error| error.code()).and_then(|code| code.parse::<i32>().ok());
    // The low byte of an extended result code is the primary code.
    match code.map(|code| code & 0xff) {
        Some(CORRUPT | NOT_A_DATABASE) => StoreError::DamagedFile(error.to_string()),
        Some(FULL) => StoreError::Unavailable("the disk is full; free disk space".into()),
        _ => StoreError::Unavailable(error.to_string()),
    }
}

/// Adds the file's path to the error, on one line, and the remedy if the file is damaged.
pub(in crate::store::sqlite) fn add_path_to_error(path: &Path, error: StoreError) -> StoreError {
    let path = path.display();
    match error {
        StoreError::DamagedFile(reason) => {
            let reason = reason.split_whitespace().collect::<Vec<_>>().join(" ");
            StoreError::DamagedFile(format!(
                "{path} is damaged ({reason}); move it and its -wal file away to start with an empty database, or restore \
                 a copy"
            ))
        }
        StoreError::Incompatible(reason) => StoreError::Incompatible(format!("{path}: {reason}")),
        StoreError::Unavailable(reason) => StoreError::Unavailable(format!("{path}: {reason}")),
        other @ (StoreError::Locked(_) | StoreError::CorruptRow { .. } | StoreError::UnknownRow { .. }) => other,
    }
}
