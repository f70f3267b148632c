//! Database file of the SQLite store: opening, lock and write-ahead log. Shared by advertisements and queues.

pub(super) mod lock;
pub(super) mod open;
pub(super) mod wal;
