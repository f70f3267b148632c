//! Rows of statistics in memory, as the databases have them.

use std::collections::BTreeMap;

use crate::domain::statistic::{PartySizeClass, StatisticKey};
use crate::domain::time::UnixMs;
use crate::store::statistics::{StatisticsBatch, StatisticsQuery, StatisticsTotals, TotalsBuilder};

/// Counts, and the number of the last batch of each server process.
#[derive(Debug, Default)]
pub(in crate::store) struct StatisticRows {
    counts: BTreeMap<(UnixMs, StatisticKey, usize), (u64, f64)>,
    last_numbers: BTreeMap<[u8; 16], u64>,
}

impl StatisticRows {
    /// Adds a batch, unless it was added before.
    pub(in crate::store) fn add(&mut self, batch: &StatisticsBatch) {
        let last_number = self.last_numbers.entry(batch.writer).or_default();
        if batch.number <= *last_number {
            return;
        }
        *last_number = batch.number;
        for increment in &batch.increments {
            let row = self.counts.entry((increment.hour_start, increment.key.clone(), increment.bucket)).or_default();
            row.0 += increment.count;
            row.1 += increment.sum;
        }
        if batch.purges {
            let (all, most) = (batch.long_retention_cutoff(), batch.short_retention_cutoff());
            self.counts.retain(
                |(hour, key, _), _| if key.kind.is_by_ruleset_version() { all <= *hour } else { most <= *hour },
            );
        }
    }

    /// Totals of the rows that a query asks for.
    pub(in crate::store) fn totals(&self, query: &StatisticsQuery) -> StatisticsTotals {
        let mut totals = TotalsBuilder::default();
        for ((hour, key, bucket), (count, sum)) in &self.counts {
            if *hour < query.from
                || query.until <= *hour
                || query.set_id.is_some_and(|set_id| key.set_id != Some(set_id))
            {
                continue;
            }
            let mut key = key.clone();
            if !query.by_region {
                key.region = "".into();
            }
            if !query.by_party_size {
                key.party_size = PartySizeClass::All;
            }
            totals.add(key, *bucket as i64, i64::try_from(*count).unwrap_or(i64::MAX), *sum);
        }
        totals.finish()
    }
}
