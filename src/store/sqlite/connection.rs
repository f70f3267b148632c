//! Database file of the SQLite store: opening, lock, write-ahead log, and execution of statements. Shared by
//! advertisements and queues.

pub(super) mod checkpoint_task;
pub(super) mod error;
pub(super) mod file_access;
pub(super) mod hex_json_array;
pub(super) mod lock;
pub(super) mod open;
pub(super) mod purge;
pub(super) mod sql_script;
pub(super) mod statements;
pub(super) mod wal;
pub(super) mod write_batch;
