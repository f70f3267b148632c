//! Reads everything, for a start.
//!
//! By pages: while one is decoded here, the next is read on SQLite's own thread. Taking rows one by one as they come
//! wakes this thread for each of them, which costs more than the row.

use std::collections::HashMap;
use std::sync::Arc;

use sqlx::sqlite::{SqliteConnection, SqliteRow};

use crate::domain::id::AdvertisementId;
use crate::domain::time::UnixMs;
use crate::store::rows::{self, AdvertisementRow};
use crate::store::sqlite::statements as sql;
use crate::store::sqlite::{change, forget, unavailable};
use crate::store::{Reservation, StoreError, StoredAdvertisement};

/// Everything that has not expired, in the order of ids; what has, and what is due to be forgotten, is removed.
pub(super) async fn load(
    connection: &mut SqliteConnection,
    now: UnixMs,
) -> Result<Vec<StoredAdvertisement>, StoreError> {
    let mut loaded = Loaded::default();
    let mut rows = page(connection, 0).await?;
    while let Some(last) = rows.last() {
        let last = rows::number(last)?;
        // Polled in this order: the page is asked for, then decoding goes on while it is read.
        let (next, decoded) = tokio::join!(biased; page(connection, last), async { loaded.add(&rows, now) });
        decoded?;
        rows = next?;
    }
    let Loaded { mut stored, expired } = loaded;
    stored.sort_unstable_by_key(|stored| stored.advertisement.id);
    change::remove(connection, &expired).await.map_err(unavailable)?;
    forget(connection, now).await?;

    let mut reservations: HashMap<AdvertisementId, Vec<Reservation>> = HashMap::new();
    for row in sqlx::query(sql::LOAD_RESERVATIONS).fetch_all(connection).await.map_err(unavailable)? {
        let reservation = rows::reservation(&row)?;
        reservations.entry(reservation.advertisement_id).or_default().push(reservation);
    }
    for stored in &mut stored {
        stored.reservations = reservations.remove(&stored.advertisement.id).unwrap_or_default();
    }
    Ok(stored)
}

#[derive(Default)]
struct Loaded {
    stored: Vec<StoredAdvertisement>,
    expired: Vec<AdvertisementId>,
}

impl Loaded {
    fn add(&mut self, rows: &[SqliteRow], now: UnixMs) -> Result<(), StoreError> {
        for row in rows {
            let published = AdvertisementRow::read(row)?;
            let expires = rows::lease(row)?.unwrap_or(published.expires());
            let advertisement = Arc::new(published.advertisement()?);
            match expires <= now {
                true => self.expired.push(advertisement.id),
                false => self.stored.push(StoredAdvertisement { advertisement, expires, reservations: Vec::new() }),
            }
        }
        Ok(())
    }
}

async fn page(connection: &mut SqliteConnection, after: i64) -> Result<Vec<SqliteRow>, StoreError> {
    sqlx::query(sql::LOAD_ADVERTISEMENTS).bind(after).fetch_all(connection).await.map_err(unavailable)
}
