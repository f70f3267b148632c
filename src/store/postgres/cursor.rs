//! How far a reader of changes has come: what `feed.rs` and the feed of queues have in common.
//!
//! Every transaction leaves a row in `change`, or in `queue_change`, with its own number. Numbers are given out when a
//! transaction begins to write, so a small one may be committed long after a large one. A reader keeps a mark: all
//! transactions below it have ended, and what they did has been read. At each look it takes every change from the mark on
//! that it has not had yet, and moves the mark up to the oldest transaction that was still running then
//! (`pg_snapshot_xmin`). So a slow transaction delays nobody's news, and is never missed, however late it commits.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;

use crate::domain::time::UnixMs;
use crate::store::{mutant, rows};

/// How long to wait for the bell before looking anyway.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// What a look may take.
pub(super) const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// What reading everything may take.
pub(super) const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(120);

/// Changes that one look takes; each is a transaction of a thousand changes at most.
pub(super) const CHANGES_PER_READ_MAX: i64 = 16;

/// A reader that has not looked for this long, by the database's clock, reads everything: `FORGET_CHANGES` forgets what is
/// twice as old.
const READ_GAP_MAX_MS: u64 = 300_000;

/// Changes above the mark that may have been read; more, and something is holding the mark: read everything instead.
const READ_AHEAD_MAX: usize = 16_384;

/// How far a reader has come.
#[derive(Debug)]
pub(super) struct FeedCursor {
    /// Every transaction below has ended and been read.
    low_watermark: i64,
    /// Transactions from there on that have been read.
    read_versions: BTreeSet<i64>,
    /// When it last looked.
    last_read_at: UnixMs,
}

/// What a look found, besides the changes themselves.
pub(super) struct FeedRead {
    /// The oldest transaction that still ran.
    oldest_running: i64,
    /// When, by the database's clock.
    pub(super) read_at: UnixMs,
    /// The changes that it read.
    versions: Vec<i64>,
}

impl FeedRead {
    /// The first three columns of a row.
    pub(super) fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let versions: Option<Vec<i64>> = row.try_get(2)?;
        Ok(Self {
            oldest_running: row.try_get(0)?,
            read_at: rows::from_ms(row.try_get(1)?),
            versions: versions.unwrap_or_default(),
        })
    }
}

impl FeedCursor {
    /// As the database had it before everything was read.
    pub(super) fn new(mark: i64, at: UnixMs) -> Self {
        Self { low_watermark: mark, read_versions: BTreeSet::new(), last_read_at: at }
    }

    /// Where to read on.
    pub(super) fn low_watermark(&self) -> i64 {
        self.low_watermark
    }

    /// What has been read from there on.
    pub(super) fn read_versions(&self) -> Vec<i64> {
        self.read_versions.iter().copied().collect()
    }

    /// Whether a look can be sure to know what it has missed.
    pub(super) fn can_continue(&self, look: &FeedRead) -> bool {
        let away_ms = look.read_at.ms_since(self.last_read_at);
        let skips = mutant::is("feed_by_the_last_seen");
        let sure = away_ms <= READ_GAP_MAX_MS
            && (self.low_watermark <= look.oldest_running || skips)
            && self.read_versions.len() <= READ_AHEAD_MAX;
        if !sure {
            tracing::info!(away_ms, "cannot be sure to have read every change: reading everything");
        }
        sure
    }

    /// Notes that all of a look has been read: had anything failed, it would have to be read again. Says whether there is
    /// more to read at once.
    pub(super) fn advance(&mut self, look: FeedRead) -> bool {
        let more = look.versions.len() == CHANGES_PER_READ_MAX as usize;
        self.read_versions.extend(look.versions);
        if !more {
            let skips = mutant::is("feed_by_the_last_seen");
            self.low_watermark = if skips {
                self.read_versions.last().map_or(self.low_watermark, |last| last + 1)
            } else {
                look.oldest_running
            };
            self.read_versions = self.read_versions.split_off(&self.low_watermark);
        }
        self.last_read_at = look.read_at;
        more
    }
}
