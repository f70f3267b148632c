//! The one test binary; each module below is a chapter.

mod store_crash;
mod store_file;
mod store_kit;
mod store_model;
mod store_sequences;
mod store_story;
