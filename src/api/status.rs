//! Every reason not to answer, and the gRPC status that each becomes: one table for calls and for connections.

use std::collections::HashMap;
use std::time::Duration;

use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

use crate::api::pb;
use crate::auth::quota::OverQuota;
use crate::domain::facts::FieldProblem;
use crate::domain::filter::Side;
use crate::engine::fault::Fault;

/// Who speaks in an ErrorInfo.
pub const ERROR_DOMAIN: &str = "fireteam";

/// Fields named in one refusal. Details travel in a header, and clients accept 8 KiB of headers, in base64.
const VIOLATIONS_MAX: usize = 16;

/// Bytes of one path or one explanation in a refusal.
const EXPLANATION_BYTES_MAX: usize = 160;

/// Why a request is refused, in the words of the wire.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// The status code.
    pub code: Code,
    /// For programs: upper case with underscores, stable.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Facts that a program may act on.
    pub metadata: Vec<(&'static str, String)>,
    /// Fields at fault, with their whole paths.
    pub fields: Vec<FieldProblem>,
    /// When trying again may help.
    pub retry_after_ms: Option<u32>,
}

impl Rejection {
    /// A refusal with nothing but a code, a reason and a message.
    pub fn new(code: Code, reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, reason, message, metadata: Vec::new(), fields: Vec::new(), retry_after_ms: None }
    }

    /// Refuses a request whose fields are at fault; paths are whole.
    pub fn of_fields(mut fields: Vec<FieldProblem>) -> Self {
        let more = fields.len().saturating_sub(VIOLATIONS_MAX);
        fields.truncate(VIOLATIONS_MAX);
        for problem in &mut fields {
            shorten(&mut problem.path);
            shorten(&mut problem.what);
        }
        let first = fields.first().map_or_else(String::new, |problem| format!("{}: {}", problem.path, problem.what));
        let message = match fields.len() - usize::from(!fields.is_empty()) + more {
            0 => first,
            others => format!("{first} (and {others} more)"),
        };
        Self { fields, ..Self::new(Code::InvalidArgument, "INVALID_REQUEST", message) }
    }

    /// The server is going away; another one will answer.
    pub fn going_away() -> Self {
        Self::new(Code::Unavailable, "GOING_AWAY", "the server is going away; connect again")
    }

    fn with(mut self, key: &'static str, value: impl ToString) -> Self {
        self.metadata.push((key, value.to_string()));
        self
    }

    fn retry_after(mut self, retry_after_ms: u32) -> Self {
        self.retry_after_ms = Some(retry_after_ms);
        self
    }

    /// The status of a call.
    pub fn into_status(self) -> Status {
        let mut details = ErrorDetails::new();
        let facts: HashMap<String, String> =
            self.metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        details.set_error_info(self.reason, ERROR_DOMAIN, facts);
        if !self.fields.is_empty() {
            let violations: Vec<FieldViolation> =
                self.fields.into_iter().map(|problem| FieldViolation::new(problem.path, problem.what)).collect();
            details.set_bad_request(violations);
        }
        let mut metadata = MetadataMap::new();
        if let Some(ms) = self.retry_after_ms {
            details.set_retry_info(Some(Duration::from_millis(u64::from(ms))));
            metadata.insert("grpc-retry-pushback-ms", ms.into());
        }
        Status::with_error_details_and_metadata(self.code, self.message, details, metadata)
    }

    /// What a connection answers instead.
    pub fn into_wire(self) -> pb::RequestRefusal {
        pb::RequestRefusal {
            code: self.code.into(),
            message: self.message,
            field: self.fields.into_iter().next().map_or_else(String::new, |problem| problem.path),
            retry_after_ms: self.retry_after_ms,
        }
    }
}

impl From<Rejection> for Status {
    fn from(rejection: Rejection) -> Self {
        rejection.into_status()
    }
}

impl From<OverQuota> for Rejection {
    fn from(over: OverQuota) -> Self {
        let (quota, retry_after_ms) = (over.quota(), over.retry_after_ms);
        let text = format!("the quota {quota} is used up; try again in {retry_after_ms} ms");
        Self::new(Code::ResourceExhausted, "QUOTA_EXCEEDED", text).with("quota", quota).retry_after(retry_after_ms)
    }
}

impl From<Fault> for Rejection {
    #[expect(clippy::too_many_lines, reason = "an arm for each fault: what is told of them is read side by side")]
    fn from(fault: Fault) -> Self {
        use Code as C;
        match fault {
            Fault::Fields(fields) => Self::of_fields(fields),
            Fault::UnknownSet(set) => {
                let text = format!("no ruleset rules matchmaking set {set}");
                Self::new(C::NotFound, "UNKNOWN_MATCHMAKING_SET", text).with("matchmaking_set_id", set)
            }
            Fault::UnknownHash { given, current } => {
                let text = format!("service_configuration_hash {given} is not known; fetch {current}");
                Self::new(C::FailedPrecondition, "STALE_CONFIGURATION", text).with("current_hash", current)
            }
            // The same words whether or not the thing exists, so that nobody can find out by asking.
            Fault::NotYours => Self::new(C::PermissionDenied, "NOT_YOURS", "the token does not allow this"),
            Fault::NotAServer => {
                let text = "kind: only game servers advertise ADVERTISEMENT_KIND_SERVER; leave it out";
                Self::new(C::PermissionDenied, "NOT_A_SERVER", text)
            }
            Fault::NotAPlayer => Self::new(C::PermissionDenied, "NOT_A_PLAYER", "only players come along with players"),
            Fault::Absent => Self::new(C::NotFound, "ABSENT", "there is no such thing (any more): send it whole"),
            Fault::Deleted => {
                Self::new(C::FailedPrecondition, "DELETED", "it was deleted and stays so: make a new one")
            }
            Fault::SeatsTaken { open_seats } => {
                let text = format!("only {open_seats} seats are open; try the next candidate");
                Self::new(C::FailedPrecondition, "SEATS_TAKEN", text).with("open_seats", open_seats)
            }
            Fault::Refused { rule, side } => {
                let side = side_word(side);
                let text = format!("`{rule}` refuses the pair, on the {side}'s side; try the next candidate");
                Self::new(C::FailedPrecondition, "REFUSED_BY_RULE", text).with("rule", rule).with("side", side)
            }
            Fault::KeyReused => {
                Self::new(C::AlreadyExists, "IDEMPOTENCY_KEY_REUSED", "the idempotency key stands for something else")
            }
            Fault::ReservationEnded => {
                let text = "these seats were given back or lapsed; reserve with a new key";
                Self::new(C::FailedPrecondition, "RESERVATION_ENDED", text)
            }
            Fault::TooManyReservations => {
                let text = "the session holds as many reservations as it may; try the next candidate";
                Self::new(C::ResourceExhausted, "TOO_MANY_RESERVATIONS", text)
            }
            Fault::NoQueue(set) => {
                let text = format!("matchmaking set {set} has no queue: its sessions are advertised and searched");
                Self::new(C::FailedPrecondition, "NO_QUEUE", text)
            }
            Fault::PartyTooLarge { size, most } => {
                let text = format!("a party of {size} is too large for this queue: at most {most} may enter together");
                Self::new(C::FailedPrecondition, "PARTY_TOO_LARGE", text).with("max_party_size", most)
            }
            Fault::AlreadyQueued { player, ticket } => {
                let text = format!("session_composition.players[{player}] waits already: leave that ticket first");
                let rejection = Self::new(C::AlreadyExists, "ALREADY_QUEUED", text).with("player", player);
                ticket.into_iter().fold(rejection, |rejection, id| rejection.with("ticket_id", id))
            }
            Fault::InAMatch { player } => {
                let text = format!("session_composition.players[{player}] is in a match: it must be over first");
                Self::new(C::FailedPrecondition, "IN_A_MATCH", text).with("player", player)
            }
            Fault::Barred { player, retry_after_ms } => {
                let text = format!(
                    "session_composition.players[{player}] let a ready check fail and may queue again in {retry_after_ms} ms"
                );
                let rejection = Self::new(C::PermissionDenied, "BARRED", text).with("player", player);
                rejection.retry_after(retry_after_ms)
            }
            Fault::NotWaiting => {
                let text = "the ticket does not wait, or a player of it is in a match by another ticket";
                Self::new(C::FailedPrecondition, "NOT_WAITING", text)
            }
            Fault::NoReadyCheck => {
                let text = "there is no ready check of this match to answer, or no longer";
                Self::new(C::FailedPrecondition, "NO_READY_CHECK", text)
            }
            Fault::NotBegun => {
                let text = "the match is not played yet: answer its ready check, or leave";
                Self::new(C::FailedPrecondition, "NOT_BEGUN", text)
            }
            Fault::NoSuchMatch => {
                Self::new(C::NotFound, "NO_SUCH_MATCH", "there is no match of that name, or it was over long ago")
            }
            Fault::NotPlayed => {
                let text = "the match has not begun, or was not played: there is no result of it";
                Self::new(C::FailedPrecondition, "NOT_PLAYED", text)
            }
            Fault::AlreadyReported { first } => {
                let text = format!("another result of this match was reported before: {first}");
                Self::new(C::FailedPrecondition, "ALREADY_REPORTED", text).with("reported", first)
            }
            Fault::AlreadyScored { score } => {
                let text = format!("the player has given this match {score} before: once for each match");
                Self::new(C::FailedPrecondition, "ALREADY_SCORED", text).with("score", score)
            }
            Fault::NoRatings(set) => {
                let text = format!("matchmaking set {set} keeps no ratings: its ruleset has no <Rating>");
                Self::new(C::FailedPrecondition, "NO_RATINGS", text).with("matchmaking_set_id", set)
            }
            Fault::OverridesForbidden => {
                let text = "search_config_overrides: this server does not allow overrides";
                Self::new(C::PermissionDenied, "OVERRIDES_FORBIDDEN", text)
            }
            Fault::Overloaded { retry_after_ms } => {
                let text = "too much is waiting to be written; try later";
                Self::new(C::ResourceExhausted, "OVERLOADED", text).retry_after(retry_after_ms)
            }
            Fault::StoreUnavailable { retry_after_ms } => {
                let text = "the store is out of reach; nothing was promised; try later";
                Self::new(C::Unavailable, "STORE_UNAVAILABLE", text).retry_after(retry_after_ms)
            }
            Fault::Draining => Self::going_away(),
            Fault::Internal => Self::new(C::Internal, "INTERNAL", "the server failed; its log has more"),
        }
    }
}

fn side_word(side: Side) -> &'static str {
    match side {
        Side::Searcher => "searcher",
        Side::Advertiser => "advertiser",
    }
}

/// Cuts a text at a character's edge.
fn shorten(text: &mut String) {
    if EXPLANATION_BYTES_MAX < text.len() {
        let end = text.floor_char_boundary(EXPLANATION_BYTES_MAX - 3);
        text.truncate(end);
        text.push('…');
    }
}
