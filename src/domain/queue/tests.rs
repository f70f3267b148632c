//! Passes held against the obvious way, and what the documents say about them.

mod judges;
mod stories;
pub(super) mod world;
