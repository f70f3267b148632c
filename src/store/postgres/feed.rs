//! Change feed of advertisements. Reads by transaction id, not by sequence number, so that no change is skipped; see
//! `cursor.rs`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::Row;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::types::Uuid;
use tokio_stream::StreamExt;

use crate::domain::id::{AdvertisementId, BuildIdHasher};
use crate::store::postgres::connection::{ConnectionSlot, query_within, to_store_error};
use crate::store::postgres::cursor::{
    CHANGES_PER_READ_MAX, FeedCursor, FeedRead, POLL_INTERVAL, READ_TIMEOUT, SNAPSHOT_TIMEOUT,
};
use crate::store::postgres::listen::{self, ListenTask};
use crate::store::postgres::resolve_commit::UnresolvedCommits;
use crate::store::postgres::{Replica, copy_decode, decode, open, statements as sql};
use crate::store::unknown_rows::{RowKey, UnknownRows};
use crate::store::{AdvertFeed, FeedBatch, Reservation, StoreError, StoredAdvertisement, rows};

/// Number of rows that are decoded as one unit of work.
const DECODE_CHUNK_ROWS: usize = 2_000;

/// Change feed of this server.
#[derive(Debug)]
pub(super) struct AdvertChangeFeed {
    poll_connection: ConnectionSlot,
    load_connection: ConnectionSlot,
    listen_task: Option<ListenTask>,
    listen_options: PgConnectOptions,
    replica_id: i64,
    silos: Option<Vec<i64>>,
    unresolved_commits: UnresolvedCommits,
    unknown_rows: Arc<UnknownRows>,
    /// `None` until a snapshot was read.
    cursor: Option<FeedCursor>,
}

impl AdvertChangeFeed {
    pub(super) fn new(
        options: &PgConnectOptions,
        replica_id: &Replica,
        unresolved_commits: UnresolvedCommits,
        unknown_rows: Arc<UnknownRows>,
    ) -> Self {
        Self {
            poll_connection: ConnectionSlot::new("advert feed", open::with_short_timeouts(options)),
            load_connection: ConnectionSlot::new("load", open::with_long_timeout(options)),
            listen_task: None,
            listen_options: open::with_short_timeouts(options),
            replica_id: replica_id.id.cast_signed(),
            silos: replica_id.silo_ids(),
            unresolved_commits,
            unknown_rows,
            cursor: None,
        }
    }

    /// Reads a snapshot. The cursor is older than the snapshot, so changes committed meanwhile are read again.
    async fn read_snapshot(&mut self) -> Result<FeedBatch, StoreError> {
        let slot = &mut self.load_connection;
        let (oldest_running, now_ms): (i64, i64) =
            query_within!(slot, READ_TIMEOUT, "polling the feed", |connection| {
                sqlx::query_as(sql::READ_OLDEST_TRANSACTION).fetch_one(&mut *connection)
            })?;
        let (copy, replica_id) = (sql::copy_advertisements_sql(self.silos.as_deref()), self.replica_id);
        let unknown_rows = &self.unknown_rows;
        unknown_rows.forget(|key| matches!(key, RowKey::Advertisement(_)));
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
            sqlx::query(sql::LOAD_RESERVATIONS).fetch_all(&mut *connection)
        })?;
        let mut reservations: HashMap<AdvertisementId, Vec<Reservation>, BuildIdHasher> = HashMap::default();
        for row in &rows {
            let key = RowKey::Advertisement(decode::decode_advertisement_id(row, 1)?);
            let Some(Some(reservation)) = unknown_rows.filter(key, decode::decode_reservation(row, 0))? else {
                continue;
            };
            reservations.entry(reservation.advertisement_id).or_default().push(reservation);
        }
        // An advertisement with an unknown reservation may be full.
        changed.retain(|stored: &StoredAdvertisement| {
            !unknown_rows.contains(RowKey::Advertisement(stored.advertisement.id))
        });
        attach_reservations(&mut changed, reservations);
        let read_at = rows::from_ms(now_ms);
        self.cursor = Some(FeedCursor::new(oldest_running, read_at));
        Ok(FeedBatch { read_at, is_snapshot: true, has_more: false, changed, removed: Vec::new() })
    }

    /// Reads new changes; `None` if changes may have been missed.
    async fn read_changes(&mut self, also: &[AdvertisementId]) -> Result<Option<FeedBatch>, StoreError> {
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        let (slot, replica_id) = (&mut self.poll_connection, self.replica_id);
        let read_versions = cursor.read_versions();
        let unresolved_commits = self.unresolved_commits.list();
        let ids: Vec<Uuid> = also.iter().map(|id| Uuid::from_bytes(*id.as_bytes())).collect();
        let rows: Vec<PgRow> = query_within!(slot, READ_TIMEOUT, "polling the feed", |connection| {
            let query = sqlx::query(sql::READ_CHANGES).bind(cursor.low_watermark()).bind(&read_versions);
            let query = query.bind(replica_id).bind(CHANGES_PER_READ_MAX).bind(&unresolved_commits);
            query.bind(&ids).bind(&self.silos).fetch_all(&mut *connection)
        })?;
        let (first, rows) = rows.split_first().ok_or_else(|| to_store_error(sqlx::Error::RowNotFound))?;
        let read = FeedRead::from_row(first).map_err(to_store_error)?;
        let unknown_changes = first.try_get(ADVERTISEMENT_COLUMN + 1).map_err(to_store_error)?;
        self.unknown_rows.record_unknown_changes("advertisement_change", unknown_changes);
        if !cursor.can_continue(&read) {
            return Ok(None);
        }
        let (changed, removed) = decode_changes(rows, ADVERTISEMENT_COLUMN, replica_id, &self.unknown_rows)?;
        let read_at = read.read_at;
        let has_more = cursor.advance(read);
        Ok(Some(FeedBatch { read_at, is_snapshot: false, has_more, changed, removed }))
    }
}

#[async_trait]
impl AdvertFeed for AdvertChangeFeed {
    async fn wait_for_changes(&mut self) {
        let listen_task =
            self.listen_task.get_or_insert_with(|| ListenTask::start(&self.listen_options, listen::ADVERT_CHANNEL));
        listen_task.wait(POLL_INTERVAL).await;
    }

    async fn read_batch(&mut self, also: &[AdvertisementId]) -> Result<FeedBatch, StoreError> {
        match self.read_changes(also).await? {
            Some(batch) => Ok(batch),
            None => self.read_snapshot().await,
        }
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

/// Column of `READ_CHANGES` with the advertisement id; the advertisement's other columns follow.
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
    unknown_rows.forget(|key| matches!(key, RowKey::Advertisement(id) if ids.contains(id)));
    let mut changed = Vec::with_capacity(rows.len());
    let mut reservations: HashMap<AdvertisementId, Vec<Reservation>, BuildIdHasher> = HashMap::default();
    for row in rows {
        let id = decode::decode_advertisement_id(row, first)?;
        let key = RowKey::Advertisement(id);
        let reservation = decode::decode_reservation(row, first + decode::ADVERTISEMENT_COLUMN_COUNT);
        let Some(reservation) = unknown_rows.filter(key, reservation)? else { continue };
        if reservation.is_none() || !reservations.contains_key(&id) {
            let decoded = decode::decode_advertisement(row, first, replica_id);
            if let Some(Some(stored)) = unknown_rows.filter(key, decoded)? {
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
