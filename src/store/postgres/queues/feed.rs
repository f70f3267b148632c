//! Reads what other servers change in the queues; `mark.rs` says how none of it is skipped.

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::types::Uuid;
use sqlx::{Executor, Row};

use crate::domain::id::{MatchId, TicketId};
use crate::store::postgres::connection::{ConnectionSlot, ask, to_store_error};
use crate::store::postgres::cursor::{
    CHANGES_PER_READ_MAX, FeedCursor, FeedRead, POLL_INTERVAL, READ_TIMEOUT, SNAPSHOT_TIMEOUT,
};
use crate::store::postgres::listen::{self, ListenTask};
use crate::store::postgres::queues::{decode, statements as sql};
use crate::store::postgres::resolve_commit::UnresolvedCommits;
use crate::store::postgres::{Replica, open, statements};
use crate::store::queues::{QueueFeed, QueueFeedBatch};
use crate::store::{StoreError, rows};

/// One server's reading.
#[derive(Debug)]
pub(super) struct QueueChangeFeed {
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

impl QueueChangeFeed {
    pub(super) fn new(options: &PgConnectOptions, replica: &Replica, unsettled: UnresolvedCommits) -> Self {
        Self {
            poll_connection: ConnectionSlot::new("queue feed", open::with_short_timeouts(options)),
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
    pub(super) async fn read_snapshot(&mut self) -> Result<QueueFeedBatch, StoreError> {
        let (line, silos) = (&mut self.load_connection, &self.silos);
        let (mark, at): (i64, i64) =
            ask!(line, READ_TIMEOUT, "a look", |connection| sqlx::query_as(statements::READ_OLDEST_TRANSACTION)
                .fetch_one(&mut *connection))?;
        let at = rows::from_ms(at);
        let read = ask!(line, SNAPSHOT_TIMEOUT, "reading everything", |connection| fetch_all_rows(connection, silos))?;
        line.close().await;
        self.cursor = Some(FeedCursor::new(mark, at));
        let mut news = decode_rows(&read)?;
        (news.read_at, news.is_snapshot) = (at, true);
        Ok(news)
    }

    /// What is new, or `None` when that cannot be known any more.
    async fn read_changes(&mut self) -> Result<Option<QueueFeedBatch>, StoreError> {
        let Some(mark) = &mut self.cursor else { return Ok(None) };
        let (line, replica, silos) = (&mut self.poll_connection, self.replica_id, &self.silos);
        let (known, unsettled) = (mark.read_versions(), self.unresolved_commits.list());
        let row: PgRow = ask!(line, READ_TIMEOUT, "a look", |connection| {
            let look = sqlx::query(sql::READ_CHANGES)
                .bind(mark.low_watermark())
                .bind(&known)
                .bind(replica)
                .bind(CHANGES_PER_READ_MAX);
            look.bind(&unsettled).fetch_one(&mut *connection)
        })?;
        let look = FeedRead::from_row(&row).map_err(to_store_error)?;
        if !mark.can_continue(&look) {
            return Ok(None);
        }
        let named = ChangedKeys::from_row(&row).map_err(to_store_error)?;
        let mut news = QueueFeedBatch::default();
        if !named.is_empty() {
            let read = ask!(line, READ_TIMEOUT, "a look", |connection| fetch_changed_rows(connection, &named, silos))?;
            news = decode_rows(&read)?;
            named.mark_removed(&mut news);
        }
        news.read_at = look.read_at;
        news.has_more = mark.advance(look);
        Ok(Some(news))
    }
}

#[async_trait]
impl QueueFeed for QueueChangeFeed {
    async fn wait_for_changes(&mut self) {
        let wake =
            self.listen_task.get_or_insert_with(|| ListenTask::start(&self.listen_options, listen::QUEUE_CHANNEL));
        wake.wait(POLL_INTERVAL).await;
    }

    async fn read_batch(&mut self) -> Result<QueueFeedBatch, StoreError> {
        match self.read_changes().await? {
            Some(news) => Ok(news),
            None => self.read_snapshot().await,
        }
    }
}

/// What changes have touched.
struct ChangedKeys {
    ticket_ids: Vec<Uuid>,
    match_ids: Vec<Uuid>,
    rated_users: Vec<Uuid>,
}

impl ChangedKeys {
    /// The columns of `READ_CHANGES` after those of the look.
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self { ticket_ids: row.try_get(3)?, match_ids: row.try_get(4)?, rated_users: row.try_get(5)? })
    }

    fn is_empty(&self) -> bool {
        self.ticket_ids.is_empty() && self.match_ids.is_empty() && self.rated_users.is_empty()
    }

    /// Says of what was named and not found that it is gone; in the order of ids, as is what was found.
    fn mark_removed(self, news: &mut QueueFeedBatch) {
        let tickets = self.ticket_ids.into_iter().map(|id| TicketId::from_bytes(id.into_bytes()));
        news.removed_tickets =
            tickets.filter(|id| news.tickets.binary_search_by_key(id, |stored| stored.ticket.id).is_err()).collect();
        news.removed_tickets.sort_unstable();
        let matches = self.match_ids.into_iter().map(|id| MatchId::from_bytes(id.into_bytes()));
        news.removed_matches =
            matches.filter(|id| news.matches.binary_search_by_key(id, |play| play.id).is_err()).collect();
        news.removed_matches.sort_unstable();
    }
}

/// Tickets, matches and ratings, of one moment.
type FetchedRows = [Vec<PgRow>; 3];

async fn fetch_changed_rows(
    connection: &mut PgConnection,
    named: &ChangedKeys,
    silos: &Option<Vec<i64>>,
) -> Result<FetchedRows, sqlx::Error> {
    connection.execute(sql::BEGIN_SNAPSHOT_READ).await?;
    let tickets =
        sqlx::query(sql::READ_TICKETS).bind(&named.ticket_ids).bind(silos).fetch_all(&mut *connection).await?;
    let matches = sqlx::query(sql::READ_MATCHES).bind(&named.match_ids).bind(silos).fetch_all(&mut *connection).await?;
    let ratings = match named.rated_users.is_empty() {
        true => Vec::new(),
        false => sqlx::query(sql::READ_RATINGS).bind(&named.rated_users).fetch_all(&mut *connection).await?,
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

fn decode_rows([tickets, matches, ratings]: &FetchedRows) -> Result<QueueFeedBatch, StoreError> {
    Ok(QueueFeedBatch {
        tickets: tickets.iter().map(decode::decode_ticket).collect::<Result<_, _>>()?,
        matches: matches.iter().map(decode::decode_match).collect::<Result<_, _>>()?,
        ratings: ratings.iter().map(decode::decode_rating).collect::<Result<_, _>>()?,
        ..QueueFeedBatch::default()
    })
}
