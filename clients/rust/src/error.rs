//! What can go wrong, in the form that a game branches on: a code, the fields at fault, when to try again.

use std::collections::BTreeMap;
use std::time::Duration;

use thiserror::Error;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::pb;

/// Trailer by which a server says when to try again, or, with a negative value, not to.
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// Why a call gave no answer.
#[derive(Clone, Debug, Error)]
pub enum Error {
    /// The endpoint is not a URI such as `http://127.0.0.1:50051`.
    #[error("endpoint `{0}` is not a URI such as http://127.0.0.1:50051")]
    Endpoint(String),
    /// A metadata key or value has characters that HTTP does not allow.
    #[error("metadata `{0}` has characters that a header cannot carry")]
    Metadata(String),
    /// There is no token to show; says why, as whoever was to fetch one said it.
    #[error("no token: {0}")]
    Token(String),
    /// The server, or the way to it, said no.
    #[error("{0}")]
    Failed(Box<Failure>),
    /// The stream is over; open another. Says what the server said when it ended it, if it said anything.
    #[error("the connection has ended{}", .0.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
    Ended(Option<Box<Failure>>),
    /// More reservation events arrived than were read. The stream is over, because an event was lost; open another
    /// and the next update of each advertisement returns all its reservations.
    #[error("reservation events were not read fast enough; open another connection")]
    EventsOverflowed,
    /// The server answered without the part that was asked for.
    #[error("the answer lacks `{0}`")]
    Incomplete(&'static str),
}

/// A refused call.
#[derive(Clone, Debug, PartialEq, Error)]
#[error("{code:?}: {message}{}", fields.iter().map(|it| format!("; {}: {}", it.field, it.description)).collect::<String>())]
pub struct Failure {
    /// What kind of refusal.
    pub code: Code,
    /// For people.
    pub message: String,
    /// The request's fields at fault, when it was the request.
    pub fields: Vec<FieldProblem>,
    /// When to try again, when the server says.
    pub retry_after: Option<Duration>,
    /// The server asks not to try again at all.
    pub retry_forbidden: bool,
    /// A word for programs (`UNKNOWN_RULESET`), when the server gives one.
    pub reason: Option<String>,
    /// What belongs to the reason, such as the ruleset hash that is current.
    pub facts: BTreeMap<String, String>,
}

/// One field that the server could not accept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldProblem {
    /// The path in the request: `session_composition.party_size_composition[3]`.
    pub field: String,
    /// What would be right.
    pub description: String,
}

impl Error {
    /// The gRPC code; `None` where no server was asked.
    pub fn code(&self) -> Option<Code> {
        self.failure().map(|failure| failure.code)
    }

    /// The fields at fault; empty when it was not the request.
    pub fn fields(&self) -> &[FieldProblem] {
        self.failure().map_or(&[], |failure| &failure.fields)
    }

    /// When the server wants to be asked again; `None` when it did not say.
    pub fn retry_after(&self) -> Option<Duration> {
        self.failure().and_then(|failure| failure.retry_after)
    }

    /// All that the server said; `None` where no server was asked.
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            Error::Failed(failure) | Error::Ended(Some(failure)) => Some(failure),
            Error::Endpoint(_)
            | Error::Metadata(_)
            | Error::Token(_)
            | Error::Ended(None)
            | Error::EventsOverflowed
            | Error::Incomplete(_) => None,
        }
    }

    /// A refusal of one request on a stream that goes on.
    pub(crate) fn of_refusal(refusal: pb::RequestError) -> Self {
        let fields = if refusal.field.is_empty() {
            Vec::new()
        } else {
            vec![FieldProblem { field: refusal.field, description: refusal.message.clone() }]
        };
        Error::Failed(Box::new(Failure {
            code: Code::from_i32(refusal.code),
            message: refusal.message,
            fields,
            retry_after: refusal.retry_after_ms.map(|ms| Duration::from_millis(u64::from(ms))),
            retry_forbidden: false,
            reason: None,
            facts: BTreeMap::new(),
        }))
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        Error::Failed(Box::new(Failure::from(&status)))
    }
}

impl From<&Status> for Failure {
    fn from(status: &Status) -> Self {
        let details = status.get_error_details();
        let fields = details.bad_request().map_or(Vec::new(), |request| {
            let problem = |it: &tonic_types::FieldViolation| FieldProblem {
                field: it.field.clone(),
                description: it.description.clone(),
            };
            request.field_violations.iter().map(problem).collect()
        });
        let pushback = status.metadata().get(PUSHBACK).map(|value| value.to_str().ok()?.parse::<u64>().ok());
        let pushed_back = pushback.flatten().map(Duration::from_millis);
        let info = details.error_info();
        Failure {
            code: code_of(status),
            message: status.message().to_owned(),
            fields,
            retry_after: details.retry_info().and_then(|info| info.retry_delay).max(pushed_back),
            // gRPC A6: a negative or unreadable pushback means that the call must not be repeated.
            retry_forbidden: pushback == Some(None),
            reason: info.map(|info| info.reason.clone()),
            facts: info.map(|info| info.metadata.clone().into_iter().collect()).unwrap_or_default(),
        }
    }
}

/// The code, with two repairs. tonic files a deadline that passed on this side under CANCELLED, where every other client
/// says DEADLINE_EXCEEDED; and a connection that broke under UNKNOWN, where it is UNAVAILABLE. Only a status that was
/// made on this side has a source.
fn code_of(status: &Status) -> Code {
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

    fn failure_of(details: ErrorDetails) -> Failure {
        Failure::from(&Status::with_error_details(Code::InvalidArgument, "no", details))
    }

    #[test]
    fn fields_delay_and_reason_come_out_of_the_details() {
        let mut details = ErrorDetails::new();
        details
            .add_bad_request_violation("session_composition.players[1].skill", "a finite number")
            .set_retry_info(Some(Duration::from_millis(250)))
            .set_error_info("UNKNOWN_RULESET", "fireteam", [("current".to_owned(), "7".to_owned())]);
        let failure = failure_of(details);
        assert_eq!(failure.fields.len(), 1);
        assert_eq!(failure.fields[0].field, "session_composition.players[1].skill");
        assert_eq!(failure.retry_after, Some(Duration::from_millis(250)));
        assert_eq!(failure.reason.as_deref(), Some("UNKNOWN_RULESET"));
        assert_eq!(failure.facts.get("current").map(String::as_str), Some("7"));
        assert_eq!(failure.to_string(), "InvalidArgument: no; session_composition.players[1].skill: a finite number");
    }

    #[test]
    fn a_pushback_says_when_or_never() {
        let pushed = |text: &str| {
            let mut status = Status::unavailable("later");
            status.metadata_mut().insert(PUSHBACK, text.parse().unwrap());
            let failure = Failure::from(&status);
            (failure.retry_after, failure.retry_forbidden)
        };
        assert_eq!(pushed("40"), (Some(Duration::from_millis(40)), false));
        assert_eq!(pushed("-1"), (None, true));
        assert_eq!(pushed("soon"), (None, true));
        assert_eq!(failure_of(ErrorDetails::new()).retry_after, None);
    }

    #[test]
    fn a_deadline_is_called_a_deadline() {
        assert_eq!(Error::from(Status::cancelled("Timeout expired")).code(), Some(Code::DeadlineExceeded));
        assert_eq!(Error::from(Status::cancelled("by the caller")).code(), Some(Code::Cancelled));
        assert_eq!(Error::from(Status::unknown("by the server")).code(), Some(Code::Unknown));
    }
}
