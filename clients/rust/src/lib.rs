//! The Rust client of fireteam: typed calls over the generated stubs, and a connection that stays open.
//!
//! Three layers, from thin to thick; take the thinnest that serves:
//!
//! - [`pb`] is what the proto files say, word for word.
//! - [`Client`] makes each call once or, when the server is out of reach, a few times; [`Connection`] keeps many
//!   requests in flight on one stream and hears of reservations.
//! - [`Advertised`], [`Searching`], [`Reserved`] and [`Queued`] keep the tokens that one advertisement, one search, one
//!   reservation and one ticket need; [`Watched`] hears of tickets, whatever becomes of the server it hears them from.
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
//! let mut searching = client.searching(1, party);
//! let found = searching.search().await?;
//! if let Some(best) = found.candidates.first() {
//!     let seats = searching.reserve(&best.advertisement_id).await?;
//!     println!("{} seats, connect to {:?}", seats.seats, seats.connect_data);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! All calls run on the caller's tokio runtime. Nothing here keeps global state, logs, or reads the environment.

mod advertised;
mod client;
mod connection;
mod dice;
mod error;
pub mod pb;
mod queueing;
mod ratings;
mod retry;
mod searching;
#[cfg(test)]
mod tests;
mod tokens;

pub use advertised::Advertised;
pub use client::Client;
pub use connection::{Answer, Connection, Events};
pub use error::{Error, Failure, FieldProblem};
pub use queueing::{Queued, Watched};
pub use ratings::Side;
pub use retry::Retries;
pub use searching::{Reserved, Searching};
pub use tokens::{Token, Tokens};
/// What a failed call is filed under, as gRPC has it.
pub use tonic::Code;
/// How TLS is spoken: whose certificates are believed, and which is shown.
#[cfg(feature = "tls")]
pub use tonic::transport::{Certificate, ClientTlsConfig, Identity};
