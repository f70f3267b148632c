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
use crate::store::rows::{self, page::Page};
use crate::store::sqlite::statements as sql;
use crate::store::sqlite::{change, forget, open, unavailable};
use crate::store::{Reservation, StoreError, StoredAdvertisement, Version};

/// Advertisements from which on more than one connection reads.
const MANY: i64 = 8_000;

/// Connections that read at most.
const READERS_MAX: usize = 4;

/// Everything that has not expired, in the order of ids; what has, and what is due to be forgotten, is removed. Nobody
/// may write meanwhile.
pub(super) async fn load(
    connection: &mut SqliteConnection,
    path: &Path,
    now: UnixMs,
) -> Result<Vec<StoredAdvertisement>, StoreError> {
    let many: bool =
        sqlx::query_scalar(sql::HAS_MORE_THAN).bind(MANY).fetch_one(&mut *connection).await.map_err(unavailable)?;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let readers = if many { cores.min(READERS_MAX) } else { 1 };

    let place = Arc::new(Place::default());
    let mut others = JoinSet::new();
    for _ in 1..readers {
        let (path, place) = (path.to_owned(), Arc::clone(&place));
        others.spawn(async move {
            let mut connection = open::connect(&path).await?;
            let loaded = read(&mut connection, &place, now).await;
            let _ = sqlx::Connection::close(connection).await;
            loaded
        });
    }
    let mut loaded = read(connection, &place, now).await?;
    while let Some(other) = others.join_next().await {
        let other = other.unwrap_or_else(|_| Err(StoreError::Unavailable("a reader died".into())))?;
        loaded.stored.extend(other.stored);
        loaded.expired.extend(other.expired);
    }
    let Loaded { mut stored, expired } = loaded;
    stored.sort_unstable_by_key(|(id, _)| *id);
    change::remove(connection, &expired).await.map_err(unavailable)?;
    forget(connection, now).await?;

    let mut reservations: HashMap<AdvertisementId, Vec<Reservation>> = HashMap::new();
    for row in sqlx::query(sql::LOAD_RESERVATIONS).fetch_all(connection).await.map_err(unavailable)? {
        let reservation = rows::reservation(&row)?;
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
struct Place(Mutex<i64>);

impl Place {
    /// The next page for this reader, none at the end. Finding where it ends takes a tenth of reading it.
    async fn next(&self, connection: &mut SqliteConnection) -> Result<Option<SqliteRow>, StoreError> {
        let mut last = self.0.lock().await;
        let end = sqlx::query_scalar(sql::LOAD_PAGE_END).bind(*last).fetch_one(&mut *connection).await;
        let Some(end): Option<i64> = end.map_err(unavailable)? else { return Ok(None) };
        // In a damaged file the numbers may go in a circle.
        if end <= *last {
            return Err(StoreError::Damaged("the rows of advertisement are out of order".into()));
        }
        let begin = std::mem::replace(&mut *last, end);
        drop(last);
        let page = sqlx::query(sql::LOAD_PAGE).bind(begin).bind(end).fetch_one(connection).await;
        page.map(Some).map_err(unavailable)
    }
}

#[derive(Default)]
struct Loaded {
    stored: Vec<(AdvertisementId, StoredAdvertisement)>,
    expired: Vec<AdvertisementId>,
}

impl Loaded {
    fn add(&mut self, page: &SqliteRow, now: UnixMs) -> Result<(), StoreError> {
        for row in Page::read(page)? {
            let (published, lease) = row?;
            let expires = lease.unwrap_or(published.expires());
            let id = AdvertisementId::from_bytes(published.id);
            if expires <= now {
                self.expired.push(id);
                continue;
            }
            let advertisement = Arc::new(published.advertisement()?);
            let stored = StoredAdvertisement {
                advertisement,
                expires,
                reservations: Vec::new(),
                version: Version::default(),
                held_here: false,
            };
            self.stored.push((id, stored));
        }
        Ok(())
    }
}

async fn read(connection: &mut SqliteConnection, place: &Place, now: UnixMs) -> Result<Loaded, StoreError> {
    let mut loaded = Loaded::default();
    let mut page = place.next(connection).await?;
    while let Some(row) = page {
        // Polled in this order: the next page is asked for, then decoding goes on while it is read.
        let (next, decoded) = tokio::join!(biased; place.next(connection), async { loaded.add(&row, now) });
        decoded?;
        page = next?;
    }
    Ok(loaded)
}
