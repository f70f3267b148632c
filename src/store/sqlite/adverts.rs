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
use crate::store::adverts::{AdvertWrite, CommitResult, StoredAdvertisement};
use crate::store::error::StoreError;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::adverts::statements as sql;
use crate::store::sqlite::connection::error::with_path;
use crate::store::sqlite::connection::open;
use crate::store::sqlite::connection::purge::purge_rows;

#[async_trait]
impl Store for SqliteStore {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let path = self.path.clone();
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let check = async { if access.integrity_checked { Ok(()) } else { open::check_integrity(&path).await } };
            let (loaded, checked) = tokio::join!(load::load_advertisements(&mut connection, &path, now), check);
            let result = checked.and(loaded);
            access.integrity_checked |= result.is_ok();
            access.return_connection(connection, &result);
            result
        })
        .await
    }

    async fn commit(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
        if batch.is_empty() {
            return Ok(CommitResult::default());
        }
        let (path, batch, checkpointer) =
            (self.path.clone(), batch.to_vec(), Arc::clone(&self.checkpoint_task.checkpointer));
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_write_connection(&path, &checkpointer).await?;
            let result = transaction::commit_batch(&mut connection, &batch).await;
            access.return_connection(connection, &result);
            let (outcomes, length) = result?;
            access.record_wal_length(length, &checkpointer);
            Ok(CommitResult { outcomes, version_steps: Vec::new() })
        })
        .await
    }

    async fn purge(&self, now: UnixMs) -> Result<(), StoreError> {
        let path = self.path.clone();
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let result = purge_rows(&mut connection, &sql::PURGE_DUE_ROWS, now).await;
            access.return_connection(connection, &result);
            result
        })
        .await
    }

    async fn read_advertisements(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        snapshot_read::read_advertisements(&self.path, ids).await.map_err(|error| with_path(&self.path, error))
    }

    async fn list_advertisement_ids(
        &self,
        first: AdvertisementId,
        limit: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError> {
        snapshot_read::list_advertisement_ids(&self.path, first, limit)
            .await
            .map_err(|error| with_path(&self.path, error))
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
