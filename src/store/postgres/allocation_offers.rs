//! Offers to allocators of the Postgres store.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::Uuid;
use sqlx::{Connection, Row};

use crate::domain::id::{AdvertisementId, MatchId};
use crate::domain::time::UnixMs;
use crate::store::allocation_offers::{OFFER_RETENTION_MS, OfferStore, OfferWrite, StoredOffer};
use crate::store::error::StoreError;
use crate::store::postgres::PostgresStore;
use crate::store::postgres::connection::slot::{OPERATION_TIMEOUT, query_within};
use crate::store::rows::{from_ms, to_ms};

/// Locks the rows in the order of their keys, so that servers that write the same rows cannot deadlock.
const LOCK_OFFERS: &str = "select match_id, number, round, advertisement_id, answer_by_ms \
     from allocation_offer where match_id = any($1) order by match_id for update";

/// A row of another server that was inserted since the read stays.
const INSERT_OFFER: &str = "insert into allocation_offer \
     (match_id, number, round, advertisement_id, answer_by_ms) values ($1, $2, $3, $4, $5) on conflict do nothing";

const UPDATE_OFFER: &str = "update allocation_offer set number = $2, round = $3, advertisement_id = $4, \
     answer_by_ms = $5 where match_id = $1";

const PURGE_OFFERS: &str = "delete from allocation_offer where match_id in \
     (select match_id from allocation_offer where answer_by_ms <= $1 limit 1000 for update skip locked)";

#[async_trait]
impl OfferStore for PostgresStore {
    async fn apply_offer_writes(
        &self,
        writes: &[OfferWrite],
        now: UnixMs,
    ) -> Result<Vec<Option<StoredOffer>>, StoreError> {
        self.writer_version_check.check_may_write()?;
        let (slot, mut writes) = (Arc::clone(&self.background_connection), writes.to_vec());
        let order: Vec<MatchId> = writes.iter().map(OfferWrite::match_id).collect();
        writes.sort_unstable_by_key(OfferWrite::match_id);
        // In a task of its own: the writes are applied even if the caller stops waiting.
        let task = tokio::spawn(async move {
            let mut slot = slot.lock_owned().await;
            query_within!(slot, OPERATION_TIMEOUT, "writing allocation offers", |connection| {
                apply_writes(connection, &writes, now)
            })
        });
        let rows = task.await.unwrap_or_else(|_| Err(StoreError::Unavailable("the store task panicked".into())))?;
        Ok(order.iter().map(|id| rows.iter().find(|offer| offer.match_id == *id).copied()).collect())
    }
}

/// Applies writes, in the order of their keys, in one transaction. Returns the rows afterwards.
async fn apply_writes(
    connection: &mut PgConnection,
    writes: &[OfferWrite],
    now: UnixMs,
) -> Result<Vec<StoredOffer>, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    let ids: Vec<Uuid> = writes.iter().map(|write| Uuid::from_bytes(*write.match_id().as_bytes())).collect();
    let stored = lock_and_read_offers(&mut transaction, &ids).await?;
    let (mut has_changed, mut has_lost) = (false, false);
    let mut rows = Vec::with_capacity(writes.len());
    for write in writes {
        let before = stored.iter().find(|offer| offer.match_id == write.match_id()).copied();
        let Some(offer) = write.changed_row(before.as_ref(), now) else {
            rows.extend(before);
            continue;
        };
        has_changed = true;
        let statement = if before.is_some() { UPDATE_OFFER } else { INSERT_OFFER };
        let query = sqlx::query(statement)
            .bind(Uuid::from_bytes(*offer.match_id.as_bytes()))
            .bind(i64::from(offer.number))
            .bind(i64::from(offer.round))
            .bind(Uuid::from_bytes(*offer.assigned_advertisement_id.as_bytes()))
            .bind(to_ms(offer.answer_by));
        has_lost |= query.execute(&mut *transaction).await?.rows_affected() == 0;
        rows.push(offer);
    }
    if has_lost {
        rows = lock_and_read_offers(&mut transaction, &ids).await?;
    }
    if has_changed {
        let due = UnixMs(now.0.saturating_sub(OFFER_RETENTION_MS));
        sqlx::query(PURGE_OFFERS).bind(to_ms(due)).execute(&mut *transaction).await?;
    }
    transaction.commit().await?;
    Ok(rows)
}

async fn lock_and_read_offers(connection: &mut PgConnection, ids: &[Uuid]) -> Result<Vec<StoredOffer>, sqlx::Error> {
    let rows = sqlx::query(LOCK_OFFERS).bind(ids.to_vec()).fetch_all(connection).await?;
    rows.iter().map(decode_offer).collect()
}

fn decode_offer(row: &PgRow) -> Result<StoredOffer, sqlx::Error> {
    // The schema limits the columns to this range.
    let to_u32 = |number: i64| u32::try_from(number).unwrap_or(u32::MAX);
    Ok(StoredOffer {
        match_id: MatchId::from_bytes(*row.try_get::<Uuid, _>(0)?.as_bytes()),
        number: to_u32(row.try_get(1)?),
        round: to_u32(row.try_get(2)?),
        assigned_advertisement_id: AdvertisementId::from_bytes(*row.try_get::<Uuid, _>(3)?.as_bytes()),
        answer_by: from_ms(row.try_get(4)?),
    })
}
