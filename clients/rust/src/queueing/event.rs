//! Events of a queue loop, and its outcomes.

use crate::matching::{CallError, CallId};
use crate::pb;
use crate::queueing::call::QueueAnswer;
use crate::secret_length::SecretBytes;

/// Event for [`Queueing::handle`](crate::queueing::Queueing::handle).
#[derive(Clone, Debug)]
pub enum QueueEvent {
    /// The party wants to play, or goes on after a restore. Only the first counts.
    Start,
    /// A call was answered, or failed.
    Answer {
        /// Number of the call.
        id: CallId,
        /// Its result.
        result: Result<QueueAnswer, CallError>,
    },
    /// The watch told a status.
    Status(Box<pb::TicketStatus>),
    /// The watch ended, or could not be opened. `None`: the server ended it.
    WatchEnded(Option<CallError>),
    /// Time has passed.
    Timeout,
    /// Reply of the players to [`QueueOutcome::ReadyCheck`].
    Respond {
        /// Match id of the ready check.
        match_id: String,
        /// Whether they accept.
        accept: bool,
    },
    /// The game has connected, after [`QueueOutcome::Connect`].
    Connected,
    /// The game could not connect.
    ConnectFailed,
    /// The match was played; ranks of its teams. Only where players report: not of matches on a game server.
    Report(Vec<pb::TeamRank>),
    /// Latency token to send from now on; empty for none. From [`Beacons::poll_token`](crate::probe::Beacons::poll_token). One before the
    /// start enters the queue with the ticket.
    LatencyToken(SecretBytes),
    /// The player does not want to play any longer, or leaves the match. Legal in every state.
    Cancel,
}

/// Request to the game, or news for it.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueOutcome {
    /// Status of the ticket, each time that the server tells one.
    Status(Box<pb::TicketStatus>),
    /// Ask the players whether they accept this match, before its deadline. Answer with [`QueueEvent::Respond`].
    ReadyCheck(Box<pb::MatchStatus>),
    /// Connect to the match's host now, as its `assignment` says. Answer with [`QueueEvent::Connected`] or
    /// [`QueueEvent::ConnectFailed`].
    Connect(Box<pb::MatchStatus>),
    /// The loop has ended.
    Ended(QueueEnd),
}

/// Reason that a queue loop ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueEnd {
    /// The ticket has ended, for this reason.
    Ticket(pb::TicketEndReason),
    /// By [`QueueEvent::Cancel`].
    Cancelled,
    /// The server was out of reach until the ticket expired, or does not know it any longer.
    Lost,
    /// The game could not connect to its match, and the party has left it.
    CouldNotConnect,
    /// A call failed in a way that no repetition changes.
    Failed(CallError),
}

/// State of a queue loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueingState {
    /// Not started.
    Idle,
    /// The ticket is being entered.
    Entering,
    /// Watching the ticket: it waits, is in a ready check, or a game server is being found.
    Watching,
    /// The game connects to the match.
    Connecting,
    /// In the match.
    Playing,
    /// The ticket is being left.
    Ending,
    /// Ended.
    Ended,
}
