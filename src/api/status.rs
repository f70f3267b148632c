//! Errors of the API: one table from engine errors to gRPC status, `ErrorInfo` reason and retry delay, for calls and
//! for the Connect stream.

use std::collections::HashMap;
use std::time::Duration;

use tonic::metadata::MetadataMap;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, FieldViolation, StatusExt};

use crate::api::pb;
use crate::api::pb::ErrorReason;
use crate::auth::rate_limit::RateLimitExceeded;
use crate::domain::attribute_values::FieldProblem;
use crate::domain::filter::RefusingSide;
use crate::engine::error::{EngineError, RetireObstacle, SwapObstacle};

/// `ErrorInfo.domain` of each error.
pub const ERROR_DOMAIN: &str = "fireteam";

/// Limit of fields listed in one error. Details travel in a header as base64, and clients accept 8 KiB of headers.
const FIELD_VIOLATIONS_MAX: usize = 16;

/// Limit of one field path or one field message, bytes.
const VIOLATION_TEXT_BYTES_MAX: usize = 160;

/// Error response to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Rejection {
    /// gRPC status code.
    pub code: Code,
    /// Stable reason for programs.
    pub reason: ErrorReason,
    /// Message for people.
    pub message: String,
    /// `ErrorInfo.metadata`: values that a program may act on.
    pub error_info_metadata: Vec<(&'static str, String)>,
    /// Invalid fields with their full paths.
    pub fields: Vec<FieldProblem>,
    /// Delay after which a retry may succeed, milliseconds; `None` if a retry does not help.
    pub retry_after_ms: Option<u32>,
}

impl Rejection {
    /// Creates an error without fields, metadata and retry delay.
    pub fn new(code: Code, reason: ErrorReason, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { code, reason, message, error_info_metadata: Vec::new(), fields: Vec::new(), retry_after_ms: None }
    }

    /// Creates the error of a request with invalid fields; paths are complete.
    pub fn invalid_fields(mut fields: Vec<FieldProblem>) -> Self {
        let more = fields.len().saturating_sub(FIELD_VIOLATIONS_MAX);
        fields.truncate(FIELD_VIOLATIONS_MAX);
        for problem in &mut fields {
            truncate_text(&mut problem.path);
            truncate_text(&mut problem.message);
        }
        let first = fields.first().map_or_else(String::new, |problem| format!("{}: {}", problem.path, problem.message));
        let message = match fields.len() - usize::from(!fields.is_empty()) + more {
            0 => first,
            others => format!("{first} (and {others} more)"),
        };
        Self { fields, ..Self::new(Code::InvalidArgument, ErrorReason::InvalidRequest, message) }
    }

    /// Error of a server that is draining. A client that reconnects reaches another server.
    pub fn draining() -> Self {
        Self::new(Code::Unavailable, ErrorReason::Draining, "the server is shutting down; connect again")
    }

    fn with_metadata(mut self, key: &'static str, value: impl ToString) -> Self {
        self.error_info_metadata.push((key, value.to_string()));
        self
    }

    fn with_retry_after_ms(mut self, retry_after_ms: u32) -> Self {
        self.retry_after_ms = Some(retry_after_ms);
        self
    }

    /// Converts to a gRPC status with error details.
    pub fn into_status(self) -> Status {
        let mut details = ErrorDetails::new();
        let facts: HashMap<String, String> =
            self.error_info_metadata.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        details.set_error_info(reason_name(self.reason), ERROR_DOMAIN, facts);
        if !self.fields.is_empty() {
            let violations: Vec<FieldViolation> =
                self.fields.into_iter().map(|problem| FieldViolation::new(problem.path, problem.message)).collect();
            details.set_bad_request(violations);
        }
        let mut metadata = MetadataMap::new();
        if let Some(ms) = self.retry_after_ms {
            details.set_retry_info(Some(Duration::from_millis(u64::from(ms))));
            metadata.insert("grpc-retry-pushback-ms", ms.into());
        }
        Status::with_error_details_and_metadata(self.code, self.message, details, metadata)
    }

    /// Converts to the error of one request on a Connect stream.
    pub fn into_request_error(self) -> pb::RequestError {
        pb::RequestError {
            code: self.code.into(),
            message: self.message,
            field: self.fields.into_iter().next().map_or_else(String::new, |problem| problem.path),
            retry_after_ms: self.retry_after_ms.map(u64::from),
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

impl From<RateLimitExceeded> for Rejection {
    fn from(exceeded: RateLimitExceeded) -> Self {
        let (limit, retry_after_ms) = (exceeded.limit_name(), exceeded.retry_after_ms);
        let text = format!("rate limit {limit} exceeded; retry in {retry_after_ms} ms");
        Self::new(Code::ResourceExhausted, ErrorReason::RateLimited, text)
            .with_metadata("limit", limit)
            .with_retry_after_ms(retry_after_ms)
    }
}

/// Message for an obstacle of a swap: the reason, and what to do.
pub fn swap_obstacle_text(obstacle: &SwapObstacle) -> String {
    match obstacle {
        SwapObstacle::BundledRulesets => {
            "the server has its bundled rulesets; start it with --rulesets DIRECTORY to change them".into()
        }
        SwapObstacle::NoFile => "the set is being retired and has no file; put its file back into the directory".into(),
        SwapObstacle::OtherRulesetInForce { current } => {
            format!("expected_hash: the ruleset in force is {current}; look at it, and send its hash")
        }
        SwapObstacle::FileEdited { file_name } => {
            format!(
                "{file_name} was edited since it was loaded; reload the directory, or correct the file, and try again"
            )
        }
        SwapObstacle::NotWritable { name, error } => {
            format!("{name} cannot be written: {error}; change the file where it comes from")
        }
    }
}

fn swap_rejection(obstacle: &SwapObstacle) -> Rejection {
    let reason = match obstacle {
        SwapObstacle::OtherRulesetInForce { .. } | SwapObstacle::FileEdited { .. } => ErrorReason::StaleConfiguration,
        SwapObstacle::BundledRulesets | SwapObstacle::NoFile | SwapObstacle::NotWritable { .. } => {
            ErrorReason::RulesetFileNotWritable
        }
    };
    let rejection = Rejection::new(Code::FailedPrecondition, reason, swap_obstacle_text(obstacle));
    match obstacle {
        SwapObstacle::OtherRulesetInForce { current } => rejection.with_metadata("current_hash", current),
        SwapObstacle::NotWritable { error, .. } => rejection.with_metadata("error", error),
        SwapObstacle::BundledRulesets | SwapObstacle::NoFile | SwapObstacle::FileEdited { .. } => rejection,
    }
}

impl From<EngineError> for Rejection {
    #[expect(clippy::too_many_lines, reason = "one arm per error, so that the messages stand side by side")]
    fn from(error: EngineError) -> Self {
        use Code as C;
        match error {
            EngineError::InvalidFields(fields) => Self::invalid_fields(fields),
            EngineError::UnknownSet(set) => {
                let text = format!("unknown matchmaking_set_id {set}; use the SetId of a loaded ruleset");
                Self::new(C::NotFound, ErrorReason::UnknownMatchmakingSet, text)
                    .with_metadata("matchmaking_set_id", set)
            }
            EngineError::SetRetired { set_id, retires_in_ms: ends_in_ms } => {
                let text = format!(
                    "matchmaking set {set_id} is being retired and takes no new tickets and advertisements; its waiting \
                     tickets end in {ends_in_ms} ms unless its ruleset file returns"
                );
                Self::new(C::FailedPrecondition, ErrorReason::SetRetired, text)
                    .with_metadata("matchmaking_set_id", set_id)
                    .with_metadata("ends_in_ms", ends_in_ms)
            }
            EngineError::CannotRetireSet { set_id, live_tickets, live_matches, obstacle } => {
                let text = match obstacle {
                    RetireObstacle::ActiveHere => {
                        format!(
                            "the ruleset of set {set_id} is active; remove its file, or mark it with Retired=\"true\""
                        )
                    }
                    RetireObstacle::ActiveElsewhere => {
                        format!("the ruleset of set {set_id} is active on another server; remove its file there first")
                    }
                    RetireObstacle::WaitingTickets => {
                        format!("{live_tickets} tickets of set {set_id} wait; set `force` to end them, or wait")
                    }
                };
                let text = format!("{text} ({live_tickets} waiting tickets, {live_matches} matches)");
                Self::new(C::FailedPrecondition, ErrorReason::SetRetired, text)
                    .with_metadata("matchmaking_set_id", set_id)
                    .with_metadata("live_tickets", live_tickets)
                    .with_metadata("live_matches", live_matches)
            }
            EngineError::CannotSwapRuleset { set_id, obstacle } => {
                swap_rejection(&obstacle).with_metadata("matchmaking_set_id", set_id)
            }
            EngineError::UnknownRulesetHash { requested, current } => {
                let text = format!(
                    "service_configuration_hash {requested} is no longer cached; fetch the current ruleset, {current}"
                );
                Self::new(C::FailedPrecondition, ErrorReason::StaleConfiguration, text)
                    .with_metadata("current_hash", current)
            }
            // Same text for existing and missing objects, so that a caller cannot probe for existence.
            EngineError::NotOwner => Self::new(
                C::PermissionDenied,
                ErrorReason::NotOwner,
                "the token does not grant access to this object; send the token from its creation",
            ),
            EngineError::UserNotReadable => Self::new(
                C::PermissionDenied,
                ErrorReason::UserNotReadable,
                "the request names a user whose ratings this caller may not read; name yourself, or users you have played with",
            ),
            EngineError::LeaderboardNotPublic(set) => {
                let text = format!(
                    "the leaderboard of set {set} is not public; add Leaderboard=\"public\" to its <Rating> to show it"
                );
                Self::new(C::PermissionDenied, ErrorReason::LeaderboardNotPublic, text)
                    .with_metadata("matchmaking_set_id", set)
            }
            EngineError::GameServerRoleRequired => {
                let text = "kind: ADVERTISEMENT_KIND_GAME_SERVER requires the role game_server; leave kind out";
                Self::new(C::PermissionDenied, ErrorReason::GameServerRoleRequired, text)
            }
            EngineError::ClientRoleRequired => Self::new(
                C::PermissionDenied,
                ErrorReason::ClientRoleRequired,
                "only callers with the role client may grant consent; use a player's token",
            ),
            EngineError::AdvertisementNotFound => Self::new(
                C::NotFound,
                ErrorReason::AdvertisementNotFound,
                "advertisement not found or expired; resend the full session_composition",
            ),
            EngineError::TicketNotFound => Self::new(
                C::NotFound,
                ErrorReason::TicketNotFound,
                "ticket not found, or ended and forgotten; check ticket_id",
            ),
            EngineError::AdvertisementDeleted => Self::new(
                C::FailedPrecondition,
                ErrorReason::AdvertisementDeleted,
                "advertisement was deleted; create a new one",
            ),
            EngineError::SeatsTaken { open_seats } => {
                let text = format!("only {open_seats} seats are open; try the next candidate");
                Self::new(C::FailedPrecondition, ErrorReason::SeatsTaken, text).with_metadata("open_seats", open_seats)
            }
            EngineError::RefusedByRule { rule, side } => {
                let side = side_name(side);
                let text = match &*rule {
                    "own" => "a player of the party is already in this session, or the caller published it; use the \
                              existing seats, or try the next candidate"
                        .into(),
                    rule => format!("rule `{rule}` of the {side} refuses the pair; try the next candidate"),
                };
                Self::new(C::FailedPrecondition, ErrorReason::RefusedByRule, text)
                    .with_metadata("rule", rule)
                    .with_metadata("side", side)
            }
            EngineError::HostDidNotAnswerProbes => Self::new(
                C::FailedPrecondition,
                ErrorReason::Silent,
                "the host did not answer latency probes of this search, or is incompatible; try the next candidate",
            ),
            EngineError::HostNotMeasured => Self::new(
                C::FailedPrecondition,
                ErrorReason::NotMeasured,
                "the ruleset asks for a measured round trip; probe the host, and send the result with ReportLatency",
            ),
            EngineError::BeaconsNotConfigured => Self::new(
                C::FailedPrecondition,
                ErrorReason::NoBeacons,
                "the server knows no beacons; start it with --beacon-fleet-key-file",
            ),
            EngineError::InvolvedTooEarly => Self::new(
                C::FailedPrecondition,
                ErrorReason::InvolvedTooEarly,
                "too few candidates have answered the quick probe; report quick probes until involved_phase_may_start, \
                 with the search_token of the last answer",
            ),
            EngineError::IdempotencyKeyReused => Self::new(
                C::AlreadyExists,
                ErrorReason::IdempotencyKeyReused,
                "idempotency_key was used for a different request; choose a new key",
            ),
            EngineError::ReservationEnded => {
                let text = "reservation was released or has expired; reserve with a new idempotency_key";
                Self::new(C::FailedPrecondition, ErrorReason::ReservationEnded, text)
            }
            EngineError::AdvertisementReservationsFull => {
                let text = "the session has its maximum number of reservations; try the next candidate";
                Self::new(C::ResourceExhausted, ErrorReason::TooManyReservations, text)
            }
            EngineError::TooManyAdvertisements { limit } => {
                let setting = "max_advertisements_per_server";
                let text = format!(
                    "the caller has {limit} live advertisements of this kind, the maximum of {setting}; delete one first"
                );
                Self::new(C::ResourceExhausted, ErrorReason::TooManyAdvertisements, text)
                    .with_metadata("limit", limit)
                    .with_metadata("setting", setting)
            }
            EngineError::TooManyTickets { player_index, limit } => {
                let setting = "max_tickets_per_user";
                let text = format!(
                    "session_composition.players[{player_index}] has {limit} waiting tickets, the maximum of {setting}; \
                     leave one first"
                );
                Self::new(C::ResourceExhausted, ErrorReason::TooManyTickets, text)
                    .with_metadata("player", player_index)
                    .with_metadata("limit", limit)
                    .with_metadata("setting", setting)
            }
            EngineError::BlockListFull { limit } => {
                let text = format!("the block list would have more than {limit} users; remove some first");
                Self::new(C::ResourceExhausted, ErrorReason::BlockListFull, text).with_metadata("limit", limit)
            }
            EngineError::TooManySilos { silo, limit, is_per_caller } => {
                let (scope, rule, remedy) = if is_per_caller {
                    ("caller", "a caller may open at most", "end your tickets and advertisements in another silo first")
                } else {
                    ("server", "this server opens at most", "use a silo that has tickets or advertisements")
                };
                let field = "session_composition.silo_id";
                let text = format!("{field} {silo} would open one more silo, and {rule} {limit}; {remedy}");
                Self::new(C::ResourceExhausted, ErrorReason::TooManySilos, text)
                    .with_metadata("field", field)
                    .with_metadata("limit", limit)
                    .with_metadata("scope", scope)
            }
            EngineError::NoQueue(set) => {
                let text = format!("matchmaking set {set} has no queue; use Search and UpdateAdvertisement");
                Self::new(C::FailedPrecondition, ErrorReason::NoQueue, text)
            }
            EngineError::PartyTooLarge { size, max } => {
                let text = format!("party has {size} players; this queue accepts at most {max}");
                Self::new(C::FailedPrecondition, ErrorReason::PartyTooLarge, text).with_metadata("max_party_size", max)
            }
            EngineError::AlreadyQueued { player_index, own_ticket } => {
                let text =
                    format!("session_composition.players[{player_index}] is already queued; leave that ticket first");
                let rejection =
                    Self::new(C::AlreadyExists, ErrorReason::AlreadyQueued, text).with_metadata("player", player_index);
                own_ticket.into_iter().fold(rejection, |rejection, id| rejection.with_metadata("ticket_id", id))
            }
            EngineError::AlreadyInMatch { player_index } => {
                let text = format!("session_composition.players[{player_index}] is in a match; wait until it ends");
                Self::new(C::FailedPrecondition, ErrorReason::AlreadyInMatch, text)
                    .with_metadata("player", player_index)
            }
            EngineError::QueueCooldown { player_index, retry_after_ms } => {
                let text = format!(
                    "session_composition.players[{player_index}] failed a ready check; retry in {retry_after_ms} ms"
                );
                let rejection = Self::new(C::PermissionDenied, ErrorReason::QueueCooldown, text)
                    .with_metadata("player", player_index);
                rejection.with_retry_after_ms(retry_after_ms)
            }
            EngineError::PlayerUnavailable => {
                let text = "another player of the party cannot be entered now; that player's client can see why, or enter \
                            without the player";
                Self::new(C::FailedPrecondition, ErrorReason::PlayerUnavailable, text)
            }
            EngineError::TeamHasNoAvailablePlayers { team_index } => {
                let text =
                    format!("teams[{team_index}] has no player who can play now; start the match without it, or later");
                Self::new(C::FailedPrecondition, ErrorReason::PlayerUnavailable, text).with_metadata("team", team_index)
            }
            EngineError::HostPartyInMatch => {
                let text = "a player of the host's own party is in a match that has not ended; end it, or leave it";
                Self::new(C::FailedPrecondition, ErrorReason::AlreadyInMatch, text)
            }
            EngineError::TicketNotWaiting => {
                let text = "the ticket is not waiting, or one of its players is in another match; watch the ticket";
                Self::new(C::FailedPrecondition, ErrorReason::TicketNotWaiting, text)
            }
            EngineError::TicketInPlay { match_id } => {
                let text = format!(
                    "match {match_id} of the ticket is being played; end it with CancelMatch, which frees all its players"
                );
                Self::new(C::FailedPrecondition, ErrorReason::TicketNotWaiting, text)
                    .with_metadata("match_id", match_id)
            }
            EngineError::NoReadyCheck => {
                let text = "this match has no open ready check; watch the ticket for its status";
                Self::new(C::FailedPrecondition, ErrorReason::NoReadyCheck, text)
            }
            EngineError::MatchNotStarted => {
                let text = "the match has not started; respond to its ready check, or leave";
                Self::new(C::FailedPrecondition, ErrorReason::MatchNotStarted, text)
            }
            EngineError::MatchNotFound => Self::new(
                C::NotFound,
                ErrorReason::MatchNotFound,
                "match not found, or ended and forgotten; check match_id",
            ),
            EngineError::MatchNotPlayed => {
                let text = "the match was not played; only played matches have a result";
                Self::new(C::FailedPrecondition, ErrorReason::MatchNotPlayed, text)
            }
            EngineError::ReportWindowEnded => {
                let text = "the report window of this match is over; only an operator can report its result now";
                Self::new(C::FailedPrecondition, ErrorReason::ReportWindowEnded, text)
            }
            EngineError::MatchIdRequired { hosted } => {
                let ids = hosted.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
                let text = match hosted.len() {
                    0 => "the advertisement hosts no match now; send the match_id".to_owned(),
                    count => format!("the advertisement hosts {count} matches; send the match_id"),
                };
                Self::new(C::FailedPrecondition, ErrorReason::MatchIdRequired, text).with_metadata("match_ids", ids)
            }
            EngineError::AlreadyReported { first_report } => {
                let text = format!("a different result was reported before: {first_report}; the first result stands");
                Self::new(C::FailedPrecondition, ErrorReason::AlreadyReported, text)
                    .with_metadata("reported", first_report)
            }
            EngineError::FeedbackAlreadyGiven { stars } => {
                let text = format!("the player already gave this match {stars} stars; feedback cannot be changed");
                Self::new(C::FailedPrecondition, ErrorReason::FeedbackAlreadyGiven, text).with_metadata("stars", stars)
            }
            EngineError::NoRatingSystem(set) => {
                let text = format!("matchmaking set {set} has no rating system; add <Rating> to its ruleset");
                Self::new(C::FailedPrecondition, ErrorReason::NoRatingSystem, text)
                    .with_metadata("matchmaking_set_id", set)
            }
            EngineError::OverridesForbidden => {
                let text = "search_config_overrides are disabled; start the server with --allow-search-overrides";
                Self::new(C::PermissionDenied, ErrorReason::OverridesForbidden, text)
            }
            EngineError::Overloaded { retry_after_ms } => {
                let text = "too many writes are pending; retry after the delay in RetryInfo";
                Self::new(C::ResourceExhausted, ErrorReason::Overloaded, text).with_retry_after_ms(retry_after_ms)
            }
            EngineError::StoreUnavailable { retry_after_ms } => {
                let text = "the store is unavailable and nothing was changed; retry after the delay in RetryInfo";
                Self::new(C::Unavailable, ErrorReason::StoreUnavailable, text).with_retry_after_ms(retry_after_ms)
            }
            EngineError::Draining => Self::draining(),
            EngineError::Internal => {
                Self::new(C::Internal, ErrorReason::Internal, "internal error; see the server's log")
            }
        }
    }
}

fn side_name(side: RefusingSide) -> &'static str {
    match side {
        RefusingSide::Searcher => "searcher",
        RefusingSide::Advertiser => "advertiser",
    }
}

/// Truncates a text at a character boundary.
fn truncate_text(text: &mut String) {
    if text.len() > VIOLATION_TEXT_BYTES_MAX {
        let end = text.floor_char_boundary(VIOLATION_TEXT_BYTES_MAX - 3);
        text.truncate(end);
        text.push('…');
    }
}
