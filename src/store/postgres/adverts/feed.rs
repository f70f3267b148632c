//! Advertisements of the change feed: their statements and decoding.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;
use tokio_stream::StreamExt;

use crate::domain::id::{AdvertisementId, BuildIdHasher};
use crate::store::adverts::{AdvertFeed, FeedBatch, Reservation, StoredAdvertisement};
use crate::store::error::StoreError;
use crate::store::postgres::adverts::{copy_decode, decode, statements as sql};
use crate::store::postgres::connection::change_feed::{ChangeFeed, FeedBatchHeader, FeedPosition, FeedSource};
use crate::store::postgres::connection::cursor::{READ_TIMEOUT, SNAPSHOT_TIMEOUT};
use crate::store::postgres::connection::listen;
use crate::store::postgres::connection::slot::{ConnectionSlot, query_within, to_store_error};
use crate::store::postgres::replica_identity::FireteamReplica;
use crate::store::unknown_rows::{RowKey, UnknownRows};

/// Number of rows that are decoded as one unit of work.
const DECODE_CHUNK_ROWS: usize = 2_000;

/// Advertisements of the silos that this server loads.
#[derive(Debug)]
pub(super) struct AdvertFeedSource {
    replica_id: i64,
    loaded_silos: Option<Vec<i64>>,
    unknown_rows: Arc<UnknownRows>,
}

impl AdvertFeedSource {
    pub(super) fn new(replica: &FireteamReplica, unknown_rows: Arc<UnknownRows>) -> Self {
        Self { replica_id: replica.id.cast_signed(), loaded_silos: replica.silo_ids(), unknown_rows }
    }
}

impl FeedSource for AdvertFeedSource {
    type Output = FeedBatch;

    const POLL_PURPOSE: &'static str = "advert feed";
    const CHANNEL: &'static str = listen::ADVERT_CHANNEL;

    async fn fetch_changes(
        &self,
        slot: &mut ConnectionSlot,
        position: FeedPosition,
        also: &[Uuid],
    ) -> Result<Vec<PgRow>, StoreError> {
        query_within!(slot, READ_TIMEOUT, "polling the feed", |connection| {
            let query = position.bind_to(sqlx::query(sql::READ_CHANGES_WITH_CURRENT_ROWS));
            query.bind(also).bind(&self.loaded_silos).fetch_all(&mut *connection)
        })
    }

    async fn decode_changes(&self, _: &mut ConnectionSlot, rows: Vec<PgRow>) -> Result<FeedBatch, StoreError> {
        let (first, rows) = rows.split_first().ok_or_else(|| to_store_error(sqlx::Error::RowNotFound))?;
        let unknown_changes = first.try_get(ADVERTISEMENT_COLUMN + 1).map_err(to_store_error)?;
        self.unknown_rows.log_unknown_feed_records("advertisement_change", unknown_changes);
        let (changed, removed) = decode_changes(rows, ADVERTISEMENT_COLUMN, self.replica_id, &self.unknown_rows)?;
        Ok(FeedBatch { changed, removed, ..FeedBatch::default() })
    }

    async fn read_all(&self, slot: &mut ConnectionSlot) -> Result<FeedBatch, StoreError> {
        let (copy, replica_id) = (sql::copy_advertisements_out_sql(self.loaded_silos.as_deref()), self.replica_id);
        let unknown_rows = &self.unknown_rows;
        unknown_rows.forget_keys_where(|key| matches!(key, RowKey::Advertisement(_)));
        let decode = |rows: Vec<_>| {
            let unknown_rows = Arc::clone(unknown_rows);
            tokio::task::spawn_blocking(move || decode_chunk(&rows, replica_id, &unknown_rows))
        };
        let decoding_tasks = query_within!(slot, SNAPSHOT_TIMEOUT, "reading a snapshot", |connection| async {
            let mut decoding_tasks = Vec::new();
            let mut rows = Vec::new();
            let mut stream = connection.copy_out_raw(&copy).await?;
            // Decoding a row takes longer than receiving it, so other threads decode.
            while let Some(row) = stream.try_next().await? {
                rows.push(row);
                if rows.len() == DECODE_CHUNK_ROWS {
                    let rows = std::mem::replace(&mut rows, Vec::with_capacity(DECODE_CHUNK_ROWS));
                    decoding_tasks.push(decode(rows));
                }
            }
            decoding_tasks.push(decode(rows));
            Ok::<_, sqlx::Error>(decoding_tasks)
        })?;
        let mut changed = Vec::with_capacity(decoding_tasks.len() * DECODE_CHUNK_ROWS);
        for task in decoding_tasks {
            let decoded = task.await;
            changed
                .extend(decoded.unwrap_or_else(|_| Err(StoreError::Unavailable("a decoding task panicked".into())))?);
        }
        let rows = query_within!(slot, SNAPSHOT_TIMEOUT, "reading a snapshot", |connection| {
            sqlx::query(sql::LOAD_ALL_RESERVATIONS).fetch_all(&mut *connection)
        })?;
        let mut reservations: HashMap<AdvertisementId, Vec<Reservation>, BuildIdHasher> = HashMap::default();
        for row in &rows {
            let key = RowKey::Advertisement(decode::decode_advertisement_id(row, 1)?);
            let Some(Some(reservation)) = unknown_rows.none_if_unknown(key, decode::decode_reservation(row, 0))? else {
                continue;
            };
            reservations.entry(reservation.advertisement_id).or_default().push(reservation);
        }
        // An advertisement with an unknown reservation may be full.
        changed.retain(|stored: &StoredAdvertisement| {
            !unknown_rows.contains(RowKey::Advertisement(stored.advertisement.id))
        });
        attach_reservations(&mut changed, reservations);
        Ok(FeedBatch { changed, ..FeedBatch::default() })
    }

    fn set_batch_header(batch: &mut FeedBatch, FeedBatchHeader { read_at, is_snapshot, has_more }: FeedBatchHeader) {
        (batch.read_at, batch.is_snapshot, batch.has_more) = (read_at, is_snapshot, has_more);
    }
}

#[async_trait]
impl AdvertFeed for ChangeFeed<AdvertFeedSource> {
    async fn wait_for_changes(&mut self) {
        self.wait().await;
    }

    async fn read_batch(&mut self, also: &[AdvertisementId]) -> Result<FeedBatch, StoreError> {
        let ids: Vec<Uuid> = also.iter().map(|id| Uuid::from_bytes(*id.as_bytes())).collect();
        self.read(&ids).await
    }
}

fn decode_chunk(
    messages: &[impl AsRef<[u8]>],
    replica_id: i64,
    unknown_rows: &UnknownRows,
) -> Result<Vec<StoredAdvertisement>, StoreError> {
    let decode = |message: &[u8]| copy_decode::decode_advertisement(message, replica_id, unknown_rows);
    let decoded = messages.iter().map(|message| decode(message.as_ref()));
    // The last message ends the copy.
    decoded.filter_map(Result::transpose).collect()
}

/// Column of `READ_CHANGES_WITH_CURRENT_ROWS` with the advertisement id; the advertisement's other columns follow.
const ADVERTISEMENT_COLUMN: usize = 3;

/// Decodes changed advertisements with their reservations, and ids without an advertisement or with one of a newer
/// server; both in id order. An advertisement's columns start at `first`, and the reservation's columns follow them.
pub(super) fn decode_changes(
    rows: &[PgRow],
    first: usize,
    replica_id: i64,
    unknown_rows: &UnknownRows,
) -> Result<(Vec<StoredAdvertisement>, Vec<AdvertisementId>), StoreError> {
    let mut ids = BTreeSet::new();
    for row in rows {
        ids.insert(decode::decode_advertisement_id(row, first)?);
    }
    unknown_rows.forget_keys_where(|key| matches!(key, RowKey::Advertisement(id) if ids.contains(id)));
    let mut changed = Vec::with_capacity(rows.len());
    let mut reservations: HashMap<AdvertisementId, Vec<Reservation>, BuildIdHasher> = HashMap::default();
    for row in rows {
        let id = decode::decode_advertisement_id(row, first)?;
        let key = RowKey::Advertisement(id);
        let reservation = decode::decode_reservation(row, first + decode::ADVERTISEMENT_COLUMN_COUNT);
        let Some(reservation) = unknown_rows.none_if_unknown(key, reservation)? else { continue };
        if reservation.is_none() || !reservations.contains_key(&id) {
            let decoded = decode::decode_advertisement(row, first, replica_id);
            if let Some(Some(stored)) = unknown_rows.none_if_unknown(key, decoded)? {
                changed.push(stored);
            }
        }
        if let Some(reservation) = reservation {
            reservations.entry(id).or_default().push(reservation);
        }
    }
    changed
        .retain(|stored: &StoredAdvertisement| !unknown_rows.contains(RowKey::Advertisement(stored.advertisement.id)));
    for stored in &changed {
        ids.remove(&stored.advertisement.id);
    }
    attach_reservations(&mut changed, reservations);
    changed.sort_unstable_by_key(|stored| stored.advertisement.id);
    Ok((changed, ids.into_iter().collect()))
}

/// Adds the reservations to their advertisements, in id order.
fn attach_reservations(
    advertisements: &mut [StoredAdvertisement],
    mut reservations: HashMap<AdvertisementId, Vec<Reservation>, BuildIdHasher>,
) {
    if reservations.is_empty() {
        return;
    }
    for stored in advertisements {
        stored.reservations = reservations.remove(&stored.advertisement.id).unwrap_or_default();
        stored.reservations.sort_unstable_by_key(|reservation| reservation.id);
    }
}
