//! Reads what other servers change, by transaction and not by sequence number, so that none can be skipped.
//!
//! Every transaction leaves a row in `change` with its own number. Numbers are given out when a transaction begins to
//! write, so a small one may be committed long after a large one. A reader keeps a mark: all transactions below it have
//! ended, and what they did has been read. At each look it takes every change from the mark on that it has not had yet,
//! and moves the mark up to the oldest transaction that was still running then (`pg_snapshot_xmin`). So a slow
//! transaction delays nobody's news, and is never missed, however late it commits.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::types::Uuid;
use tokio_stream::StreamExt;

use crate::domain::id::{AdvertisementId, IdState};
use crate::domain::time::UnixMs;
use crate::store::mutant;
use crate::store::postgres::line::{Line, ask, unavailable};
use crate::store::postgres::settle::Unsettled;
use crate::store::postgres::wake::Wake;
use crate::store::postgres::{Replica, copied, open, read, statements as sql};
use crate::store::{Feed, News, Reservation, StoreError, StoredAdvertisement, rows};

/// How long to wait for the bell before looking anyway.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a look may take.
const LOOK_WITHIN: Duration = Duration::from_secs(2);

/// What reading everything may take.
const ALL_WITHIN: Duration = Duration::from_secs(120);

/// Changes that one look takes; each is a transaction with a thousand advertisements at most.
const CHANGES_MAX: i64 = 16;

/// A reader that has not looked for this long, by the database's clock, reads everything: `FORGET_CHANGES` forgets what is
/// twice as old.
const MISSED_AFTER_MS: u64 = 300_000;

/// Rows that are read together.
const TOGETHER: usize = 2_000;

/// Changes above the mark that may have been read; more, and something is holding the mark: read everything instead.
const READ_MAX: usize = 16_384;

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
    place: Option<Place>,
}

/// How far it has come.
#[derive(Debug)]
struct Place {
    /// Every transaction below has ended and been read.
    mark: i64,
    /// Transactions from there on that have been read.
    read: BTreeSet<i64>,
    /// When it last looked.
    at: UnixMs,
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
        self.place = Some(Place { mark, read: BTreeSet::new(), at });
        Ok(News { at, whole: true, more: false, changed, gone: Vec::new() })
    }

    /// What is new, or `None` when that cannot be known any more.
    async fn read_new(&mut self, also: &[AdvertisementId]) -> Result<Option<News>, StoreError> {
        let Some(place) = &mut self.place else { return Ok(None) };
        let (line, replica) = (&mut self.looks, self.replica);
        let known: Vec<i64> = place.read.iter().copied().collect();
        let unsettled = self.unsettled.list();
        let ids: Vec<Uuid> = also.iter().map(|id| Uuid::from_bytes(*id.as_bytes())).collect();
        let rows: Vec<PgRow> = ask!(line, LOOK_WITHIN, "a look", |connection| {
            let look = sqlx::query(sql::READ_CHANGES).bind(place.mark).bind(&known).bind(replica).bind(CHANGES_MAX);
            look.bind(&unsettled).bind(&ids).bind(&self.silos).fetch_all(&mut *connection)
        })?;
        let (first, rows) = rows.split_first().ok_or_else(|| unavailable(sqlx::Error::RowNotFound))?;
        let look = Look::of(first).map_err(unavailable)?;
        let away_ms = look.at.since(place.at);
        let skips = mutant::is("feed_by_the_last_seen");
        if MISSED_AFTER_MS < away_ms || (look.oldest < place.mark && !skips) || READ_MAX < place.read.len() {
            tracing::info!(away_ms, "cannot be sure to have read every change: reading everything");
            return Ok(None);
        }
        let (changed, gone) = sort(rows, ADVERTISEMENT, replica)?;
        // Only now: had anything failed, it would have to be read again.
        let more = look.versions.len() == CHANGES_MAX as usize;
        place.read.extend(look.versions);
        if !more {
            place.mark = if skips { place.read.last().map_or(place.mark, |last| last + 1) } else { look.oldest };
            place.read = place.read.split_off(&place.mark);
        }
        place.at = look.at;
        Ok(Some(News { at: look.at, whole: false, more, changed, gone }))
    }
}

#[async_trait]
impl Feed for ChangeFeed {
    async fn wait(&mut self) {
        let wake = self.wake.get_or_insert_with(|| Wake::listen(&self.listen));
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

/// The first row of `READ_CHANGES`.
struct Look {
    oldest: i64,
    at: UnixMs,
    versions: Vec<i64>,
}

impl Look {
    fn of(row: &PgRow) -> Result<Self, sqlx::Error> {
        let versions: Option<Vec<i64>> = row.try_get(2)?;
        Ok(Self { oldest: row.try_get(0)?, at: rows::from_ms(row.try_get(1)?), versions: versions.unwrap_or_default() })
    }
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
