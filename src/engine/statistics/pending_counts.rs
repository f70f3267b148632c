//! Counts that are not in the store yet, and the limits on their keys.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::id::SetId;
use crate::domain::statistic::StatisticKey;
use crate::domain::time::UnixMs;
use crate::engine::statistics::sample::Sample;
use crate::store::statistics::{STATISTICS_HOUR_MS, StatisticIncrement};
use crate::telemetry::metric::Metrics;

/// Sets that a server tells apart; further ones count together.
const SETS_MAX: usize = 256;

/// Keys of one hour; values of further ones count under a key without set, region, party size and rule.
const KEYS_PER_HOUR_MAX: usize = 4_096;

/// Keys in the metrics; values of further ones count under a key without set, region, party size and rule.
const METRIC_SERIES_MAX: usize = 1_024;

/// Rows that wait while the store is unavailable. Values of further ones are dropped.
const PENDING_ROWS_MAX: usize = 100_000;

/// Row of a count: hour, key and bucket, in the order of the store's rows.
type PendingRowKey = (UnixMs, StatisticKey, usize);

/// Counts to add to the store.
#[derive(Debug, Default)]
pub(super) struct PendingCounts {
    rows: BTreeMap<PendingRowKey, (u64, f64)>,
    sets: BTreeSet<SetId>,
    hour: UnixMs,
    keys_of_hour: BTreeSet<StatisticKey>,
    series: BTreeSet<StatisticKey>,
}

impl PendingCounts {
    /// Counts a sample, here and in the metrics.
    pub(super) fn add(&mut self, sample: Sample, metrics: &Metrics) {
        let hour = UnixMs(sample.at.0 - sample.at.0 % STATISTICS_HOUR_MS);
        if self.hour < hour {
            self.hour = hour;
            self.keys_of_hour.clear();
        }
        let Sample { kind, value, count, .. } = sample;
        let key = self.key_of(sample);
        let series = key_or_overflow_key(&mut self.series, &key, METRIC_SERIES_MAX);
        metrics.record_statistic_events(&series, value, count);
        let key = key_or_overflow_key(&mut self.keys_of_hour, &key, KEYS_PER_HOUR_MAX);
        let row = (hour, key, kind.bucket(value));
        if PENDING_ROWS_MAX <= self.rows.len() && !self.rows.contains_key(&row) {
            metrics.statistics_dropped.inc_by(count);
            return;
        }
        let counts = self.rows.entry(row).or_default();
        counts.0 += count;
        counts.1 += value * count as f64;
    }

    fn key_of(&mut self, sample: Sample) -> StatisticKey {
        let is_known =
            self.sets.contains(&sample.set_id) || (self.sets.len() < SETS_MAX && self.sets.insert(sample.set_id));
        if !is_known {
            return StatisticKey::for_overflow(sample.kind);
        }
        StatisticKey {
            kind: sample.kind,
            set_id: Some(sample.set_id),
            region: sample.region.map_or_else(|| "".into(), |region| (*region).into()),
            party_size: sample.party_size,
            ruleset_hash: sample.ruleset_hash,
            rule: sample.rule.map_or_else(|| "".into(), |rule| (*rule).into()),
        }
    }

    /// Takes at most `limit` increments, in the order of their rows.
    pub(super) fn take(&mut self, limit: usize) -> Vec<StatisticIncrement> {
        let mut increments = Vec::new();
        while increments.len() < limit
            && let Some(((hour, key, bucket), (count, sum))) = self.rows.pop_first()
        {
            increments.push(StatisticIncrement { hour_start: hour, key, bucket, count, sum });
        }
        increments
    }
}

/// `key`, or the key of all others if `known` is full without it.
fn key_or_overflow_key(known: &mut BTreeSet<StatisticKey>, key: &StatisticKey, limit: usize) -> StatisticKey {
    if known.contains(key) {
        return key.clone();
    }
    if known.len() < limit {
        known.insert(key.clone());
        return key.clone();
    }
    StatisticKey::for_overflow(key.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::statistic::{PartySizeClass, StatisticKind};

    fn sample(set: u32, value: f64, at: u64) -> Sample {
        Sample::new(StatisticKind::SearchToSeat, SetId(set), value, UnixMs(at)).with_party_size(1)
    }

    /// Lines of a scrape with a value, without the buckets.
    fn series_count(metrics: &Metrics) -> usize {
        metrics.render().lines().filter(|line| line.starts_with("fireteam_search_to_seat_seconds_count")).count()
    }

    #[test]
    fn pending_counts_add_up_by_hour_and_bucket() {
        let (mut pending, metrics) = (PendingCounts::default(), Metrics::new());
        for (value, at) in [(500.0, 10), (700.0, 20), (1_500.0, 30), (500.0, STATISTICS_HOUR_MS + 1)] {
            pending.add(sample(1, value, at), &metrics);
        }
        let taken = pending.take(2);
        let rows: Vec<_> = taken.iter().map(|row| (row.hour_start.0, row.bucket, row.count, row.sum)).collect();
        assert_eq!(rows, [(0, 0, 2, 1_200.0), (0, 1, 1, 1_500.0)]);
        assert_eq!(taken[0].key.party_size, PartySizeClass::One);
        assert_eq!(pending.take(2).len(), 1);
        assert!(pending.take(2).is_empty());
    }

    /// 300 sets are 256 and others, in the store and in the metrics.
    #[test]
    fn pending_counts_tell_a_limited_number_of_sets_apart() {
        let (mut pending, metrics) = (PendingCounts::default(), Metrics::new());
        for set in (0..300).chain(0..300) {
            pending.add(sample(set, 500.0, 10), &metrics);
        }
        let taken = pending.take(1_000);
        assert_eq!(taken.len(), SETS_MAX + 1);
        let others: Vec<_> = taken.iter().filter(|row| row.key.set_id.is_none()).map(|row| row.count).collect();
        assert_eq!(others, [88], "44 sets, twice each");
        assert_eq!(series_count(&metrics), SETS_MAX + 1);
    }

    #[test]
    fn pending_counts_limit_keys_and_series() {
        let (mut pending, metrics) = (PendingCounts::default(), Metrics::new());
        let with_rule = |number: usize| Sample { rule: Some(number.to_string().into()), ..sample(1, 500.0, 10) };
        let more = 10;
        for number in 0..KEYS_PER_HOUR_MAX + more {
            pending.add(with_rule(number), &metrics);
        }
        assert_eq!(pending.take(usize::MAX).len(), KEYS_PER_HOUR_MAX + 1);
        // The labels of this kind have no rule, so that all of them are one series; only the key of all others is another.
        assert_eq!(series_count(&metrics), 2);
        assert_eq!(pending.series.len(), METRIC_SERIES_MAX);
        pending.add(Sample { at: UnixMs(STATISTICS_HOUR_MS), ..with_rule(KEYS_PER_HOUR_MAX) }, &metrics);
        assert_eq!(&*pending.take(1)[0].key.rule, "4096", "the next hour has keys of its own");
    }

    #[test]
    fn pending_counts_drop_what_does_not_fit_during_an_outage() {
        let (mut pending, metrics) = (PendingCounts::default(), Metrics::new());
        for hour in 0..PENDING_ROWS_MAX as u64 + 3 {
            pending.add(sample(1, 500.0, hour * STATISTICS_HOUR_MS), &metrics);
        }
        assert_eq!(metrics.statistics_dropped.get(), 3);
        pending.add(sample(1, 500.0, 0), &metrics);
        assert_eq!(metrics.statistics_dropped.get(), 3, "a row that waits already takes more");
    }
}
