//! Advertisements of the SQLite store.

mod load;
mod page_decode;
mod snapshot_read;
mod statements;
mod transaction;

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::{Connection, Executor};

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::store::Store;
use crate::store::adverts::{AdvertWrite, CommitResult, StoredAdvertisement, WriteOutcome};
use crate::store::error::StoreError;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::adverts::statements as sql;
use crate::store::sqlite::connection::error::add_path_to_error;
use crate::store::sqlite::connection::open;
use crate::store::unknown_rows::RowKey;

#[async_trait]
impl Store for SqliteStore {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.writer_gate.check_may_write()?;
        let (path, unknown_rows) = (self.path.clone(), Arc::clone(&self.unknown_rows));
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let check =
                async { if access.integrity_checked { Ok(()) } else { open::check_integrity_if_small(&path).await } };
            let (loaded, checked) =
                tokio::join!(load::purge_and_load_advertisements(&mut connection, &path, now, &unknown_rows), check);
            let result = checked.and(loaded);
            access.integrity_checked |= result.is_ok();
            access.return_connection_if_ok(connection, &result);
            result
        })
        .await
    }

    async fn commit_adverts(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
        if batch.is_empty() {
            return Ok(CommitResult::default());
        }
        self.writer_gate.check_may_write()?;
        let is_unknown =
            |write: &AdvertWrite| self.unknown_rows.contains(RowKey::Advertisement(write.advertisement_id()));
        let commit = |batch| self.commit_batch(batch);
        let outcomes =
            self.unknown_rows.commit_without_unknown(batch, WriteOutcome::UnknownRow, is_unknown, commit).await?;
        Ok(CommitResult { outcomes, version_steps: Vec::new() })
    }

    async fn purge_tombstones_and_reservations(&self, now: UnixMs) -> Result<(), StoreError> {
        self.purge_due_rows(&sql::PURGE_DUE_ROWS, now).await
    }

    async fn read_advertisements(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        snapshot_read::read_advertisements(&self.path, ids, &self.unknown_rows)
            .await
            .map_err(|error| add_path_to_error(&self.path, error))
    }

    async fn list_advertisement_ids(
        &self,
        first: AdvertisementId,
        limit: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError> {
        snapshot_read::list_advertisement_ids(&self.path, first, limit)
            .await
            .map_err(|error| add_path_to_error(&self.path, error))
    }

    fn unknown_row_counts(&self) -> Vec<(&'static str, u64)> {
        self.unknown_rows.counts()
    }

    fn is_format_writable(&self) -> bool {
        self.writer_gate.is_open()
    }

    async fn close(&self) {
        let checkpointer = Arc::clone(&self.checkpoint_task.checkpointer);
        // Errors are ignored: acknowledged writes are in the log, and the next start reads it.
        let _ = self
            .run_exclusive(|mut access| async move {
                if let Some(mut connection) = access.connection.take() {
                    checkpointer.close().await;
                    let _ = connection.execute("pragma wal_checkpoint(truncate)").await;
                    let _ = connection.close().await;
                }
                access.lock = None;
                Ok(())
            })
            .await;
    }
}
