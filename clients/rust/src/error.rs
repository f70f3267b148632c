//! What can go wrong, in the form that a game branches on: a code, the fields at fault, when to try again.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::pb;

/// Trailer by which a server says when to try again, or, with a negative value, not to.
const PUSHBACK_TRAILER: &str = "grpc-retry-pushback-ms";

/// Why a call gave no answer.
#[derive(Clone, Debug, Error)]
pub enum Error {
    /// The endpoint is not a URI such as `http://127.0.0.1:50051`.
    #[error("endpoint `{0}` is not a URI such as http://127.0.0.1:50051")]
    InvalidEndpoint(String),
    /// A metadata key or value has characters that HTTP does not allow.
    #[error("metadata `{0}` has characters that a header cannot carry")]
    InvalidMetadata(String),
    /// There is no token to show; says why, as whoever was to fetch one said it.
    #[error("no token: {0}")]
    TokenUnavailable(String),
    /// The server, or the way to it, said no.
    #[error("{0}")]
    CallFailed(Box<ServerError>),
    /// The stream is over; open another. Says what the server said when it ended it, if it said anything.
    #[error("the connection has ended{}", .0.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    StreamEnded(Option<Box<ServerError>>),
    /// More reservation events arrived than were read. The stream is over, because an event was lost; open another
    /// and the next update of each advertisement returns all its reservations.
    #[error("reservation events were not read fast enough; open another connection")]
    EventBufferOverflow,
    /// The server answered without the part that was asked for.
    #[error("the answer lacks `{0}`")]
    MissingField(&'static str),
}

/// A refused call.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{code:?}: {message}{}", fields.iter().map(|it| format!("; {}: {}", it.field, it.description)).collect::<String>())]
pub struct ServerError {
    /// What kind of refusal.
    pub code: Code,
    /// For people.
    pub message: String,
    /// The request's fields at fault, when it was the request.
    pub fields: Vec<FieldViolation>,
    /// When to try again, when the server says.
    pub retry_after: Option<Duration>,
    /// The server asks not to try again at all.
    pub retry_forbidden: bool,
    /// A word for programs (`UNKNOWN_RULESET`), when the server gives one.
    pub reason: Option<String>,
    /// What belongs to the reason, such as the ruleset hash that is current.
    pub metadata: BTreeMap<String, String>,
}

/// One field that the server could not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// The path in the request: `session_composition.party_size_composition[3]`.
    pub field: String,
    /// What would be right.
    pub description: String,
}

impl Error {
    /// The gRPC code; `None` where no server was asked.
    pub fn code(&self) -> Option<Code> {
        self.server_error().map(|failure| failure.code)
    }

    /// The fields at fault; empty when it was not the request.
    pub fn fields(&self) -> &[FieldViolation] {
        self.server_error().map_or(&[], |failure| &failure.fields)
    }

    /// When the server wants to be asked again; `None` when it did not say.
    pub fn retry_after(&self) -> Option<Duration> {
        self.server_error().and_then(|failure| failure.retry_after)
    }

    /// All that the server said; `None` where no server was asked.
    pub fn server_error(&self) -> Option<&ServerError> {
        match self {
            Error::CallFailed(failure) | Error::StreamEnded(Some(failure)) => Some(failure),
            Error::InvalidEndpoint(_)
            | Error::InvalidMetadata(_)
            | Error::TokenUnavailable(_)
            | Error::StreamEnded(None)
            | Error::EventBufferOverflow
            | Error::MissingField(_) => None,
        }
    }

    /// A refusal of one request on a stream that goes on.
    pub(crate) fn from_request_error(refusal: pb::RequestError) -> Self {
        let fields = if refusal.field.is_empty() {
            Vec::new()
        } else {
            vec![FieldViolation { field: refusal.field, description: refusal.message.clone() }]
        };
        Error::CallFailed(Box::new(ServerError {
            code: Code::from_i32(refusal.code),
            message: refusal.message,
            fields,
            retry_after: refusal.retry_after_ms.map(|ms| Duration::from_millis(u64::from(ms))),
            retry_forbidden: false,
            reason: None,
            metadata: BTreeMap::new(),
        }))
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Error::CallFailed(Box::new(ServerError::from(&status)))
    }
}

impl From<&Status> for ServerError {
    fn from(status: &Status) -> Self {
        let details = status.get_error_details();
        let fields = details.bad_request().map_or(Vec::new(), |request| {
            let problem = |it: &tonic_types::FieldViolation| FieldViolation {
                field: it.field.clone(),
                description: it.description.clone(),
            };
            request.field_violations.iter().map(problem).collect()
        });
        let pushback = status.metadata().get(PUSHBACK_TRAILER).map(|value| value.to_str().ok()?.parse::<u64>().ok());
        let pushed_back = pushback.flatten().map(Duration::from_millis);
        let info = details.error_info();
        ServerError {
            code: code_from_status(status),
            message: status.message().to_owned(),
            fields,
            retry_after: details.retry_info().and_then(|info| info.retry_delay).max(pushed_back),
            // gRPC A6: a negative or unreadable pushback means that the call must not be repeated.
            retry_forbidden: pushback == Some(None),
            reason: info.map(|info| info.reason.clone()),
            metadata: info.map(|info| info.metadata.clone().into_iter().collect()).unwrap_or_default(),
        }
    }
}

/// The code, with two repairs. tonic files a deadline that passed on this side under CANCELLED, where every other client
/// says DEADLINE_EXCEEDED; and a connection that broke under UNKNOWN, where it is UNAVAILABLE. Only a status that was
/// made on this side has a source.
fn code_from_status(status: &Status) -> Code {
    let made_here = std::error::Error::source(status).is_some();
    match status.code() {
        Code::Cancelled if status.message() == "Timeout expired" => Code::DeadlineExceeded,
        Code::Unknown if made_here => Code::Unavailable,
        code => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tonic_types::ErrorDetails;

    fn server_error_with_details(details: ErrorDetails) -> ServerError {
        ServerError::from(&Status::with_error_details(Code::InvalidArgument, "no", details))
    }

    #[test]
    fn server_error_has_fields_delay_and_reason_from_the_details() {
        let mut details = ErrorDetails::new();
        details
            .add_bad_request_violation("session_composition.players[1].skill", "a finite number")
            .set_retry_info(Some(Duration::from_millis(250)))
            .set_error_info("UNKNOWN_RULESET", "fireteam", [("current".to_owned(), "7".to_owned())]);
        let failure = server_error_with_details(details);
        assert_eq!(failure.fields.len(), 1);
        assert_eq!(failure.fields[0].field, "session_composition.players[1].skill");
        assert_eq!(failure.retry_after, Some(Duration::from_millis(250)));
        assert_eq!(failure.reason.as_deref(), Some("UNKNOWN_RULESET"));
        assert_eq!(failure.metadata.get("current").map(String::as_str), Some("7"));
        assert_eq!(failure.to_string(), "InvalidArgument: no; session_composition.players[1].skill: a finite number");
    }

    #[test]
    fn server_error_pushback_sets_or_forbids_the_retry() {
        let pushed = |text: &str| {
            let mut status = Status::unavailable("later");
            status.metadata_mut().insert(PUSHBACK_TRAILER, text.parse().unwrap());
            let failure = ServerError::from(&status);
            (failure.retry_after, failure.retry_forbidden)
        };
        assert_eq!(pushed("40"), (Some(Duration::from_millis(40)), false));
        assert_eq!(pushed("-1"), (None, true));
        assert_eq!(pushed("soon"), (None, true));
        assert_eq!(server_error_with_details(ErrorDetails::new()).retry_after, None);
    }

    #[test]
    fn error_code_of_a_client_side_timeout_is_deadline_exceeded() {
        assert_eq!(Error::from(Status::cancelled("Timeout expired")).code(), Some(Code::DeadlineExceeded));
        assert_eq!(Error::from(Status::cancelled("by the caller")).code(), Some(Code::Cancelled));
        assert_eq!(Error::from(Status::unknown("by the server")).code(), Some(Code::Unknown));
    }
}
