//! Statistics for operators: queues now, and what all servers have counted in a period.

use std::collections::BTreeMap;

use crate::domain::id::SetId;
use crate::domain::time::UnixMs;
use crate::engine::error::EngineError;
use crate::engine::queues::command::{CountedStatistics, QueueStatistics, SetStatistics, StatisticsPeriodAndSplit};
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::ticket_match_cache::QueueTicketsAndMatches;
use crate::engine::writer_inbox::RETRY_AFTER_MS;
use crate::store::queues::QueueKey;
use crate::store::statistics::{STATISTICS_HOUR_MS, StatisticsQuery};

impl QueueEngine {
    /// Counts of all servers in a period: of this one until now.
    pub async fn statistics_of_period(
        &self,
        period: StatisticsPeriodAndSplit,
    ) -> Result<CountedStatistics, EngineError> {
        let common = &self.shared.common;
        if let Err(error) = common.flush_statistics().await {
            tracing::warn!(%error, "statistics not written before they were read");
        }
        let StatisticsPeriodAndSplit { hours_before, set_id, by_region, by_party_size } = period;
        let now = common.clock.now().0;
        let since = UnixMs((now - now % STATISTICS_HOUR_MS).saturating_sub(hours_before * STATISTICS_HOUR_MS));
        let until = UnixMs(now).plus_ms(STATISTICS_HOUR_MS);
        let query = StatisticsQuery { from: since, until, set_id, by_region, by_party_size };
        match common.statistics.read(&*common.store, &query).await {
            Ok(totals) => Ok(CountedStatistics { since, counts: totals.counts, is_truncated: totals.truncated }),
            Err(error) => {
                tracing::warn!(%error, "read of statistics failed");
                Err(EngineError::StoreUnavailable { retry_after_ms: RETRY_AFTER_MS })
            }
        }
    }

    /// Statistics of every queue, and their totals by set.
    pub fn statistics(&self) -> (Vec<QueueStatistics>, Vec<SetStatistics>) {
        let shared = &self.shared;
        let now = shared.common.clock.now();
        let cache = shared.cache.read();
        let (wait_estimator, pass_reports) = (shared.wait_estimator.lock(), shared.pass_reports.lock());
        let statistics_of = |(key, index): (QueueKey, &QueueTicketsAndMatches)| {
            let report = pass_reports.get(key);
            QueueStatistics {
                set_id: key.set_id,
                silo: key.silo,
                waiting_tickets: u32::try_from(index.waiting_ticket_count()).unwrap_or(u32::MAX),
                waiting_players: index.waiting_player_count(),
                live_matches: u32::try_from(index.live_match_count()).unwrap_or(u32::MAX),
                longest_wait_ms: index.waiting_tickets().next().map_or(0, |(entered_at, _)| now.ms_since(entered_at)),
                runs_on_this_replica: report.is_some(),
                refusal_counts: report.map_or_else(Vec::new, |report| report.refusal_counts.clone()),
                pass_count: report.map_or(0, |report| report.pass_count),
                last_pass_duration_ms: report.map_or(0.0, |report| report.last_pass_duration_ms),
                wait_percentiles_and_sample_count: wait_estimator
                    .estimate_for_set(key.set_id, now)
                    .map(|estimate| (estimate.p50_ms, estimate.p90_ms, estimate.sample_count)),
                median_quality: wait_estimator.median_quality(key.set_id, now),
                p90_estimate_met_percent: wait_estimator.p90_estimate_met_percent(key.set_id),
            }
        };
        let queues: Vec<QueueStatistics> = cache.queues().map(statistics_of).collect();
        let sets = totals_by_set(&queues);
        (queues, sets)
    }
}

/// Totals of each set over its silos, from the statistics of all queues. Ordered by set.
fn totals_by_set(queues: &[QueueStatistics]) -> Vec<SetStatistics> {
    let mut sets: BTreeMap<SetId, SetStatistics> = BTreeMap::new();
    for queue in queues {
        let set = sets.entry(queue.set_id).or_insert(SetStatistics { set_id: queue.set_id, ..Default::default() });
        set.silo_count += 1;
        set.waiting_tickets += u64::from(queue.waiting_tickets);
        set.waiting_players += u64::from(queue.waiting_players);
        set.live_matches += u64::from(queue.live_matches);
        set.longest_wait_ms = set.longest_wait_ms.max(queue.longest_wait_ms);
    }
    sets.into_values().collect()
}
