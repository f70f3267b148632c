//! C interface of fireteam's client, for engines without Rust and gRPC. `include/fireteam.h` describes it; this crate implements it.
//!
//! - [`matching_exports`]: the search loop. The game carries calls as bytes, sends and receives datagrams, and reads the clock.
//! - [`queueing_exports`]: the queue loop. The game carries calls and a watch as bytes, and reads the clock.
//! - [`match_host_exports`]: matches of a game server. [`verifier_exports`]: the credentials of their players (feature `credentials`).
//! - [`beacons_exports`]: the measurement of beacons, which proves the client's round trips in searches and queues.
//! - [`responder_exports`]: answers to latency probes, for hosts and game servers.
//! - [`client_exports`] and [`stream_exports`]: calls and streams over HTTP/2 and TLS, for games without a transport of their own (feature
//!   `client`).
//!
//! Exported functions are thin: they check their arguments through `raw`, the only file with unsafe blocks, and call safe code.

mod answer;
mod arguments;
mod beacons;
mod beacons_call_codec;
pub mod beacons_exports;
#[cfg(feature = "client")]
mod call_failure;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
pub mod client_exports;
#[cfg(feature = "client")]
mod connection;
mod identifier;
pub mod library_exports;
mod loop_object;
mod match_host;
mod match_host_call_codec;
pub mod match_host_exports;
mod match_host_outcome;
mod matching;
pub mod matching_exports;
mod outcome;
mod panic_guard;
mod pending_transmit;
mod queue_call_codec;
mod queue_outcome;
pub mod queue_types;
mod queueing;
pub mod queueing_exports;
mod raw;
mod responder;
pub mod responder_exports;
mod rpc_by_call_id;
mod search_call_codec;
pub mod status;
#[cfg(feature = "client")]
mod stream;
#[cfg(feature = "client")]
pub mod stream_exports;
pub mod types;
#[cfg(feature = "credentials")]
mod verifier;
#[cfg(feature = "credentials")]
pub mod verifier_exports;

pub use beacons::FtBeacons;
#[cfg(feature = "client")]
pub use client::FtClient;
pub use match_host::FtMatchHost;
pub use matching::FtMatching;
pub use queueing::FtQueueing;
pub use responder::FtResponder;
#[cfg(feature = "client")]
pub use stream::FtStream;
#[cfg(feature = "credentials")]
pub use verifier::FtVerifier;
