//! Change feed of this server: reads other servers' changes, of advertisements or of queues.
//!
//! Reads by transaction id, not by sequence number, so that no change is skipped; see `cursor.rs`.

use std::future::Future;

use sqlx::Postgres;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::Query;
use sqlx::types::Uuid;
use tokio::time::Instant;

use crate::domain::time::UnixMs;
use crate::store::error::StoreError;
use crate::store::postgres::connection::cursor::{CHANGES_PER_READ_MAX, FeedCursor, FeedReadHeader, READ_TIMEOUT};
use crate::store::postgres::connection::feed_pacing::{FeedPacing, LastKnownChange, ReadResult};
use crate::store::postgres::connection::listen::ListenTask;
use crate::store::postgres::connection::open;
use crate::store::postgres::connection::slot::{ConnectionSlot, query_within, to_store_error};
use crate::store::postgres::connection::statements::READ_OLDEST_XID_AND_TIME;
use crate::store::postgres::connection::unresolved_commits::UnresolvedCommits;
use crate::store::postgres::replica_identity::FireteamReplica;
use crate::store::rows::from_ms;
use crate::supervisor::TaskSupervisor;

/// Rows that a change feed delivers, and how they are read.
pub(in crate::store::postgres) trait FeedSource: Send + Sync {
    /// Batch of rows.
    type Output: Send;

    /// Purpose of the connection that polls.
    const POLL_PURPOSE: &'static str;
    /// Channel of the notifications.
    const CHANNEL: &'static str;

    /// Reads the changes from `position` on, and the current state of the ids in `also`. The first row has the header.
    fn fetch_changes(
        &self,
        slot: &mut ConnectionSlot,
        position: FeedPosition,
        also: &[Uuid],
    ) -> impl Future<Output = Result<Vec<PgRow>, StoreError>> + Send;

    /// Decodes changes after the cursor has accepted them; may read further rows.
    fn decode_changes(
        &self,
        slot: &mut ConnectionSlot,
        changes: Vec<PgRow>,
    ) -> impl Future<Output = Result<Self::Output, StoreError>> + Send;

    /// Reads all rows from one snapshot.
    fn read_all(&self, slot: &mut ConnectionSlot) -> impl Future<Output = Result<Self::Output, StoreError>> + Send;

    /// Sets the header of a batch.
    fn set_batch_header(batch: &mut Self::Output, header: FeedBatchHeader);
}

/// Header of a batch, as in `FeedBatch` and `QueueFeedBatch`.
pub(in crate::store::postgres) struct FeedBatchHeader {
    pub(in crate::store::postgres) read_at: UnixMs,
    pub(in crate::store::postgres) is_snapshot: bool,
    pub(in crate::store::postgres) has_more: bool,
}

/// Position of a feed, as binds of the statement that reads its changes.
pub(in crate::store::postgres) struct FeedPosition {
    low_watermark: i64,
    read_versions: Vec<i64>,
    replica_id: i64,
    unresolved_commits: Vec<Uuid>,
}

impl FeedPosition {
    /// Binds `$1` to `$5`.
    pub(in crate::store::postgres) fn bind_to<'q>(
        self,
        query: Query<'q, Postgres, PgArguments>,
    ) -> Query<'q, Postgres, PgArguments> {
        let query = query.bind(self.low_watermark).bind(self.read_versions).bind(self.replica_id);
        query.bind(CHANGES_PER_READ_MAX).bind(self.unresolved_commits)
    }
}

/// Change feed of this server.
#[derive(Debug)]
pub(in crate::store::postgres) struct ChangeFeed<T> {
    source: T,
    poll_connection: ConnectionSlot,
    load_connection: ConnectionSlot,
    listen_task: Option<ListenTask>,
    listen_options: PgConnectOptions,
    supervisor: TaskSupervisor,
    replica_id: i64,
    unresolved_commits: UnresolvedCommits,
    pacing: FeedPacing,
    /// `None` until a snapshot was read.
    cursor: Option<FeedCursor>,
}

impl<T: FeedSource> ChangeFeed<T> {
    pub(in crate::store::postgres) fn new(
        rows: T,
        options: &PgConnectOptions,
        replica: &FireteamReplica,
        unresolved_commits: UnresolvedCommits,
        last_change: LastKnownChange,
        supervisor: &TaskSupervisor,
    ) -> Self {
        Self {
            source: rows,
            poll_connection: ConnectionSlot::new(T::POLL_PURPOSE, open::with_oltp_settings(options)),
            load_connection: ConnectionSlot::new("load", open::with_long_timeout(options)),
            listen_task: None,
            listen_options: open::with_oltp_settings(options),
            supervisor: supervisor.clone(),
            replica_id: replica.id.cast_signed(),
            unresolved_commits,
            pacing: FeedPacing::new(last_change),
            cursor: None,
        }
    }

    /// Waits until a change may be available: for a notification, or until the next read is due; see `feed_pacing.rs`.
    pub(in crate::store::postgres) async fn wait(&mut self) {
        let listen_task = self
            .listen_task
            .get_or_insert_with(|| ListenTask::start(&self.listen_options, T::CHANNEL, &self.supervisor));
        self.pacing.wait(listen_task.notified()).await;
    }

    /// Reads new changes; a snapshot if changes may have been missed.
    pub(in crate::store::postgres) async fn read(&mut self, also: &[Uuid]) -> Result<T::Output, StoreError> {
        let started_at = Instant::now();
        let (batch, result) = match self.read_changes(also).await {
            Ok(Some((batch, result))) => (Ok(batch), result),
            Ok(None) => (self.read_snapshot().await, ReadResult::NoChanges),
            Err(error) => (Err(error), ReadResult::Failed),
        };
        let result = if batch.is_ok() { result } else { ReadResult::Failed };
        self.pacing.record_read(started_at, result);
        batch
    }

    /// Reads a snapshot. The cursor is older than the snapshot, so changes committed meanwhile are read again.
    pub(in crate::store::postgres) async fn read_snapshot(&mut self) -> Result<T::Output, StoreError> {
        let slot = &mut self.load_connection;
        let (oldest_running, now_ms): (i64, i64) =
            query_within!(slot, READ_TIMEOUT, "polling the feed", |connection| {
                sqlx::query_as(READ_OLDEST_XID_AND_TIME).fetch_one(&mut *connection)
            })?;
        let mut batch = self.source.read_all(slot).await?;
        let read_at = from_ms(now_ms);
        self.cursor = Some(FeedCursor::new(oldest_running, read_at));
        T::set_batch_header(&mut batch, FeedBatchHeader { read_at, is_snapshot: true, has_more: false });
        Ok(batch)
    }

    /// Reads new changes, and says whether there were any; `None` if changes may have been missed.
    async fn read_changes(&mut self, also: &[Uuid]) -> Result<Option<(T::Output, ReadResult)>, StoreError> {
        let Some(cursor) = &mut self.cursor else { return Ok(None) };
        let slot = &mut self.poll_connection;
        let position = FeedPosition {
            low_watermark: cursor.low_watermark(),
            read_versions: cursor.versions_read(),
            replica_id: self.replica_id,
            unresolved_commits: self.unresolved_commits.list(),
        };
        let changes = self.source.fetch_changes(slot, position, also).await?;
        let first = changes.first().ok_or_else(|| to_store_error(sqlx::Error::RowNotFound))?;
        let read = FeedReadHeader::from_row(first).map_err(to_store_error)?;
        if !cursor.can_continue(&read) {
            return Ok(None);
        }
        let mut batch = self.source.decode_changes(slot, changes).await?;
        let read_at = read.read_at;
        let result = if read.has_changes() { ReadResult::Changes } else { ReadResult::NoChanges };
        let has_more = cursor.advance(read);
        T::set_batch_header(&mut batch, FeedBatchHeader { read_at, is_snapshot: false, has_more });
        Ok(Some((batch, result)))
    }
}
