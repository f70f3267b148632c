//! Attributes and roles of players, and what large matches have: through the Rust client, on SQLite and on two servers.

pub(crate) mod backfill;
pub(crate) mod fixture;
pub(crate) mod game_servers;
pub(crate) mod large_matches;
pub(crate) mod large_sessions;
pub(crate) mod queues;
pub(crate) mod roles;
pub(crate) mod searches;
pub(crate) mod user_data;
