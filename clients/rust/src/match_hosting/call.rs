//! Calls that a host of matches asks for, and their answers.

use crate::matching::CallId;
use crate::matching::call_table::IdempotentRequest;
use crate::pb;

/// Call to make now, once: the state machine repeats it where that helps. Its attempt has a deadline of 5 s.
#[derive(Clone, Debug, PartialEq)]
pub struct HostCall {
    /// Number to return with the answer.
    pub id: CallId,
    /// The request.
    pub request: HostRequest,
}

/// Request of the queue and rating services.
#[derive(Clone, Debug, PartialEq)]
pub enum HostRequest {
    /// Confirms matches and keeps them alive.
    Heartbeat(Box<pb::QueueHostHeartbeatRequest>),
    /// Ends a match.
    EndMatch(pb::QueueEndMatchRequest),
    /// Reports the result of a match.
    ReportResult(Box<pb::ReportResultRequest>),
}

/// Answer to a [`HostRequest`]: the variant of the same name.
#[derive(Clone, Debug, PartialEq)]
pub enum HostAnswer {
    /// To [`HostRequest::Heartbeat`].
    Heartbeat(Box<pb::QueueHostHeartbeatResponse>),
    /// To [`HostRequest::EndMatch`].
    EndMatch(pb::QueueEndMatchResponse),
    /// To [`HostRequest::ReportResult`].
    ReportResult(Box<pb::ReportResultResponse>),
}

impl IdempotentRequest for HostRequest {
    type Answer = HostAnswer;

    fn is_answered_by(&self, answer: &HostAnswer) -> bool {
        match self {
            HostRequest::Heartbeat(_) => matches!(answer, HostAnswer::Heartbeat(_)),
            HostRequest::EndMatch(_) => matches!(answer, HostAnswer::EndMatch(_)),
            HostRequest::ReportResult(_) => matches!(answer, HostAnswer::ReportResult(_)),
        }
    }

    fn attempts_max(&self) -> Option<u32> {
        match self {
            // The next heartbeat follows anyway, with the matches of then.
            HostRequest::Heartbeat(_) => Some(1),
            // A server that stores them takes them until long after the match. With the shortest pause that a server asks for, 0.5 s, two
            // minutes of attempts; without one, 20 minutes.
            HostRequest::EndMatch(_) | HostRequest::ReportResult(_) => Some(240),
        }
    }
}
