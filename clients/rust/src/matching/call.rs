//! Calls that a state machine asks for, and their answers.

use tonic::Code;

use crate::error::Error;
use crate::pb;

/// Number of a call. All attempts of a call have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// Call to make now, once: the state machine repeats it where that helps. Its attempt has a deadline of 5 s.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Number to return with the answer.
    pub id: CallId,
    /// The request.
    pub request: Request,
}

/// Request of the matchmaking service.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// Draws the next action.
    ChooseAction(pb::MatchmakingChooseActionRequest),
    /// Fetches the hash of the current ruleset.
    GetConfiguration(pb::MatchmakingGetConfigurationRequest),
    /// Searches for sessions.
    Search(Box<pb::MatchmakingSearchRequest>),
    /// Reports measured round trips.
    ReportLatency(Box<pb::MatchmakingReportLatencyRequest>),
    /// Reserves seats.
    Reserve(Box<pb::MatchmakingReserveRequest>),
    /// Releases seats.
    Release(pb::MatchmakingReleaseRequest),
    /// Publishes an advertisement, or keeps it alive.
    UpdateAdvertisement(Box<pb::MatchmakingUpdateAdvertisementRequest>),
    /// Deletes an advertisement.
    DeleteAdvertisement(pb::MatchmakingDeleteAdvertisementRequest),
}

/// Answer to a [`Request`]: the variant of the same name.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// To [`Request::ChooseAction`].
    ChooseAction(pb::MatchmakingChooseActionResponse),
    /// To [`Request::GetConfiguration`].
    GetConfiguration(pb::MatchmakingGetConfigurationResponse),
    /// To [`Request::Search`].
    Search(Box<pb::MatchmakingSearchResponse>),
    /// To [`Request::ReportLatency`].
    ReportLatency(Box<pb::MatchmakingReportLatencyResponse>),
    /// To [`Request::Reserve`].
    Reserve(Box<pb::MatchmakingReserveResponse>),
    /// To [`Request::Release`].
    Release,
    /// To [`Request::UpdateAdvertisement`].
    UpdateAdvertisement(Box<pb::MatchmakingUpdateAdvertisementResponse>),
    /// To [`Request::DeleteAdvertisement`].
    DeleteAdvertisement,
}

/// Failure of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallError {
    /// gRPC status code. [`Code::DeadlineExceeded`] also where no answer came in time.
    pub code: Code,
    /// Reason; [`pb::ErrorReason::Unspecified`] if the server gave none that is known here.
    pub reason: pb::ErrorReason,
    /// Milliseconds after which the server allows another attempt.
    pub retry_after_ms: Option<u64>,
    /// Message for people.
    pub message: String,
}

impl CallError {
    /// Failure without an answer.
    pub(crate) fn new_unanswered() -> Self {
        let message = "no answer in time".to_owned();
        Self { code: Code::DeadlineExceeded, reason: pb::ErrorReason::Unspecified, retry_after_ms: None, message }
    }

    /// An answer to another kind of request.
    pub(crate) fn wrong_answer() -> Self {
        let message = "the answer is to another kind of request".to_owned();
        Self { code: Code::Internal, reason: pb::ErrorReason::Unspecified, retry_after_ms: None, message }
    }

    /// A game server was to search.
    pub(crate) fn game_server_searches() -> Self {
        let message = "hosting: a game server does not search: start it with Event::BecomeHost".to_owned();
        Self { code: Code::InvalidArgument, reason: pb::ErrorReason::Unspecified, retry_after_ms: None, message }
    }

    /// Whether another attempt of the same call may succeed.
    pub(crate) fn is_transient(&self) -> bool {
        match self.code {
            Code::Unavailable | Code::DeadlineExceeded => true,
            Code::ResourceExhausted => {
                matches!(self.reason, pb::ErrorReason::RateLimited | pb::ErrorReason::Overloaded)
            }
            _ => false,
        }
    }

    /// Whether the server may have carried the call out.
    pub(crate) fn is_outcome_unknown(&self) -> bool {
        matches!(
            self.code,
            Code::Unavailable | Code::DeadlineExceeded | Code::Unknown | Code::Cancelled | Code::Internal
        )
    }

    /// Whether no later call of this client can succeed either: the request is invalid, or the caller may not make it.
    pub(crate) fn is_final(&self) -> bool {
        match self.code {
            Code::InvalidArgument | Code::Unauthenticated | Code::PermissionDenied | Code::Unimplemented => true,
            _ => {
                matches!(self.reason, pb::ErrorReason::UnknownMatchmakingSet | pb::ErrorReason::SetRetired)
            }
        }
    }
}

impl From<&Error> for CallError {
    fn from(error: &Error) -> Self {
        let Some(failure) = error.as_server_error() else {
            let code = if matches!(error, Error::TokenUnavailable(_)) { Code::Unavailable } else { Code::Unknown };
            let reason = pb::ErrorReason::Unspecified;
            return Self { code, reason, retry_after_ms: None, message: error.to_string() };
        };
        let reason =
            failure.reason.as_ref().and_then(|name| pb::ErrorReason::from_str_name(&format!("ERROR_REASON_{name}")));
        Self {
            code: failure.code,
            reason: reason.unwrap_or(pb::ErrorReason::Unspecified),
            retry_after_ms: failure.retry_after.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
            message: failure.message.clone(),
        }
    }
}
