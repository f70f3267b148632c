//! What queues keep in the store: tickets, matches, penalties, ratings, and which server runs which queue.
//!
//! The same bargain as for advertisements: rows are judged as they stand, a batch is one transaction, what it did is decided in
//! one place for every backend, and nothing is acknowledged before it is durable. Two rules need no code above the store to be
//! right: a user is in one ticket of a queue, and in one match that is not over.

mod apply_writes;
pub(super) mod queue_rows;
pub(super) mod record_result;
pub(super) mod row_changes;
pub(super) mod touched_keys;

use std::sync::Arc;

use async_trait::async_trait;

use crate::domain::id::{MatchId, SetId, SiloId, TicketId, UserKey};
use crate::domain::lifecycle::{Match, TicketFate};
use crate::domain::match_result::{MatchResult, RatingHistoryEntry, ResultReport, SatisfactionStats};
use crate::domain::queue::ticket::{PlayerRating, Ticket, TicketEndReason};
use crate::domain::rating::Skill;
use crate::domain::ruleset::rating::RatingSpec;
use crate::domain::time::UnixMs;
use crate::store::StoreError;

/// A ticket as it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTicket {
    /// As it was entered.
    pub ticket: Arc<Ticket>,
    /// How it stands.
    pub state: TicketState,
    /// Until when it is believed without a heartbeat. Only waiting tickets lapse.
    pub expires_at: UnixMs,
    /// Counts its changes.
    pub version: u64,
    /// A digest of what was asked, so that a key used for something else is noticed.
    pub request_digest: [u8; 16],
}

/// How a ticket stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TicketState {
    /// It waits. A user of it may be in a match by another ticket; it is passed over then.
    Waiting,
    /// It is in a match that is not over.
    InMatch(MatchId),
    /// It is over, and remembered to answer retries.
    Ended {
        /// Why.
        end_reason: TicketEndReason,
        /// The match that ended it, if one did.
        match_id: Option<MatchId>,
        /// When it may be forgotten.
        purge_at: UnixMs,
    },
}

/// One change to what queues keep.
#[derive(Clone, Debug)]
pub enum QueueWrite {
    /// A party begins to wait. Once per id; a retry is told what became of the first.
    EnterQueue {
        /// The ticket.
        ticket: Arc<Ticket>,
        /// Until when it is believed.
        expires_at: UnixMs,
        /// As in [`StoredTicket`].
        request_digest: [u8; 16],
        /// The moment.
        now: UnixMs,
    },
    /// Extends a ticket that waits, never shortens it.
    Heartbeat {
        /// Which.
        ticket_id: TicketId,
        /// Until when it is believed.
        expires_at: UnixMs,
        /// The moment.
        now: UnixMs,
    },
    /// Ends a ticket that waits. One that is in a match stays there.
    EndTicket {
        /// Which.
        ticket_id: TicketId,
        /// Why. `Lapsed` ends only what has expired by `now`.
        end_reason: TicketEndReason,
        /// When it may be forgotten.
        purge_at: UnixMs,
        /// The moment.
        now: UnixMs,
    },
    /// Makes a match of tickets that wait: of all of them, or none. Each must wait, and not have expired by `now`; none of
    /// their users may be in a match that is not over.
    ProposeMatch {
        /// The match, at its first edition; its members' tickets are the ones.
        proposed: Arc<Match>,
        /// The moment.
        now: UnixMs,
    },
    /// Replaces a match by its next edition, and does to tickets and users what goes with it: all of it or none. Several moves
    /// of one match in a batch are made one from the other: when one is stale, so are those after it.
    TransitionMatch {
        /// As it is to be; `edition` is one more than that of the match it replaces.
        updated_match: Arc<Match>,
        /// What becomes of tickets of the match. Those that are not named stay in it; those that return wait again, and are
        /// believed until the moment given.
        ticket_fates: Vec<(TicketId, TicketFate, UnixMs)>,
        /// Other tickets of its users, that end because the match begins; those that no longer wait are passed over.
        other_tickets: Vec<TicketId>,
        /// Users to punish for a failed ready check.
        penalized_users: Vec<UserKey>,
        /// The ladder and how to climb it; needed where anybody is punished.
        penalty_schedule: PenaltySchedule,
        /// When tickets that end here may be forgotten.
        purge_at: UnixMs,
        /// The moment.
        now: UnixMs,
    },
    /// Sets ratings, new or known. What is known of a user's streak and satisfaction stays.
    ImportRatings {
        /// The rows; at most `limit::RATINGS_BATCH_MAX`.
        rows: Vec<RatingRow>,
    },
    /// Writes down what came of a match, once, and has ratings follow it and the match end: all of it or none.
    RecordResult {
        /// What came of it.
        report: Arc<ResultReport>,
        /// A digest of what was said: the same again changes nothing, anything else is refused.
        report_digest: [u8; 16],
        /// The edition of the match that was judged; it must be at that still.
        match_version: u64,
        /// The `Move` that ends it, where it is still played.
        end_transition: Option<Box<QueueWrite>>,
        /// How ratings follow it; `None` where the set keeps none.
        rating_spec: Option<RatingSpec>,
        /// The moment.
        now: UnixMs,
    },
    /// Notes what a player thought of a match, once for each player and match.
    RecordFeedback {
        /// Which match; nobody asks whether it is there.
        match_id: MatchId,
        /// The set whose rating row of the user keeps the sum.
        set_id: SetId,
        /// Who.
        user: UserKey,
        /// 1 to 5, more is better.
        stars: u8,
        /// What a row begins with where the user has none yet: a match may be scored before anybody says what came of it. `None`
        /// where the set keeps no ratings; of who has no row nothing is kept then but the score itself.
        rating_spec: Option<RatingSpec>,
        /// The moment.
        now: UnixMs,
    },
}

impl QueueWrite {
    /// What kind of change it is, in a word for operators.
    fn operation_label(&self) -> &'static str {
        match self {
            QueueWrite::EnterQueue { .. } => "enter",
            QueueWrite::Heartbeat { .. } => "beat",
            QueueWrite::EndTicket { .. } => "leave",
            QueueWrite::ProposeMatch { .. } => "propose",
            QueueWrite::TransitionMatch { .. } => "move",
            QueueWrite::ImportRatings { .. } => "rate",
            QueueWrite::RecordResult { .. } => "conclude",
            QueueWrite::RecordFeedback { .. } => "score",
        }
    }
}

/// What operators know a transaction of these changes by: the word of their kind, `queues` if there is more than one kind.
pub fn transaction_label(batch: &[QueueWrite]) -> &'static str {
    let Some(first) = batch.first().map(QueueWrite::operation_label) else { return "queues" };
    if batch.iter().all(|write| write.operation_label() == first) { first } else { "queues" }
}

/// Penalties for failed ready checks, as the ruleset has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PenaltySchedule {
    /// How long one may not queue: the first time, the second, and so on; the last holds from there on.
    pub cooldowns_ms: Box<[u32]>,
    /// After how long without a failed check it begins anew.
    pub reset_after_ms: u64,
}

/// A user's rating in a set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatingRow {
    /// Whose.
    pub user: UserKey,
    /// Which set's.
    pub set_id: SetId,
    /// What it is.
    pub rating: PlayerRating,
    /// Glicko-2's volatility; 0 for systems without.
    pub volatility: f64,
    /// Matches that count in it.
    pub match_count: u32,
    /// When it last changed by a match.
    pub last_match_at: UnixMs,
    /// Matches won in a row, above 0, or lost, below.
    pub streak: i32,
    /// How content the user is, as far as it shows.
    pub satisfaction: SatisfactionStats,
    /// As in [`Skill`].
    pub periods_played: u32,
}

impl RatingRow {
    /// As rating systems see it.
    pub fn skill(&self) -> Skill {
        let Self { rating: rated, volatility, match_count: matches, streak, periods_played: played, .. } = *self;
        // Who has played no match has not been idle since one.
        Skill {
            estimate: rated,
            volatility,
            match_count: matches,
            last_match_at: (0 < matches).then_some(self.last_match_at),
            streak,
            active_periods: played,
        }
    }
}

/// What one change did.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueOutcome {
    /// `Enter`: the ticket as it stands now, be it long over.
    Entered {
        /// As stored.
        ticket: StoredTicket,
        /// An earlier call had made it.
        is_replay: bool,
    },
    /// `Enter` did not happen: one of its users is in another ticket of this queue, or in another queue's ticket that stays
    /// alone, or this one stays alone and one of its users waits elsewhere.
    AlreadyQueued {
        /// Who.
        user: UserKey,
        /// Where.
        other_ticket: TicketId,
    },
    /// `Enter` did not happen: one of its users is in a match that is not over.
    AlreadyInMatch {
        /// Who.
        user: UserKey,
        /// Which match.
        match_id: MatchId,
    },
    /// `Enter` did not happen: one of its users may not queue yet.
    OnCooldown {
        /// Who.
        user: UserKey,
        /// Until when.
        until: UnixMs,
    },
    /// `Enter` did not happen: the id stands for something else.
    IdempotencyKeyReused,
    /// `Beat` happened; `End` happened, or had before: the ticket as it stands.
    CurrentTicket(StoredTicket),
    /// `Beat` or `End`: there is no such ticket.
    TicketNotFound,
    /// `Propose` or `Move` happened: the tickets that it changed, as they stand.
    MatchWritten {
        /// In the order of ids.
        tickets: Vec<StoredTicket>,
    },
    /// `Propose` did not happen: these tickets no longer wait, or have a user who is in a match.
    TicketsUnavailable {
        /// Which, in the order of ids.
        tickets: Vec<TicketId>,
    },
    /// `Move` did not happen: the match is not of the edition before, or an earlier move of it in the batch was stale. As it
    /// stands, if it is there.
    StaleMatchVersion(Option<Arc<Match>>),
    /// `Rate` happened.
    RatingsImported,
    /// `Conclude` happened, now or before.
    ResultRecorded {
        /// As it is kept.
        result: Arc<MatchResult>,
        /// An earlier call had done it; the rest is empty then.
        is_replay: bool,
        /// The tickets that it changed, as they stand, in the order of ids.
        tickets: Vec<StoredTicket>,
        /// The ratings that it changed, as they stand, in the order of users.
        ratings: Vec<RatingRow>,
    },
    /// `Conclude` did not happen: something else was reported of the match before.
    ConflictingResult(Arc<MatchResult>),
    /// `Conclude` did not happen: what is stored cannot be rated. Why, for the log.
    RatingFailed(String),
    /// `Score` happened: the user's rating as it stands, if the set keeps any.
    FeedbackRecorded(Option<RatingRow>),
    /// `Score` did not happen: the user has scored the match before.
    FeedbackAlreadyGiven {
        /// So.
        stars: u8,
    },
}

/// A finished match as it is exported: what was wanted, what came of it, what players thought of it.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedMatch {
    /// What came of it.
    pub result: Arc<MatchResult>,
    /// Players who have scored it.
    pub feedback_count: u32,
    /// The sum of their scores.
    pub star_sum: u32,
}

/// How long what came of a match is kept: a season, so that a ruleset's weights can be judged by it (S1-98), milliseconds.
pub const RESULT_RETENTION_MS: u64 = 92 * 24 * 60 * 60 * 1_000;

/// A queue: a set, for the players of a silo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueKey {
    /// The set.
    pub set_id: SetId,
    /// The population.
    pub silo: SiloId,
}

/// Everything that queues keep, for a start.
#[derive(Clone, Debug, Default)]
pub struct StoredQueueData {
    /// Tickets, ended ones included.
    pub tickets: Vec<StoredTicket>,
    /// Matches, those that are over included.
    pub matches: Vec<Arc<Match>>,
    /// Ratings.
    pub ratings: Vec<RatingRow>,
}

/// What other servers change in the queues, as a feed reads it.
#[derive(Clone, Debug, Default)]
pub struct QueueFeedBatch {
    /// When, by the store's own clock.
    pub read_at: UnixMs,
    /// This is all there is: what is not in it is not there.
    pub is_snapshot: bool,
    /// There is more to read at once.
    pub has_more: bool,
    /// Tickets as they now are.
    pub tickets: Vec<StoredTicket>,
    /// Matches as they now are.
    pub matches: Vec<Arc<Match>>,
    /// Ratings as they now are.
    pub ratings: Vec<RatingRow>,
    /// Tickets that are no longer there. Empty where `whole`.
    pub removed_tickets: Vec<TicketId>,
    /// Matches that are no longer there. Likewise.
    pub removed_matches: Vec<MatchId>,
}

impl From<StoredQueueData> for QueueFeedBatch {
    /// All there is, as the only server of a store finds it.
    fn from(load: StoredQueueData) -> Self {
        let StoredQueueData { tickets, matches, ratings } = load;
        Self { is_snapshot: true, tickets, matches, ratings, ..Self::default() }
    }
}

/// Where queues keep what must survive.
#[async_trait]
pub trait QueueStore: Send + Sync + 'static {
    /// All there is, in the order of ids; what is due to be forgotten by `now` goes on the way.
    async fn load_queues(&self, now: UnixMs) -> Result<StoredQueueData, StoreError>;

    /// Makes all changes, in order, in one transaction, and answers each. Durable when it returns; on an error none has happened,
    /// or nobody knows yet, and the feed will tell. Cancelling the caller changes nothing about that (R4).
    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError>;

    /// A match as it stands, for whoever has lost a race for it.
    async fn read_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError>;

    /// What came of a match, as it is kept.
    async fn read_match_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, StoreError>;

    /// The latest changes of a user's rating in a set, at most `limit::RATING_CHANGES_MAX`, latest first.
    async fn read_rating_changes(&self, user: UserKey, set_id: SetId) -> Result<Vec<RatingHistoryEntry>, StoreError>;

    /// The first `most` finished matches reported at `after` and called more than the name, or later; in that order. For
    /// whoever exports: it changes nothing and holds no change up.
    async fn list_finished_matches(
        &self,
        after: (UnixMs, MatchId),
        most: usize,
    ) -> Result<Vec<FinishedMatch>, StoreError>;

    /// Forgets ended tickets, finished matches, spent penalties and what came of matches, where that is due, at most a thousand
    /// rows in one transaction.
    async fn purge_queues(&self, now: UnixMs) -> Result<(), StoreError>;

    /// What other servers change; `None` where there can be no others. Asked for once.
    async fn open_queue_feed(&self) -> Option<Box<dyn QueueFeed>> {
        None
    }

    /// Takes or keeps the lease on each of `queues` for `for_ms`, by the store's clock; answers which of them are held now by
    /// this server. Nothing but who does the work depends on it. A store that serves one server grants everything.
    async fn acquire_leases(&self, queues: &[QueueKey], for_ms: u32) -> Result<Vec<bool>, StoreError> {
        let _ = for_ms;
        Ok(vec![true; queues.len()])
    }

    /// Lets leases go, so that another server goes on at once.
    async fn release_leases(&self, queues: &[QueueKey]) -> Result<(), StoreError> {
        let _ = queues;
        Ok(())
    }

    /// Says how many users this server has connected in each silo, and hears how many all servers have that said so within
    /// ten seconds.
    async fn report_connected_users(&self, mine: &[(SiloId, u32)]) -> Result<Vec<(SiloId, u32)>, StoreError> {
        Ok(mine.to_vec())
    }
}

/// What other servers change in the queues, read again and again.
#[async_trait]
pub trait QueueFeed: Send {
    /// Waits until there may be something to read: a moment at most.
    async fn wait_for_changes(&mut self);

    /// Reads what has changed since the last time. The first time, and whenever it cannot be sure to know what it has missed,
    /// it reads everything. Nothing that was committed is missed, however late. On an error nothing was read.
    async fn read_batch(&mut self) -> Result<QueueFeedBatch, StoreError>;
}
