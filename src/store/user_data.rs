//! Data of one user across tables of the store: the rows that name the user, the user's name in logs, and the cleanup after
//! an erasure.

use async_trait::async_trait;

use crate::domain::id::{MatchId, UserKey};
use crate::domain::time::UnixMs;
use crate::store::error::StoreError;

/// Kind of rows that can name a user among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserRowKind {
    /// Tickets: players or blocked users.
    Ticket,
    /// Matches.
    Match,
    /// Results, by match.
    Result,
    /// Feedback that the user gave, by match.
    Feedback,
    /// Block lists of others, by the user whose list it is.
    BlockList,
    /// Advertisements that name the user, and those with a reservation for the user or made by the user.
    Advertisement,
}

/// Feedback of a user on a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenFeedback {
    /// Match.
    pub match_id: MatchId,
    /// Stars, 1 to 5.
    pub stars: u8,
    /// Time.
    pub given_at: UnixMs,
}

/// Store of what concerns one user across tables.
#[async_trait]
pub trait UserDataStore: Send + Sync + 'static {
    /// Ids of rows that name the user, in order, above `after`; at most `limit`. Reads the whole table beside other calls;
    /// takes no locks and delays no write.
    async fn find_user_rows(
        &self,
        kind: UserRowKind,
        user: UserKey,
        after: [u8; 16],
        limit: usize,
    ) -> Result<Vec<[u8; 16]>, StoreError>;

    /// Feedback of a user on matches above `after`, in id order; at most `limit`.
    async fn read_given_feedback(
        &self,
        user: UserKey,
        after: MatchId,
        limit: usize,
    ) -> Result<Vec<GivenFeedback>, StoreError>;

    /// Name of a user in logs. A user without one gets `new_name`, if it is given. The name is random and goes with the user's
    /// erasure: then nothing leads from the user to the log lines.
    async fn get_or_insert_user_log_name(
        &self,
        user: UserKey,
        new_name: Option<[u8; 16]>,
    ) -> Result<Option<[u8; 16]>, StoreError>;

    /// Remembers that a user is being erased, so that [`clean_up_erasures`](Self::clean_up_erasures) has to run, also after a
    /// crash.
    async fn request_erasure_cleanup(&self, now: UnixMs) -> Result<(), StoreError>;

    /// Removes what erasures have left behind outside of rows: the log of the database, dead rows, and changes that each server
    /// has read. Returns whether nothing is left to do.
    async fn clean_up_erasures(&self) -> Result<bool, StoreError>;

    /// Records the id of the secret of public user keys, if none is recorded. Returns the recorded one.
    async fn record_user_key_secret_id(&self, secret_id: i64) -> Result<i64, StoreError>;

    /// Number of the last erasure of an erasure log that this store has finished; 0 for none. See
    /// [`ErasureLog`](crate::store::erasure_log::ErasureLog).
    async fn read_erasure_position(&self, log_id: u64) -> Result<u64, StoreError>;

    /// Records that the erasures of a log up to this number are finished. A lower number changes nothing.
    async fn record_erasure_position(&self, log_id: u64, position: u64) -> Result<(), StoreError>;
}

/// Name of the store setting with the position in an erasure log.
pub(super) fn erasure_position_setting(log_id: u64) -> String {
    format!("erasures {log_id:016x}")
}
