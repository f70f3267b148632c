//! Data of one user in the Postgres store.

use async_trait::async_trait;
use sqlx::Executor as _;
use sqlx::postgres::PgConnection;
use sqlx::types::Uuid;

use crate::domain::id::{MatchId, UserKey};
use crate::domain::time::UnixMs;
use crate::store::adverts::UserTraces;
use crate::store::error::StoreError;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::connection::open;
use crate::store::postgres::connection::slot::{ConnectionSlot, OPERATION_TIMEOUT, query_within};
use crate::store::postgres::connection::uuid_column::to_uuids;
use crate::store::postgres::queues::erasure_statements as sql;
use crate::store::rows::from_ms;
use crate::store::user_data::{GivenFeedback, UserDataStore, UserRowKind, erasure_position_setting};

/// Time limit for a read of a whole table, and for the cleanup.
const SCAN_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(120);

impl PostgresStore {
    /// Connection for one long operation.
    fn long_connection(&self) -> ConnectionSlot {
        ConnectionSlot::new("user data", open::with_long_timeout(&self.options))
    }
}

#[async_trait]
impl UserDataStore for PostgresStore {
    async fn find_user_rows(
        &self,
        kind: UserRowKind,
        user: UserKey,
        after: [u8; 16],
        limit: usize,
    ) -> Result<Vec<[u8; 16]>, StoreError> {
        let statement = match kind {
            UserRowKind::Ticket => sql::FIND_TICKETS,
            UserRowKind::Match => sql::FIND_MATCHES,
            UserRowKind::Result => sql::FIND_RESULTS,
            UserRowKind::Feedback => sql::FIND_FEEDBACK_GIVEN_BY_USER,
            UserRowKind::BlockList => sql::FIND_BLOCK_LISTS,
            UserRowKind::Advertisement => sql::FIND_ADVERTISEMENTS,
        };
        let traces = UserTraces::of_user(user);
        let keys =
            [traces.reserver_range.0.as_bytes(), traces.reserver_range.1.as_bytes(), traces.solo_party.as_bytes()];
        let keys = if kind == UserRowKind::Advertisement { keys.as_slice() } else { &[] };
        let mut slot = self.long_connection();
        let ids: Vec<Uuid> = query_within!(slot, SCAN_TIMEOUT, "finding a user", |connection| {
            let query = sqlx::query_scalar(statement)
                .bind(user.to_string())
                .bind(Uuid::from_bytes(after))
                .bind(i64::try_from(limit).unwrap_or(i64::MAX));
            let query = keys.iter().fold(query, |query, key| query.bind(Uuid::from_bytes(**key)));
            query.fetch_all(&mut *connection)
        })?;
        slot.close().await;
        Ok(ids.into_iter().map(Uuid::into_bytes).collect())
    }

    async fn read_given_feedback(
        &self,
        user: UserKey,
        after: MatchId,
        limit: usize,
    ) -> Result<Vec<GivenFeedback>, StoreError> {
        let mut slot = self.long_connection();
        let rows: Vec<(Uuid, i16, i64)> = query_within!(slot, SCAN_TIMEOUT, "reading feedback", |connection| {
            sqlx::query_as(sql::READ_FEEDBACK_GIVEN_BY_USER)
                .bind(Uuid::from_bytes(*user.as_bytes()))
                .bind(Uuid::from_bytes(*after.as_bytes()))
                .bind(i64::try_from(limit).unwrap_or(i64::MAX))
                .fetch_all(&mut *connection)
        })?;
        slot.close().await;
        let feedback = |(match_id, stars, given_ms): (Uuid, i16, i64)| GivenFeedback {
            match_id: MatchId::from_bytes(match_id.into_bytes()),
            stars: u8::try_from(stars).unwrap_or(u8::MAX),
            given_at: from_ms(given_ms),
        };
        Ok(rows.into_iter().map(feedback).collect())
    }

    async fn get_or_insert_user_log_name(
        &self,
        user: UserKey,
        new_name: Option<[u8; 16]>,
    ) -> Result<Option<[u8; 16]>, StoreError> {
        self.writer_version_check.check_may_write()?;
        let mut slot = self.background_connection.lock().await;
        let name = query_within!(slot, OPERATION_TIMEOUT, "reading a name in logs", |connection| {
            read_or_insert_log_name(connection, user, new_name)
        })?;
        Ok(name.map(Uuid::into_bytes))
    }

    async fn request_erasure_cleanup(&self, _: UnixMs) -> Result<(), StoreError> {
        self.writer_version_check.check_may_write()?;
        let mut slot = self.background_connection.lock().await;
        query_within!(slot, OPERATION_TIMEOUT, "requesting a cleanup", |connection| {
            sqlx::query(sql::REQUEST_CLEANUP).execute(&mut *connection)
        })?;
        Ok(())
    }

    async fn clean_up_erasures(&self) -> Result<bool, StoreError> {
        self.writer_version_check.check_may_write()?;
        let mut slot = self.background_connection.lock().await;
        let (requested, due): (i64, i64) =
            query_within!(slot, OPERATION_TIMEOUT, "reading due cleanups", |connection| {
                sqlx::query_as(sql::COUNT_REQUESTED_AND_DUE_CLEANUPS).fetch_one(&mut *connection)
            })?;
        drop(slot);
        if due == 0 {
            return Ok(requested == 0);
        }
        let mut slot = self.long_connection();
        query_within!(slot, SCAN_TIMEOUT, "cleaning up after an erasure", |connection| redact_and_vacuum(connection))?;
        slot.close().await;
        Ok(requested == due)
    }

    async fn record_user_key_secret_id(&self, secret_id: i64) -> Result<i64, StoreError> {
        self.writer_version_check.check_may_write()?;
        let mut slot = self.background_connection.lock().await;
        query_within!(slot, OPERATION_TIMEOUT, "recording the user key", |connection| {
            record_user_key_secret_id(connection, secret_id)
        })
    }

    async fn read_erasure_position(&self, log_id: u64) -> Result<u64, StoreError> {
        let setting = erasure_position_setting(log_id);
        let mut slot = self.background_connection.lock().await;
        let position: Option<i64> =
            query_within!(slot, OPERATION_TIMEOUT, "reading the erasure position", |connection| {
                sqlx::query_scalar(sql::READ_STORE_SETTING).bind(setting).fetch_optional(&mut *connection)
            })?;
        Ok(position.map_or(0, i64::cast_unsigned))
    }

    async fn record_erasure_position(&self, log_id: u64, position: u64) -> Result<(), StoreError> {
        self.writer_version_check.check_may_write()?;
        let (setting, position) = (erasure_position_setting(log_id), position.cast_signed());
        let mut slot = self.background_connection.lock().await;
        query_within!(slot, OPERATION_TIMEOUT, "recording the erasure position", |connection| {
            sqlx::query(sql::RAISE_STORE_SETTING).bind(setting).bind(position).execute(&mut *connection)
        })?;
        Ok(())
    }
}

async fn read_or_insert_log_name(
    connection: &mut PgConnection,
    user: UserKey,
    new_name: Option<[u8; 16]>,
) -> Result<Option<Uuid>, sqlx::Error> {
    let users = to_uuids([user.as_bytes()].into_iter());
    if let Some(new_name) = new_name {
        let insert = sqlx::query(sql::INSERT_USER_LOG_NAME).bind(users[0]).bind(Uuid::from_bytes(new_name));
        insert.execute(&mut *connection).await?;
    }
    sqlx::query_scalar(sql::READ_USER_LOG_NAME).bind(users[0]).fetch_optional(connection).await
}

/// Other servers have read the changes by now, or will read all ratings because of the marks that replace them.
async fn redact_and_vacuum(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let due: Vec<Uuid> = sqlx::query_scalar(sql::READ_DUE_CLEANUPS).fetch_all(&mut *connection).await?;
    sqlx::query(sql::REDACT_RATED_USERS_OF_CHANGES).execute(&mut *connection).await?;
    // A vacuum cannot run within a transaction.
    connection.execute(sql::VACUUM_USER_TABLES).await?;
    sqlx::query(sql::DELETE_FINISHED_CLEANUPS).bind(due).execute(&mut *connection).await?;
    Ok(())
}

async fn record_user_key_secret_id(connection: &mut PgConnection, secret_id: i64) -> Result<i64, sqlx::Error> {
    sqlx::query(sql::INSERT_PUBLIC_USER_KEY_SECRET_ID).bind(secret_id).execute(&mut *connection).await?;
    sqlx::query_scalar(sql::READ_PUBLIC_USER_KEY_SECRET_ID).fetch_one(connection).await
}
