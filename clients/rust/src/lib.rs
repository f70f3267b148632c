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

mod advertisement;
mod client;
mod connection;
mod error;
pub mod pb;
mod random;
mod ratings;
mod retry;
mod search;
#[cfg(test)]
mod tests;
mod ticket;
mod token_source;

pub use advertisement::Advertisement;
pub use client::Client;
pub use connection::{Connection, PendingResponse, ReservationEvents};
pub use error::{Error, FieldViolation, ServerError};
pub use ratings::SideUserIds;
pub use retry::RetryPolicy;
pub use search::{Reservation, SearchSession};
pub use ticket::{Ticket, TicketStream};
pub use token_source::{Token, TokenSource};
/// What a failed call is filed under, as gRPC has it.
pub use tonic::Code;
/// How TLS is spoken: whose certificates are believed, and which is shown.
#[cfg(feature = "tls")]
pub use tonic::transport::{Certificate, ClientTlsConfig, Identity};
