//! Writes to the queues, and their labels.

use std::sync::Arc;

use crate::domain::block_list::BlockListChange;
use crate::domain::id::{MatchId, RatingKey, RulesetHash, SetId, TicketId, UserKey};
use crate::domain::latency::published_vector::PublishedVector;
use crate::domain::lifecycle::{Match, TicketFate};
use crate::domain::match_result::ResultReport;
use crate::domain::queue::seat_vectors::{SeatBeaconVectors, SeatIndex};
use crate::domain::queue::ticket::{Ticket, TicketEndReason};
use crate::domain::ruleset::rating::scale::KeyedRatingSpec;
use crate::domain::time::UnixMs;
use crate::store::queues::consents::{ConsentConsumer, GrantedConsent};
use crate::store::queues::records::{RatingRow, ReadyCheckCooldowns};

/// One write to the queues. `now` is the time of the decision by the server's clock.
#[derive(Clone, Debug)]
pub enum QueueWrite {
    /// Enters a party into a queue. Applied once per ticket id; a retry returns the ticket as it is now.
    EnterQueue {
        /// Ticket to enter.
        ticket: Arc<Ticket>,
        /// Round trips of its players to beacons.
        seat_vectors: SeatBeaconVectors,
        /// Expiry without a heartbeat.
        expires_at: UnixMs,
        /// Digest of the request, as in [`StoredTicket`].
        request_digest: [u8; 16],
        /// Player whose client enters the ticket: its own obstacles are named first.
        caller_user: Option<UserKey>,
        /// Consents of the other players. The ticket takes them: none may be revoked, or taken by something else.
        consents: Vec<GrantedConsent>,
        /// Maximum tickets that have not ended of each of its users, with this one; `None` if no limit applies to the
        /// caller.
        max_tickets_per_user: Option<u32>,
        /// Time of the decision.
        now: UnixMs,
    },
    /// Extends the expiry of a ticket that has not ended, never shortens it.
    Heartbeat {
        /// Ticket id.
        ticket_id: TicketId,
        /// Expiry without a further heartbeat.
        expires_at: UnixMs,
        /// Time of the decision.
        now: UnixMs,
    },
    /// Replaces the round trips of a player of a ticket to beacons, if the ticket has not ended.
    RenewBeaconVector {
        /// Ticket id.
        ticket_id: TicketId,
        /// Player.
        seat: SeatIndex,
        /// Round trips.
        vector: PublishedVector,
    },
    /// Records that players of a ticket had the chance to answer the ready check of its match.
    RecordReadyCheckDelivery {
        /// Ticket id.
        ticket_id: TicketId,
        /// Match; no effect if the ticket is not in it.
        match_id: MatchId,
        /// Players, as in [`StoredTicket`].
        acknowledged: u64,
    },
    /// Takes consents for a search or an advertisement: all or none. A consent that it has taken before stays taken.
    TakeConsents {
        /// Id of the search or advertisement.
        taken_by: ConsentConsumer,
        /// Consents.
        consents: Vec<GrantedConsent>,
    },
    /// Revokes a consent. What has taken it keeps what it has, and gets nothing more by it.
    RevokeConsent {
        /// Consent.
        consent: GrantedConsent,
    },
    /// Changes the durable block list of a user.
    UpdateBlockList {
        /// User whose list it is.
        user: UserKey,
        /// Change. A list that would become too long stays as it is.
        change: BlockListChange,
    },
    /// Ends a waiting ticket. A ticket in a match stays there.
    EndTicket {
        /// Ticket id.
        ticket_id: TicketId,
        /// Reason. `Expired` ends only a ticket that has expired by `now`.
        end_reason: TicketEndReason,
        /// When the row may be purged.
        purge_at: UnixMs,
        /// Time of the decision.
        now: UnixMs,
    },
    /// Creates a match from waiting tickets: from all of them or none. Each ticket must wait and must not have expired
    /// by `now`. None of its users may be in a match that has not ended.
    ProposeMatch {
        /// Match at its first version; its tickets are the ones to take.
        proposed: Arc<Match>,
        /// Time of the decision.
        now: UnixMs,
    },
    /// Starts the match of a searched session, with a ticket for each party: all or none. None of its users may be in a match that
    /// has not ended. Applied once per match id.
    StartSessionMatch {
        /// Match at its first version, in play.
        started: Arc<Match>,
        /// Tickets of the match; they never wait.
        tickets: Vec<Arc<Ticket>>,
        /// Waiting tickets of the match's users, to end because the match starts. Tickets that no longer wait are skipped.
        other_tickets: Vec<TicketId>,
        /// Consents of the players in the host's own party. The match takes them, as `EnterQueue` does.
        consents: Vec<GrantedConsent>,
        /// Expiry of the tickets without a heartbeat; it shows whether they are heard.
        expires_at: UnixMs,
        /// When the other tickets may be purged.
        purge_at: UnixMs,
    },
    /// Replaces a match with its next version and applies the effects on tickets and users: all or none. Several
    /// transitions of one match in a batch build on each other: after a stale one, the later ones are stale too.
    TransitionMatch {
        /// Match after the transition; its `version` is one more than the stored one.
        updated_match: Arc<Match>,
        /// New states of the match's tickets. A ticket that is not listed stays in the match. One that returns waits
        /// again until the given expiry.
        ticket_fates: Vec<(TicketId, TicketFate, UnixMs)>,
        /// Other tickets of the match's users, to end because the match starts. Tickets that no longer wait are
        /// skipped.
        other_tickets: Vec<TicketId>,
        /// Users to penalize for a failed ready check.
        penalized_users: Vec<UserKey>,
        /// Penalty schedule of the ruleset; required if a user is penalized.
        penalty_schedule: ReadyCheckCooldowns,
        /// Ratings of the set, in which each user who leaves with this transition has one more abandoned match. `None` if
        /// no user leaves or the set has no ratings.
        leaver_rating: Option<KeyedRatingSpec>,
        /// When tickets that end with this transition may be purged.
        purge_at: UnixMs,
        /// Time of the decision.
        now: UnixMs,
    },
    /// Sets ratings, new or existing. An existing row keeps its streak and satisfaction statistics.
    ImportRatings {
        /// Rows to store; at most `limit::RATINGS_PER_TRANSACTION_MAX`.
        rows: Vec<RatingRow>,
    },
    /// Records the result of a match once, updates the ratings and ends the match: all or none.
    RecordResult {
        /// Result as reported.
        report: Arc<ResultReport>,
        /// Digest of the report. The same report again changes nothing; a different one is rejected.
        report_digest: [u8; 16],
        /// Version of the match that the report was checked against; the match must still have it.
        match_version: u64,
        /// The `TransitionMatch` that ends the match, if it has not ended.
        end_transition: Option<Box<QueueWrite>>,
        /// Rating system to apply, and the ratings that it changes; `None` if the set has no ratings.
        rating: Option<KeyedRatingSpec>,
        /// Time of the decision.
        now: UnixMs,
    },
    /// Records a player's feedback on a match, once per player and match.
    RecordFeedback {
        /// Match id; not checked for existence.
        match_id: MatchId,
        /// Set and ruleset of the match, by which the stars are counted.
        ruleset: (SetId, RulesetHash),
        /// User who gives the feedback.
        user: UserKey,
        /// Stars, 1 to 5; 5 is best.
        stars: u8,
        /// Ratings whose row of the user keeps the sum of stars. A user without a row gets the initial rating: feedback
        /// can arrive before the result. `None` if the set has no ratings; then only the feedback itself is stored.
        rating: Option<KeyedRatingSpec>,
        /// Time of the decision.
        now: UnixMs,
    },
    /// Replaces a user in tickets, matches and results by random keys. Rows of which the user is a current member stay.
    EraseUser(UserErasure),
    /// Removes ratings, with their history, whose last rated match was before a time.
    RemoveInactiveRatings {
        /// Users and keys; at most `limit::RATINGS_PER_TRANSACTION_MAX`.
        ratings: Vec<(UserKey, RatingKey)>,
        /// A rating with a later match stays.
        last_match_before: UnixMs,
    },
}

/// Erasure of a user from some tickets and matches, and finally from all rows of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserErasure {
    /// User.
    pub user: UserKey,
    /// Random bytes of this erasure, from which the keys that take the user's place are made. Kept nowhere.
    pub seed: [u8; 16],
    /// Tickets that may name the user; at most `ERASED_ROWS_PER_KIND_MAX`.
    pub tickets: Vec<TicketId>,
    /// Matches that may name the user, or whose result or feedback does, with the ratings that they count for; at most
    /// `ERASED_ROWS_PER_KIND_MAX`.
    pub matches: Vec<(MatchId, Option<RatingKey>)>,
    /// Users whose block lists may name the user; at most `ERASED_ROWS_PER_KIND_MAX`.
    pub block_list_owners: Vec<UserKey>,
    /// Whether the user's ratings, rating history, feedback, penalties, block list and name in logs are removed too.
    pub removes_own_rows: bool,
}

/// Maximum tickets, maximum matches and maximum block lists of one [`UserErasure`].
pub const ERASED_ROWS_PER_KIND_MAX: usize = 100;

impl QueueWrite {
    fn operation_label(&self) -> &'static str {
        match self {
            QueueWrite::EnterQueue { .. } => "enter",
            QueueWrite::Heartbeat { .. } => "ticket_heartbeat",
            QueueWrite::RenewBeaconVector { .. } => "renew_vector",
            QueueWrite::RecordReadyCheckDelivery { .. } => "acknowledge",
            QueueWrite::TakeConsents { .. } | QueueWrite::RevokeConsent { .. } => "consent",
            QueueWrite::UpdateBlockList { .. } => "block_list",
            QueueWrite::EndTicket { .. } => "leave",
            QueueWrite::ProposeMatch { .. } => "propose",
            QueueWrite::StartSessionMatch { .. } => "start_match",
            QueueWrite::TransitionMatch { .. } => "match_transition",
            QueueWrite::ImportRatings { .. } => "import_ratings",
            QueueWrite::RecordResult { .. } => "record_result",
            QueueWrite::RecordFeedback { .. } => "feedback",
            QueueWrite::EraseUser(_) => "erase_user",
            QueueWrite::RemoveInactiveRatings { .. } => "remove_ratings",
        }
    }
}

/// Label of a transaction in logs and metrics: the kind of its writes, or one label for several kinds.
pub fn transaction_label(batch: &[QueueWrite]) -> &'static str {
    let Some(first) = batch.first().map(QueueWrite::operation_label) else { return "mixed_queue" };
    if batch.iter().all(|write| write.operation_label() == first) { first } else { "mixed_queue" }
}
