//! Loading of all advertisements at startup: on several connections, by pages. One page is decoded while SQLite's
//! thread reads the next.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::store::adverts::{AdvertVersion, Reservation, StoredAdvertisement};
use crate::store::error::StoreError;
use crate::store::rows;
use crate::store::sqlite::adverts::page_decode::AdvertPage;
use crate::store::sqlite::adverts::statements as sql;
use crate::store::sqlite::adverts::transaction;
use crate::store::sqlite::connection::error::to_store_error;
use crate::store::sqlite::connection::open;
use crate::store::sqlite::connection::purge::purge_rows;
use crate::store::unknown_rows::{RowKey, UnknownRows};

/// Number of advertisements from which several connections read.
const PARALLEL_LOAD_ROWS_MIN: i64 = 8_000;

/// Maximum number of reading connections.
const READERS_MAX: usize = 4;

/// Loads all advertisements that have not expired, in id order; removes expired ones and purges due rows. No writes may
/// run meanwhile.
pub(super) async fn purge_and_load_advertisements(
    connection: &mut SqliteConnection,
    path: &Path,
    now: UnixMs,
    unknown_rows: &Arc<UnknownRows>,
) -> Result<Vec<StoredAdvertisement>, StoreError> {
    unknown_rows.forget_keys_where(|key| matches!(key, RowKey::Advertisement(_)));
    let is_large: bool = sqlx::query_scalar(sql::HAS_MORE_ADVERTISEMENTS_THAN)
        .bind(PARALLEL_LOAD_ROWS_MIN)
        .fetch_one(&mut *connection)
        .await
        .map_err(to_store_error)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let readers = if is_large { cores.min(READERS_MAX) } else { 1 };

    let cursor = Arc::new(LoadCursor::default());
    let mut tasks = JoinSet::new();
    for _ in 1..readers {
        let (path, cursor, unknown_rows) = (path.to_owned(), Arc::clone(&cursor), Arc::clone(unknown_rows));
        tasks.spawn(async move {
            let mut connection = open::connect(&path).await?;
            let loaded = load_pages(&mut connection, &cursor, now, &unknown_rows).await;
            let _ = sqlx::Connection::close(connection).await;
            loaded
        });
    }
    let mut loaded = load_pages(connection, &cursor, now, unknown_rows).await?;
    while let Some(rows) = tasks.join_next().await {
        let rows = rows.unwrap_or_else(|_| Err(StoreError::Unavailable("a reader task panicked".into())))?;
        loaded.stored.extend(rows.stored);
        loaded.expired_ids.extend(rows.expired_ids);
    }
    let LoadedRows { mut stored, expired_ids } = loaded;
    stored.sort_unstable_by_key(|(id, _)| *id);
    transaction::delete_advertisements(connection, &expired_ids).await.map_err(to_store_error)?;
    purge_rows(connection, &sql::PURGE_DUE_ROWS, now).await?;

    let mut reservations: HashMap<AdvertisementId, Vec<Reservation>> = HashMap::new();
    for row in sqlx::query(sql::LOAD_ALL_RESERVATIONS).fetch_all(connection).await.map_err(to_store_error)? {
        let id = rows::decode_advertisement_id_of_reservation(&row)?;
        let decoded = unknown_rows.none_if_unknown(RowKey::Advertisement(id), rows::decode_reservation(&row))?;
        let Some(reservation) = decoded else { continue };
        reservations.entry(reservation.advertisement_id).or_default().push(reservation);
    }
    let with_reservations = |(id, mut stored): (AdvertisementId, StoredAdvertisement)| {
        stored.reservations = reservations.remove(&id).unwrap_or_default();
        stored
    };
    // An advertisement with an unknown reservation may be full.
    let is_known =
        |(id, _): &(AdvertisementId, StoredAdvertisement)| !unknown_rows.contains(RowKey::Advertisement(*id));
    Ok(stored.into_iter().filter(is_known).map(with_reservations).collect())
}

/// Progress of the readers: `n` of the last advertisement of a page that a reader has taken.
#[derive(Default)]
struct LoadCursor(Mutex<i64>);

impl LoadCursor {
    /// Next page for this reader, `None` at the end. Finding its end takes a tenth of the time to read it.
    async fn fetch_next_page(&self, connection: &mut SqliteConnection) -> Result<Option<SqliteRow>, StoreError> {
        let mut last = self.0.lock().await;
        let end = sqlx::query_scalar(sql::LOAD_PAGE_END).bind(*last).fetch_one(&mut *connection).await;
        let Some(end): Option<i64> = end.map_err(to_store_error)? else { return Ok(None) };
        // In a damaged file the row numbers can repeat in a cycle.
        if end <= *last {
            return Err(StoreError::DamagedFile("the rows of advertisement are out of order".into()));
        }
        let start = std::mem::replace(&mut *last, end);
        drop(last);
        let page = sqlx::query(sql::LOAD_PAGE).bind(start).bind(end).fetch_one(connection).await;
        page.map(Some).map_err(to_store_error)
    }
}

#[derive(Default)]
struct LoadedRows {
    stored: Vec<(AdvertisementId, StoredAdvertisement)>,
    expired_ids: Vec<AdvertisementId>,
}

impl LoadedRows {
    fn add_page(&mut self, page: &SqliteRow, now: UnixMs, unknown_rows: &UnknownRows) -> Result<(), StoreError> {
        for row in AdvertPage::from_row(page)? {
            let (row, heartbeat_expires_at) = row?;
            let expires_at = heartbeat_expires_at.unwrap_or(row.expiry_at_publication());
            let id = AdvertisementId::from_bytes(row.id);
            let decoded = unknown_rows.none_if_unknown(RowKey::Advertisement(id), row.decode())?;
            let Some(advertisement) = decoded.map(Arc::new) else { continue };
            if expires_at <= now {
                self.expired_ids.push(id);
                continue;
            }
            let stored = StoredAdvertisement {
                advertisement,
                expires_at,
                reservations: Vec::new(),
                version: AdvertVersion::default(),
                is_heartbeat_owner: false,
            };
            self.stored.push((id, stored));
        }
        Ok(())
    }
}

async fn load_pages(
    connection: &mut SqliteConnection,
    cursor: &LoadCursor,
    now: UnixMs,
    unknown_rows: &UnknownRows,
) -> Result<LoadedRows, StoreError> {
    let mut loaded = LoadedRows::default();
    let mut page = cursor.fetch_next_page(connection).await?;
    while let Some(row) = page {
        // Polled in this order: the next page is requested first, then this one is decoded while SQLite reads.
        let (next, decoded) = tokio::join!(biased; cursor.fetch_next_page(connection), async { loaded.add_page(&row, now, unknown_rows) });
        decoded?;
        page = next?;
    }
    Ok(loaded)
}
