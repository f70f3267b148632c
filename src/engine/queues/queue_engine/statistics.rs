//! Queue statistics for operators.

use crate::engine::queues::command::QueueStatistics;
use crate::engine::queues::queue_engine::QueueEngine;
use crate::engine::queues::ticket_match_cache::QueueTicketsAndMatches;
use crate::store::queues::QueueKey;

impl QueueEngine {
    /// Statistics of every queue.
    pub fn statistics(&self) -> Vec<QueueStatistics> {
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
                running_matches: u32::try_from(index.running_match_count()).unwrap_or(u32::MAX),
                longest_wait_ms: index.waiting_tickets().next().map_or(0, |(entered_at, _)| now.ms_since(entered_at)),
                runs_on_this_replica: report.is_some(),
                refusal_counts: report.map_or_else(Vec::new, |report| report.refusal_counts.clone()),
                pass_count: report.map_or(0, |report| report.pass_count),
                last_pass_ms: report.map_or(0.0, |report| report.last_pass_ms),
                wait_percentiles_ms: wait_estimator
                    .estimate_for_set(key.set_id, now)
                    .map(|estimate| (estimate.p50_ms, estimate.p90_ms, estimate.sample_count)),
                median_quality: wait_estimator.median_quality(key.set_id, now),
                p90_estimate_met_percent: wait_estimator.p90_estimate_met_percent(key.set_id),
            }
        };
        cache.queues().map(statistics_of).collect()
    }
}
