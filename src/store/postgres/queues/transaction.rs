//! Transaction of a queue batch: lock the touched rows, apply the writes in code, store the difference, record the
//! change.
//!
//! Locks are taken in one order: entry locks of entering users, tickets, matches, penalties, consents, block lists, ratings,
//! then inserted rows; within each kind by key. If another server inserts a row of this batch first, the batch is retried and finds
//! the row (`commit.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnection;
use sqlx::types::Uuid;

use crate::domain::id::{ConsentId, MatchId, TicketId, UserKey};
use crate::store::error::StoreError;
use crate::store::postgres::connection::commit::{
    self, CommitAttempt, CommitError, RetryableTransaction, WrittenBatch,
};
use crate::store::postgres::connection::uuid_column::to_uuids;
use crate::store::postgres::connection::write_session::WriteSession;
use crate::store::postgres::queues::{decode, ratings, statements as sql, write_rows};
use crate::store::queues::queue_rows::QueueRows;
use crate::store::queues::row_changes::QueueRowChanges;
use crate::store::queues::touched_keys::TouchedQueueKeys;
use crate::store::queues::{QueueOutcome, QueueWrite, transaction_label};
use crate::store::unknown_rows::UnknownRows;

/// Commits a batch and returns its result. On an error it was not committed, or the outcome is unknown.
pub(super) async fn commit_batch(
    session: &mut WriteSession,
    batch: &[QueueWrite],
) -> Result<Vec<QueueOutcome>, StoreError> {
    let unknown_rows = &*Arc::clone(&session.unknown_rows);
    let touched_keys = TouchedQueueKeys::of_batch(batch);
    commit::commit_with_retries(session, QueueTransaction { batch, touched_keys, unknown_rows }).await
}

/// Batch, and the keys that it touches.
struct QueueTransaction<'a> {
    batch: &'a [QueueWrite],
    touched_keys: TouchedQueueKeys,
    unknown_rows: &'a UnknownRows,
}

impl RetryableTransaction for QueueTransaction<'_> {
    type Output = Vec<QueueOutcome>;

    fn transaction_label(&self) -> &'static str {
        transaction_label(self.batch)
    }

    fn write_count(&self) -> usize {
        self.batch.len()
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        attempt: &CommitAttempt,
    ) -> Result<WrittenBatch<Self::Output>, CommitError> {
        let before = self.lock_and_read(connection).await?;
        let mut after = before.clone();
        let outcomes = after.apply_batch(self.batch);
        // Tickets are read before their users. If another server entered the same ticket in between, the ticket would
        // conflict with itself.
        let conflicts_with_itself =
            |it| ticket_was_entered_concurrently(it) || match_was_started_concurrently(it, &before);
        if self.batch.iter().zip(&outcomes).any(conflicts_with_itself) {
            return Err(CommitError::WriteConflict);
        }
        let changes = QueueRowChanges::between(&before, &after);
        write_rows::write_changes(&changes, connection).await?;
        let has_changes = record_change(&changes, connection, attempt).await?;
        Ok(WrittenBatch { output: outcomes, has_changes })
    }

    async fn read_committed_result(&self, _: &mut WriteSession, _: Uuid) -> Result<Self::Output, StoreError> {
        Err(StoreError::Unavailable(
            "postgres: the batch was committed, but its result is lost; read the tickets again".into(),
        ))
    }
}

impl QueueTransaction<'_> {
    /// Begins the transaction, locks the rows and reads them.
    async fn lock_and_read(&self, connection: &mut PgConnection) -> Result<QueueRows, CommitError> {
        let keys = &self.touched_keys;
        let mut rows = QueueRows::default();
        let begin = sql::begin_with_entry_locks_sql(&entry_locks(&keys.user_entry_locks));
        sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *connection).await?;
        if !keys.tickets.is_empty() {
            let ids = to_uuids(keys.tickets.iter().map(TicketId::as_bytes));
            for row in &sqlx::query(sql::LOCK_TICKETS).bind(ids).fetch_all(&mut *connection).await? {
                let stored =
                    self.unknown_rows.record_if_unknown(decode::ticket_key(row)?, decode::decode_ticket(row))?;
                rows.tickets.insert(stored.ticket.id, stored);
            }
        }
        let match_ids = to_uuids(keys.matches.iter().map(MatchId::as_bytes));
        if !match_ids.is_empty() {
            for row in &sqlx::query(sql::LOCK_MATCHES).bind(&match_ids).fetch_all(&mut *connection).await? {
                let found = self.unknown_rows.record_if_unknown(decode::match_key(row)?, decode::decode_match(row))?;
                rows.matches.insert(found.id, found);
            }
        }
        if !keys.penalized_users.is_empty() {
            let users = to_uuids(keys.penalized_users.iter().map(UserKey::as_bytes));
            sqlx::query(sql::LOCK_PENALTIES).bind(users).execute(&mut *connection).await?;
        }
        if !keys.consents.is_empty() {
            let ids = to_uuids(keys.consents.iter().map(ConsentId::as_bytes));
            for row in &sqlx::query(sql::LOCK_CONSENTS).bind(ids).fetch_all(&mut *connection).await? {
                rows.consents.extend([decode::decode_consent(row)?]);
            }
        }
        if !keys.block_lists.is_empty() {
            let users = to_uuids(keys.block_lists.iter().map(UserKey::as_bytes));
            for row in &sqlx::query(sql::LOCK_BLOCK_LISTS).bind(users).fetch_all(&mut *connection).await? {
                let list = decode::decode_block_list(row)?;
                rows.block_lists.insert(list.user, list);
            }
        }
        if !keys.users.is_empty() || !match_ids.is_empty() {
            let users = to_uuids(keys.users.iter().map(UserKey::as_bytes));
            for row in &sqlx::query(sql::READ_TICKETS_MATCHES_PENALTIES_OF_USERS)
                .bind(users)
                .bind(match_ids)
                .fetch_all(&mut *connection)
                .await?
            {
                decode::decode_ticket_match_or_penalty_of_user(row, &mut rows)?;
            }
        }
        self.read_results_and_ratings(connection, &mut rows).await?;
        Ok(rows)
    }

    /// Locks and reads ratings; reads results and feedback.
    async fn read_results_and_ratings(
        &self,
        connection: &mut PgConnection,
        rows: &mut QueueRows,
    ) -> Result<(), CommitError> {
        let keys = &self.touched_keys;
        if !keys.ratings.is_empty() || !keys.erased_users.is_empty() {
            ratings::lock_touched(connection, keys, rows).await?;
        }
        if !keys.results.is_empty() {
            let ids = to_uuids(keys.results.iter().map(MatchId::as_bytes));
            for row in &sqlx::query(sql::READ_RESULTS).bind(ids).fetch_all(&mut *connection).await? {
                let result =
                    self.unknown_rows.record_if_unknown(decode::result_key(row)?, decode::decode_result(row))?;
                rows.results.insert(result.report.match_id, result);
            }
        }
        if !keys.feedback.is_empty() {
            let ids: BTreeSet<MatchId> = keys.feedback.iter().map(|(id, _)| *id).collect();
            let ids = to_uuids(ids.iter().map(MatchId::as_bytes));
            for row in &sqlx::query(sql::READ_FEEDBACK).bind(ids).fetch_all(connection).await? {
                decode::decode_feedback(row, rows)?;
            }
        }
        Ok(())
    }
}

/// Whether a party is rejected because of the same ticket that it enters.
fn ticket_was_entered_concurrently((write, outcome): (&QueueWrite, &QueueOutcome)) -> bool {
    match (write, outcome) {
        (QueueWrite::EnterQueue { ticket, .. }, QueueOutcome::AlreadyQueued { other_ticket, .. }) => {
            *other_ticket == ticket.id
        }
        _ => false,
    }
}

/// Whether a match is rejected because its users are in this very match: another server started it after its row was looked up.
fn match_was_started_concurrently((write, outcome): (&QueueWrite, &QueueOutcome), before: &QueueRows) -> bool {
    match (write, outcome) {
        (QueueWrite::StartSessionMatch { started, .. }, QueueOutcome::UsersInMatch { users }) => {
            users.iter().any(|user| before.match_by_user.get(user) == Some(&started.id))
        }
        _ => false,
    }
}

/// Entry locks for entering users, in order, and whether each is exclusive. A lock stands for the first byte of the
/// user key, so a batch of a thousand parties takes few locks. Users with the same byte wait for each other briefly.
fn entry_locks(entering_users: &BTreeSet<(UserKey, bool)>) -> Vec<(u8, bool)> {
    let mut locks: BTreeMap<u8, bool> = BTreeMap::new();
    for (user, exclusive) in entering_users {
        *locks.entry(user.as_bytes()[0]).or_default() |= exclusive;
    }
    locks.into_iter().collect()
}

/// Records the changed ids for the other servers, if there are any. Returns whether it did.
async fn record_change(
    changes: &QueueRowChanges<'_>,
    connection: &mut PgConnection,
    attempt: &CommitAttempt,
) -> Result<bool, CommitError> {
    let tickets = changes.inserted_tickets.iter().chain(&changes.updated_tickets).chain(&changes.rewritten_tickets);
    let tickets = to_uuids(tickets.map(|stored| stored.ticket.id.as_bytes()));
    let matches = changes.inserted_matches.iter().chain(&changes.updated_matches);
    let matches = to_uuids(matches.map(|found| found.id.as_bytes()));
    let changed_ratings = changes.inserted_ratings.iter().chain(&changes.updated_ratings);
    let mut rated_users: BTreeSet<UserKey> = changed_ratings.map(|row| row.user).collect();
    rated_users.extend(changes.deleted_ratings.iter().map(|(user, _)| *user));
    rated_users.extend(&changes.erased_users);
    // Other servers read the ratings and the block list of these users.
    rated_users.extend(changes.inserted_block_lists.iter().chain(&changes.updated_block_lists).map(|list| list.user));
    let has_consents = !changes.inserted_consents.is_empty() || !changes.updated_consents.is_empty();
    let has_other_changes = has_consents
        || !changes.inserted_results.is_empty()
        || !changes.updated_results.is_empty()
        || !changes.inserted_feedback.is_empty();
    if tickets.is_empty() && matches.is_empty() && rated_users.is_empty() && !has_other_changes {
        return Ok(false);
    }
    let rated_users = to_uuids(rated_users.iter().map(UserKey::as_bytes));
    let query = sqlx::query(sql::INSERT_CHANGE).bind(attempt.attempt_id).bind(attempt.replica_id);
    query.bind(tickets).bind(matches).bind(rated_users).bind(attempt.notifies_replicas).execute(connection).await?;
    Ok(true)
}
