//! Queues of the SQLite store, on the connection of the advertisements.

mod decode;
mod erasure_statements;
mod rating_statements;
mod ratings;
mod statements;
mod transaction;
mod user_data;

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::Connection;
use sqlx::sqlite::{SqliteArguments, SqliteConnection, SqliteRow};

use crate::domain::id::{MatchId, RatingKey, TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry};
use crate::domain::ruleset::rating::defaults::OwnRatingKeys;
use crate::domain::time::UnixMs;
use crate::store::error::StoreError;
use crate::store::queues::first_scale::FirstRatingScaleOfSet;
use crate::store::queues::queue_rows::QueueRows;
use crate::store::queues::touched_keys::TouchedQueueKeys;
use crate::store::queues::{
    FinishedMatch, QueueKey, QueueOutcome, QueueStore, QueueWrite, StoredQueueData, StoredTicket,
    UserTicketsMatchAndPenalties,
};
use crate::store::rows;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::connection::error::{add_path_to_error, to_store_error};
use crate::store::sqlite::connection::hex_json_array::hex_json_array;
use crate::store::sqlite::connection::open;
use crate::store::sqlite::connection::purge::purge_rows;
use crate::store::sqlite::queues::statements as sql;
use crate::store::unknown_rows::{RowKey, UnknownRows};

#[async_trait]
impl QueueStore for SqliteStore {
    async fn purge_and_load_queues(&self, now: UnixMs) -> Result<StoredQueueData, StoreError> {
        self.writer_gate.check_may_write()?;
        let (path, unknown_rows) = (self.path.clone(), Arc::clone(&self.unknown_rows));
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let result = purge_and_load_queue_data(&mut connection, now, &unknown_rows).await;
            access.return_connection_if_ok(connection, &result);
            result
        })
        .await
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        self.writer_gate.check_may_write()?;
        let is_unknown =
            |write: &QueueWrite| TouchedQueueKeys::of_write(write).has_row_of_newer_server(&self.unknown_rows);
        let commit = |batch| self.commit_batch(batch);
        self.unknown_rows.commit_without_unknown(batch, QueueOutcome::UnknownRow, is_unknown, commit).await
    }

    async fn read_ticket(&self, id: TicketId) -> Result<Option<StoredTicket>, StoreError> {
        let id_list = hex_json_array([id.as_bytes()].into_iter());
        let rows = fetch_rows_on_own_connection(&self.path, sqlx::query(sql::READ_TICKETS).bind(id_list)).await;
        let rows = rows.map_err(|error| add_path_to_error(&self.path, error))?;
        rows.first().map(decode::decode_ticket).transpose()
    }

    async fn read_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
        let id_list = hex_json_array([id.as_bytes()].into_iter());
        let rows = fetch_rows_on_own_connection(&self.path, sqlx::query(sql::READ_MATCHES).bind(id_list)).await;
        let rows = rows.map_err(|error| add_path_to_error(&self.path, error))?;
        rows.first().map(decode::decode_match).transpose()
    }

    async fn read_match_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, StoreError> {
        let id_list = hex_json_array([id.as_bytes()].into_iter());
        let rows = fetch_rows_on_own_connection(&self.path, sqlx::query(sql::READ_RESULTS).bind(id_list)).await;
        let rows = rows.map_err(|error| add_path_to_error(&self.path, error))?;
        rows.first().map(decode::decode_result).transpose()
    }

    async fn record_first_scales(&self, current: &[OwnRatingKeys]) -> Result<Vec<FirstRatingScaleOfSet>, StoreError> {
        self.writer_gate.check_may_write()?;
        let (path, current) = (self.path.clone(), current.to_vec());
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let result = ratings::record_first_scales_of_sets(&mut connection, &current).await;
            access.return_connection_if_ok(connection, &result);
            result
        })
        .await
    }

    async fn read_tickets_match_and_penalties(
        &self,
        user: UserKey,
    ) -> Result<UserTicketsMatchAndPenalties, StoreError> {
        let (users, no_matches) = (hex_json_array([user.as_bytes()].into_iter()), hex_json_array([].into_iter()));
        let query = sqlx::query(sql::READ_TICKETS_MATCHES_PENALTIES_OF_USERS).bind(users).bind(no_matches);
        let mut user_rows = QueueRows::default();
        for row in &fetch_rows_on_own_connection(&self.path, query)
            .await
            .map_err(|error| add_path_to_error(&self.path, error))?
        {
            decode::decode_ticket_match_or_penalty_into(row, &mut user_rows)?;
        }
        Ok(user_rows.tickets_match_and_penalties(user))
    }

    async fn read_rating_changes(&self, user: UserKey, key: RatingKey) -> Result<Vec<RatingHistoryEntry>, StoreError> {
        let statement = match key.is_pool_and_scale_digest() {
            false => rating_statements::READ_RATING_CHANGES_ON_FIRST_SCALE,
            true => rating_statements::READ_POOL_AND_SCALE_RATING_CHANGES,
        };
        let query = sqlx::query(statement).bind(user.as_bytes().to_vec()).bind(key.to_stored());
        let rows = fetch_rows_on_own_connection(&self.path, query)
            .await
            .map_err(|error| add_path_to_error(&self.path, error))?;
        rows.iter().map(decode::decode_rating_change).collect()
    }

    async fn list_finished_matches(
        &self,
        (reported_at, id): (UnixMs, MatchId),
        limit: usize,
    ) -> Result<Vec<FinishedMatch>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let query = sqlx::query(sql::LIST_FINISHED_MATCHES)
            .bind(rows::to_ms(reported_at))
            .bind(id.as_bytes().to_vec())
            .bind(limit);
        let rows = fetch_rows_on_own_connection(&self.path, query)
            .await
            .map_err(|error| add_path_to_error(&self.path, error))?;
        let decode_known =
            |row| self.unknown_rows.none_if_unknown(decode::result_key(row)?, decode::decode_finished_match(row));
        rows.iter().filter_map(|row| decode_known(row).transpose()).collect()
    }

    /// Grants all leases, because one server has the file; checks whether it may still write. A failed read changes
    /// nothing.
    async fn acquire_leases(&self, queues: &[QueueKey], _: u32) -> Result<Vec<bool>, StoreError> {
        let path = self.path.clone();
        let setting = self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let result = open::read_min_writer_version(&mut connection).await;
            access.return_connection_if_ok(connection, &result);
            result
        });
        if let Ok(min_writer_version) = setting.await {
            self.writer_gate.update(min_writer_version);
        }
        self.writer_gate.check_may_write()?;
        Ok(vec![true; queues.len()])
    }

    async fn purge_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        self.purge_due_rows(&sql::PURGE_DUE_ROWS, now).await
    }
}

/// Reads rows on a separate connection, so that writers do not wait.
async fn fetch_rows_on_own_connection(
    path: &Path,
    query: sqlx::query::Query<'_, sqlx::Sqlite, SqliteArguments>,
) -> Result<Vec<SqliteRow>, StoreError> {
    let mut connection = open::connect(path).await?;
    let rows = query.fetch_all(&mut connection).await.map_err(to_store_error)?;
    let _ = connection.close().await;
    Ok(rows)
}

async fn purge_and_load_queue_data(
    connection: &mut SqliteConnection,
    now: UnixMs,
    unknown_rows: &UnknownRows,
) -> Result<StoredQueueData, StoreError> {
    unknown_rows.forget_keys_where(|key| !matches!(key, RowKey::Advertisement(_)));
    purge_rows(connection, &sql::PURGE_DUE_ROWS, now).await?;
    let mut data = StoredQueueData::default();
    for row in sqlx::query(sql::LOAD_ALL_TICKETS).fetch_all(&mut *connection).await.map_err(to_store_error)? {
        data.tickets.extend(unknown_rows.none_if_unknown(decode::ticket_key(&row)?, decode::decode_ticket(&row))?);
    }
    for row in sqlx::query(sql::LOAD_ALL_MATCHES).fetch_all(&mut *connection).await.map_err(to_store_error)? {
        data.matches.extend(unknown_rows.none_if_unknown(decode::match_key(&row)?, decode::decode_match(&row))?);
    }
    data.ratings = ratings::load_all(connection).await?;
    for row in sqlx::query(sql::LOAD_ALL_BLOCK_LISTS).fetch_all(&mut *connection).await.map_err(to_store_error)? {
        data.block_lists.push(decode::decode_block_list(&row)?);
    }
    Ok(data)
}
