//! Data of one user in the SQLite store.

use async_trait::async_trait;
use sqlx::Row;

use crate::domain::id::{MatchId, UserKey};
use crate::domain::time::UnixMs;
use crate::store::adverts::UserTraces;
use crate::store::error::StoreError;
use crate::store::rows::{from_ms, to_ms};
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::connection::error::{add_path_to_error, to_store_error};
use crate::store::sqlite::connection::wal::WalLength;
use crate::store::sqlite::queues::{erasure_statements as sql, fetch_rows_on_own_connection};
use crate::store::user_data::{GivenFeedback, UserDataStore, UserRowKind, erasure_position_setting};

#[async_trait]
impl UserDataStore for SqliteStore {
    async fn find_user_rows(
        &self,
        kind: UserRowKind,
        user: UserKey,
        after: [u8; 16],
        limit: usize,
    ) -> Result<Vec<[u8; 16]>, StoreError> {
        let statement = match kind {
            UserRowKind::Ticket => sql::FIND_TICKETS_NAMING_USER,
            UserRowKind::Match => sql::FIND_MATCHES_NAMING_USER,
            UserRowKind::Result => sql::FIND_RESULTS_NAMING_USER,
            UserRowKind::Feedback => sql::FIND_FEEDBACK_GIVEN_BY_USER,
            UserRowKind::BlockList => sql::FIND_BLOCK_LISTS_NAMING_USER,
            UserRowKind::Advertisement => sql::FIND_ADVERTISEMENTS_NAMING_USER,
        };
        let mut query = sqlx::query(statement)
            .bind(user.to_string())
            .bind(after.to_vec())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX));
        if kind == UserRowKind::Advertisement {
            let traces = UserTraces::of_user(user);
            let (first, last) = traces.reserver_range;
            let keys = [first.as_bytes(), last.as_bytes(), traces.solo_party.as_bytes()];
            query = keys.into_iter().fold(query, |query, key| query.bind(key.to_vec()));
        }
        let rows = fetch_rows_on_own_connection(&self.path, query)
            .await
            .map_err(|error| add_path_to_error(&self.path, error))?;
        rows.iter().map(|row| decode_id_bytes(row.try_get(0).map_err(to_store_error)?)).collect()
    }

    async fn read_given_feedback(
        &self,
        user: UserKey,
        after: MatchId,
        limit: usize,
    ) -> Result<Vec<GivenFeedback>, StoreError> {
        let query = sqlx::query(sql::READ_FEEDBACK_GIVEN_BY_USER)
            .bind(user.as_bytes().to_vec())
            .bind(after.as_bytes().to_vec())
            .bind(i64::try_from(limit).unwrap_or(i64::MAX));
        let rows = fetch_rows_on_own_connection(&self.path, query)
            .await
            .map_err(|error| add_path_to_error(&self.path, error))?;
        let feedback = |row: &sqlx::sqlite::SqliteRow| {
            let stars: i64 = row.try_get(1).map_err(to_store_error)?;
            Ok(GivenFeedback {
                match_id: MatchId::from_bytes(decode_id_bytes(row.try_get(0).map_err(to_store_error)?)?),
                stars: u8::try_from(stars).unwrap_or(u8::MAX),
                given_at: from_ms(row.try_get(2).map_err(to_store_error)?),
            })
        };
        rows.iter().map(feedback).collect()
    }

    async fn get_or_insert_user_log_name(
        &self,
        user: UserKey,
        new_name: Option<[u8; 16]>,
    ) -> Result<Option<[u8; 16]>, StoreError> {
        self.writer_gate.check_may_write()?;
        let path = self.path.clone();
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let result = async {
                if let Some(new_name) = new_name {
                    let insert = sqlx::query(sql::INSERT_USER_LOG_NAME).bind(user.as_bytes().to_vec());
                    insert.bind(new_name.to_vec()).execute(&mut connection).await.map_err(to_store_error)?;
                }
                let read = sqlx::query_scalar(sql::READ_USER_LOG_NAME).bind(user.as_bytes().to_vec());
                let name: Option<Vec<u8>> = read.fetch_optional(&mut connection).await.map_err(to_store_error)?;
                name.map(decode_id_bytes).transpose()
            }
            .await;
            access.return_connection_if_ok(connection, &result);
            result
        })
        .await
    }

    async fn request_erasure_cleanup(&self, now: UnixMs) -> Result<(), StoreError> {
        self.writer_gate.check_may_write()?;
        let path = self.path.clone();
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let request = sqlx::query(sql::REQUEST_CLEANUP).bind(to_ms(now));
            let result = request.execute(&mut connection).await.map(drop).map_err(to_store_error);
            access.return_connection_if_ok(connection, &result);
            result
        })
        .await
    }

    /// Deleted rows are overwritten in the file, so only the write-ahead log can still have them: it is emptied.
    async fn clean_up_erasures(&self) -> Result<bool, StoreError> {
        self.writer_gate.check_may_write()?;
        let (path, checkpointer) = (self.path.clone(), std::sync::Arc::clone(&self.checkpoint_task.checkpointer));
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let count = sqlx::query_scalar(sql::COUNT_CLEANUPS).fetch_one(&mut connection).await;
            let count: Result<i64, StoreError> = count.map_err(to_store_error);
            access.return_connection_if_ok(connection, &count);
            if count? == 0 {
                return Ok(true);
            }
            if !checkpointer.truncate_wal().await? {
                return Ok(false);
            }
            access.wal_length = WalLength::default();
            let mut connection = access.take_connection(&path).await?;
            let finished = sqlx::query(sql::DELETE_ALL_CLEANUPS).execute(&mut connection).await;
            let finished = finished.map(|_| true).map_err(to_store_error);
            access.return_connection_if_ok(connection, &finished);
            finished
        })
        .await
    }

    async fn record_user_key_secret_id(&self, secret_id: i64) -> Result<i64, StoreError> {
        self.writer_gate.check_may_write()?;
        let path = self.path.clone();
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let result = async {
                let insert = sqlx::query(sql::INSERT_PUBLIC_USER_KEY_SECRET_ID).bind(secret_id);
                insert.execute(&mut connection).await.map_err(to_store_error)?;
                let read = sqlx::query_scalar(sql::READ_PUBLIC_USER_KEY_SECRET_ID);
                read.fetch_one(&mut connection).await.map_err(to_store_error)
            }
            .await;
            access.return_connection_if_ok(connection, &result);
            result
        })
        .await
    }

    async fn read_erasure_position(&self, log_id: u64) -> Result<u64, StoreError> {
        let path = self.path.clone();
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let read = sqlx::query_scalar(sql::READ_STORE_SETTING).bind(erasure_position_setting(log_id));
            let result = read.fetch_optional(&mut connection).await.map_err(to_store_error);
            access.return_connection_if_ok(connection, &result);
            let position: Option<i64> = result?;
            Ok(position.map_or(0, i64::cast_unsigned))
        })
        .await
    }

    async fn record_erasure_position(&self, log_id: u64, position: u64) -> Result<(), StoreError> {
        self.writer_gate.check_may_write()?;
        let path = self.path.clone();
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let write = sqlx::query(sql::RAISE_STORE_SETTING).bind(erasure_position_setting(log_id));
            let write = write.bind(position.cast_signed()).execute(&mut connection).await;
            let result = write.map(drop).map_err(to_store_error);
            access.return_connection_if_ok(connection, &result);
            result
        })
        .await
    }
}

fn decode_id_bytes(bytes: Vec<u8>) -> Result<[u8; 16], StoreError> {
    let length = bytes.len();
    let corrupt = |_| StoreError::CorruptRow {
        table: "match",
        column: "match_id",
        reason: format!("has {length} bytes instead of 16"),
    };
    bytes.try_into().map_err(corrupt)
}
