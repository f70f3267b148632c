//! Connections of the Postgres store, commits and change feeds. Shared by advertisements and queues.

pub(super) mod commit;
pub(super) mod cursor;
pub(super) mod listen;
#[cfg(feature = "mutants")]
pub(super) mod mutant;
pub(super) mod open;
pub(super) mod resolve_commit;
pub(super) mod slot;
