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
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a look may take.
pub(super) const LOOK_WITHIN: Duration = Duration::from_secs(2);

/// What reading everything may take.
pub(super) const ALL_WITHIN: Duration = Duration::from_secs(120);

/// Changes that one look takes; each is a transaction of a thousand changes at most.
pub(super) const CHANGES_MAX: i64 = 16;

/// A reader that has not looked for this long, by the database's clock, reads everything: `FORGET_CHANGES` forgets what is
/// twice as old.
const MISSED_AFTER_MS: u64 = 300_000;

/// Changes above the mark that may have been read; more, and something is holding the mark: read everything instead.
const READ_MAX: usize = 16_384;

/// How far a reader has come.
#[derive(Debug)]
pub(super) struct Mark {
    /// Every transaction below has ended and been read.
    mark: i64,
    /// Transactions from there on that have been read.
    read: BTreeSet<i64>,
    /// When it last looked.
    at: UnixMs,
}

/// What a look found, besides the changes themselves.
pub(super) struct Look {
    /// The oldest transaction that still ran.
    oldest: i64,
    /// When, by the database's clock.
    pub(super) at: UnixMs,
    /// The changes that it read.
    versions: Vec<i64>,
}

impl Look {
    /// The first three columns of a row.
    pub(super) fn of(row: &PgRow) -> Result<Self, sqlx::Error> {
        let versions: Option<Vec<i64>> = row.try_get(2)?;
        Ok(Self { oldest: row.try_get(0)?, at: rows::from_ms(row.try_get(1)?), versions: versions.unwrap_or_default() })
    }
}

impl Mark {
    /// As the database had it before everything was read.
    pub(super) fn new(mark: i64, at: UnixMs) -> Self {
        Self { mark, read: BTreeSet::new(), at }
    }

    /// Where to read on.
    pub(super) fn from(&self) -> i64 {
        self.mark
    }

    /// What has been read from there on.
    pub(super) fn known(&self) -> Vec<i64> {
        self.read.iter().copied().collect()
    }

    /// Whether a look can be sure to know what it has missed.
    pub(super) fn is_sure(&self, look: &Look) -> bool {
        let away_ms = look.at.since(self.at);
        let skips = mutant::is("feed_by_the_last_seen");
        let sure = away_ms <= MISSED_AFTER_MS && (self.mark <= look.oldest || skips) && self.read.len() <= READ_MAX;
        if !sure {
            tracing::info!(away_ms, "cannot be sure to have read every change: reading everything");
        }
        sure
    }

    /// Notes that all of a look has been read: had anything failed, it would have to be read again. Says whether there is
    /// more to read at once.
    pub(super) fn pass(&mut self, look: Look) -> bool {
        let more = look.versions.len() == CHANGES_MAX as usize;
        self.read.extend(look.versions);
        if !more {
            let skips = mutant::is("feed_by_the_last_seen");
            self.mark = if skips { self.read.last().map_or(self.mark, |last| last + 1) } else { look.oldest };
            self.read = self.read.split_off(&self.mark);
        }
        self.at = look.at;
        more
    }
}
