//! Reads what other servers change, by transaction and not by sequence number, so that none can be skipped; `mark.rs` says
//! how.

use std::collections::HashMap;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::types::Uuid;
use tokio_stream::StreamExt;

use crate::domain::id::{AdvertisementId, IdState};
use crate::store::postgres::line::{Line, ask, unavailable};
use crate::store::postgres::mark::{ALL_WITHIN, CHANGES_MAX, LOOK_EVERY, LOOK_WITHIN, Look, Mark};
use crate::store::postgres::settle::Unsettled;
use crate::store::postgres::wake::{self, Wake};
use crate::store::postgres::{Replica, copied, open, read, statements as sql};
use crate::store::{Feed, News, Reservation, StoreError, StoredAdvertisement, rows};

/// Rows that are read together.
const TOGETHER: usize = 2_000;

/// One server's reading.
#[derive(Debug)]
pub(super) struct ChangeFeed {
    looks: Line,
    all: Line,
    wake: Option<Wake>,
    listen: PgConnectOptions,
    replica: i64,
    silos: Option<Vec<i64>>,
    unsettled: Unsettled,
    /// `None` before everything has been read.
    place: Option<Mark>,
}

impl ChangeFeed {
    pub(super) fn new(options: &PgConnectOptions, replica: &Replica, unsettled: Unsettled) -> Self {
        Self {
            looks: Line::new("feed", open::hurried(options)),
            all: Line::new("load", open::patient(options)),
            wake: None,
            listen: open::hurried(options),
            replica: replica.number.cast_signed(),
            silos: replica.silos(),
            unsettled,
            place: None,
        }
    }

    /// Everything. The mark is older than what is read, so what is committed meanwhile is read again.
    async fn read_all(&mut self) -> Result<News, StoreError> {
        let line = &mut self.all;
        let (mark, at): (i64, i64) =
            ask!(line, LOOK_WITHIN, "a look", |connection| sqlx::query_as(sql::MARK).fetch_one(&mut *connection))?;
        let (copy, replica) = (sql::copy_all(self.silos.as_deref()), self.replica);
        let readings = ask!(line, ALL_WITHIN, "reading everything", |connection| async {
            let mut readings = Vec::new();
            let mut rows = Vec::new();
            let mut stream = connection.copy_out_raw(&copy).await?;
            // Reading a row takes longer than receiving it: others do that meanwhile.
            while let Some(row) = stream.try_next().await? {
                rows.push(row);
                if rows.len() == TOGETHER {
                    let rows = std::mem::replace(&mut rows, Vec::with_capacity(TOGETHER));
                    readings.push(tokio::task::spawn_blocking(move || read_together(&rows, replica)));
                }
            }
            readings.push(tokio::task::spawn_blocking(move || read_together(&rows, replica)));
            Ok::<_, sqlx::Error>(readings)
        })?;
        let mut changed = Vec::with_capacity(readings.len() * TOGETHER);
        for reading in readings {
            let reading = reading.await.unwrap_or_else(|_| Err(StoreError::Unavailable("a reader died".into())));
            changed.extend(reading?);
        }
        let rows = ask!(line, ALL_WITHIN, "reading everything", |connection| sqlx::query(sql::READ_ALL_RESERVATIONS)
            .fetch_all(&mut *connection))?;
        let mut seats: HashMap<AdvertisementId, Vec<Reservation>, IdState> = HashMap::default();
        for row in &rows {
            let Some(reservation) = read::reservation(row, 0)? else { continue };
            seats.entry(reservation.advertisement_id).or_default().push(reservation);
        }
        seat(&mut changed, seats);
        let at = rows::from_ms(at);
        self.place = Some(Mark::new(mark, at));
        Ok(News { at, whole: true, more: false, changed, gone: Vec::new() })
    }

    /// What is new, or `None` when that cannot be known any more.
    async fn read_new(&mut self, also: &[AdvertisementId]) -> Result<Option<News>, StoreError> {
        let Some(place) = &mut self.place else { return Ok(None) };
        let (line, replica) = (&mut self.looks, self.replica);
        let known = place.known();
        let unsettled = self.unsettled.list();
        let ids: Vec<Uuid> = also.iter().map(|id| Uuid::from_bytes(*id.as_bytes())).collect();
        let rows: Vec<PgRow> = ask!(line, LOOK_WITHIN, "a look", |connection| {
            let look = sqlx::query(sql::READ_CHANGES).bind(place.from()).bind(&known).bind(replica).bind(CHANGES_MAX);
            look.bind(&unsettled).bind(&ids).bind(&self.silos).fetch_all(&mut *connection)
        })?;
        let (first, rows) = rows.split_first().ok_or_else(|| unavailable(sqlx::Error::RowNotFound))?;
        let look = Look::of(first).map_err(unavailable)?;
        if !place.is_sure(&look) {
            return Ok(None);
        }
        let (changed, gone) = sort(rows, ADVERTISEMENT, replica)?;
        let at = look.at;
        let more = place.pass(look);
        Ok(Some(News { at, whole: false, more, changed, gone }))
    }
}

#[async_trait]
impl Feed for ChangeFeed {
    async fn wait(&mut self) {
        let wake = self.wake.get_or_insert_with(|| Wake::listen(&self.listen, wake::ADVERTISEMENTS));
        wake.wait(LOOK_EVERY).await;
    }

    async fn read(&mut self, also: &[AdvertisementId]) -> Result<News, StoreError> {
        match self.read_new(also).await? {
            Some(news) => Ok(news),
            None => self.read_all().await,
        }
    }
}

fn read_together(messages: &[impl AsRef<[u8]>], replica: i64) -> Result<Vec<StoredAdvertisement>, StoreError> {
    let read = messages.iter().map(|message| copied::stored(message.as_ref(), replica));
    // The last one is the end of the copy.
    read.filter_map(Result::transpose).collect()
}

/// The column of `READ_CHANGES` with the id that was asked for, from which on they are those of an advertisement.
const ADVERTISEMENT: usize = 3;

/// What there is of what was asked for, with its seats, and what there is not; both in the order of ids. Columns of an
/// advertisement begin at `first`, and those of a reservation follow them.
pub(super) fn sort(
    rows: &[PgRow],
    first: usize,
    replica: i64,
) -> Result<(Vec<StoredAdvertisement>, Vec<AdvertisementId>), StoreError> {
    let (mut changed, mut gone) = (Vec::with_capacity(rows.len()), Vec::new());
    let mut seats: HashMap<AdvertisementId, Vec<Reservation>, IdState> = HashMap::default();
    for row in rows {
        let id = read::advertisement_id(row, first)?;
        let reservation = read::reservation(row, first + read::ADVERTISEMENT_COLUMNS)?;
        if reservation.is_none() || !seats.contains_key(&id) {
            match read::stored(row, first, replica)? {
                Some(stored) => changed.push(stored),
                None => gone.push(id),
            }
        }
        if let Some(reservation) = reservation {
            seats.entry(id).or_default().push(reservation);
        }
    }
    seat(&mut changed, seats);
    changed.sort_unstable_by_key(|stored| stored.advertisement.id);
    gone.sort_unstable();
    Ok((changed, gone))
}

/// Gives each its seats, in the order of ids.
fn seat(all: &mut [StoredAdvertisement], mut seats: HashMap<AdvertisementId, Vec<Reservation>, IdState>) {
    if seats.is_empty() {
        return;
    }
    for stored in all {
        stored.reservations = seats.remove(&stored.advertisement.id).unwrap_or_default();
        stored.reservations.sort_unstable_by_key(|reservation| reservation.id);
    }
}
