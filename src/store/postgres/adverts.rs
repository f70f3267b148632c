//! Advertisements of the Postgres store.

mod copy_decode;
mod decode;
mod fast_path;
mod feed;
mod rows_before;
pub(super) mod statements;
mod transaction;
mod write_rows;

use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::types::Uuid;

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::store::Store;
use crate::store::adverts::{AdvertFeed, AdvertWrite, CommitResult, StoredAdvertisement, VersionStep, WriteOutcome};
use crate::store::error::StoreError;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::adverts::feed::AdvertFeedSource;
use crate::store::postgres::adverts::statements as sql;
use crate::store::postgres::connection::change_feed::ChangeFeed;
#[cfg(feature = "failpoints")]
use crate::store::postgres::connection::fail_points;
use crate::store::postgres::connection::purge::purge_rows;
use crate::store::postgres::connection::slot::{OPERATION_TIMEOUT, query_within};
use crate::store::postgres::connection::write_session::{WriteSession, run_with_exclusive_session};
use crate::store::rows;
use crate::store::unknown_rows::RowKey;

impl PostgresStore {
    fn new_advert_feed(&self) -> ChangeFeed<AdvertFeedSource> {
        let rows = AdvertFeedSource::new(&self.replica, Arc::clone(&self.unknown_rows));
        let (unresolved, last_change) = (self.unresolved_advert_commits.clone(), self.last_advert_change.clone());
        ChangeFeed::new(rows, &self.options, &self.replica, unresolved, last_change, &self.supervisor)
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn load_advertisements(&self, now: UnixMs) -> Result<Vec<StoredAdvertisement>, StoreError> {
        self.run_with_advert_session(move |mut session| async move { delete_expired(&mut session, now).await }).await?;
        self.purge_tombstones_and_reservations(now).await?;
        let mut stored = self.new_advert_feed().read_batch(&[]).await?.changed;
        stored.sort_unstable_by_key(|stored| stored.advertisement.id);
        Ok(stored)
    }

    async fn commit_adverts(&self, batch: &[AdvertWrite]) -> Result<CommitResult, StoreError> {
        if batch.is_empty() {
            return Ok(CommitResult::default());
        }
        #[cfg(feature = "failpoints")]
        if fail_points::cancels_commit_with_client() {
            return transaction::commit_batch(&mut *self.advert_session.lock().await, batch).await;
        }
        self.writer_version_check.check_may_write()?;
        let is_unknown =
            |write: &AdvertWrite| self.unknown_rows.contains(RowKey::Advertisement(write.advertisement_id()));
        let refused = (WriteOutcome::UnknownRow, VersionStep::default());
        let commit = |batch: Vec<AdvertWrite>| async {
            let CommitResult { outcomes, version_steps } = self
                .run_with_advert_session(move |mut session| async move {
                    transaction::commit_batch(&mut session, &batch).await
                })
                .await?;
            Ok(outcomes.into_iter().zip(version_steps).collect())
        };
        let (outcomes, version_steps) =
            self.unknown_rows.commit_without_unknown(batch, refused, is_unknown, commit).await?.into_iter().unzip();
        Ok(CommitResult { outcomes, version_steps })
    }

    async fn purge_tombstones_and_reservations(&self, now: UnixMs) -> Result<(), StoreError> {
        self.writer_version_check.check_may_write()?;
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
            sqlx::query(sql::READ_ADVERTISEMENTS_WITH_IDS)
                .bind(self.replica.silo_ids())
                .bind(&ids)
                .fetch_all(&mut *connection)
        })?;
        let (found, _) = feed::decode_changes(&rows, 0, self.replica.id.cast_signed(), &self.unknown_rows)?;
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

    async fn open_advert_feed(&self) -> Option<Box<dyn AdvertFeed>> {
        Some(Box::new(self.new_advert_feed()))
    }

    fn unknown_row_counts(&self) -> Vec<(&'static str, u64)> {
        self.unknown_rows.counts()
    }

    fn is_format_writable(&self) -> bool {
        self.writer_version_check.is_open()
    }

    async fn close(&self) {
        for session in [&self.advert_session, &self.queue_session] {
            let closed = run_with_exclusive_session(session, |mut session| async move {
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

/// Removes expired advertisements, 1,000 per batch, without those of a newer server.
async fn delete_expired(session: &mut WriteSession, now: UnixMs) -> Result<(), StoreError> {
    let mut unknown: Vec<Uuid> = Vec::new();
    loop {
        let expired: Vec<Uuid> =
            query_within!(session.connection, OPERATION_TIMEOUT, "listing expired advertisements", |connection| {
                sqlx::query_scalar(sql::LIST_EXPIRED_IDS)
                    .bind(rows::to_ms(now))
                    .bind(&unknown)
                    .fetch_all(&mut *connection)
            })?;
        if expired.is_empty() {
            return Ok(());
        }
        let all_silos: Option<Vec<i64>> = None;
        let rows =
            query_within!(session.connection, OPERATION_TIMEOUT, "reading expired advertisements", |connection| {
                sqlx::query(sql::READ_ADVERTISEMENTS_WITH_IDS)
                    .bind(&all_silos)
                    .bind(&expired)
                    .fetch_all(&mut *connection)
            })?;
        let (known, _) = feed::decode_changes(&rows, 0, session.replica_id, &session.unknown_rows)?;
        let known: BTreeSet<AdvertisementId> = known.iter().map(|stored| stored.advertisement.id).collect();
        unknown.extend(expired.iter().filter(|id| !known.contains(&AdvertisementId::from_bytes(id.into_bytes()))));
        if known.is_empty() {
            continue;
        }
        let expire = |id: AdvertisementId| AdvertWrite::Expire { advertisement_id: id, now, expected_version: None };
        transaction::commit_batch(session, &known.into_iter().map(expire).collect::<Vec<_>>()).await?;
    }
}
