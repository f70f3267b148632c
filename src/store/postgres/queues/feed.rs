//! Change feed of the queues; see `cursor.rs`.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::types::Uuid;
use sqlx::{Executor, Row};

use crate::domain::id::{MatchId, TicketId};
use crate::store::postgres::connection::{ConnectionSlot, query_within, to_store_error};
use crate::store::postgres::cursor::{
    CHANGES_PER_READ_MAX, FeedCursor, FeedRead, POLL_INTERVAL, READ_TIMEOUT, SNAPSHOT_TIMEOUT,
};
use crate::store::postgres::listen::{self, ListenTask};
use crate::store::postgres::queues::{decode, statements as sql};
use crate::store::postgres::resolve_commit::UnresolvedCommits;
use crate::store::postgres::{Replica, open, statements};
use crate::store::queues::{QueueFeed, QueueFeedBatch};
use crate::store::unknown_rows::{RowKey, UnknownRows};
use crate::store::{StoreError, rows};

/// Change feed of this server.
#[derive(Debug)]
pub(super) struct QueueChangeFeed {
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

impl QueueChangeFeed {
    pub(super) fn new(
        options: &PgConnectOptions,
        replica_id: &Replica,
        unresolved_commits: UnresolvedCommits,
        unknown_rows: Arc<UnknownRows>,
    ) -> Self {
        Self {
            poll_connection: ConnectionSlot::new("queue feed", open::with_short_timeouts(options)),
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
    pub(super) async fn read_snapshot(&mut self) -> Result<QueueFeedBatch, StoreError> {
        let (slot, silos) = (&mut self.load_connection, &self.silos);
        let (oldest_running, now_ms): (i64, i64) =
            query_within!(slot, READ_TIMEOUT, "polling the feed", |connection| {
                sqlx::query_as(statements::READ_OLDEST_TRANSACTION).fetch_one(&mut *connection)
            })?;
        let fetched = query_within!(slot, SNAPSHOT_TIMEOUT, "reading a snapshot", |connection| {
            fetch_all_rows(connection, silos)
        })?;
        slot.close().await;
        let read_at = rows::from_ms(now_ms);
        self.cursor = Some(FeedCursor::new(oldest_running, read_at));
        self.unknown_rows.forget(|key| matches!(key, RowKey::Ticket(_) | RowKey::Match(_)));
        let mut batch = decode_rows(&fetched, &self.unknown_rows)?;
        (batch.read_at, batch.is_snapshot) = (read_at, true);
        Ok(batch)
    }

    /// Reads new changes; `None` if changes may have been missed.
    async fn read_changes(&mut self) -> Result<Option<QueueFeedBatch>, StoreError> {
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        let (slot, replica_id, silos) = (&mut self.poll_connection, self.replica_id, &self.silos);
        let (read_versions, unresolved_commits) = (cursor.read_versions(), self.unresolved_commits.list());
        let row: PgRow = query_within!(slot, READ_TIMEOUT, "polling the feed", |connection| {
            let query = sqlx::query(sql::READ_CHANGES).bind(cursor.low_watermark()).bind(&read_versions);
            let query = query.bind(replica_id).bind(CHANGES_PER_READ_MAX).bind(&unresolved_commits);
            query.fetch_one(&mut *connection)
        })?;
        let read = FeedRead::from_row(&row).map_err(to_store_error)?;
        if !cursor.can_continue(&read) {
            return Ok(None);
        }
        let keys = ChangedKeys::from_row(&row).map_err(to_store_error)?;
        let unknown_changes = row.try_get(UNKNOWN_CHANGES_COLUMN).map_err(to_store_error)?;
        self.unknown_rows.record_unknown_changes("queue_change", unknown_changes);
        let mut batch = QueueFeedBatch::default();
        if !keys.is_empty() {
            let fetched = query_within!(slot, READ_TIMEOUT, "polling the feed", |connection| {
                fetch_changed_rows(connection, &keys, silos)
            })?;
            self.unknown_rows.forget(|key| keys.contains(key));
            batch = decode_rows(&fetched, &self.unknown_rows)?;
            keys.mark_removed(&mut batch);
        }
        batch.read_at = read.read_at;
        batch.has_more = cursor.advance(read);
        Ok(Some(batch))
    }
}

#[async_trait]
impl QueueFeed for QueueChangeFeed {
    async fn wait_for_changes(&mut self) {
        let listen_task =
            self.listen_task.get_or_insert_with(|| ListenTask::start(&self.listen_options, listen::QUEUE_CHANNEL));
        listen_task.wait(POLL_INTERVAL).await;
    }

    async fn read_batch(&mut self) -> Result<QueueFeedBatch, StoreError> {
        match self.read_changes().await? {
            Some(batch) => Ok(batch),
            None => self.read_snapshot().await,
        }
    }
}

/// Column of `READ_CHANGES` with the number of changes of an unknown kind.
const UNKNOWN_CHANGES_COLUMN: usize = 6;

/// Keys of the changed rows.
struct ChangedKeys {
    ticket_ids: Vec<Uuid>,
    match_ids: Vec<Uuid>,
    rated_users: Vec<Uuid>,
}

impl ChangedKeys {
    /// Decodes the columns of `READ_CHANGES` after those of [`FeedRead`].
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self { ticket_ids: row.try_get(3)?, match_ids: row.try_get(4)?, rated_users: row.try_get(5)? })
    }

    fn is_empty(&self) -> bool {
        self.ticket_ids.is_empty() && self.match_ids.is_empty() && self.rated_users.is_empty()
    }

    fn contains(&self, key: &RowKey) -> bool {
        match key {
            RowKey::Ticket(id) => self.ticket_ids.contains(&Uuid::from_bytes(*id.as_bytes())),
            RowKey::Match(id) => self.match_ids.contains(&Uuid::from_bytes(*id.as_bytes())),
            RowKey::Advertisement(_) | RowKey::Result(_) => false,
        }
    }

    /// Adds the ids without a row, or with a row of a newer server, as removed, in id order. The rows found must be in id order.
    fn mark_removed(self, batch: &mut QueueFeedBatch) {
        let tickets = self.ticket_ids.into_iter().map(|id| TicketId::from_bytes(id.into_bytes()));
        batch.removed_tickets =
            tickets.filter(|id| batch.tickets.binary_search_by_key(id, |stored| stored.ticket.id).is_err()).collect();
        batch.removed_tickets.sort_unstable();
        let matches = self.match_ids.into_iter().map(|id| MatchId::from_bytes(id.into_bytes()));
        batch.removed_matches =
            matches.filter(|id| batch.matches.binary_search_by_key(id, |found| found.id).is_err()).collect();
        batch.removed_matches.sort_unstable();
    }
}

/// Rows of tickets, matches and ratings, from one snapshot.
type FetchedRows = [Vec<PgRow>; 3];

async fn fetch_changed_rows(
    connection: &mut PgConnection,
    keys: &ChangedKeys,
    silos: &Option<Vec<i64>>,
) -> Result<FetchedRows, sqlx::Error> {
    connection.execute(sql::BEGIN_SNAPSHOT_READ).await?;
    let tickets = sqlx::query(sql::READ_TICKETS).bind(&keys.ticket_ids).bind(silos).fetch_all(&mut *connection).await?;
    let matches = sqlx::query(sql::READ_MATCHES).bind(&keys.match_ids).bind(silos).fetch_all(&mut *connection).await?;
    let ratings = if keys.rated_users.is_empty() {
        Vec::new()
    } else {
        sqlx::query(sql::READ_RATINGS).bind(&keys.rated_users).fetch_all(&mut *connection).await?
    };
    connection.execute("commit").await?;
    Ok([tickets, matches, ratings])
}

async fn fetch_all_rows(connection: &mut PgConnection, silos: &Option<Vec<i64>>) -> Result<FetchedRows, sqlx::Error> {
    connection.execute(sql::BEGIN_SNAPSHOT_READ).await?;
    let tickets = sqlx::query(sql::LOAD_TICKETS).bind(silos).fetch_all(&mut *connection).await?;
    let matches = sqlx::query(sql::LOAD_MATCHES).bind(silos).fetch_all(&mut *connection).await?;
    let ratings = sqlx::query(sql::LOAD_RATINGS).fetch_all(&mut *connection).await?;
    connection.execute("commit").await?;
    Ok([tickets, matches, ratings])
}

/// Decodes rows, without those of a newer server.
fn decode_rows(
    [tickets, matches, ratings]: &FetchedRows,
    unknown_rows: &UnknownRows,
) -> Result<QueueFeedBatch, StoreError> {
    let ticket = |row| unknown_rows.filter(decode::ticket_key(row)?, decode::decode_ticket(row));
    let match_ = |row| unknown_rows.filter(decode::match_key(row)?, decode::decode_match(row));
    Ok(QueueFeedBatch {
        tickets: tickets.iter().filter_map(|row| ticket(row).transpose()).collect::<Result<_, _>>()?,
        matches: matches.iter().filter_map(|row| match_(row).transpose()).collect::<Result<_, _>>()?,
        ratings: ratings.iter().map(decode::decode_rating).collect::<Result<_, _>>()?,
        ..QueueFeedBatch::default()
    })
}
