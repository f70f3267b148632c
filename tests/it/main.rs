//! The one integration-test binary; each module below is a chapter.

mod ruleset_chances;
mod ruleset_expansion;
mod ruleset_golden;
mod ruleset_hash;
