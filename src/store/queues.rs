//! Persistence of queues: tickets, matches, penalties, consents, block lists, ratings, match results and queue
//! leases.
//!
//! As for advertisements, the store applies no time limits by itself, and a batch is one transaction. Every backend
//! decides outcomes with the same code, and nothing is acknowledged before it is durable. The store alone enforces two
//! rules: a user has one ticket per queue, and is in one match that has not ended.

pub(super) mod block_lists;
pub mod connected_users_report;
pub(super) mod consents;
pub mod first_scale;
mod lease_holders;
mod match_body;
mod queue_key;
mod queue_outcome;
pub(super) mod queue_rows;
mod queue_write;
mod records;
mod result_body;
pub(super) mod result_encoding;
pub(super) mod row_changes;
pub(super) mod row_checksums;
mod side_report_json;
pub(super) mod ticket_body;
pub(super) mod ticket_match_encoding;
pub(super) mod touched_keys;

use std::sync::Arc;

use async_trait::async_trait;

pub use self::block_lists::StoredBlockList;
pub use self::consents::{CONSENT_RETENTION_AFTER_EXPIRY_MS, ConsentConsumer, GrantedConsent};
pub use self::lease_holders::LiveServers;
pub use self::queue_key::QueueKey;
pub use self::queue_outcome::QueueOutcome;
pub use self::queue_write::{ERASED_ROWS_PER_KIND_MAX, QueueWrite, UserErasure, transaction_label};
pub use self::records::{RatingRow, ReadyCheckCooldowns, StoredTicket, TicketState};

use crate::domain::id::{MatchId, RatingKey, SetId, TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::lifecycle::penalty::Penalty;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry};
use crate::domain::ruleset::rating::defaults::OwnRatingKeys;
use crate::domain::time::UnixMs;
use crate::store::error::StoreError;
use crate::store::queues::connected_users_report::ConnectedUsersReport;
use crate::store::queues::first_scale::FirstRatingScaleOfSet;
use crate::store::writer_version::STORE_FORMAT_VERSION;

/// Finished match for export: its result and the feedback on it.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedMatch {
    /// Result.
    pub result: Arc<MatchResult>,
    /// Number of players who gave feedback.
    pub feedback_count: u32,
    /// Sum of their stars.
    pub feedback_sum: u32,
}

/// Retention of match results: 92 days, one season, in milliseconds. Ruleset weights can be evaluated over it.
pub const RESULT_RETENTION_MS: u64 = 92 * 24 * 60 * 60 * 1_000;

/// Membership of a user in a ticket that has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TicketMembership {
    /// Queue of the ticket.
    pub queue: QueueKey,
    /// Ticket id.
    pub ticket_id: TicketId,
    /// The user cannot have another ticket beside it.
    pub exclusive: bool,
}

/// Rows that keep a user from entering queues.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserTicketsMatchAndPenalties {
    /// Tickets of the user that have not ended, by ticket id.
    pub tickets: Vec<TicketMembership>,
    /// Match that has not ended and that the user has not left.
    pub match_id: Option<MatchId>,
    /// Penalties after failed ready checks, by set.
    pub penalties: Vec<(SetId, Penalty)>,
}

/// All rows of the queues, loaded at startup.
#[derive(Clone, Debug, Default)]
pub struct StoredQueueData {
    /// Tickets, including ended ones.
    pub tickets: Vec<StoredTicket>,
    /// Matches, including ended ones.
    pub matches: Vec<Arc<Match>>,
    /// Ratings.
    pub ratings: Vec<RatingRow>,
    /// Block lists.
    pub block_lists: Vec<StoredBlockList>,
}

/// Batch of changes to the queues, read from the feed.
#[derive(Clone, Debug, Default)]
pub struct QueueFeedBatch {
    /// Time of the read, by the store's clock.
    pub read_at: UnixMs,
    /// Whether this is a full snapshot: a row that is not in it does not exist.
    pub is_snapshot: bool,
    /// Whether more changes can be read at once.
    pub has_more: bool,
    /// Changed tickets, in their current state.
    pub tickets: Vec<StoredTicket>,
    /// Changed matches, in their current state.
    pub matches: Vec<Arc<Match>>,
    /// Changed ratings, in their current state.
    pub ratings: Vec<RatingRow>,
    /// Changed block lists, in their current state.
    pub block_lists: Vec<StoredBlockList>,
    /// Users of whom `ratings` has all ratings, and `block_lists` the list. Empty in a snapshot.
    pub fully_read_users: Vec<UserKey>,
    /// Whether `ratings` and `block_lists` have those of all users, as in a snapshot.
    pub has_all_ratings_and_block_lists: bool,
    /// Ids of removed tickets. Empty in a snapshot.
    pub removed_tickets: Vec<TicketId>,
    /// Ids of removed matches. Empty in a snapshot.
    pub removed_matches: Vec<MatchId>,
}

impl From<StoredQueueData> for QueueFeedBatch {
    /// Snapshot for the only server of a store.
    fn from(data: StoredQueueData) -> Self {
        let StoredQueueData { tickets, matches, ratings, block_lists } = data;
        Self {
            is_snapshot: true,
            tickets,
            matches,
            ratings,
            block_lists,
            has_all_ratings_and_block_lists: true,
            ..Self::default()
        }
    }
}

/// Store of queues.
#[async_trait]
pub trait QueueStore: Send + Sync + 'static {
    /// Loads all rows in id order. Purges rows that are due by `now`.
    async fn purge_and_load_queues(&self, now: UnixMs) -> Result<StoredQueueData, StoreError>;

    /// Applies a batch in order, in one transaction, and returns one outcome per write. The batch is durable on return.
    ///
    /// On an error the batch was not committed, or the outcome of its commit is unknown; the feed then delivers it.
    /// Dropping the returned future does not split the batch: it is committed whole or not at all.
    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError>;

    /// Reads a ticket, for a caller whose server has not read it from the feed yet.
    async fn read_ticket(&self, id: TicketId) -> Result<Option<StoredTicket>, StoreError>;

    /// Reads a match, for a caller whose write was stale.
    async fn read_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError>;

    /// Reads the result of a match.
    async fn read_match_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, StoreError>;

    /// Reads a user's tickets, match and penalties. Takes no locks and delays no write.
    async fn read_tickets_match_and_penalties(&self, user: UserKey)
    -> Result<UserTicketsMatchAndPenalties, StoreError>;

    /// Latest changes of a user's rating with `key`, at most `limit::RATING_HISTORY_ENTRIES_PER_RATING_MAX`, latest first.
    async fn read_rating_changes(&self, user: UserKey, key: RatingKey) -> Result<Vec<RatingHistoryEntry>, StoreError>;

    /// Records the scale of each set in `current` that has no recorded first scale yet, and returns the first scales of
    /// all of these sets, in the same order. A recorded scale never changes, nor do the default constants of a set: the former
    /// ones for a set that had played before its scale was recorded.
    ///
    /// If a set is on another scale now, servers from before [`RatingKey`] would continue the ratings of the first scale
    /// on the other one, so they may no longer write. The same if a set does not use the former default constants.
    async fn record_first_scales(&self, current: &[OwnRatingKeys]) -> Result<Vec<FirstRatingScaleOfSet>, StoreError>;

    /// Lists at most `limit` finished matches, ordered by time of report and match id, starting after `after`. For
    /// exports: takes no locks and delays no write.
    async fn list_finished_matches(
        &self,
        after: (UnixMs, MatchId),
        limit: usize,
    ) -> Result<Vec<FinishedMatch>, StoreError>;

    /// Purges ended tickets and matches, expired penalties, results and feedback that are due, at most 1,000 rows per
    /// transaction.
    async fn purge_queues(&self, now: UnixMs) -> Result<(), StoreError>;

    /// Opens the feed of other servers' changes; `None` if the store serves one server. Called again if the reader of the
    /// former feed failed.
    async fn open_queue_feed(&self) -> Option<Box<dyn QueueFeed>> {
        None
    }

    /// Tells the others for `for_ms` milliseconds, by the store's clock, that this server lives: its leases are in force only
    /// that long.
    async fn renew_lease_holder(&self, for_ms: u32) -> Result<LiveServers, StoreError> {
        let _ = for_ms;
        Ok(LiveServers::of_single_server())
    }

    /// Acquires or renews the lease on each of `queues` for `for_ms` milliseconds by the store's clock. Returns, per
    /// queue, whether this server holds it now. A lease ends earlier if its holder is not renewed. Leases only divide the
    /// work; a store that serves one server grants all.
    async fn acquire_leases(&self, queues: &[QueueKey], for_ms: u32) -> Result<Vec<bool>, StoreError> {
        let _ = for_ms;
        Ok(vec![true; queues.len()])
    }

    /// Lowest store format version of the live servers.
    async fn lowest_store_format(&self) -> Result<i64, StoreError> {
        Ok(STORE_FORMAT_VERSION)
    }

    /// Releases all leases of this server, so that another one can acquire them at once.
    async fn release_leases(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Reports this server's connected users. Returns the totals of all servers that reported within ten seconds, by set and silo.
    async fn exchange_connected_users(
        &self,
        report: &ConnectedUsersReport,
    ) -> Result<Vec<(QueueKey, u32)>, StoreError> {
        Ok(report.counts.clone())
    }
}

/// Feed of other servers' changes to the queues.
#[async_trait]
pub trait QueueFeed: Send {
    /// Waits until a change may be available, or for the poll interval.
    async fn wait_for_changes(&mut self);

    /// Reads the changes since the last read. The first read, and a read after possibly missed changes, returns a full
    /// snapshot. Every committed change is delivered at least once, however late it commits. On an error nothing was
    /// read.
    async fn read_batch(&mut self) -> Result<QueueFeedBatch, StoreError>;
}
