//! Errors of the client: gRPC code, invalid fields and retry delay.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;
use tonic::{Code, Status};
use tonic_types::StatusExt;

#[cfg(feature = "runtime")]
use crate::pb;

/// Trailer with the server's retry delay, milliseconds; a negative value forbids a retry.
const PUSHBACK_TRAILER: &str = "grpc-retry-pushback-ms";

/// Error of a call or a stream.
#[derive(Clone, Debug, Error)]
pub enum Error {
    /// The endpoint is not a URI such as `http://127.0.0.1:50051`.
    #[error("endpoint `{0}` is not a URI; use the form http://127.0.0.1:50051")]
    InvalidEndpoint(String),
    /// A metadata key or value has characters that HTTP does not allow.
    #[error("metadata `{0}` has characters that HTTP does not allow; use visible ASCII")]
    InvalidMetadata(String),
    /// The token source could not provide a token; contains the text of its error.
    #[error("no token available: {0}")]
    TokenUnavailable(String),
    /// The call failed, in the server or on the way to it.
    #[error("{0}")]
    CallFailed(Box<ServerError>),
    /// The stream has ended; open another. Contains the server's error, if there is one.
    #[error("stream ended{}; open another", .0.as_ref().map(|error| format!(" ({error})")).unwrap_or_default())]
    StreamEnded(Option<Box<ServerError>>),
    /// Reservation events arrived faster than they were read, and one was lost, so the stream has ended. After opening
    /// another, the next update of each advertisement returns all its reservations.
    #[error("reservation event buffer overflowed; open another stream and read events faster")]
    EventBufferOverflow,
    /// The response has no value in a required field.
    #[error("response lacks the field `{0}`; use a client that matches the server's version")]
    MissingField(&'static str),
}

/// Error of a failed call, with the details that the server sent.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{code:?}: {message}{}", field_violations.iter().map(|violation| format!("; {}: {}", violation.field, violation.description)).collect::<String>())]
pub struct ServerError {
    /// gRPC status code.
    pub code: Code,
    /// Message for people.
    pub message: String,
    /// Invalid fields of the request; empty if the request is not the cause.
    pub field_violations: Vec<FieldViolation>,
    /// Retry delay, if the server gives one.
    pub retry_after: Option<Duration>,
    /// Whether the server forbids a retry.
    pub retry_forbidden: bool,
    /// Machine-readable reason, such as `SEATS_TAKEN`: a value of [`pb::ErrorReason`](crate::pb::ErrorReason) without its prefix. `None` if the
    /// server gives none.
    pub reason: Option<String>,
    /// Details of the reason, such as the current ruleset hash. Empty for an error of one request on a [`MatchmakingStream`], which
    /// has no details.
    ///
    /// [`MatchmakingStream`]: crate::MatchmakingStream
    pub reason_metadata: BTreeMap<String, String>,
}

/// Invalid field of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldViolation {
    /// Path in the request, such as `session_composition.party_size_composition[3]`.
    pub field: String,
    /// Description of a valid value.
    pub description: String,
}

impl Error {
    /// gRPC status code; `None` for an error without a call.
    pub fn code(&self) -> Option<Code> {
        self.as_server_error().map(|failure| failure.code)
    }

    /// Invalid fields of the request; empty if the request is not the cause.
    pub fn fields(&self) -> &[FieldViolation] {
        self.as_server_error().map_or(&[], |failure| &failure.field_violations)
    }

    /// Retry delay; `None` if the server gave none.
    pub fn retry_after(&self) -> Option<Duration> {
        self.as_server_error().and_then(|failure| failure.retry_after)
    }

    /// The complete error of the server; `None` for an error without a call.
    pub fn as_server_error(&self) -> Option<&ServerError> {
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

    /// Converts the error of one request on a stream that stays open.
    #[cfg(feature = "runtime")]
    pub(crate) fn from_request_error(error: pb::RequestError) -> Self {
        let reason = reason_name(error.reason());
        let fields = if error.field.is_empty() {
            Vec::new()
        } else {
            vec![FieldViolation { field: error.field, description: error.message.clone() }]
        };
        Error::CallFailed(Box::new(ServerError {
            code: Code::from_i32(error.code),
            message: error.message,
            field_violations: fields,
            retry_after: error.retry_after_ms.map(Duration::from_millis),
            retry_forbidden: false,
            reason,
            reason_metadata: BTreeMap::new(),
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
            let convert = |violation: &tonic_types::FieldViolation| FieldViolation {
                field: violation.field.clone(),
                description: violation.description.clone(),
            };
            request.field_violations.iter().map(convert).collect()
        });
        let pushback = status.metadata().get(PUSHBACK_TRAILER).map(|value| value.to_str().ok()?.parse::<u64>().ok());
        let pushback_delay = pushback.flatten().map(Duration::from_millis);
        let info = details.error_info();
        ServerError {
            code: normalized_code(status),
            message: status.message().to_owned(),
            field_violations: fields,
            retry_after: details.retry_info().and_then(|info| info.retry_delay).max(pushback_delay),
            // gRPC proposal A6: a negative or invalid pushback forbids a retry.
            retry_forbidden: pushback == Some(None),
            reason: info.map(|info| info.reason.clone()),
            reason_metadata: info.map(|info| info.metadata.clone().into_iter().collect()).unwrap_or_default(),
        }
    }
}

/// Name of a reason as in `ErrorInfo.reason`, such as `SEATS_TAKEN`. `None` if it is not set, or unknown to this client.
#[cfg(feature = "runtime")]
fn reason_name(reason: pb::ErrorReason) -> Option<String> {
    let name = reason.as_str_name().strip_prefix("ERROR_REASON_").filter(|_| reason != pb::ErrorReason::Unspecified);
    name.map(str::to_owned)
}

/// Status code with two corrections of tonic's client-side codes, so that they equal those of other gRPC clients.
///
/// A deadline that passes in the client is CANCELLED in tonic and becomes DEADLINE_EXCEEDED. A lost connection is UNKNOWN
/// in tonic and becomes UNAVAILABLE. Only a status that was created in the client has a source.
pub fn normalized_code(status: &Status) -> Code {
    let is_client_side = std::error::Error::source(status).is_some();
    match status.code() {
        Code::Cancelled if status.message() == "Timeout expired" => Code::DeadlineExceeded,
        Code::Unknown if is_client_side => Code::Unavailable,
        code => code,
    }
}

#[cfg(feature = "runtime")]
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
            .set_error_info("STALE_CONFIGURATION", "fireteam", [("current_hash".to_owned(), "7".to_owned())]);
        let failure = server_error_with_details(details);
        assert_eq!(failure.field_violations.len(), 1);
        assert_eq!(failure.field_violations[0].field, "session_composition.players[1].skill");
        assert_eq!(failure.retry_after, Some(Duration::from_millis(250)));
        assert_eq!(failure.reason.as_deref(), Some("STALE_CONFIGURATION"));
        assert_eq!(failure.reason_metadata.get("current_hash").map(String::as_str), Some("7"));
        assert_eq!(failure.to_string(), "InvalidArgument: no; session_composition.players[1].skill: a finite number");
    }

    #[test]
    fn request_error_has_the_reason_of_its_enum_value() {
        let reason_of = |reason: i32| {
            let error = Error::from_request_error(pb::RequestError { reason, ..Default::default() });
            error.as_server_error().unwrap().reason.clone()
        };
        assert_eq!(reason_of(pb::ErrorReason::SeatsTaken.into()).as_deref(), Some("SEATS_TAKEN"));
        assert_eq!(reason_of(pb::ErrorReason::Unspecified.into()), None);
        assert_eq!(reason_of(i32::MAX), None, "a reason of a newer server");
    }

    #[test]
    fn server_error_pushback_sets_or_forbids_the_retry() {
        let retry_of_pushback = |text: &str| {
            let mut status = Status::unavailable("later");
            status.metadata_mut().insert(PUSHBACK_TRAILER, text.parse().unwrap());
            let failure = ServerError::from(&status);
            (failure.retry_after, failure.retry_forbidden)
        };
        assert_eq!(retry_of_pushback("40"), (Some(Duration::from_millis(40)), false));
        assert_eq!(retry_of_pushback("-1"), (None, true));
        assert_eq!(retry_of_pushback("soon"), (None, true));
        assert_eq!(server_error_with_details(ErrorDetails::new()).retry_after, None);
    }

    #[test]
    fn error_code_of_a_client_side_timeout_is_deadline_exceeded() {
        assert_eq!(Error::from(Status::cancelled("Timeout expired")).code(), Some(Code::DeadlineExceeded));
        assert_eq!(Error::from(Status::cancelled("by the caller")).code(), Some(Code::Cancelled));
        assert_eq!(Error::from(Status::unknown("by the server")).code(), Some(Code::Unknown));
    }
}
