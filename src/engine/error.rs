//! Errors of the engine. A closed enum: `api/status.rs` maps each variant to a gRPC status.

use crate::domain::attribute_values::FieldProblem;
use crate::domain::filter::RefusingSide;
use crate::domain::id::{MatchId, RulesetHash, SetId, SiloId, TicketId};

/// Reason a command failed. Message texts are in `api/status.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineError {
    /// Invalid fields. Paths that begin with `session_composition` are relative to the request.
    InvalidFields(Vec<FieldProblem>),
    /// No ruleset is loaded for this set.
    UnknownSet(SetId),
    /// The set is being retired: it takes no new tickets and advertisements.
    SetRetired {
        /// Set.
        set_id: SetId,
        /// Time until its waiting tickets end, milliseconds.
        retires_in_ms: u64,
    },
    /// The set cannot be retired now.
    CannotRetireSet {
        /// Set.
        set_id: SetId,
        /// Waiting tickets of the set.
        live_tickets: u32,
        /// Matches of the set that have not ended.
        live_matches: u32,
        /// Obstacle.
        obstacle: RetireObstacle,
    },
    /// The ruleset of the set cannot be swapped now.
    CannotSwapRuleset {
        /// Set.
        set_id: SetId,
        /// Obstacle.
        obstacle: SwapObstacle,
    },
    /// The client's ruleset is no longer cached; the client must fetch the current one.
    UnknownRulesetHash {
        /// Hash that the client sent.
        requested: RulesetHash,
        /// Hash of the current ruleset.
        current: RulesetHash,
    },
    /// The token is missing, forged or issued to another caller. The same whether or not the object exists.
    NotOwner,
    /// Only game servers may make this call.
    GameServerRoleRequired,
    /// Only players may make this call.
    ClientRoleRequired,
    /// The advertisement does not exist or has expired.
    AdvertisementNotFound,
    /// The ticket does not exist, or has ended and was purged.
    TicketNotFound,
    /// The advertisement was deleted and cannot be republished.
    AdvertisementDeleted,
    /// Fewer seats are open than the party needs.
    SeatsTaken {
        /// Seats open now.
        open_seats: u16,
    },
    /// A rule refuses the pair in its current state.
    RefusedByRule {
        /// Rule: a hard filter's name, or `own`, `expired`, `silo`, `allowed_range`.
        rule: String,
        /// Side whose rule refused.
        side: RefusingSide,
    },
    /// By the reports of the search, the host did not answer probes, or is incompatible.
    HostDidNotAnswerProbes,
    /// The ruleset lets parties join only what they have measured.
    HostNotMeasured,
    /// The server has no fleet keys, so it knows no beacons.
    BeaconsNotConfigured,
    /// Too few candidates have answered the quick probe for the involved one.
    InvolvedTooEarly,
    /// The call would open one silo more than allowed.
    TooManySilos {
        /// Silo that it would open.
        silo: SiloId,
        /// Maximum open silos.
        limit: u32,
        /// Whether the limit is the caller's; otherwise it is the server's.
        is_per_caller: bool,
    },
    /// The idempotency key was used for a different request.
    IdempotencyKeyReused,
    /// The reservation was released or has expired.
    ReservationEnded,
    /// The advertisement has the maximum number of reservations.
    AdvertisementReservationsFull,
    /// The caller has the maximum number of live advertisements of this kind.
    TooManyAdvertisements {
        /// Maximum number.
        limit: u32,
    },
    /// The caller's user has the maximum number of waiting tickets.
    TooManyTickets {
        /// Index of the player in the party.
        player_index: usize,
        /// Maximum number.
        limit: u32,
    },
    /// The block list would have more users than allowed.
    BlockListFull {
        /// Maximum number.
        limit: usize,
    },
    /// The set has no queue; it supports only advertise and search.
    NoQueue(SetId),
    /// The party has more players than the queue accepts.
    PartyTooLarge {
        /// Players in the party.
        size: u16,
        /// Maximum players per party.
        max: u16,
    },
    /// A player of the party is already queued.
    AlreadyQueued {
        /// Index of the player in the party.
        player_index: usize,
        /// Ticket of that player, if it belongs to the caller.
        own_ticket: Option<TicketId>,
    },
    /// A player of the party is in a match.
    AlreadyInMatch {
        /// Index of the player in the party.
        player_index: usize,
    },
    /// A player of the party has a cooldown after a failed ready check.
    QueueCooldown {
        /// Index of the player in the party.
        player_index: usize,
        /// Remaining cooldown, milliseconds.
        retry_after_ms: u32,
    },
    /// Another player of the party waits, plays or has a cooldown. The same for each of these.
    PlayerUnavailable,
    /// No player of a named team can play: they are in other matches, or have left the session.
    TeamHasNoAvailablePlayers {
        /// Index of the team.
        team_index: usize,
    },
    /// A player of the host's own party is in a match that has not ended.
    HostPartyInMatch,
    /// The ticket is not waiting, or is paused while one of its players is in a match.
    TicketNotWaiting,
    /// The match of the ticket is being played, so the ticket cannot be dismissed alone.
    TicketInPlay {
        /// Match of the ticket.
        match_id: MatchId,
    },
    /// There is no ready check to answer.
    NoReadyCheck,
    /// The match has not started.
    MatchNotStarted,
    /// The match does not exist, or was purged.
    MatchNotFound,
    /// The match has not started or was not played, so it has no result.
    MatchNotPlayed,
    /// The match id is absent, and the advertisement does not host exactly one match.
    MatchIdRequired {
        /// Matches that it hosts.
        hosted: Vec<MatchId>,
    },
    /// A different result was reported before.
    AlreadyReported {
        /// Summary of the first report.
        first_report: String,
    },
    /// The time to report the result is over, and the match has none.
    ReportWindowEnded,
    /// The player gave different feedback for this match before.
    FeedbackAlreadyGiven {
        /// Stars given before, 1 to 5.
        stars: u8,
    },
    /// The command names a user whose ratings the caller may not read. The same whether or not the user exists.
    UserNotReadable,
    /// The ruleset does not make its leaderboard public.
    LeaderboardNotPublic(SetId),
    /// The ruleset has no rating system.
    NoRatingSystem(SetId),
    /// The server does not allow search overrides.
    OverridesForbidden,
    /// The writer's inbox is full.
    Overloaded {
        /// Retry delay, milliseconds.
        retry_after_ms: u32,
    },
    /// The store is unavailable.
    StoreUnavailable {
        /// Retry delay, milliseconds.
        retry_after_ms: u32,
    },
    /// The server is shutting down.
    Draining,
    /// Internal error; the log has details.
    Internal,
}

/// Reason that a set cannot be retired now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetireObstacle {
    /// The set's ruleset is active on this server.
    ActiveHere,
    /// The set's ruleset is active on another server.
    ActiveElsewhere,
    /// Tickets of the set wait.
    WaitingTickets,
}

/// Reason that a ruleset cannot be swapped now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwapObstacle {
    /// The server has no rulesets directory.
    BundledRulesets,
    /// The set is being retired: its file was removed.
    NoFile,
    /// Another ruleset than the expected one is in force.
    OtherRulesetInForce {
        /// Hash of the ruleset in force.
        current: RulesetHash,
    },
    /// The file was edited since it was loaded.
    FileEdited {
        /// Name of the file, without its directory.
        file_name: String,
    },
    /// The file or the directory cannot be written.
    NotWritable {
        /// Name of the file without its directory, or the directory.
        name: String,
        /// Message of the operating system.
        error: String,
    },
}

/// Error for one field.
pub(crate) fn field_error(path: impl Into<String>, message: impl Into<String>) -> EngineError {
    EngineError::InvalidFields(vec![FieldProblem { path: path.into(), message: message.into() }])
}
