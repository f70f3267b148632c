//! Offers to allocators of the SQLite store.

use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::domain::id::{AdvertisementId, MatchId};
use crate::domain::time::UnixMs;
use crate::store::allocation_offers::{OFFER_RETENTION_MS, OfferStore, OfferWrite, StoredOffer};
use crate::store::column_reader::ColumnReader;
use crate::store::error::StoreError;
use crate::store::rows::{RowChecksum, from_ms, to_ms};
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::connection::error::to_store_error;

const READ_OFFER: &str = "select match_id, number, round, advertisement_id, answer_by_ms, checksum \
     from allocation_offer where match_id = ?";

const UPSERT_OFFER: &str = "insert or replace into allocation_offer \
     (match_id, number, round, advertisement_id, answer_by_ms, checksum) values (?, ?, ?, ?, ?, ?)";

const PURGE_OFFERS: &str = "delete from allocation_offer where match_id in \
     (select match_id from allocation_offer where answer_by_ms <= ? limit 1000)";

#[async_trait]
impl OfferStore for SqliteStore {
    async fn apply_offer_writes(
        &self,
        writes: &[OfferWrite],
        now: UnixMs,
    ) -> Result<Vec<Option<StoredOffer>>, StoreError> {
        self.writer_gate.check_may_write()?;
        let (path, writes) = (self.path.clone(), writes.to_vec());
        self.run_exclusive(move |mut access| async move {
            let mut connection = access.take_connection(&path).await?;
            let result = apply_writes(&mut connection, &writes, now).await;
            access.return_connection_if_ok(connection, &result);
            result
        })
        .await
    }
}

/// Applies writes in one transaction. After an error the caller closes the connection, which rolls back.
async fn apply_writes(
    connection: &mut SqliteConnection,
    writes: &[OfferWrite],
    now: UnixMs,
) -> Result<Vec<Option<StoredOffer>>, StoreError> {
    let mut rows = Vec::with_capacity(writes.len());
    let mut is_writing = false;
    for write in writes {
        let stored = match read_offer_of_match(connection, write.match_id()).await {
            Err(error @ StoreError::CorruptRow { .. }) => {
                tracing::error!(%error, match_id = %write.match_id(), "allocation offer rejected");
                rows.push(None);
                continue;
            }
            read => read?,
        };
        let changed = write.changed_row(stored.as_ref(), now);
        if let Some(offer) = &changed {
            if !is_writing {
                // This server alone writes to the file, so nothing has changed since the first read.
                execute_query(connection, sqlx::query("begin immediate")).await?;
                is_writing = true;
            }
            upsert_offer(connection, offer).await?;
        }
        rows.push(changed.or(stored));
    }
    if is_writing {
        let due = UnixMs(now.0.saturating_sub(OFFER_RETENTION_MS));
        execute_query(connection, sqlx::query(PURGE_OFFERS).bind(to_ms(due))).await?;
        execute_query(connection, sqlx::query("commit")).await?;
    }
    Ok(rows)
}

async fn execute_query(
    connection: &mut SqliteConnection,
    query: sqlx::query::Query<'_, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
) -> Result<(), StoreError> {
    query.execute(connection).await.map(drop).map_err(to_store_error)
}

async fn upsert_offer(connection: &mut SqliteConnection, offer: &StoredOffer) -> Result<(), StoreError> {
    let query = sqlx::query(UPSERT_OFFER)
        .bind(offer.match_id.as_bytes().to_vec())
        .bind(i64::from(offer.number))
        .bind(i64::from(offer.round))
        .bind(offer.assigned_advertisement_id.as_bytes().to_vec())
        .bind(to_ms(offer.answer_by))
        .bind(checksum(offer));
    execute_query(connection, query).await
}

async fn read_offer_of_match(
    connection: &mut SqliteConnection,
    id: MatchId,
) -> Result<Option<StoredOffer>, StoreError> {
    let query = sqlx::query(READ_OFFER).bind(id.as_bytes().to_vec());
    let row = query.fetch_optional(connection).await.map_err(to_store_error)?;
    row.as_ref().map(decode_offer).transpose()
}

/// Decodes a row with the columns of `READ_OFFER` and verifies its checksum.
fn decode_offer(row: &SqliteRow) -> Result<StoredOffer, StoreError> {
    let columns = ColumnReader { table: "allocation_offer", row };
    let offer = StoredOffer {
        match_id: MatchId::from_bytes(columns.id_bytes(0, "match_id")?),
        number: columns.uint32(1, "number")?,
        round: columns.uint32(2, "round")?,
        assigned_advertisement_id: AdvertisementId::from_bytes(columns.id_bytes(3, "advertisement_id")?),
        answer_by: from_ms(columns.int64(4, "answer_by_ms")?),
    };
    columns.verify_checksum("checksum", columns.int64(5, "checksum")?, checksum(&offer))?;
    Ok(offer)
}

fn checksum(offer: &StoredOffer) -> i64 {
    let mut sum = RowChecksum::new();
    sum.add_bytes(offer.match_id.as_bytes());
    sum.add_number(offer.number.into());
    sum.add_number(offer.round.into());
    sum.add_bytes(offer.assigned_advertisement_id.as_bytes());
    sum.add_number(to_ms(offer.answer_by));
    sum.finish()
}
