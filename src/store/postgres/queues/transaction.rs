//! One batch of changes to the queues, in one transaction: lock what it touches, decide in plain code, write the difference,
//! leave word of it.
//!
//! Locks are taken in one order: the places of users who enter, tickets, matches, penalties, ratings, then the rows that are made;
//! and within each kind by name. Where another server was quicker with a row that this batch wants to make, it begins again and
//! finds the row there (`attempt.rs`).

use std::collections::{BTreeMap, BTreeSet};

use sqlx::AssertSqlSafe;
use sqlx::postgres::PgConnection;
use sqlx::types::Uuid;

use crate::domain::id::{MatchId, TicketId, UserKey};
use crate::domain::rating::SetActivity;
use crate::store::StoreError;
use crate::store::postgres::WriteSession;
use crate::store::postgres::commit::{self, BatchWork, CommitAttempt, CommitError};
use crate::store::postgres::queues::{decode, statements as sql, write_rows};
use crate::store::postgres::transaction::to_uuids;
use crate::store::queues::queue_rows::QueueRows;
use crate::store::queues::row_changes::QueueRowChanges;
use crate::store::queues::touched_keys::TouchedQueueKeys;
use crate::store::queues::{QueueOutcome, QueueWrite, transaction_label};

/// Makes all changes and answers each. On an error none has happened, or nobody knows.
pub(super) async fn commit_batch(
    desk: &mut WriteSession,
    batch: &[QueueWrite],
) -> Result<Vec<QueueOutcome>, StoreError> {
    commit::commit_with_retries(desk, QueueTransaction { batch, touched_keys: TouchedQueueKeys::of_batch(batch) }).await
}

/// A batch, and what it touches.
struct QueueTransaction<'a> {
    batch: &'a [QueueWrite],
    touched_keys: TouchedQueueKeys,
}

impl BatchWork for QueueTransaction<'_> {
    type Output = Vec<QueueOutcome>;

    fn transaction_label(&self) -> &'static str {
        transaction_label(self.batch)
    }

    fn write_count(&self) -> usize {
        self.batch.len()
    }

    async fn write(&self, connection: &mut PgConnection, attempt: &CommitAttempt) -> Result<Self::Output, CommitError> {
        let before = self.lock_and_read(connection).await?;
        let mut after = before.clone();
        let outcomes = after.apply_batch(self.batch);
        // Tickets are read before their users: one that another server entered in between is its own obstacle.
        if self.batch.iter().zip(&outcomes).any(conflicts_with_itself) {
            return Err(CommitError::WriteConflict);
        }
        let difference = QueueRowChanges::between(&before, &after);
        write_rows::write_changes(&difference, connection).await?;
        record_change(&difference, connection, attempt).await?;
        Ok(outcomes)
    }

    async fn read_committed_result(&self, _: &mut WriteSession, _: Uuid) -> Result<Self::Output, StoreError> {
        Err(StoreError::Unavailable("postgres: a commit has happened, and nobody knows what it came to".into()))
    }
}

impl QueueTransaction<'_> {
    /// Begins, locks and reads.
    async fn lock_and_read(&self, connection: &mut PgConnection) -> Result<QueueRows, CommitError> {
        let touched = &self.touched_keys;
        let mut picture = QueueRows::default();
        let begin = sql::begin_with_entry_locks(&entry_locks(&touched.entering_users));
        sqlx::raw_sql(AssertSqlSafe(begin)).execute(&mut *connection).await?;
        if !touched.tickets.is_empty() {
            let ids = to_uuids(touched.tickets.iter().map(TicketId::as_bytes));
            for row in &sqlx::query(sql::LOCK_TICKETS).bind(ids).fetch_all(&mut *connection).await? {
                let stored = decode::decode_ticket(row)?;
                picture.tickets.insert(stored.ticket.id, stored);
            }
        }
        let played = to_uuids(touched.matches.iter().map(MatchId::as_bytes));
        if !played.is_empty() {
            for row in &sqlx::query(sql::LOCK_MATCHES).bind(&played).fetch_all(&mut *connection).await? {
                let play = decode::decode_match(row)?;
                picture.matches.insert(play.id, play);
            }
        }
        if !touched.penalized_users.is_empty() {
            let users = to_uuids(touched.penalized_users.iter().map(UserKey::as_bytes));
            sqlx::query(sql::LOCK_PENALTIES).bind(users).execute(&mut *connection).await?;
        }
        if !touched.users.is_empty() || !played.is_empty() {
            let users = to_uuids(touched.users.iter().map(UserKey::as_bytes));
            for row in &sqlx::query(sql::READ_USER_ROWS).bind(users).bind(played).fetch_all(&mut *connection).await? {
                decode::decode_user_row(row, &mut picture)?;
            }
        }
        self.read_results_and_ratings(connection, &mut picture).await?;
        Ok(picture)
    }

    /// Locks and reads ratings, and reads what results and scores there are already.
    async fn read_results_and_ratings(
        &self,
        connection: &mut PgConnection,
        picture: &mut QueueRows,
    ) -> Result<(), CommitError> {
        let touched = &self.touched_keys;
        if !touched.ratings.is_empty() {
            let users: BTreeSet<UserKey> = touched.ratings.iter().map(|(user, _)| *user).collect();
            let users = to_uuids(users.iter().map(UserKey::as_bytes));
            for row in &sqlx::query(sql::LOCK_RATINGS).bind(&users).fetch_all(&mut *connection).await? {
                let rating = decode::decode_rating(row)?;
                picture.ratings.insert((rating.user, rating.set_id), rating);
            }
            for set_id in &touched.period_sets {
                let query = sqlx::query(sql::READ_LATEST_PERIOD).bind(i64::from(set_id.0)).bind(&users);
                if let Some(row) = query.fetch_optional(&mut *connection).await? {
                    let tells = decode::decode_rating(&row)?.skill();
                    picture.periods_played_by_others.insert(*set_id, SetActivity::default().including_skill(&tells));
                }
            }
        }
        if !touched.results.is_empty() {
            let ids = to_uuids(touched.results.iter().map(MatchId::as_bytes));
            for row in &sqlx::query(sql::READ_RESULTS).bind(ids).fetch_all(&mut *connection).await? {
                let result = decode::decode_result(row)?;
                picture.results.insert(result.report.match_id, result);
            }
        }
        if !touched.feedback.is_empty() {
            let ids: BTreeSet<MatchId> = touched.feedback.iter().map(|(id, _)| *id).collect();
            let ids = to_uuids(ids.iter().map(MatchId::as_bytes));
            for row in &sqlx::query(sql::READ_FEEDBACK).bind(ids).fetch_all(connection).await? {
                decode::decode_feedback(row, picture)?;
            }
        }
        Ok(())
    }
}

/// Whether a party is refused for the very ticket that it asks for.
fn conflicts_with_itself((write, outcome): (&QueueWrite, &QueueOutcome)) -> bool {
    match (write, outcome) {
        (QueueWrite::EnterQueue { ticket, .. }, QueueOutcome::AlreadyQueued { other_ticket: by, .. }) => {
            *by == ticket.id
        }
        _ => false,
    }
}

/// The places of users who enter, in order, and whether anybody is to have one alone. There are few places, so that a batch of
/// a thousand parties takes few locks; users of one place wait for each other for no reason, but not for long.
fn entry_locks(entering: &BTreeSet<(UserKey, bool)>) -> Vec<(u8, bool)> {
    let mut places: BTreeMap<u8, bool> = BTreeMap::new();
    for (user, alone) in entering {
        *places.entry(user.as_bytes()[0]).or_default() |= alone;
    }
    places.into_iter().collect()
}

/// Leaves word of what has changed, if anything has.
async fn record_change(
    difference: &QueueRowChanges<'_>,
    connection: &mut PgConnection,
    attempt: &CommitAttempt,
) -> Result<(), CommitError> {
    let tickets = difference.inserted_tickets.iter().chain(&difference.updated_tickets);
    let tickets = to_uuids(tickets.map(|stored| stored.ticket.id.as_bytes()));
    let matches = difference.inserted_matches.iter().chain(&difference.updated_matches);
    let matches = to_uuids(matches.map(|play| play.id.as_bytes()));
    let ratings = difference.inserted_ratings.iter().chain(&difference.updated_ratings);
    let rated: BTreeSet<UserKey> = ratings.map(|row| row.user).collect();
    let written = !difference.inserted_results.is_empty() || !difference.inserted_feedback.is_empty();
    if tickets.is_empty() && matches.is_empty() && rated.is_empty() && !written {
        return Ok(());
    }
    let rated = to_uuids(rated.iter().map(UserKey::as_bytes));
    let noted = sqlx::query(sql::INSERT_CHANGE).bind(attempt.batch_id).bind(attempt.replica_id);
    noted.bind(tickets).bind(matches).bind(rated).bind(attempt.notify).execute(connection).await?;
    Ok(())
}
