//! The one test binary; each module below is a chapter.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod convert_answer;
mod convert_fields;
mod convert_session;
mod harness;
mod plain;
mod scripted;
mod wire_connect;
mod wire_doors;
mod wire_edge;
mod wire_operator;
mod wire_shutdown;
mod wire_vectors;
