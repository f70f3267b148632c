//! The one integration-test binary; each module below is a chapter.

#![expect(clippy::unwrap_used, reason = "all of this is test code; clippy knows only the functions marked as tests")]

mod ruleset_catalog;
mod ruleset_chances;
mod ruleset_expansion;
mod ruleset_files;
mod ruleset_golden;
mod ruleset_hash;
mod ruleset_hostile;
mod ruleset_seeds;
mod ruleset_wellformed;
