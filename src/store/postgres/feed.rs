//! Reads what other servers change, by transaction and not by sequence number, so that none can be skipped; `mark.rs` says
//! how.

use std::collections::HashMap;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::types::Uuid;
use tokio_stream::StreamExt;

use crate::domain::id::{AdvertisementId, BuildIdHasher};
use crate::store::postgres::connection::{ConnectionSlot, ask, to_store_error};
use crate::store::postgres::cursor::{
    CHANGES_PER_READ_MAX, FeedCursor, FeedRead, POLL_INTERVAL, READ_TIMEOUT, SNAPSHOT_TIMEOUT,
};
use crate::store::postgres::listen::{self, ListenTask};
use crate::store::postgres::resolve_commit::UnresolvedCommits;
use crate::store::postgres::{Replica, copy_decode, decode, open, statements as sql};
use crate::store::{AdvertFeed, FeedBatch, Reservation, StoreError, StoredAdvertisement, rows};

/// Rows that are read together.
const DECODE_CHUNK_ROWS: usize = 2_000;

/// One server's reading.
#[derive(Debug)]
pub(super) struct AdvertChangeFeed {
    poll_connection: ConnectionSlot,
    load_connection: ConnectionSlot,
    listen_task: Option<ListenTask>,
    listen_options: PgConnectOptions,
    replica_id: i64,
    silos: Option<Vec<i64>>,
    unresolved_commits: UnresolvedCommits,
    /// `None` before everything has been read.
    cursor: Option<FeedCursor>,
}

impl AdvertChangeFeed {
    pub(super) fn new(options: &PgConnectOptions, replica: &Replica, unsettled: UnresolvedCommits) -> Self {
        Self {
            poll_connection: ConnectionSlot::new("feed", open::with_short_timeouts(options)),
            load_connection: ConnectionSlot::new("load", open::with_long_timeout(options)),
            listen_task: None,
            listen_options: open::with_short_timeouts(options),
            replica_id: replica.id.cast_signed(),
            silos: replica.silo_ids(),
            unresolved_commits: unsettled,
            cursor: None,
        }
    }

    /// Everything. The mark is older than what is read, so what is committed meanwhile is read again.
    async fn read_snapshot(&mut self) -> Result<FeedBatch, StoreError> {
        let line = &mut self.load_connection;
        let (mark, at): (i64, i64) =
            ask!(line, READ_TIMEOUT, "a look", |connection| sqlx::query_as(sql::READ_OLDEST_TRANSACTION)
                .fetch_one(&mut *connection))?;
        let (copy, replica) = (sql::copy_advertisements_sql(self.silos.as_deref()), self.replica_id);
        let readings = ask!(line, SNAPSHOT_TIMEOUT, "reading everything", |connection| async {
            let mut readings = Vec::new();
            let mut rows = Vec::new();
            let mut stream = connection.copy_out_raw(&copy).await?;
            // Reading a row takes longer than receiving it: others do that meanwhile.
            while let Some(row) = stream.try_next().await? {
                rows.push(row);
                if rows.len() == DECODE_CHUNK_ROWS {
                    let rows = std::mem::replace(&mut rows, Vec::with_capacity(DECODE_CHUNK_ROWS));
                    readings.push(tokio::task::spawn_blocking(move || decode_chunk(&rows, replica)));
                }
            }
            readings.push(tokio::task::spawn_blocking(move || decode_chunk(&rows, replica)));
            Ok::<_, sqlx::Error>(readings)
        })?;
        let mut changed = Vec::with_capacity(readings.len() * DECODE_CHUNK_ROWS);
        for reading in readings {
            let reading = reading.await.unwrap_or_else(|_| Err(StoreError::Unavailable("a reader died".into())));
            changed.extend(reading?);
        }
        let rows =
            ask!(line, SNAPSHOT_TIMEOUT, "reading everything", |connection| sqlx::query(sql::LOAD_RESERVATIONS)
                .fetch_all(&mut *connection))?;
        let mut seats: HashMap<AdvertisementId, Vec<Reservation>, BuildIdHasher> = HashMap::default();
        for row in &rows {
            let Some(reservation) = decode::decode_reservation(row, 0)? else { continue };
            seats.entry(reservation.advertisement_id).or_default().push(reservation);
        }
        attach_reservations(&mut changed, seats);
        let at = rows::from_ms(at);
        self.cursor = Some(FeedCursor::new(mark, at));
        Ok(FeedBatch { read_at: at, is_snapshot: true, has_more: false, changed, removed: Vec::new() })
    }

    /// What is new, or `None` when that cannot be known any more.
    async fn read_changes(&mut self, also: &[AdvertisementId]) -> Result<Option<FeedBatch>, StoreError> {
        let Some(place) = &mut self.cursor else { return Ok(None) };
        let (line, replica) = (&mut self.poll_connection, self.replica_id);
        let known = place.read_versions();
        let unsettled = self.unresolved_commits.list();
        let ids: Vec<Uuid> = also.iter().map(|id| Uuid::from_bytes(*id.as_bytes())).collect();
        let rows: Vec<PgRow> = ask!(line, READ_TIMEOUT, "a look", |connection| {
            let look = sqlx::query(sql::READ_CHANGES)
                .bind(place.low_watermark())
                .bind(&known)
                .bind(replica)
                .bind(CHANGES_PER_READ_MAX);
            look.bind(&unsettled).bind(&ids).bind(&self.silos).fetch_all(&mut *connection)
        })?;
        let (first, rows) = rows.split_first().ok_or_else(|| to_store_error(sqlx::Error::RowNotFound))?;
        let look = FeedRead::from_row(first).map_err(to_store_error)?;
        if !place.can_continue(&look) {
            return Ok(None);
        }
        let (changed, gone) = decode_changes(rows, ADVERTISEMENT_COLUMN, replica)?;
        let at = look.read_at;
        let more = place.advance(look);
        Ok(Some(FeedBatch { read_at: at, is_snapshot: false, has_more: more, changed, removed: gone }))
    }
}

#[async_trait]
impl AdvertFeed for AdvertChangeFeed {
    async fn wait_for_changes(&mut self) {
        let wake =
            self.listen_task.get_or_insert_with(|| ListenTask::start(&self.listen_options, listen::ADVERT_CHANNEL));
        wake.wait(POLL_INTERVAL).await;
    }

    async fn read_batch(&mut self, also: &[AdvertisementId]) -> Result<FeedBatch, StoreError> {
        match self.read_changes(also).await? {
            Some(news) => Ok(news),
            None => self.read_snapshot().await,
        }
    }
}

fn decode_chunk(messages: &[impl AsRef<[u8]>], replica: i64) -> Result<Vec<StoredAdvertisement>, StoreError> {
    let read = messages.iter().map(|message| copy_decode::decode_advertisement(message.as_ref(), replica));
    // The last one is the end of the copy.
    read.filter_map(Result::transpose).collect()
}

/// The column of `READ_CHANGES` with the id that was asked for, from which on they are those of an advertisement.
const ADVERTISEMENT_COLUMN: usize = 3;

/// What there is of what was asked for, with its seats, and what there is not; both in the order of ids. Columns of an
/// advertisement begin at `first`, and those of a reservation follow them.
pub(super) fn decode_changes(
    rows: &[PgRow],
    first: usize,
    replica: i64,
) -> Result<(Vec<StoredAdvertisement>, Vec<AdvertisementId>), StoreError> {
    let (mut changed, mut gone) = (Vec::with_capacity(rows.len()), Vec::new());
    let mut seats: HashMap<AdvertisementId, Vec<Reservation>, BuildIdHasher> = HashMap::default();
    for row in rows {
        let id = decode::decode_advertisement_id(row, first)?;
        let reservation = decode::decode_reservation(row, first + decode::ADVERTISEMENT_COLUMN_COUNT)?;
        if reservation.is_none() || !seats.contains_key(&id) {
            match decode::decode_advertisement(row, first, replica)? {
                Some(stored) => changed.push(stored),
                None => gone.push(id),
            }
        }
        if let Some(reservation) = reservation {
            seats.entry(id).or_default().push(reservation);
        }
    }
    attach_reservations(&mut changed, seats);
    changed.sort_unstable_by_key(|stored| stored.advertisement.id);
    gone.sort_unstable();
    Ok((changed, gone))
}

/// Gives each its seats, in the order of ids.
fn attach_reservations(
    all: &mut [StoredAdvertisement],
    mut seats: HashMap<AdvertisementId, Vec<Reservation>, BuildIdHasher>,
) {
    if seats.is_empty() {
        return;
    }
    for stored in all {
        stored.reservations = seats.remove(&stored.advertisement.id).unwrap_or_default();
        stored.reservations.sort_unstable_by_key(|reservation| reservation.id);
    }
}
