//! SQL statements of the write-ahead log.

/// Commits and returns three numbers: the second is the number of pages in the write-ahead log, the third how many of
/// them are checkpointed.
pub(in crate::store::sqlite) const COMMIT_AND_MEASURE_WAL: &str = "commit; pragma wal_checkpoint(noop)";

/// Checkpoints all pages, waiting for readers, and empties the file; returns 0 first if it succeeded.
pub(in crate::store::sqlite) const TRUNCATE_WAL: &str = "pragma wal_checkpoint(truncate)";

/// Checkpoints the pages that no reader needs, without waiting; returns the same numbers as [`COMMIT_AND_MEASURE_WAL`].
pub(in crate::store::sqlite) const CHECKPOINT_WAL: &str = "pragma wal_checkpoint(passive)";
