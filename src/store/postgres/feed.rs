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
use crate::store::postgres::{Replica, open, read, statements as sql};
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
        let (silos, replica) = (&self.silos, self.replica);
        let readings = ask!(line, ALL_WITHIN, "reading everything", |connection| async {
            let mut readings = Vec::new();
            let mut rows = Vec::new();
            let mut stream = sqlx::query(sql::READ_ALL).bind(silos).fetch(&mut *connection);
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
        if !seats.is_empty() {
            for stored in &mut changed {
                stored.reservations = seats.remove(&stored.advertisement.id).unwrap_or_default();
                stored.reservations.sort_unstable_by_key(|reservation| reservation.id);
            }
        }
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
        let rows: Vec<PgRow> = ask!(line, LOOK_WITHIN, "a look", |connection| {
            let look = sqlx::query(sql::READ_CHANGES).bind(place.mark).bind(&known).bind(replica).bind(CHANGES_MAX);
            look.bind(&unsettled).fetch_all(&mut *connection)
        })?;
        let look = Look::of(&rows).map_err(unavailable)?;
        let away_ms = look.at.since(place.at);
        let skips = mutant::is("feed_by_the_last_seen");
        if MISSED_AFTER_MS < away_ms || (look.oldest < place.mark && !skips) || READ_MAX < place.read.len() {
            tracing::info!(away_ms, "cannot be sure to have read every change: reading everything");
            return Ok(None);
        }
        let mut ids: BTreeSet<Uuid> = also.iter().map(|id| Uuid::from_bytes(*id.as_bytes())).collect();
        ids.extend(look.ids);
        let ids: Vec<Uuid> = ids.into_iter().collect();
        let (changed, gone) = if ids.is_empty() {
            (Vec::new(), Vec::new())
        } else {
            let rows = ask!(line, LOOK_WITHIN, "reading changes", |connection| sqlx::query(sql::READ_SOME)
                .bind(&self.silos)
                .bind(&ids)
                .fetch_all(&mut *connection))?;
            sort(&ids, &rows, replica)?
        };
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

fn read_together(rows: &[PgRow], replica: i64) -> Result<Vec<StoredAdvertisement>, StoreError> {
    rows.iter().map(|row| read::stored(row, replica)).collect()
}

/// The answer to `READ_CHANGES`.
struct Look {
    oldest: i64,
    at: UnixMs,
    versions: Vec<i64>,
    ids: Vec<Uuid>,
}

impl Look {
    fn of(rows: &[PgRow]) -> Result<Self, sqlx::Error> {
        let first = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let at = rows::from_ms(first.try_get(1)?);
        let mut look = Self { oldest: first.try_get(0)?, at, versions: Vec::new(), ids: Vec::new() };
        for row in rows {
            if let Some(version) = row.try_get::<Option<i64>, _>(2)? {
                look.versions.push(version);
                look.ids.extend(row.try_get::<Vec<Uuid>, _>(3)?);
            }
        }
        Ok(look)
    }
}

/// What there is of `ids`, with its seats, and what there is not.
pub(super) fn sort(
    ids: &[Uuid],
    rows: &[PgRow],
    replica: i64,
) -> Result<(Vec<StoredAdvertisement>, Vec<AdvertisementId>), StoreError> {
    let mut changed: Vec<StoredAdvertisement> = Vec::new();
    for row in rows {
        let id = read::advertisement_id(row)?;
        if changed.last().is_none_or(|last| last.advertisement.id != id) {
            changed.push(read::stored(row, replica)?);
        }
        if let (Some(last), Some(reservation)) = (changed.last_mut(), read::reservation(row, 11)?) {
            last.reservations.push(reservation);
        }
    }
    let there = |id: &AdvertisementId| changed.binary_search_by_key(id, |stored| stored.advertisement.id).is_ok();
    let gone = ids.iter().map(|id| AdvertisementId::from_bytes(id.into_bytes())).filter(|id| !there(id)).collect();
    Ok((changed, gone))
}
