//! Queues of the Postgres store, on their own connections.

mod array_column;
mod connected_users;
mod decode;
mod erasure_statements;
mod feed;
mod rating_statements;
mod ratings;
pub(super) mod statements;
mod transaction;
mod user_data;
mod write_rows;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::types::Uuid;

use crate::domain::id::{MatchId, RatingKey, SetId, SiloId, TicketId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry};
use crate::domain::ruleset::rating::defaults::OwnRatingKeys;
use crate::domain::time::UnixMs;
use crate::store::error::StoreError;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::connection::change_feed::ChangeFeed;
use crate::store::postgres::connection::open;
use crate::store::postgres::connection::purge::purge_rows;
use crate::store::postgres::connection::slot::{ConnectionSlot, OPERATION_TIMEOUT, query_within};
use crate::store::postgres::connection::write_session::run_with_exclusive_session;
use crate::store::postgres::queues::feed::QueueFeedSource;
use crate::store::postgres::queues::statements as sql;
use crate::store::queues::connected_users_report::ConnectedUsersReport;
use crate::store::queues::first_scale::FirstRatingScaleOfSet;
use crate::store::queues::queue_rows::QueueRows;
use crate::store::queues::touched_keys::TouchedQueueKeys;
use crate::store::queues::{
    FinishedMatch, LiveServers, QueueFeed, QueueFeedBatch, QueueKey, QueueOutcome, QueueStore, QueueWrite,
    StoredQueueData, StoredTicket, UserTicketsMatchAndPenalties,
};
use crate::store::rows;
use crate::store::writer_version::STORE_FORMAT_VERSION;

impl PostgresStore {
    /// Reads whether this server may still write, and fails if not.
    async fn refresh_and_check_writer_gate(&self, slot: &mut ConnectionSlot) -> Result<(), StoreError> {
        let min_writer_version = query_within!(slot, OPERATION_TIMEOUT, "reading store settings", |connection| {
            open::fetch_min_writer_version(connection)
        })?;
        self.writer_version_check.update(min_writer_version);
        self.writer_version_check.check_may_write()
    }

    fn new_queue_feed(&self) -> ChangeFeed<QueueFeedSource> {
        let rows = QueueFeedSource::new(&self.replica, Arc::clone(&self.unknown_rows));
        let (unresolved, last_change) = (self.unresolved_queue_commits.clone(), self.last_queue_change.clone());
        ChangeFeed::new(rows, &self.options, &self.replica, unresolved, last_change, &self.supervisor)
    }
}

#[async_trait]
impl QueueStore for PostgresStore {
    async fn purge_and_load_queues(&self, now: UnixMs) -> Result<StoredQueueData, StoreError> {
        self.purge_queues(now).await?;
        let batch = self.new_queue_feed().read_snapshot().await?;
        let QueueFeedBatch { tickets, matches, ratings, block_lists, .. } = batch;
        Ok(StoredQueueData { tickets, matches, ratings, block_lists })
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        self.writer_version_check.check_may_write()?;
        let is_unknown =
            |write: &QueueWrite| TouchedQueueKeys::of_write(write).has_row_of_newer_server(&self.unknown_rows);
        let commit = |batch: Vec<QueueWrite>| {
            run_with_exclusive_session(&self.queue_session, |mut session| async move {
                transaction::commit_batch(&mut session, &batch).await
            })
        };
        self.unknown_rows.commit_without_unknown(batch, QueueOutcome::UnknownRow, is_unknown, commit).await
    }

    async fn read_ticket(&self, id: TicketId) -> Result<Option<StoredTicket>, StoreError> {
        let mut slot = self.background_connection.lock().await;
        let all_silos: Option<Vec<i64>> = None;
        let row = query_within!(slot, OPERATION_TIMEOUT, "reading a ticket", |connection| {
            sqlx::query(sql::READ_TICKETS)
                .bind(vec![Uuid::from_bytes(*id.as_bytes())])
                .bind(&all_silos)
                .fetch_optional(&mut *connection)
        })?;
        row.as_ref().map(decode::decode_ticket).transpose()
    }

    async fn read_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
        let mut slot = self.background_connection.lock().await;
        let all_silos: Option<Vec<i64>> = None;
        let row = query_within!(slot, OPERATION_TIMEOUT, "reading a match", |connection| {
            sqlx::query(sql::READ_MATCHES)
                .bind(vec![Uuid::from_bytes(*id.as_bytes())])
                .bind(&all_silos)
                .fetch_optional(&mut *connection)
        })?;
        row.as_ref().map(decode::decode_match).transpose()
    }

    async fn read_match_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, StoreError> {
        let mut slot = self.background_connection.lock().await;
        let row = query_within!(slot, OPERATION_TIMEOUT, "reading a result", |connection| {
            sqlx::query(sql::READ_RESULTS).bind(vec![Uuid::from_bytes(*id.as_bytes())]).fetch_optional(&mut *connection)
        })?;
        row.as_ref().map(decode::decode_result).transpose()
    }

    async fn record_first_scales(&self, current: &[OwnRatingKeys]) -> Result<Vec<FirstRatingScaleOfSet>, StoreError> {
        self.writer_version_check.check_may_write()?;
        let mut slot = self.background_connection.lock().await;
        let recorded = query_within!(slot, OPERATION_TIMEOUT, "recording rating scales", |connection| {
            ratings::record_first_scales(connection, current)
        })?;
        let corrupt = |row| StoreError::CorruptRow {
            table: "first_rating_scale",
            column: "rating_key",
            reason: format!("{row:?} is not a set and a digest"),
        };
        recorded.into_iter().map(|row| decode::decode_first_scale(row).ok_or_else(|| corrupt(row))).collect()
    }

    async fn read_tickets_match_and_penalties(
        &self,
        user: UserKey,
    ) -> Result<UserTicketsMatchAndPenalties, StoreError> {
        let mut slot = self.background_connection.lock().await;
        let rows = query_within!(slot, OPERATION_TIMEOUT, "reading a user", |connection| {
            sqlx::query(sql::READ_TICKETS_MATCHES_PENALTIES_OF_USERS)
                .bind(vec![Uuid::from_bytes(*user.as_bytes())])
                .bind(Vec::<Uuid>::new())
                .fetch_all(&mut *connection)
        })?;
        let mut user_rows = QueueRows::default();
        for row in &rows {
            decode::decode_ticket_match_or_penalty_of_user(row, &mut user_rows)?;
        }
        Ok(user_rows.tickets_match_and_penalties(user))
    }

    async fn read_rating_changes(&self, user: UserKey, key: RatingKey) -> Result<Vec<RatingHistoryEntry>, StoreError> {
        let statement = match key.is_pool_and_scale_digest() {
            false => rating_statements::READ_RATING_CHANGES_ON_FIRST_SCALE,
            true => rating_statements::READ_POOL_AND_SCALE_RATING_CHANGES,
        };
        let mut slot = self.background_connection.lock().await;
        let rows = query_within!(slot, OPERATION_TIMEOUT, "reading rating changes", |connection| {
            sqlx::query(statement)
                .bind(Uuid::from_bytes(*user.as_bytes()))
                .bind(key.to_stored())
                .fetch_all(&mut *connection)
        })?;
        rows.iter().map(decode::decode_rating_change).collect()
    }

    async fn list_finished_matches(
        &self,
        (reported_at, id): (UnixMs, MatchId),
        limit: usize,
    ) -> Result<Vec<FinishedMatch>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let mut slot = self.background_connection.lock().await;
        let rows = query_within!(slot, OPERATION_TIMEOUT, "listing finished matches", |connection| {
            sqlx::query(sql::LIST_FINISHED_MATCHES)
                .bind(rows::to_ms(reported_at))
                .bind(Uuid::from_bytes(*id.as_bytes()))
                .bind(limit)
                .fetch_all(&mut *connection)
        })?;
        let decode_known =
            |row| self.unknown_rows.none_if_unknown(decode::result_key(row)?, decode::decode_finished_match(row));
        rows.iter().filter_map(|row| decode_known(row).transpose()).collect()
    }

    async fn purge_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        self.writer_version_check.check_may_write()?;
        let slot = Arc::clone(&self.background_connection);
        let task = tokio::spawn(async move {
            purge_rows(&mut *slot.lock_owned().await, &sql::PURGE_DUE_ROWS, &sql::PURGE_BY_DATABASE_CLOCK, now).await
        });
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the store task panicked".into())))
    }

    async fn open_queue_feed(&self) -> Option<Box<dyn QueueFeed>> {
        Some(Box::new(self.new_queue_feed()))
    }

    async fn renew_lease_holder(&self, for_ms: u32) -> Result<LiveServers, StoreError> {
        let mut slot = self.lease_connection.lock().await;
        self.refresh_and_check_writer_gate(&mut slot).await?;
        let own_id = self.replica.id.cast_signed();
        let live: Vec<i64> = query_within!(slot, OPERATION_TIMEOUT, "renewing the lease holder", |connection| {
            sqlx::query_scalar(sql::RENEW_LEASE_HOLDER)
                .bind(own_id)
                .bind(i64::from(for_ms))
                .bind(STORE_FORMAT_VERSION)
                .fetch_all(&mut *connection)
        })?;
        let was_this_server_live = live.contains(&own_id);
        let others = live.into_iter().filter(|replica| *replica != own_id).map(i64::cast_unsigned).collect();
        Ok(LiveServers { was_this_server_live, others })
    }

    async fn acquire_leases(&self, queues: &[QueueKey], for_ms: u32) -> Result<Vec<bool>, StoreError> {
        let (sets, silos) = sorted_queue_columns(queues);
        let mut slot = self.lease_connection.lock().await;
        self.refresh_and_check_writer_gate(&mut slot).await?;
        let held: Vec<(i64, i64)> = query_within!(slot, OPERATION_TIMEOUT, "acquiring leases", |connection| {
            sqlx::query_as(sql::ACQUIRE_LEASES)
                .bind(self.replica.id.cast_signed())
                .bind(&sets)
                .bind(&silos)
                .bind(i64::from(for_ms))
                .bind(STORE_FORMAT_VERSION)
                .fetch_all(&mut *connection)
        })?;
        let held: BTreeSet<QueueKey> = held.into_iter().map(|(set, silo)| queue_key_from_columns(set, silo)).collect();
        Ok(queues.iter().map(|queue| held.contains(queue)).collect())
    }

    async fn lowest_store_format(&self) -> Result<i64, StoreError> {
        let mut slot = self.lease_connection.lock().await;
        let lowest: Option<i64> = query_within!(slot, OPERATION_TIMEOUT, "reading store formats", |connection| {
            sqlx::query_scalar(sql::READ_LOWEST_STORE_FORMAT).fetch_one(&mut *connection)
        })?;
        Ok(lowest.unwrap_or(STORE_FORMAT_VERSION))
    }

    async fn release_leases(&self) -> Result<(), StoreError> {
        let mut slot = self.lease_connection.lock().await;
        query_within!(slot, OPERATION_TIMEOUT, "releasing leases", |connection| {
            sqlx::query(sql::UNREGISTER_SERVER).bind(self.replica.id.cast_signed()).execute(&mut *connection)
        })?;
        Ok(())
    }

    async fn exchange_connected_users(
        &self,
        report: &ConnectedUsersReport,
    ) -> Result<Vec<(QueueKey, u32)>, StoreError> {
        self.writer_version_check.check_may_write()?;
        let replica = self.replica.id.cast_signed();
        let mut slot = self.background_connection.lock().await;
        let totals = query_within!(slot, OPERATION_TIMEOUT, "reporting connected users", |connection| {
            connected_users::store_report_and_read_totals(connection, replica, report)
        })?;
        let to_count = |(set, silo, users): (i64, i64, i64)| {
            (queue_key_from_columns(set, silo), u32::try_from(users).unwrap_or(u32::MAX))
        };
        Ok(totals.into_iter().map(to_count).collect())
    }
}

/// Queue of a row's set and silo.
fn queue_key_from_columns(set: i64, silo: i64) -> QueueKey {
    QueueKey { set_id: SetId(u32::try_from(set).unwrap_or_default()), silo: SiloId(silo.cast_unsigned()) }
}

/// Sets and silos of the queues as columns, in order, each queue once. Servers that lease the same queues in the same
/// order cannot deadlock.
fn sorted_queue_columns(queues: &[QueueKey]) -> (Vec<i64>, Vec<i64>) {
    let mut queues = queues.to_vec();
    queues.sort_unstable();
    queues.dedup();
    queues.iter().map(|queue| (i64::from(queue.set_id.0), queue.silo.0.cast_signed())).unzip()
}
