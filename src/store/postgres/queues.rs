//! The queues of the store that several servers share: connections of their own, the same bargain.

mod decode;
mod feed;
mod statements;
mod transaction;
mod write_rows;

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::types::Uuid;

use crate::domain::id::{MatchId, SetId, SiloId, UserKey};
use crate::domain::lifecycle::Match;
use crate::domain::match_result::{MatchResult, RatingHistoryEntry};
use crate::domain::time::UnixMs;
use crate::store::postgres::connection::{ConnectionSlot, ask};
use crate::store::postgres::queues::feed::QueueChangeFeed;
use crate::store::postgres::queues::statements as sql;
pub(super) use crate::store::postgres::queues::statements::ABANDON_BATCH;
use crate::store::postgres::{OPERATION_TIMEOUT, PURGE_STATEMENTS_MAX, PostgresStore, run_exclusive_on};
use crate::store::queues::{FinishedMatch, QueueFeed, QueueKey, QueueOutcome, QueueStore, QueueWrite, StoredQueueData};
use crate::store::{StoreError, rows};

impl PostgresStore {
    fn new_queue_feed(&self) -> QueueChangeFeed {
        QueueChangeFeed::new(&self.options, &self.replica, self.unresolved_queue_commits.clone())
    }
}

#[async_trait]
impl QueueStore for PostgresStore {
    async fn load_queues(&self, now: UnixMs) -> Result<StoredQueueData, StoreError> {
        self.purge_queues(now).await?;
        let news = self.new_queue_feed().read_snapshot().await?;
        Ok(StoredQueueData { tickets: news.tickets, matches: news.matches, ratings: news.ratings })
    }

    async fn commit_queues(&self, batch: &[QueueWrite]) -> Result<Vec<QueueOutcome>, StoreError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let batch = batch.to_vec();
        run_exclusive_on(
            &self.queue_session,
            |mut desk| async move { transaction::commit_batch(&mut desk, &batch).await },
        )
        .await
    }

    async fn read_match(&self, id: MatchId) -> Result<Option<Arc<Match>>, StoreError> {
        let mut chores = self.background_connection.lock().await;
        let none: Option<Vec<i64>> = None;
        let row = ask!(chores, OPERATION_TIMEOUT, "looking", |connection| sqlx::query(sql::READ_MATCHES)
            .bind(vec![Uuid::from_bytes(*id.as_bytes())])
            .bind(&none)
            .fetch_optional(&mut *connection))?;
        row.as_ref().map(decode::decode_match).transpose()
    }

    async fn read_match_result(&self, id: MatchId) -> Result<Option<Arc<MatchResult>>, StoreError> {
        let mut chores = self.background_connection.lock().await;
        let row = ask!(chores, OPERATION_TIMEOUT, "looking", |connection| sqlx::query(sql::READ_RESULTS)
            .bind(vec![Uuid::from_bytes(*id.as_bytes())])
            .fetch_optional(&mut *connection))?;
        row.as_ref().map(decode::decode_result).transpose()
    }

    async fn read_rating_changes(&self, user: UserKey, set_id: SetId) -> Result<Vec<RatingHistoryEntry>, StoreError> {
        let mut chores = self.background_connection.lock().await;
        let rows = ask!(chores, OPERATION_TIMEOUT, "looking", |connection| sqlx::query(sql::READ_RATING_CHANGES)
            .bind(Uuid::from_bytes(*user.as_bytes()))
            .bind(i64::from(set_id.0))
            .fetch_all(&mut *connection))?;
        rows.iter().map(decode::decode_rating_change).collect()
    }

    async fn list_finished_matches(
        &self,
        (at, id): (UnixMs, MatchId),
        most: usize,
    ) -> Result<Vec<FinishedMatch>, StoreError> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let mut chores = self.background_connection.lock().await;
        let rows = ask!(chores, OPERATION_TIMEOUT, "looking", |connection| sqlx::query(sql::LIST_FINISHED_MATCHES)
            .bind(rows::to_ms(at))
            .bind(Uuid::from_bytes(*id.as_bytes()))
            .bind(most)
            .fetch_all(&mut *connection))?;
        rows.iter().map(decode::decode_finished_match).collect()
    }

    async fn purge_queues(&self, now: UnixMs) -> Result<(), StoreError> {
        let chores = Arc::clone(&self.background_connection);
        let task = tokio::spawn(async move { purge_rows(&mut *chores.lock_owned().await, now).await });
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("its task died".into())))
    }

    async fn open_queue_feed(&self) -> Option<Box<dyn QueueFeed>> {
        Some(Box::new(self.new_queue_feed()))
    }

    async fn acquire_leases(&self, queues: &[QueueKey], for_ms: u32) -> Result<Vec<bool>, StoreError> {
        let (sets, silos) = queue_key_columns(queues);
        let mut leases = self.lease_connection.lock().await;
        let held: Vec<(i64, i64)> =
            ask!(leases, OPERATION_TIMEOUT, "a lease", |connection| sqlx::query_as(sql::ACQUIRE_LEASES)
                .bind(self.replica.id.cast_signed())
                .bind(&sets)
                .bind(&silos)
                .bind(i64::from(for_ms))
                .fetch_all(&mut *connection))?;
        let key = |(set, silo): (i64, i64)| {
            let set_id = SetId(u32::try_from(set).unwrap_or_default());
            QueueKey { set_id, silo: SiloId(silo.cast_unsigned()) }
        };
        let held: Vec<QueueKey> = held.into_iter().map(key).collect();
        Ok(queues.iter().map(|queue| held.contains(queue)).collect())
    }

    async fn release_leases(&self, queues: &[QueueKey]) -> Result<(), StoreError> {
        let (sets, silos) = queue_key_columns(queues);
        let mut leases = self.lease_connection.lock().await;
        ask!(leases, OPERATION_TIMEOUT, "letting a lease go", |connection| sqlx::query(sql::RELEASE_LEASES)
            .bind(self.replica.id.cast_signed())
            .bind(&sets)
            .bind(&silos)
            .execute(&mut *connection))?;
        Ok(())
    }

    async fn report_connected_users(&self, mine: &[(SiloId, u32)]) -> Result<Vec<(SiloId, u32)>, StoreError> {
        let mut mine = mine.to_vec();
        mine.sort_unstable();
        mine.dedup_by_key(|(silo, _)| *silo);
        let (silos, users): (Vec<i64>, Vec<i64>) =
            mine.iter().map(|(silo, users)| (silo.0.cast_signed(), i64::from(*users))).unzip();
        let mut leases = self.lease_connection.lock().await;
        let all: Vec<(i64, i64)> =
            ask!(leases, OPERATION_TIMEOUT, "attendance", |connection| sqlx::query_as(sql::REPORT_CONNECTED_USERS)
                .bind(self.replica.id.cast_signed())
                .bind(&silos)
                .bind(&users)
                .fetch_all(&mut *connection))?;
        let said = |(silo, users): (i64, i64)| (SiloId(silo.cast_unsigned()), u32::try_from(users).unwrap_or(u32::MAX));
        Ok(all.into_iter().map(said).collect())
    }
}

/// Sets and silos, in order, each queue once: servers that ask for the same leases wait for each other, not each other's.
fn queue_key_columns(queues: &[QueueKey]) -> (Vec<i64>, Vec<i64>) {
    let mut queues = queues.to_vec();
    queues.sort_unstable();
    queues.dedup();
    queues.iter().map(|queue| (i64::from(queue.set_id.0), queue.silo.0.cast_signed())).unzip()
}

async fn purge_rows(line: &mut ConnectionSlot, now: UnixMs) -> Result<(), StoreError> {
    for statement in sql::PURGE {
        for _ in 0..PURGE_STATEMENTS_MAX {
            let done = ask!(line, OPERATION_TIMEOUT, "forgetting", |connection| sqlx::query(statement)
                .bind(rows::to_ms(now))
                .execute(&mut *connection))?;
            if done.rows_affected() == 0 {
                break;
            }
        }
    }
    for statement in sql::PURGE_BY_AGE {
        for _ in 0..PURGE_STATEMENTS_MAX {
            let done = ask!(line, OPERATION_TIMEOUT, "forgetting", |connection| sqlx::query(statement)
                .execute(&mut *connection))?;
            if done.rows_affected() == 0 {
                break;
            }
        }
    }
    Ok(())
}
