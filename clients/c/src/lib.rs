//! C interface of fireteam's client, for engines without Rust and gRPC. `include/fireteam.h` describes it; this crate implements it.
//!
//! - [`matching_exports`]: the search loop. The game carries calls as bytes, sends and receives datagrams, and reads the clock.
//! - [`responder_exports`]: answers to latency probes, for hosts and game servers.
//! - [`client_exports`]: calls over HTTP/2 and TLS, for games without a transport of their own (feature `client`).
//!
//! Exported functions are thin: they check their arguments through `raw`, the only file with unsafe blocks, and call safe code.

mod call_codec;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
pub mod client_exports;
mod matching;
pub mod matching_exports;
mod outcome;
mod raw;
mod responder;
pub mod responder_exports;
pub mod status;
pub mod types;

#[cfg(feature = "client")]
pub use client::FtClient;
pub use matching::FtMatching;
pub use responder::FtResponder;
