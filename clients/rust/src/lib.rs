//! Rust client for fireteam: typed calls over the generated stubs, and a long-lived stream.
//!
//! Layers; use the lowest one that is sufficient:
//!
//! - [`pb`] contains the generated messages and stubs.
//! - [`Client`] makes single calls and retries them while the server is unavailable. [`MatchmakingStream`] keeps many requests in
//!   flight on one stream and receives reservation events.
//! - [`Advertisement`], [`SearchSession`], [`Reservation`] and [`Ticket`] are handles that keep the id and token of one
//!   object. [`TicketStream`] receives ticket updates and reconnects after a failure.
//! - [`Client::matching_run`] runs the whole search loop: search, latency probes, reports, reservations, connects, and advertising.
//!   [`matching`] is the same loop without a runtime, and [`probe`] answers the probes of others.
//!   [`Client::queueing_run`] and [`queueing`] are the loop of a queue, and [`match_hosting`] that of a game server's matches. [`Client::measure_beacons`] and [`probe::beacons`] prove round trips;
//!   [`LatencyTokens`] keeps the proof fresh for a [`Ticket`].
//!
//! ```no_run
//! use fireteam_client::{Client, pb};
//!
//! # async fn join() -> Result<(), fireteam_client::Error> {
//! let client = Client::connect("http://127.0.0.1:50051").await?;
//! let party = pb::SessionCompositionData {
//!     players: vec![pb::PlayerData { user_id: "ada".into(), skill: Some(250.0), ..Default::default() }],
//!     ..Default::default()
//! };
//! let mut search_session = client.new_search(1, party);
//! let found = search_session.search().await?;
//! if let Some(best) = found.candidates.first() {
//!     let reservation = search_session.reserve(&best.advertisement_id).await?;
//!     println!("{} seats, connect to {:?}", reservation.seats, reservation.connect_data);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! All calls run on the caller's tokio runtime. The client keeps no global state, writes no logs, and reads no environment
//! variables.

#[cfg(feature = "runtime")]
mod advertisement;
#[cfg(feature = "runtime")]
mod beacons_run;
#[cfg(feature = "runtime")]
mod client;
#[cfg(feature = "runtime")]
mod datagrams;
mod error;
#[cfg(feature = "runtime")]
mod latency_tokens;
#[cfg(feature = "credentials")]
mod match_credential;
#[cfg(feature = "runtime")]
mod match_host;
pub mod match_hosting;
pub mod matching;
#[cfg(feature = "runtime")]
pub mod matching_run;
#[cfg(feature = "runtime")]
mod matchmaking_stream;
pub mod pb;
pub mod probe;
pub mod queueing;
#[cfg(feature = "runtime")]
pub mod queueing_run;
#[cfg(feature = "runtime")]
mod random;
#[cfg(feature = "runtime")]
mod ratings;
mod retry;
#[cfg(feature = "runtime")]
mod retrying_channel;
#[cfg(feature = "runtime")]
mod run_clock;
#[cfg(feature = "runtime")]
mod search;
mod secret_length;
#[cfg(feature = "runtime")]
#[cfg(test)]
mod tests;
#[cfg(feature = "runtime")]
mod ticket;
#[cfg(feature = "runtime")]
mod token_source;

#[cfg(feature = "runtime")]
pub use advertisement::Advertisement;
#[cfg(feature = "runtime")]
pub use client::Client;
pub use error::{Error, FieldViolation, ServerError, normalized_code};
#[cfg(feature = "runtime")]
pub use latency_tokens::LatencyTokens;
#[cfg(feature = "credentials")]
pub use match_credential::{AdmittedPlayer, CredentialError, CredentialVerifier, DEFAULT_REMEMBERED_CREDENTIALS_MAX};
#[cfg(feature = "runtime")]
pub use match_host::MatchHost;
#[cfg(feature = "runtime")]
pub use matchmaking_stream::{HostEvent, HostEvents, MatchmakingStream, PendingResponse};
#[cfg(feature = "runtime")]
pub use ratings::UserIdsOfOneSide;
pub use retry::RetryPolicy;
#[cfg(feature = "runtime")]
pub use search::{Reservation, SearchSession};
pub use secret_length::SecretBytes;
#[cfg(feature = "runtime")]
pub use ticket::{Ticket, TicketStream};
#[cfg(feature = "runtime")]
pub use token_source::{Token, TokenSource};
/// gRPC status code of a failed call.
pub use tonic::Code;
/// TLS settings: CA certificates, expected name, and client certificate.
#[cfg(feature = "tls")]
pub use tonic::transport::{Certificate, ClientTlsConfig, Identity};
