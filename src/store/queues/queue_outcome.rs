//! Outcomes of writes to the queues.

use std::sync::Arc;

use crate::domain::id::{ConsentId, MatchId, RatingKey, TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::match_result::MatchResult;
use crate::domain::time::UnixMs;
use crate::store::queues::block_lists::StoredBlockList;
use crate::store::queues::records::{RatingRow, StoredTicket};

/// Result of one `QueueWrite`.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueOutcome {
    /// `EnterQueue`: the ticket as it is now; after a retry it may have ended.
    Entered {
        /// Ticket as stored.
        ticket: StoredTicket,
        /// Whether an earlier call entered the ticket.
        is_retry: bool,
    },
    /// `EnterQueue` was not applied: a user has another ticket in this queue. Or a user has a ticket elsewhere, and
    /// that ticket or this one is exclusive.
    AlreadyQueued {
        /// User.
        user: UserKey,
        /// Ticket that the user has.
        other_ticket: TicketId,
    },
    /// `EnterQueue` was not applied: a user has the maximum number of tickets that have not ended.
    TooManyTickets {
        /// User.
        user: UserKey,
    },
    /// `EnterQueue` was not applied: a user is in a match that has not ended.
    AlreadyInMatch {
        /// User.
        user: UserKey,
        /// Match.
        match_id: MatchId,
    },
    /// `EnterQueue` was not applied: a user is on cooldown.
    OnCooldown {
        /// User.
        user: UserKey,
        /// End of the cooldown.
        until: UnixMs,
    },
    /// `EnterQueue` was not applied: the id is in use for another request.
    IdempotencyKeyReused,
    /// `EnterQueue`, `StartSessionMatch` or `TakeConsents` was not applied: this consent was revoked, or taken by something else.
    ConsentUnavailable(ConsentId),
    /// `TakeConsents` was applied, now or earlier.
    ConsentsTaken,
    /// `RevokeConsent` was applied.
    ConsentRevoked {
        /// Whether something had taken the consent before.
        was_taken: bool,
    },
    /// `UpdateBlockList` was applied: the list as it is now.
    BlockListUpdated(StoredBlockList),
    /// `UpdateBlockList` was not applied: the list would be too long.
    BlockListFull,
    /// `Heartbeat`, `RenewBeaconVector` or `RecordReadyCheckDelivery` was applied, or `EndTicket` was applied now or earlier: the ticket as it is now.
    CurrentTicket(StoredTicket),
    /// `Heartbeat`, `RenewBeaconVector`, `RecordReadyCheckDelivery` or `EndTicket`: the ticket does not exist.
    TicketNotFound,
    /// `ProposeMatch` or `TransitionMatch` was applied.
    MatchWritten {
        /// Changed tickets as they are now, in id order.
        tickets: Vec<StoredTicket>,
        /// Changed ratings as they are now, in user order.
        ratings: Vec<RatingRow>,
    },
    /// `StartSessionMatch` was applied, now or by an earlier call.
    MatchStarted {
        /// Match as stored; after a retry it may have ended.
        started: Arc<Match>,
        /// Changed tickets as they are now, in id order; none for a retry.
        tickets: Vec<StoredTicket>,
    },
    /// `StartSessionMatch` was not applied: these users are in another match.
    UsersInMatch {
        /// Users, sorted.
        users: Vec<UserKey>,
    },
    /// `ProposeMatch` was not applied: these tickets no longer wait, are in another queue, or
    /// have a user who is in a match. Or `StartSessionMatch` was not applied: its users have these tickets, which it does not end.
    TicketsUnavailable {
        /// Tickets, in id order.
        tickets: Vec<TicketId>,
    },
    /// `TransitionMatch` was not applied: the stored match does not have the previous version, or an earlier transition
    /// of it in the batch was stale. The match as stored, if it exists.
    StaleMatchVersion(Option<Arc<Match>>),
    /// `ImportRatings` was applied.
    RatingsImported,
    /// `RecordResult` was applied, now or earlier.
    ResultOnRecord {
        /// Result as stored.
        result: Arc<MatchResult>,
        /// Whether an earlier call recorded the result; then the lists are empty.
        is_repeated_report: bool,
        /// Changed tickets as they are now, in id order.
        tickets: Vec<StoredTicket>,
        /// Changed ratings as they are now, in user order.
        ratings: Vec<RatingRow>,
    },
    /// `RecordResult` was not applied: a different result was reported earlier.
    ConflictingResult(Arc<MatchResult>),
    /// `RecordResult` was not applied: the rating system failed on the stored ratings. The text is for the log.
    RatingFailed(String),
    /// `RecordFeedback` was applied: the user's rating row, if the set has ratings.
    FeedbackRecorded(Option<RatingRow>),
    /// `RecordFeedback` was not applied: the user has given feedback on this match.
    FeedbackAlreadyGiven {
        /// Stars given earlier.
        stars: u8,
    },
    /// `EraseUser` was applied.
    UserErased {
        /// Changed tickets as they are now, in id order.
        tickets: Vec<StoredTicket>,
        /// Changed matches as they are now, in id order.
        matches: Vec<Arc<Match>>,
        /// Changed block lists as they are now, in user order.
        block_lists: Vec<StoredBlockList>,
        /// Number of changed results.
        results: u32,
        /// A ticket or match was left alone, because the user is a current member.
        is_member: bool,
    },
    /// `RemoveInactiveRatings` was applied to these.
    RatingsRemoved(Vec<(UserKey, RatingKey)>),
    /// Any write: not applied, because a newer server wrote one of the rows and this server cannot decode it.
    UnknownRow,
}
