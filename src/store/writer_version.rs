//! Store format version, and the lowest version that may write to a store.
//!
//! Every server on a store writes rows that the others read. A server whose rows the others no longer understand must
//! not write. `min_writer_version` in table `store_setting` says which servers may.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::store::error::StoreError;

/// Store format version of this server. Raised by one whenever this server's rows differ from those of the version
/// before in a way that another server can notice: a new column, number, JSON key or kind of change.
pub const STORE_FORMAT_VERSION: i64 = 2;

/// First version whose servers know that a set's ratings can be on another scale than the rows in `rating`.
pub(super) const RATING_SCALES_MIN_VERSION: i64 = 2;

/// First version whose servers read matches whose host has not confirmed.
pub const CONFIRMING_MATCHES_MIN_VERSION: i64 = 2;

/// First version whose servers hold leases only while they say that they live, in `lease_holder`.
pub const LEASE_HOLDERS_MIN_VERSION: i64 = 2;

/// Lowest version that may write; one row. The same text for both databases.
pub(super) const READ_MIN_WRITER_VERSION_SQL: &str =
    "select value from store_setting where name = 'min_writer_version'";

/// Raises the lowest version that may write to `$1`. The same text for both databases.
pub(super) const RAISE_MIN_WRITER_VERSION_SQL: &str =
    "update store_setting set value = $1 where name = 'min_writer_version' and value < $1";

/// Checks at open. Fails if this server may not write.
pub(super) fn check_at_open(min_writer_version: i64) -> Result<(), StoreError> {
    if min_writer_version <= STORE_FORMAT_VERSION {
        return Ok(());
    }
    Err(StoreError::Incompatible(format!(
        "the store requires format version {min_writer_version} of its servers, and this server has format version \
         {STORE_FORMAT_VERSION}; start a newer server"
    )))
}

/// Stops the writes of a running server when the setting is raised.
#[derive(Debug)]
pub(super) struct WriterGate(AtomicI64);

impl Default for WriterGate {
    fn default() -> Self {
        Self(AtomicI64::new(STORE_FORMAT_VERSION))
    }
}

impl WriterGate {
    /// Takes over the setting as read from the store; logs a change.
    pub(super) fn update(&self, min_writer_version: i64) {
        let before = self.0.swap(min_writer_version, Ordering::AcqRel);
        match (before <= STORE_FORMAT_VERSION, min_writer_version <= STORE_FORMAT_VERSION) {
            (true, false) => tracing::error!(
                min_writer_version,
                format_version = STORE_FORMAT_VERSION,
                "writes stopped, the store requires a newer server"
            ),
            (false, true) => tracing::info!(
                min_writer_version,
                format_version = STORE_FORMAT_VERSION,
                "write permission recovered, the store accepts this server again"
            ),
            _ => {}
        }
    }

    /// Whether this server may write.
    pub(super) fn is_open(&self) -> bool {
        self.0.load(Ordering::Acquire) <= STORE_FORMAT_VERSION
    }

    /// Fails if this server may not write.
    pub(super) fn check_may_write(&self) -> Result<(), StoreError> {
        if self.is_open() {
            return Ok(());
        }
        let min_writer_version = self.0.load(Ordering::Acquire);
        Err(StoreError::Unavailable(format!(
            "the store requires format version {min_writer_version} to write, and this server has format version \
             {STORE_FORMAT_VERSION}; start a newer server"
        )))
    }
}
