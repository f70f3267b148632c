//! Events of a host of matches, and its outcomes.

use crate::match_hosting::call::HostAnswer;
use crate::matching::{CallError, CallId};
use crate::pb;

/// Event for [`MatchHosting::handle`](crate::match_hosting::MatchHosting::handle).
#[derive(Clone, Debug)]
pub enum HostingEvent {
    /// The advertisement is published. Only the first counts.
    Start,
    /// A call was answered, or failed.
    Answer {
        /// Number of the call.
        id: CallId,
        /// Its result.
        result: Result<HostAnswer, CallError>,
    },
    /// Time has passed.
    Timeout,
    /// A match has taken seats or has changed, as a stream tells: the next heartbeat is sent now.
    MatchesChanged,
    /// The host gives up a match that it knows, with the next heartbeat, which is sent now. Another game server is sought if play has not begun.
    GiveUp {
        /// Match id.
        match_id: String,
    },
    /// The match is over. A report ends it, too.
    EndMatch {
        /// Match id.
        match_id: String,
        /// It could not be hosted and was not played.
        failed: bool,
    },
    /// The match was played: its result. The token of the advertisement is added.
    Report(Box<pb::ReportResultRequest>),
    /// The host stops: matches that are played end with HOST_LOST, unless another process goes on with their advertisement. Ends and reports
    /// that were sent are still awaited, for at most 10 s.
    Stop,
}

/// News for the game server.
#[derive(Clone, Debug, PartialEq)]
pub enum HostingOutcome {
    /// A match as it is now, when it is new or has changed. CONFIRMING and PLAYING matches are kept alive; others are over for this host.
    Match(Box<pb::HostedMatch>),
    /// A match has ended, by [`HostingEvent::EndMatch`].
    MatchEnded {
        /// Match id.
        match_id: String,
        /// Reason that it ended.
        end_reason: pb::MatchEndReason,
    },
    /// The result of a match is stored.
    Reported {
        /// Match id.
        match_id: String,
        /// Rating changes.
        response: Box<pb::ReportResultResponse>,
    },
    /// The end or the report of a match has failed, or a match that is given up is none of this host. After UNAVAILABLE,
    /// DEADLINE_EXCEEDED and RESOURCE_EXHAUSTED the same may be given again; after CANCELLED, which a host that is not running
    /// gives, to another host of the advertisement.
    Refused {
        /// Match id.
        match_id: String,
        /// The failure.
        error: CallError,
    },
    /// The advertisement has as many matches as the server lists at once, or more. It lists more by turns, so a new one may be known here too
    /// late to be confirmed, and get another game server: publish another advertisement. Told once until the list is shorter.
    ListFull {
        /// Most matches of a list.
        matches_max: usize,
    },
    /// The host has ended.
    Ended(HostEnd),
}

/// Reason that a host of matches ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostEnd {
    /// By [`HostingEvent::Stop`].
    Stopped,
    /// A heartbeat failed in a way that no repetition changes.
    Failed(CallError),
}

/// State of a host of matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostingState {
    /// Not started.
    Idle,
    /// Sends heartbeats.
    Hosting,
    /// Waits for the calls underway.
    Ending,
    /// Ended.
    Ended,
}
