//! Every reason not to answer, and the gRPC status that each becomes: one table for calls and for connections.

use std::collections::HashMap;
use std::time::Duration;

use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

use crate::api::pb::ErrorReason;
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
    pub reason: ErrorReason,
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
    pub fn new(code: Code, reason: ErrorReason, message: impl Into<String>) -> Self {
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
        Self { fields, ..Self::new(Code::InvalidArgument, ErrorReason::InvalidRequest, message) }
    }

    /// The server is going away; another one will answer.
    pub fn going_away() -> Self {
        Self::new(Code::Unavailable, ErrorReason::Draining, "the server is shutting down; connect again")
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
        details.set_error_info(reason_name(self.reason), ERROR_DOMAIN, facts);
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
    pub fn into_wire(self) -> pb::RequestError {
        pb::RequestError {
            code: self.code.into(),
            message: self.message,
            field: self.fields.into_iter().next().map_or_else(String::new, |problem| problem.path),
            retry_after_ms: self.retry_after_ms,
            reason: self.reason.into(),
        }
    }
}

/// The `ErrorInfo.reason` of a reason: the enum value's name without its prefix.
pub fn reason_name(reason: ErrorReason) -> &'static str {
    reason.as_str_name().trim_start_matches("ERROR_REASON_")
}

impl From<Rejection> for Status {
    fn from(rejection: Rejection) -> Self {
        rejection.into_status()
    }
}

impl From<OverQuota> for Rejection {
    fn from(over: OverQuota) -> Self {
        let (quota, retry_after_ms) = (over.quota(), over.retry_after_ms);
        let text = format!("rate limit {quota} exceeded; retry in {retry_after_ms} ms");
        Self::new(Code::ResourceExhausted, ErrorReason::RateLimited, text).with("limit", quota).retry_after(retry_after_ms)
    }
}

impl From<Fault> for Rejection {
    #[expect(clippy::too_many_lines, reason = "an arm for each fault: what is told of them is read side by side")]
    fn from(fault: Fault) -> Self {
        use Code as C;
        match fault {
            Fault::Fields(fields) => Self::of_fields(fields),
            Fault::UnknownSet(set) => {
                let text = format!("unknown matchmaking_set_id {set}; use the SetId of a loaded ruleset");
                Self::new(C::NotFound, ErrorReason::UnknownMatchmakingSet, text).with("matchmaking_set_id", set)
            }
            Fault::UnknownHash { given, current } => {
                let text = format!("service_configuration_hash {given} is no longer cached; fetch the current ruleset, {current}");
                Self::new(C::FailedPrecondition, ErrorReason::StaleConfiguration, text).with("current_hash", current)
            }
            // The same words whether or not the thing exists, so that nobody can find out by asking.
            Fault::NotYours => Self::new(C::PermissionDenied, ErrorReason::NotOwner, "the token does not grant access to this object; send the token from its creation"),
            Fault::NotAServer => {
                let text = "kind: ADVERTISEMENT_KIND_GAME_SERVER requires the role game_server; leave kind out";
                Self::new(C::PermissionDenied, ErrorReason::GameServerRoleRequired, text)
            }
            Fault::NotAPlayer => Self::new(C::PermissionDenied, ErrorReason::ClientRoleRequired, "only callers with the role client may grant consent; use a player's token"),
            Fault::AdvertisementNotFound => Self::new(C::NotFound, ErrorReason::AdvertisementNotFound, "advertisement not found or expired; resend the full session_composition"),
            Fault::TicketNotFound => {
                Self::new(C::NotFound, ErrorReason::TicketNotFound, "ticket not found, or ended and forgotten; check ticket_id")
            }
            Fault::Deleted => {
                Self::new(C::FailedPrecondition, ErrorReason::AdvertisementDeleted, "advertisement was deleted; create a new one")
            }
            Fault::SeatsTaken { open_seats } => {
                let text = format!("only {open_seats} seats are open; try the next candidate");
                Self::new(C::FailedPrecondition, ErrorReason::SeatsTaken, text).with("open_seats", open_seats)
            }
            Fault::Refused { rule, side } => {
                let side = side_word(side);
                let text = format!("rule `{rule}` of the {side} refuses the pair; try the next candidate");
                Self::new(C::FailedPrecondition, ErrorReason::RefusedByRule, text).with("rule", rule).with("side", side)
            }
            Fault::KeyReused => {
                Self::new(C::AlreadyExists, ErrorReason::IdempotencyKeyReused, "idempotency_key was used for a different request; choose a new key")
            }
            Fault::ReservationEnded => {
                let text = "reservation was released or has expired; reserve with a new idempotency_key";
                Self::new(C::FailedPrecondition, ErrorReason::ReservationEnded, text)
            }
            Fault::TooManyReservations => {
                let text = "the session has its maximum number of reservations; try the next candidate";
                Self::new(C::ResourceExhausted, ErrorReason::TooManyReservations, text)
            }
            Fault::NoQueue(set) => {
                let text = format!("matchmaking set {set} has no queue; use Search and UpdateAdvertisement");
                Self::new(C::FailedPrecondition, ErrorReason::NoQueue, text)
            }
            Fault::PartyTooLarge { size, most } => {
                let text = format!("party has {size} players; this queue accepts at most {most}");
                Self::new(C::FailedPrecondition, ErrorReason::PartyTooLarge, text).with("max_party_size", most)
            }
            Fault::AlreadyQueued { player, ticket } => {
                let text = format!("session_composition.players[{player}] is already queued; leave that ticket first");
                let rejection = Self::new(C::AlreadyExists, ErrorReason::AlreadyQueued, text).with("player", player);
                ticket.into_iter().fold(rejection, |rejection, id| rejection.with("ticket_id", id))
            }
            Fault::InAMatch { player } => {
                let text = format!("session_composition.players[{player}] is in a match; wait until it ends");
                Self::new(C::FailedPrecondition, ErrorReason::AlreadyInMatch, text).with("player", player)
            }
            Fault::Barred { player, retry_after_ms } => {
                let text = format!(
                    "session_composition.players[{player}] failed a ready check; retry in {retry_after_ms} ms"
                );
                let rejection = Self::new(C::PermissionDenied, ErrorReason::QueueCooldown, text).with("player", player);
                rejection.retry_after(retry_after_ms)
            }
            Fault::NotWaiting => {
                let text = "the ticket is not waiting, or one of its players is in another match";
                Self::new(C::FailedPrecondition, ErrorReason::TicketNotWaiting, text)
            }
            Fault::NoReadyCheck => {
                let text = "this match has no open ready check; watch the ticket for its status";
                Self::new(C::FailedPrecondition, ErrorReason::NoReadyCheck, text)
            }
            Fault::NotBegun => {
                let text = "the match has not started; respond to its ready check, or leave";
                Self::new(C::FailedPrecondition, ErrorReason::MatchNotStarted, text)
            }
            Fault::NoSuchMatch => {
                Self::new(C::NotFound, ErrorReason::MatchNotFound, "match not found, or ended and forgotten; check match_id")
            }
            Fault::NotPlayed => {
                let text = "the match was not played; only played matches have a result";
                Self::new(C::FailedPrecondition, ErrorReason::MatchNotPlayed, text)
            }
            Fault::AlreadyReported { first } => {
                let text = format!("a different result was reported before: {first}; the first result stands");
                Self::new(C::FailedPrecondition, ErrorReason::AlreadyReported, text).with("reported", first)
            }
            Fault::AlreadyScored { score } => {
                let text = format!("the player already gave this match {score} stars; feedback cannot be changed");
                Self::new(C::FailedPrecondition, ErrorReason::FeedbackAlreadyGiven, text).with("stars", score)
            }
            Fault::NoRatings(set) => {
                let text = format!("matchmaking set {set} has no rating system; add <Rating> to its ruleset");
                Self::new(C::FailedPrecondition, ErrorReason::NoRatingSystem, text).with("matchmaking_set_id", set)
            }
            Fault::OverridesForbidden => {
                let text = "search_config_overrides are disabled; start the server with --allow-search-overrides";
                Self::new(C::PermissionDenied, ErrorReason::OverridesForbidden, text)
            }
            Fault::Overloaded { retry_after_ms } => {
                let text = "too many writes are pending; retry after the delay in RetryInfo";
                Self::new(C::ResourceExhausted, ErrorReason::Overloaded, text).retry_after(retry_after_ms)
            }
            Fault::StoreUnavailable { retry_after_ms } => {
                let text = "the store is unavailable and nothing was changed; retry after the delay in RetryInfo";
                Self::new(C::Unavailable, ErrorReason::StoreUnavailable, text).retry_after(retry_after_ms)
            }
            Fault::Draining => Self::going_away(),
            Fault::Internal => Self::new(C::Internal, ErrorReason::Internal, "internal error; see the server's log"),
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
