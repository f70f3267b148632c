//! Position of a change feed reader, shared by the feeds of advertisements and queues.
//!
//! Every transaction writes a row with its transaction id to `advertisement_change` or `queue_change`. Ids are assigned
//! when a transaction starts to write, so a small id can commit long after a large one. The cursor keeps a low
//! watermark: all transactions below it have ended, and their changes were read. Each read takes every change from the
//! watermark on that was not read before. Then it raises the watermark to the oldest transaction that was still running
//! (`pg_snapshot_xmin`). So a slow transaction delays no other change, and is not missed, however late it commits.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::domain::time::UnixMs;
use crate::store::rows;

/// Time limit of one read.
pub(in crate::store::postgres) const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Time limit of reading a snapshot.
pub(in crate::store::postgres) const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum number of changes per read; each is a transaction of at most 1,000 writes.
pub(in crate::store::postgres) const CHANGES_PER_READ_MAX: i64 = 16;

/// Longest gap between reads, milliseconds by the database's clock. A reader after a longer gap reads a snapshot.
/// `PURGE_CHANGES` keeps changes for twice as long.
const READ_GAP_MAX_MS: u64 = 300_000;

/// Maximum number of remembered changes above the watermark. Beyond it, a long transaction is holding the watermark,
/// and a snapshot is read instead.
const READ_AHEAD_MAX: usize = 16_384;

/// Position of a reader.
#[derive(Debug)]
pub(in crate::store::postgres) struct FeedCursor {
    /// Every transaction below this id has ended and been read.
    low_watermark: i64,
    /// Transactions above the watermark that were read.
    read_versions: BTreeSet<i64>,
    /// Time of the last read.
    last_read_at: UnixMs,
}

/// Header of a read: position and time, without the changes themselves.
pub(in crate::store::postgres) struct FeedReadHeader {
    /// Oldest transaction that was still running.
    oldest_running: i64,
    /// Time of the read, by the database's clock.
    pub(in crate::store::postgres) read_at: UnixMs,
    /// Transaction ids of the changes.
    versions: Vec<i64>,
}

impl FeedReadHeader {
    /// Decodes the first three columns of a row.
    pub(in crate::store::postgres) fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let versions: Option<Vec<i64>> = row.try_get(2)?;
        Ok(Self {
            oldest_running: row.try_get(0)?,
            read_at: rows::from_ms(row.try_get(1)?),
            versions: versions.unwrap_or_default(),
        })
    }

    /// Whether changes were read.
    pub(in crate::store::postgres) fn has_changes(&self) -> bool {
        !self.versions.is_empty()
    }
}

impl FeedCursor {
    /// Cursor after a snapshot; both values were read before the snapshot.
    pub(in crate::store::postgres) fn new(low_watermark: i64, last_read_at: UnixMs) -> Self {
        Self { low_watermark, read_versions: BTreeSet::new(), last_read_at }
    }

    /// Transaction id to read from.
    pub(in crate::store::postgres) fn low_watermark(&self) -> i64 {
        self.low_watermark
    }

    /// Transaction ids that were read above the watermark.
    pub(in crate::store::postgres) fn versions_read(&self) -> Vec<i64> {
        self.read_versions.iter().copied().collect()
    }

    /// Whether the reader can know that it missed no change.
    pub(in crate::store::postgres) fn can_continue(&self, read: &FeedReadHeader) -> bool {
        let gap_ms = read.read_at.ms_since(self.last_read_at);
        let skip_running = fail_point_skips_running_transactions();
        let can_continue = gap_ms <= READ_GAP_MAX_MS
            && (self.low_watermark <= read.oldest_running || skip_running)
            && self.read_versions.len() <= READ_AHEAD_MAX;
        if !can_continue {
            tracing::info!(gap_ms, "feed changes possibly missed; reading a snapshot");
        }
        can_continue
    }

    /// Records that all changes of a read were processed; after a failure they are read again. Returns whether more can
    /// be read at once.
    pub(in crate::store::postgres) fn advance(&mut self, read: FeedReadHeader) -> bool {
        let has_more = read.versions.len() == CHANGES_PER_READ_MAX as usize;
        self.read_versions.extend(read.versions);
        if !has_more {
            let skip_running = fail_point_skips_running_transactions();
            self.low_watermark = if skip_running {
                self.read_versions.last().map_or(self.low_watermark, |last| last + 1)
            } else {
                read.oldest_running
            };
            self.read_versions = self.read_versions.split_off(&self.low_watermark);
        }
        self.last_read_at = read.read_at;
        has_more
    }
}

/// Whether the fail point is on that does not wait for transactions that are still running.
fn fail_point_skips_running_transactions() -> bool {
    fail::fail_point!("skip_running_transactions", |_| true);
    false
}
