//! Tickets, matches and ratings of the change feed: their statements and decoding.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::Uuid;
use sqlx::{Executor, Row};

use crate::domain::id::{MatchId, TicketId, UserKey};
use crate::store::error::StoreError;
use crate::store::postgres::connection::change_feed::{ChangeFeed, FeedBatchHeader, FeedPosition, FeedSource};
use crate::store::postgres::connection::cursor::{READ_TIMEOUT, SNAPSHOT_TIMEOUT};
use crate::store::postgres::connection::listen;
use crate::store::postgres::connection::slot::{ConnectionSlot, query_within, to_store_error};
use crate::store::postgres::queues::{decode, rating_statements, statements as sql};
use crate::store::postgres::replica_identity::FireteamReplica;
use crate::store::queues::{QueueFeed, QueueFeedBatch, RatingRow};
use crate::store::unknown_rows::{RowKey, UnknownRows};

/// Queues of the silos that this server loads.
#[derive(Debug)]
pub(super) struct QueueFeedSource {
    silos: Option<Vec<i64>>,
    unknown_rows: Arc<UnknownRows>,
}

impl QueueFeedSource {
    pub(super) fn new(replica: &FireteamReplica, unknown_rows: Arc<UnknownRows>) -> Self {
        Self { silos: replica.silo_ids(), unknown_rows }
    }
}

impl FeedSource for QueueFeedSource {
    type Output = QueueFeedBatch;

    const POLL_PURPOSE: &'static str = "queue feed";
    const CHANNEL: &'static str = listen::QUEUE_CHANNEL;

    async fn fetch_changes(
        &self,
        slot: &mut ConnectionSlot,
        position: FeedPosition,
        _: &[Uuid],
    ) -> Result<Vec<PgRow>, StoreError> {
        query_within!(slot, READ_TIMEOUT, "polling the feed", |connection| {
            position.bind_to(sqlx::query(sql::READ_KEYS_OF_CHANGES)).fetch_all(&mut *connection)
        })
    }

    async fn decode_changes(&self, slot: &mut ConnectionSlot, rows: Vec<PgRow>) -> Result<QueueFeedBatch, StoreError> {
        let row = rows.first().ok_or_else(|| to_store_error(sqlx::Error::RowNotFound))?;
        let keys = ChangedKeys::from_row(row).map_err(to_store_error)?;
        let unknown_changes = row.try_get(UNKNOWN_KIND_COUNT_COLUMN_INDEX).map_err(to_store_error)?;
        self.unknown_rows.log_unknown_feed_records("queue_change", unknown_changes);
        if keys.is_empty() {
            return Ok(QueueFeedBatch::default());
        }
        let timeout = if keys.needs_all_ratings() { SNAPSHOT_TIMEOUT } else { READ_TIMEOUT };
        let fetched = query_within!(slot, timeout, "polling the feed", |connection| {
            fetch_changed_rows(connection, &keys, &self.silos)
        })?;
        self.unknown_rows.forget_keys_where(|key| keys.contains(key));
        let mut batch = decode_rows(&fetched, &self.unknown_rows)?;
        batch.has_all_ratings_and_block_lists = keys.needs_all_ratings();
        keys.mark_removed(&mut batch);
        Ok(batch)
    }

    async fn read_all(&self, slot: &mut ConnectionSlot) -> Result<QueueFeedBatch, StoreError> {
        let fetched = query_within!(slot, SNAPSHOT_TIMEOUT, "reading a snapshot", |connection| {
            fetch_all_rows(connection, &self.silos)
        })?;
        slot.close().await;
        self.unknown_rows.forget_keys_where(|key| matches!(key, RowKey::Ticket(_) | RowKey::Match(_)));
        Ok(QueueFeedBatch { has_all_ratings_and_block_lists: true, ..decode_rows(&fetched, &self.unknown_rows)? })
    }

    fn set_batch_header(
        batch: &mut QueueFeedBatch,
        FeedBatchHeader { read_at, is_snapshot, has_more }: FeedBatchHeader,
    ) {
        (batch.read_at, batch.is_snapshot, batch.has_more) = (read_at, is_snapshot, has_more);
    }
}

#[async_trait]
impl QueueFeed for ChangeFeed<QueueFeedSource> {
    async fn wait_for_changes(&mut self) {
        self.wait().await;
    }

    async fn read_batch(&mut self) -> Result<QueueFeedBatch, StoreError> {
        self.read(&[]).await
    }
}

/// Column of `READ_KEYS_OF_CHANGES` with the number of changes of an unknown kind.
const UNKNOWN_KIND_COUNT_COLUMN_INDEX: usize = 6;

/// Keys of the changed rows.
struct ChangedKeys {
    ticket_ids: Vec<Uuid>,
    match_ids: Vec<Uuid>,
    users: Vec<Uuid>,
}

impl ChangedKeys {
    /// Decodes the columns of `READ_KEYS_OF_CHANGES` after those of `FeedReadHeader`.
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self { ticket_ids: row.try_get(3)?, match_ids: row.try_get(4)?, users: row.try_get(5)? })
    }

    fn is_empty(&self) -> bool {
        self.ticket_ids.is_empty() && self.match_ids.is_empty() && self.users.is_empty()
    }

    /// Whether users were erased whose keys the changes no longer have.
    fn needs_all_ratings(&self) -> bool {
        self.users.contains(&Uuid::nil())
    }

    fn contains(&self, key: &RowKey) -> bool {
        match key {
            RowKey::Ticket(id) => self.ticket_ids.contains(&Uuid::from_bytes(*id.as_bytes())),
            RowKey::Match(id) => self.match_ids.contains(&Uuid::from_bytes(*id.as_bytes())),
            RowKey::Advertisement(_) | RowKey::Result(_) => false,
        }
    }

    /// Adds the ids without a row, or with a row of a newer server, as removed, in id order. The rows found must be in
    /// id order.
    fn mark_removed(self, batch: &mut QueueFeedBatch) {
        let tickets = self.ticket_ids.into_iter().map(|id| TicketId::from_bytes(id.into_bytes()));
        batch.removed_tickets =
            tickets.filter(|id| batch.tickets.binary_search_by_key(id, |stored| stored.ticket.id).is_err()).collect();
        batch.removed_tickets.sort_unstable();
        let matches = self.match_ids.into_iter().map(|id| MatchId::from_bytes(id.into_bytes()));
        batch.removed_matches =
            matches.filter(|id| batch.matches.binary_search_by_key(id, |found| found.id).is_err()).collect();
        batch.removed_matches.sort_unstable();
        batch.fully_read_users = self.users.into_iter().map(|id| UserKey::from_bytes(id.into_bytes())).collect();
    }
}

/// Rows of tickets, matches, ratings and block lists, from one snapshot.
type FetchedRows = [Vec<PgRow>; 4];

async fn fetch_changed_rows(
    connection: &mut PgConnection,
    keys: &ChangedKeys,
    silos: &Option<Vec<i64>>,
) -> Result<FetchedRows, sqlx::Error> {
    connection.execute(sql::BEGIN_SNAPSHOT_READ).await?;
    let tickets = sqlx::query(sql::READ_TICKETS).bind(&keys.ticket_ids).bind(silos).fetch_all(&mut *connection).await?;
    let matches = sqlx::query(sql::READ_MATCHES).bind(&keys.match_ids).bind(silos).fetch_all(&mut *connection).await?;
    let mut ratings = Vec::new();
    if keys.needs_all_ratings() {
        for statement in rating_statements::LOAD_ALL_RATINGS {
            ratings.extend(sqlx::query(statement).fetch_all(&mut *connection).await?);
        }
    } else if !keys.users.is_empty() {
        for statement in rating_statements::READ_RATINGS {
            ratings.extend(sqlx::query(statement).bind(&keys.users).fetch_all(&mut *connection).await?);
        }
    }
    let block_lists = match (keys.needs_all_ratings(), keys.users.is_empty()) {
        (true, _) => sqlx::query(sql::LOAD_ALL_BLOCK_LISTS).fetch_all(&mut *connection).await?,
        (false, true) => Vec::new(),
        (false, false) => sqlx::query(sql::READ_BLOCK_LISTS).bind(&keys.users).fetch_all(&mut *connection).await?,
    };
    connection.execute("commit").await?;
    Ok([tickets, matches, ratings, block_lists])
}

async fn fetch_all_rows(connection: &mut PgConnection, silos: &Option<Vec<i64>>) -> Result<FetchedRows, sqlx::Error> {
    connection.execute(sql::BEGIN_SNAPSHOT_READ).await?;
    let tickets = sqlx::query(sql::LOAD_ALL_TICKETS).bind(silos).fetch_all(&mut *connection).await?;
    let matches = sqlx::query(sql::LOAD_ALL_MATCHES).bind(silos).fetch_all(&mut *connection).await?;
    let mut ratings = Vec::new();
    for statement in rating_statements::LOAD_ALL_RATINGS {
        ratings.extend(sqlx::query(statement).fetch_all(&mut *connection).await?);
    }
    let block_lists = sqlx::query(sql::LOAD_ALL_BLOCK_LISTS).fetch_all(&mut *connection).await?;
    connection.execute("commit").await?;
    Ok([tickets, matches, ratings, block_lists])
}

/// Decodes rows, without those of a newer server.
fn decode_rows(
    [tickets, matches, ratings, block_lists]: &FetchedRows,
    unknown_rows: &UnknownRows,
) -> Result<QueueFeedBatch, StoreError> {
    let ticket = |row| unknown_rows.none_if_unknown(decode::ticket_key(row)?, decode::decode_ticket(row));
    let match_ = |row| unknown_rows.none_if_unknown(decode::match_key(row)?, decode::decode_match(row));
    let mut ratings: Vec<RatingRow> = ratings.iter().map(decode::decode_rating).collect::<Result<_, _>>()?;
    ratings.sort_by_key(|row| (row.user, row.key));
    Ok(QueueFeedBatch {
        tickets: tickets.iter().filter_map(|row| ticket(row).transpose()).collect::<Result<_, _>>()?,
        matches: matches.iter().filter_map(|row| match_(row).transpose()).collect::<Result<_, _>>()?,
        ratings,
        block_lists: block_lists.iter().map(decode::decode_block_list).collect::<Result<_, _>>()?,
        ..QueueFeedBatch::default()
    })
}
