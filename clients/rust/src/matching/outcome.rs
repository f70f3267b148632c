//! Outcomes of a search loop: requests to the game, and news for it.

use std::fmt;
use std::net::SocketAddr;

use crate::matching::call::CallError;
use crate::secret_length::debug_secret_length;

/// Request to the game, or news for it.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Connect to this host now. Answer with [`Event::Connected`](crate::matching::Event::Connected) or
    /// [`Event::ConnectFailed`](crate::matching::Event::ConnectFailed).
    Connect(ConnectTarget),
    /// Stop connecting: the time is over, or the player cancelled.
    AbandonConnect {
        /// The reservation.
        reservation_id: String,
    },
    /// The party is in the session.
    Joined {
        /// Advertisement id of the session.
        advertisement_id: String,
        /// The reservation.
        reservation_id: String,
    },
    /// The own session is open to others.
    Advertised(AdvertisedSession),
    /// A party has reserved seats in the own session, and the loop confirms them.
    PartyComing {
        /// Reservation id.
        reservation_id: String,
        /// Number of seats.
        seats: u32,
    },
    /// A party that was coming released its seats, or they expired.
    PartyGone {
        /// Reservation id.
        reservation_id: String,
    },
    /// The own session has no open seat left.
    SessionFull,
    /// The own session is not open to others any longer.
    Withdrawn,
    /// The loop has ended, and holds nothing any longer.
    Ended(EndReason),
}

/// Reason that a loop ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// By [`Event::Cancel`](crate::matching::Event::Cancel).
    Cancelled,
    /// No session was joined within `give_up_after`.
    GaveUp,
    /// A call failed in a way that no repetition changes.
    Failed(CallError),
}

/// Seats in a session, and the way to it.
#[derive(Clone, PartialEq)]
pub struct ConnectTarget {
    /// Advertisement id of the session.
    pub advertisement_id: String,
    /// Reservation id, by which the host knows the party.
    pub reservation_id: String,
    /// Number of seats.
    pub seats: u32,
    /// Connect data of the host, such as its address.
    pub connect_data: Vec<u8>,
    /// Round trip to the host: measured where it was probed, else estimated; milliseconds. `None` if unknown.
    pub round_trip_ms: Option<f32>,
    /// The party was in the session before.
    pub is_reconnect: bool,
}

impl fmt::Debug for ConnectTarget {
    /// Prints no connect data.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectTarget")
            .field("advertisement_id", &self.advertisement_id)
            .field("reservation_id", &self.reservation_id)
            .field("seats", &self.seats)
            .field("connect_data", &debug_secret_length(&self.connect_data))
            .field("round_trip_ms", &self.round_trip_ms)
            .field("is_reconnect", &self.is_reconnect)
            .finish()
    }
}

/// The own session's advertisement.
#[derive(Clone, PartialEq)]
pub struct AdvertisedSession {
    /// Advertisement id.
    pub advertisement_id: String,
    /// Proof of ownership, for example to start a match; keep it secret.
    pub advertisement_token: Vec<u8>,
}

impl fmt::Debug for AdvertisedSession {
    /// Prints no token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdvertisedSession")
            .field("advertisement_id", &self.advertisement_id)
            .field("advertisement_token", &debug_secret_length(&self.advertisement_token))
            .finish()
    }
}

/// Datagram to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Destination.
    pub to: SocketAddr,
    /// The bytes.
    pub packet: Vec<u8>,
}
