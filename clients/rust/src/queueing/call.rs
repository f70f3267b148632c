//! Calls that a queue loop asks for, and their answers.

use crate::matching::CallId;
use crate::matching::call_table::IdempotentRequest;
use crate::pb;

/// Call to make now, once: the state machine repeats it where that helps. Its attempt has a deadline of 5 s.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueCall {
    /// Number to return with the answer.
    pub id: CallId,
    /// The request.
    pub request: QueueRequest,
}

/// Request of the queue and rating services.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueRequest {
    /// Enters the queue.
    Enter(Box<pb::QueueEnterRequest>),
    /// Accepts or declines a match.
    Respond(pb::QueueRespondRequest),
    /// Leaves the queue or the match.
    Leave(pb::QueueLeaveRequest),
    /// Reports the result of the match.
    ReportResult(pb::ReportResultRequest),
    /// Renews the round trips of the waiting ticket by a latency token.
    Heartbeat(pb::QueueHeartbeatRequest),
}

/// Answer to a [`QueueRequest`]: the variant of the same name.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueAnswer {
    /// To [`QueueRequest::Enter`].
    Enter(Box<pb::QueueEnterResponse>),
    /// To [`QueueRequest::Respond`].
    Respond(Box<pb::QueueRespondResponse>),
    /// To [`QueueRequest::Leave`].
    Leave(Box<pb::QueueLeaveResponse>),
    /// To [`QueueRequest::ReportResult`].
    ReportResult(Box<pb::ReportResultResponse>),
    /// To [`QueueRequest::Heartbeat`].
    Heartbeat(pb::QueueHeartbeatResponse),
}

impl IdempotentRequest for QueueRequest {
    type Answer = QueueAnswer;

    fn is_answered_by(&self, answer: &QueueAnswer) -> bool {
        match self {
            QueueRequest::Enter(_) => matches!(answer, QueueAnswer::Enter(_)),
            QueueRequest::Respond(_) => matches!(answer, QueueAnswer::Respond(_)),
            QueueRequest::Leave(_) => matches!(answer, QueueAnswer::Leave(_)),
            QueueRequest::ReportResult(_) => matches!(answer, QueueAnswer::ReportResult(_)),
            QueueRequest::Heartbeat(_) => matches!(answer, QueueAnswer::Heartbeat(_)),
        }
    }

    fn attempts_max(&self) -> Option<u32> {
        // A result counts until the report window ends, and a latency token until it expires.
        matches!(self, QueueRequest::ReportResult(_) | QueueRequest::Heartbeat(_)).then_some(20)
    }
}
