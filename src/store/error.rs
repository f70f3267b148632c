//! Error of every store operation.

use thiserror::Error;

/// Store failure. Never caused by a client's request.
#[derive(Debug, Error)]
pub enum StoreError {
    /// The store cannot be reached, or timed out. The batch was not committed, or the outcome is unknown.
    #[error("store is unavailable: {0}")]
    Unavailable(String),
    /// Another server holds the lock on the database file.
    #[error("{0} is in use by another server; stop that server or use another file")]
    Locked(String),
    /// A row failed validation or its checksum.
    #[error("corrupt row in table {table}, column {column}: {reason}; restore a backup")]
    CorruptRow {
        /// Table name.
        table: &'static str,
        /// Column name.
        column: &'static str,
        /// Problem found.
        reason: String,
    },
    /// A newer server wrote values that this server does not know. The row itself is valid.
    #[error("row of a newer server in table {table}, column {column}: {reason}; upgrade this server")]
    UnknownRow {
        /// Table name.
        table: &'static str,
        /// Column name.
        column: &'static str,
        /// Unknown value.
        reason: String,
    },
    /// The schema, the database library or the database's settings do not suit this server. The text says what to do.
    #[error("{0}")]
    Incompatible(String),
    /// The file is corrupt or not a database. The text says what to do.
    #[error("{0}")]
    DamagedFile(String),
}

impl StoreError {
    /// Whether the error is about one row, and the store can still be read and written.
    pub fn is_of_one_row(&self) -> bool {
        match self {
            Self::CorruptRow { .. } | Self::UnknownRow { .. } => true,
            Self::Unavailable(_) | Self::Locked(_) | Self::Incompatible(_) | Self::DamagedFile(_) => false,
        }
    }
}
