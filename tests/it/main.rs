//! The one test binary; each module below is a chapter.

#![expect(clippy::unwrap_used, reason = "a helper that cannot go on has failed its test")]

mod store_crash;
mod store_file;
mod store_kit;
mod store_model;
mod store_sequences;
mod store_story;
