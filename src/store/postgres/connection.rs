//! Connections of the Postgres store, commits and change feeds. Shared by advertisements and queues.

pub(super) mod change_feed;
pub(super) mod commit;
pub(super) mod cursor;
#[cfg(feature = "failpoints")]
pub(super) mod fail_points;
pub(super) mod feed_pacing;
pub(super) mod listen;
mod lock_probe;
pub(super) mod open;
pub(super) mod purge;
mod resolve_commit;
pub(super) mod slot;
pub(super) mod statements;
pub(super) mod unresolved_commits;
pub(super) mod uuid_column;
pub(super) mod wait;
pub(super) mod write_session;
