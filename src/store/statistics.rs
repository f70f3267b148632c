//! Persistence of statistics: counts by hour, key and bucket. All servers of a store add to the same rows.

pub(super) mod count_rows;

use std::collections::BTreeMap;

use async_trait::async_trait;

use crate::domain::id::{RulesetHash, SetId};
use crate::domain::statistic::histogram::BucketCounts;
use crate::domain::statistic::{PartySizeClass, StatisticKey, StatisticKind};
use crate::domain::time::UnixMs;
use crate::store::error::StoreError;

/// Period of one row, milliseconds.
pub const STATISTICS_HOUR_MS: u64 = 60 * 60 * 1_000;

/// Retention of statistics, milliseconds: a week.
pub const STATISTICS_RETENTION_MS: u64 = 7 * 24 * STATISTICS_HOUR_MS;

/// Retention of the kinds that compare rulesets, milliseconds: 92 days, as of results.
pub const RULESET_STATISTICS_RETENTION_MS: u64 = 92 * 24 * STATISTICS_HOUR_MS;

/// Retention of the number of a server process's last batch, milliseconds.
pub const STATISTICS_WRITER_RETENTION_MS: u64 = 7 * 24 * STATISTICS_HOUR_MS;

/// Maximum increments of one batch: it takes a few milliseconds.
pub const STATISTICS_INCREMENTS_PER_BATCH_MAX: usize = 500;

/// Maximum rows that one batch purges from each table. While there are more, each further batch purges, too.
pub const STATISTICS_ROWS_PURGED_PER_BATCH_MAX: i64 = 10_000;

/// Maximum keys of one read.
pub const STATISTICS_KEYS_READ_MAX: usize = 4_096;

/// Maximum rows that one statement returns: the keys with all buckets.
pub(super) const STATISTICS_ROWS_READ_PER_STATEMENT_MAX: i64 = 100_000;

/// Hours that one statement reads. A week of a server's rows takes seconds, in which others must not wait.
pub(super) const STATISTICS_HOURS_READ_PER_STATEMENT_MAX: u64 = 3;

/// Values of one hour, key and bucket.
#[derive(Clone, Debug, PartialEq)]
pub struct StatisticIncrement {
    /// Start of the hour.
    pub hour_start: UnixMs,
    /// Key.
    pub key: StatisticKey,
    /// Bucket.
    pub bucket: usize,
    /// Number of values, at least 1.
    pub count: u64,
    /// Sum of the values.
    pub sum: f64,
}

/// Increments that are added at once.
#[derive(Clone, Debug, PartialEq)]
pub struct StatisticsBatch {
    /// Server process that counted them.
    pub writer: [u8; 16],
    /// Number of the batch, from 1, ascending. A batch whose number is not above the writer's last one changes nothing.
    pub number: u64,
    /// Increments in the order of their rows, so that servers that add to the same rows cannot deadlock; at most
    /// [`STATISTICS_INCREMENTS_PER_BATCH_MAX`]. Each row once.
    pub increments: Vec<StatisticIncrement>,
    /// Whether rows past their retention are purged afterwards, at most [`STATISTICS_ROWS_PURGED_PER_BATCH_MAX`] of each table.
    pub purges: bool,
    /// Time of the batch.
    pub now: UnixMs,
}

/// Rows to read and how to add them up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatisticsQuery {
    /// First hour.
    pub from: UnixMs,
    /// Hours from this time on do not count: rows from a clock that was wrong.
    pub until: UnixMs,
    /// Matchmaking set; `None` for all.
    pub set_id: Option<SetId>,
    /// Whether regions are separate.
    pub by_region: bool,
    /// Whether party sizes are separate.
    pub by_party_size: bool,
}

/// Totals since an hour.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatisticsTotals {
    /// Counts of each key, in order.
    pub counts: Vec<(StatisticKey, BucketCounts)>,
    /// Whether there are more than [`STATISTICS_KEYS_READ_MAX`] keys.
    pub truncated: bool,
}

/// Store of statistics.
#[async_trait]
pub trait StatisticsStore: Send + Sync + 'static {
    /// Adds a batch in one transaction. It may be repeated until it succeeds; it is then added once. Returns whether more rows
    /// than were purged are past their retention.
    async fn add_statistics(&self, batch: &StatisticsBatch) -> Result<bool, StoreError>;

    /// Totals of all servers. Other operations do not wait for them.
    async fn read_statistics(&self, query: &StatisticsQuery) -> Result<StatisticsTotals, StoreError>;
}

/// Columns of a key, as both databases store them.
pub(super) struct KeyColumns {
    pub(super) kind: i32,
    pub(super) set_id: i64,
    pub(super) region: String,
    pub(super) party_size: i32,
    pub(super) ruleset_hash: i64,
    pub(super) rule: String,
}

impl KeyColumns {
    pub(super) fn encode(key: &StatisticKey) -> Self {
        Self {
            kind: key.kind.number().into(),
            set_id: key.set_id.map_or(-1, |set_id| set_id.0.into()),
            region: key.region.to_string(),
            party_size: key.party_size.number().into(),
            ruleset_hash: key.ruleset_hash.map_or(0, |hash| hash.0.into()),
            rule: key.rule.to_string(),
        }
    }

    /// Key of a row; `None` for a row that a newer server wrote.
    pub(super) fn decode(self) -> Option<StatisticKey> {
        let hash = u32::try_from(self.ruleset_hash).ok()?;
        Some(StatisticKey {
            kind: StatisticKind::from_number(u8::try_from(self.kind).ok()?)?,
            set_id: u32::try_from(self.set_id).ok().map(SetId),
            region: self.region.into(),
            party_size: PartySizeClass::from_number(u8::try_from(self.party_size).ok()?)?,
            ruleset_hash: (hash != 0).then_some(RulesetHash(hash)),
            rule: self.rule.into(),
        })
    }
}

/// Adds up rows of keys and buckets, for the first [`STATISTICS_KEYS_READ_MAX`] keys.
#[derive(Default)]
pub(super) struct TotalsBuilder {
    totals: BTreeMap<StatisticKey, BucketCounts>,
    truncated: bool,
}

impl TotalsBuilder {
    /// Adds a row.
    pub(super) fn add(&mut self, key: StatisticKey, bucket: i64, count: i64, sum: f64) {
        let counts = self.totals.entry(key).or_insert_with_key(|key| BucketCounts::new(key.kind));
        counts.add_to_bucket(usize::try_from(bucket).unwrap_or(usize::MAX), u64::try_from(count).unwrap_or(0), sum);
        if STATISTICS_KEYS_READ_MAX < self.totals.len() {
            // The keys before it stay, so that it is left out of each further part.
            self.totals.pop_last();
            self.truncated = true;
        }
    }

    /// Ends a part of the period, of which a statement returned `row_count` rows in the order of their keys.
    pub(super) fn end_part(&mut self, row_count: usize) {
        self.truncated |= STATISTICS_ROWS_READ_PER_STATEMENT_MAX <= row_count as i64;
    }

    /// Totals of all parts.
    pub(super) fn finish(self) -> StatisticsTotals {
        StatisticsTotals { counts: self.totals.into_iter().collect(), truncated: self.truncated }
    }
}

impl StatisticsQuery {
    /// Parts of the period, one for each statement: its first hour, and the time before which its last hour begins.
    pub(super) fn parts(self) -> impl Iterator<Item = (UnixMs, UnixMs)> {
        const PART_MS: u64 = STATISTICS_HOURS_READ_PER_STATEMENT_MAX * STATISTICS_HOUR_MS;
        let part_count = self.until.ms_since(self.from).div_ceil(PART_MS);
        let part = move |from: UnixMs| (from, from.plus_ms(PART_MS).min(self.until));
        (0..part_count).map(move |number| part(self.from.plus_ms(number * PART_MS)))
    }
}

impl StatisticsBatch {
    /// Hours before this one are purged, of all kinds.
    pub(super) fn long_retention_cutoff(&self) -> UnixMs {
        self.first_hour_kept(RULESET_STATISTICS_RETENTION_MS)
    }

    /// Hours before this one are purged, except of the kinds that compare rulesets.
    pub(super) fn short_retention_cutoff(&self) -> UnixMs {
        self.first_hour_kept(STATISTICS_RETENTION_MS)
    }

    /// First hour of a period of this length, which a query includes.
    fn first_hour_kept(&self, period_ms: u64) -> UnixMs {
        UnixMs((self.now.0 - self.now.0 % STATISTICS_HOUR_MS).saturating_sub(period_ms))
    }

    /// Writers whose last batch was before this time are forgotten.
    pub(super) fn writer_cutoff(&self) -> UnixMs {
        UnixMs(self.now.0.saturating_sub(STATISTICS_WRITER_RETENTION_MS))
    }
}

/// Numbers of the kinds that are kept longer, for SQL.
pub(super) const LONG_KEPT_KINDS: [i32; 2] = [StatisticKind::Feedback as i32, StatisticKind::Results as i32];
