//! Answers to operators' calls about one match, ticket or user, in domain types.

use std::sync::Arc;

use crate::domain::chosen_value::ChosenValue;
use crate::domain::id::{MatchId, SetId, SiloId, TicketId, UserKey};
use crate::domain::lifecycle::penalty::Penalty;
use crate::domain::lifecycle::{Match, MatchEndReason};
use crate::domain::match_result::{MatchResult, RatingHistoryEntry};
use crate::domain::queue::ticket::TicketEndReason;
use crate::domain::time::UnixMs;
use crate::engine::open_silos::SiloOverview;
use crate::engine::queues::command::TicketStatus;
use crate::engine::user_advert::ExportedAdvert;

pub use crate::store::queues::{FinishedMatch, RatingRow, StoredTicket, TicketState};
pub use crate::store::user_data::GivenFeedback;

/// Answer to the cancellation of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CancelMatchAnswer {
    /// End reason of the match.
    pub end_reason: MatchEndReason,
    /// The match had ended before the call.
    pub had_ended: bool,
}

/// Answer to the dismissal of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DismissTicketAnswer {
    /// End reason of the ticket.
    pub end_reason: TicketEndReason,
    /// The ticket had ended before the call.
    pub had_ended: bool,
}

/// Answer to the erasure of a user: the records of others that named the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EraseUserChangedRecords {
    /// Changed tickets.
    pub tickets: u32,
    /// Changed matches.
    pub matches: u32,
    /// Changed results.
    pub results: u32,
}

/// Page of what is kept about a user.
#[derive(Clone, Debug, PartialEq)]
pub struct UserExportPage {
    /// User.
    pub user: UserKey,
    /// Name in logs, if an operator has named the user before.
    pub log_name: Option<[u8; 16]>,
    /// Ratings. Empty after the first page.
    pub ratings: Vec<ExportedRating>,
    /// Penalties. Empty after the first page.
    pub penalties: Vec<(SetId, Penalty)>,
    /// Tickets. Empty after the first page; at most [`EXPORTED_ROWS_PER_KIND_MAX`].
    pub tickets: Vec<StoredTicket>,
    /// Advertisements that name the user or hold seats of the user. Empty after the first page; at most
    /// [`EXPORTED_ROWS_PER_KIND_MAX`].
    pub adverts: Vec<ExportedAdvert>,
    /// Feedback that the user gave. Empty after the first page; at most [`EXPORTED_FEEDBACK_MAX`].
    pub feedback: Vec<GivenFeedback>,
    /// Users in the durable block list. Empty after the first page.
    pub blocked_users: Vec<UserKey>,
    /// Matches without a result. Empty after the first page; at most [`EXPORTED_ROWS_PER_KIND_MAX`].
    pub matches_without_result: Vec<Arc<Match>>,
    /// Results of this page, in id order, with the entries that were chosen for the match, while it is kept.
    pub results: Vec<(Arc<MatchResult>, Box<[ChosenValue]>)>,
    /// Whether more results follow.
    pub has_more: bool,
}

/// Rating of an export.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportedRating {
    /// Rating as stored.
    pub row: RatingRow,
    /// Sets whose rulesets use it now.
    pub sets: Vec<SetId>,
    /// Latest changes, latest first.
    pub changes: Vec<RatingHistoryEntry>,
}

/// Maximum tickets, advertisements, and matches without a result, of an export.
pub const EXPORTED_ROWS_PER_KIND_MAX: usize = 1_000;

/// Maximum feedback of an export.
pub const EXPORTED_FEEDBACK_MAX: usize = 10_000;

/// Match as an operator sees it.
#[derive(Clone, Debug, PartialEq)]
pub struct MatchOverview {
    /// Match.
    pub found_match: Arc<Match>,
    /// Reason that it has no game server yet, as far as this server has tried to place it.
    pub placement_problem: Option<Arc<str>>,
    /// Its result, if it has one.
    pub result: Option<FinishedMatch>,
    /// Time at which it was read.
    pub read_at: UnixMs,
}

/// Question why a user cannot queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayerEntryQuery {
    /// User.
    pub user: UserKey,
    /// Set to check; `None` for all sets with a loaded ruleset.
    pub set_id: Option<SetId>,
    /// Silo that the user would queue in.
    pub silo: SiloId,
}

/// User as an operator sees them.
#[derive(Clone, Debug, PartialEq)]
pub struct PlayerOverview {
    /// User.
    pub user: UserKey,
    /// Name in logs.
    pub log_name: [u8; 16],
    /// Tickets that have not ended.
    pub tickets: Vec<PlayerTicket>,
    /// Match that has not ended and that the user has not left.
    pub current_match: Option<MatchOverview>,
    /// Penalties after failed ready checks, by set. A cooldown may have passed.
    pub penalties: Vec<(SetId, Penalty)>,
    /// Silo of the query. The counted account is the caller that entered the user's first ticket.
    pub silo: SiloOverview,
    /// Sets, in id order.
    pub sets: Vec<SetEntryOverview>,
    /// Time at which it was read.
    pub read_at: UnixMs,
}

/// Ticket of a user.
#[derive(Clone, Debug, PartialEq)]
pub struct PlayerTicket {
    /// Status, as its party receives it.
    pub status: TicketStatus,
    /// Silo of its queue.
    pub silo: SiloId,
    /// Time at which it expires without a heartbeat.
    pub expires_at: UnixMs,
    /// Its match, if it has one.
    pub match_id: Option<MatchId>,
}

/// Whether a user can enter the queue of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetEntryOverview {
    /// Set.
    pub set_id: SetId,
    /// Name of its ruleset; empty if none is loaded.
    pub name: Box<str>,
    /// The ruleset has a queue.
    pub has_queue: bool,
    /// End of the removal grace period, if the set is being retired.
    pub retires_at: Option<UnixMs>,
    /// Reasons that Enter would be refused for the user alone. Empty: the user can queue.
    pub obstacles: Vec<EntryObstacle>,
}

/// Reason that Enter would be refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryObstacle {
    /// No ruleset is loaded for the set.
    UnknownSet,
    /// The ruleset has no queue.
    NoQueue,
    /// The set is being retired.
    SetRetired,
    /// The user is in a match.
    InMatch(MatchId),
    /// The user has a ticket in the queue, or one of the two tickets allows no other.
    Queued(TicketId),
    /// The user has a cooldown.
    Cooldown(UnixMs),
    /// The silo is not open, and no more silos may be opened.
    TooManySilos,
    /// The server does not serve the silo.
    SiloNotServed,
}
