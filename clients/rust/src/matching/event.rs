//! Events of a search loop.

use std::net::SocketAddr;

use crate::matching::call::{Answer, CallError, CallId};
use crate::matching::options::HostedSession;
use crate::pb;
use crate::secret_length::SecretBytes;

/// Event for [`Matching::handle`](crate::matching::Matching::handle).
#[derive(Clone, Debug)]
pub enum Event {
    /// The party wants to play. Only the first counts.
    Start,
    /// This client hosts a session from now on: at the start, or after the host of the joined session has left and the game chose this
    /// client. The loop advertises it.
    BecomeHost(Box<HostedSession>),
    /// Another client hosts the session from now on, and this client stays in it: its advertisement is deleted.
    HostMoved,
    /// A call was answered, or failed.
    Answer {
        /// Number of the call.
        id: CallId,
        /// Its result.
        result: Result<Answer, CallError>,
    },
    /// A datagram arrived that [`is_probe`](crate::probe::is_probe) recognizes.
    Datagram {
        /// Source address.
        from: SocketAddr,
        /// The bytes.
        packet: Vec<u8>,
    },
    /// Time has passed.
    Timeout,
    /// The game has connected, after [`Outcome::Connect`](crate::matching::Outcome::Connect).
    Connected {
        /// The reservation.
        reservation_id: String,
    },
    /// The game could not connect.
    ConnectFailed {
        /// The reservation.
        reservation_id: String,
    },
    /// The joined session lost its connection. The loop asks the game to connect again, and searches if that fails.
    ConnectionLost,
    /// The hosted session has other players or seats now.
    SessionChanged {
        /// The session, with all its players and the seats that are still open.
        session: Box<pb::SessionCompositionData>,
        /// Reservations of the parties that have joined since the last change.
        joined_reservation_ids: Vec<String>,
    },
    /// A reservation of the hosted session changed, from a [`MatchmakingStream`](crate::MatchmakingStream). Without a stream, heartbeats find it.
    ReservationChanged(pb::ReservationEvent),
    /// Latency token to send from now on; empty for none. From [`Beacons::poll_token`](crate::probe::Beacons::poll_token).
    LatencyToken(SecretBytes),
    /// The player does not want to play any longer, or leaves the session. Legal in every state.
    Cancel,
}
