//! Passes held against the obvious way, and what the documents say about them.

mod explains;
mod judges;
mod stories;
pub(super) mod world;
