//! Reads everything, for a start: on several connections at once, and by pages, so that one is decoded while the next is
//! read on SQLite's own thread.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use sqlx::sqlite::{SqliteConnection, SqliteRow};
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::store::rows::{self, advert_page::AdvertPage};
use crate::store::sqlite::statements as sql;
use crate::store::sqlite::{open, purge_rows, to_store_error, transaction};
use crate::store::{AdvertVersion, Reservation, StoreError, StoredAdvertisement};

/// Advertisements from which on more than one connection reads.
const PARALLEL_LOAD_ROWS_MIN: i64 = 8_000;

/// Connections that read at most.
const READERS_MAX: usize = 4;

/// Everything that has not expired, in the order of ids; what has, and what is due to be forgotten, is removed. Nobody
/// may write meanwhile.
pub(super) async fn load_advertisements(
    connection: &mut SqliteConnection,
    path: &Path,
    now: UnixMs,
) -> Result<Vec<StoredAdvertisement>, StoreError> {
    let many: bool = sqlx::query_scalar(sql::HAS_MORE_THAN)
        .bind(PARALLEL_LOAD_ROWS_MIN)
        .fetch_one(&mut *connection)
        .await
        .map_err(to_store_error)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let readers = if many { cores.min(READERS_MAX) } else { 1 };

    let place = Arc::new(LoadCursor::default());
    let mut others = JoinSet::new();
    for _ in 1..readers {
        let (path, place) = (path.to_owned(), Arc::clone(&place));
        others.spawn(async move {
            let mut connection = open::connect(&path).await?;
            let loaded = load_pages(&mut connection, &place, now).await;
            let _ = sqlx::Connection::close(connection).await;
            loaded
        });
    }
    let mut loaded = load_pages(connection, &place, now).await?;
    while let Some(other) = others.join_next().await {
        let other = other.unwrap_or_else(|_| Err(StoreError::Unavailable("a reader died".into())))?;
        loaded.stored.extend(other.stored);
        loaded.expired_ids.extend(other.expired_ids);
    }
    let LoadedRows { mut stored, expired_ids: expired } = loaded;
    stored.sort_unstable_by_key(|(id, _)| *id);
    transaction::delete_advertisements(connection, &expired).await.map_err(to_store_error)?;
    purge_rows(connection, now).await?;

    let mut reservations: HashMap<AdvertisementId, Vec<Reservation>> = HashMap::new();
    for row in sqlx::query(sql::LOAD_RESERVATIONS).fetch_all(connection).await.map_err(to_store_error)? {
        let reservation = rows::decode_reservation(&row)?;
        reservations.entry(reservation.advertisement_id).or_default().push(reservation);
    }
    let whole = |(id, mut stored): (AdvertisementId, StoredAdvertisement)| {
        stored.reservations = reservations.remove(&id).unwrap_or_default();
        stored
    };
    Ok(stored.into_iter().map(whole).collect())
}

/// How far the readers have come: the number of the last advertisement that one of them has taken on.
#[derive(Default)]
struct LoadCursor(Mutex<i64>);

impl LoadCursor {
    /// The next page for this reader, none at the end. Finding where it ends takes a tenth of reading it.
    async fn next_page(&self, connection: &mut SqliteConnection) -> Result<Option<SqliteRow>, StoreError> {
        let mut last = self.0.lock().await;
        let end = sqlx::query_scalar(sql::LOAD_PAGE_END).bind(*last).fetch_one(&mut *connection).await;
        let Some(end): Option<i64> = end.map_err(to_store_error)? else { return Ok(None) };
        // In a damaged file the numbers may go in a circle.
        if end <= *last {
            return Err(StoreError::DamagedFile("the rows of advertisement are out of order".into()));
        }
        let begin = std::mem::replace(&mut *last, end);
        drop(last);
        let page = sqlx::query(sql::LOAD_PAGE).bind(begin).bind(end).fetch_one(connection).await;
        page.map(Some).map_err(to_store_error)
    }
}

#[derive(Default)]
struct LoadedRows {
    stored: Vec<(AdvertisementId, StoredAdvertisement)>,
    expired_ids: Vec<AdvertisementId>,
}

impl LoadedRows {
    fn add_page(&mut self, page: &SqliteRow, now: UnixMs) -> Result<(), StoreError> {
        for row in AdvertPage::from_row(page)? {
            let (published, lease) = row?;
            let expires = lease.unwrap_or(published.published_expiry());
            let id = AdvertisementId::from_bytes(published.id);
            if expires <= now {
                self.expired_ids.push(id);
                continue;
            }
            let advertisement = Arc::new(published.decode()?);
            let stored = StoredAdvertisement {
                advertisement,
                expires_at: expires,
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
    place: &LoadCursor,
    now: UnixMs,
) -> Result<LoadedRows, StoreError> {
    let mut loaded = LoadedRows::default();
    let mut page = place.next_page(connection).await?;
    while let Some(row) = page {
        // Polled in this order: the next page is asked for, then decoding goes on while it is read.
        let (next, decoded) = tokio::join!(biased; place.next_page(connection), async { loaded.add_page(&row, now) });
        decoded?;
        page = next?;
    }
    Ok(loaded)
}
