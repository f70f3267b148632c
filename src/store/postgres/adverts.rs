//! Advertisements of the Postgres store.

mod copy_decode;
mod decode;
mod fast_path;
mod feed;
mod rows_before;
pub(super) mod statements;
mod transaction;
mod write_rows;

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::types::Uuid;

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::store::Store;
use crate::store::adverts::{AdvertFeed, AdvertWrite, CommitResult, StoredAdvertisement};
use crate::store::error::StoreError;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::adverts::feed::AdvertFeedRows;
use crate::store::postgres::adverts::statements as sql;
use crate::store::postgres::connection::change_feed::ChangeFeed;
#[cfg(feature = "failpoints")]
use crate::store::postgres::connection::fail_points;
use crate::store::postgres::connection::purge::purge_rows;
use crate::store::postgres::connection::slot::{OPERATION_TIMEOUT, query_within};
use crate::store::postgres::connection::write_session::{WriteSession, run_exclusive_on};
use crate::store::rows;

impl PostgresStore {
    fn new_advert_feed(&self) -> ChangeFeed<AdvertFeedRows> {
        let rows = AdvertFeedRows::new(&self.replica);
        ChangeFeed::new(rows, &self.options, &self.replica, self.unresolved_advert_commits.clone())
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.run_exclusive(move |mut session| async move { delete_expired(&mut session, now).await }).await?;
        self.purge(now).await?;
        let mut stored = self.new_advert_feed().read_batch(&[]).await?.changed;
        stored.sort_unstable_by_key(|stored| stored.advertisement.id);
        Ok(stored)
    }

    async fn commit(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
        if batch.is_empty() {
            return Ok(CommitResult::default());
        }
        #[cfg(feature = "failpoints")]
        if fail_points::cancels_commit_with_client() {
            return transaction::commit_batch(&mut *self.advert_session.lock().await, batch).await;
        }
        let batch = batch.to_vec();
        self.run_exclusive(move |mut session| async move { transaction::commit_batch(&mut session, &batch).await })
            .await
    }

    async fn purge(&self, now: UnixMs) -> Result<(), StoreError> {
        let slot = Arc::clone(&self.background_connection);
        let task = tokio::spawn(async move {
            purge_rows(&mut *slot.lock_owned().await, &sql::PURGE_DUE_ROWS, &[sql::PURGE_CHANGES], now).await
        });
        task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the store task panicked".into())))
    }

    async fn read_advertisements(&self, ids: &[AdvertisementId]) -> Result<Vec<StoredAdvertisement>, StoreError> {
        let mut ids: Vec<Uuid> = ids.iter().map(|id| Uuid::from_bytes(*id.as_bytes())).collect();
        ids.sort_unstable();
        let mut slot = self.background_connection.lock().await;
        let rows = query_within!(slot, OPERATION_TIMEOUT, "reading advertisements", |connection| {
            sqlx::query(sql::READ_ADVERTISEMENTS).bind(self.replica.silo_ids()).bind(&ids).fetch_all(&mut *connection)
        })?;
        let (found, _) = feed::decode_changes(&rows, 0, self.replica.id.cast_signed())?;
        Ok(found)
    }

    async fn list_advertisement_ids(
        &self,
        first: AdvertisementId,
        limit: usize,
    ) -> Result<Vec<AdvertisementId>, StoreError> {
        let mut slot = self.background_connection.lock().await;
        let ids: Vec<Uuid> = query_within!(slot, OPERATION_TIMEOUT, "listing advertisements", |connection| {
            let query = sqlx::query_scalar(sql::LIST_ADVERTISEMENT_IDS).bind(self.replica.silo_ids());
            let query = query.bind(Uuid::from_bytes(*first.as_bytes()));
            query.bind(i64::try_from(limit).unwrap_or(i64::MAX)).fetch_all(&mut *connection)
        })?;
        Ok(ids.into_iter().map(|id| AdvertisementId::from_bytes(id.into_bytes())).collect())
    }

    async fn open_feed(&self) -> Option<Box<dyn AdvertFeed>> {
        Some(Box::new(self.new_advert_feed()))
    }

    async fn close(&self) {
        for session in [&self.advert_session, &self.queue_session] {
            let closed = run_exclusive_on(session, |mut session| async move {
                session.closed = true;
                session.connection.close().await;
                Ok(())
            });
            if let Err(error) = closed.await {
                tracing::debug!(%error, "store close failed");
            }
        }
    }
}

/// Removes expired advertisements, 1,000 per batch.
async fn delete_expired(session: &mut WriteSession, now: UnixMs) -> Result<(), StoreError> {
    loop {
        let expired: Vec<Uuid> =
            query_within!(session.connection, OPERATION_TIMEOUT, "listing expired advertisements", |connection| {
                sqlx::query_scalar(sql::LIST_EXPIRED_IDS).bind(rows::to_ms(now)).fetch_all(&mut *connection)
            })?;
        if expired.is_empty() {
            return Ok(());
        }
        let expire = |id: &Uuid| AdvertWrite::Expire {
            advertisement_id: AdvertisementId::from_bytes(id.into_bytes()),
            now,
            expected_version: None,
        };
        transaction::commit_batch(session, &expired.iter().map(expire).collect::<Vec<_>>()).await?;
    }
}
