//! Conversion of statistics: queues now, and what was counted in a period.

use std::collections::BTreeMap;

use crate::api::convert::RequestReader;
use crate::api::pb;
use crate::api::status::Rejection;
use crate::domain::id::{RulesetHash, SetId};
use crate::domain::statistic::histogram::BucketCounts;
use crate::domain::statistic::{StatisticKey, StatisticKind};
use crate::engine::queues::command::{CountedStatistics, QueueStatistics, SetStatistics, StatisticsPeriodAndSplit};

/// Reads the period; `None` if none is asked for.
pub(crate) fn statistics_period(
    wire: &pb::GetStatisticsRequest,
) -> Result<Option<StatisticsPeriodAndSplit>, Rejection> {
    let mut problems = RequestReader::default().new_field_errors();
    let hours_before = match pb::StatisticsPeriod::try_from(wire.period) {
        Ok(pb::StatisticsPeriod::Unspecified) => None,
        Ok(pb::StatisticsPeriod::Hour) => Some(1),
        Ok(pb::StatisticsPeriod::Day) => Some(24),
        Ok(pb::StatisticsPeriod::Week) => Some(7 * 24),
        Ok(pb::StatisticsPeriod::Quarter) => Some(92 * 24),
        Err(_) => {
            problems.add("period", format!("is {}; must be a StatisticsPeriod, from 0 to 4", wire.period));
            None
        }
    };
    problems.into_result(hours_before.map(|hours_before| StatisticsPeriodAndSplit {
        hours_before,
        set_id: wire.matchmaking_set_id.map(SetId),
        by_region: wire.by_region,
        by_party_size: wire.by_party_size,
    }))
}

/// Converts the statistics of all queues, and their totals by set.
pub(crate) fn statistics_response(
    queues: Vec<QueueStatistics>,
    sets: Vec<SetStatistics>,
    counted: Option<CountedStatistics>,
) -> pb::GetStatisticsResponse {
    let queue_statistics = |queue: QueueStatistics| pb::QueueStatistics {
        matchmaking_set_id: queue.set_id.0,
        silo_id: queue.silo.0,
        waiting_tickets: queue.waiting_tickets,
        waiting_players: queue.waiting_players,
        matches: queue.live_matches,
        longest_wait_ms: queue.longest_wait_ms,
        runs_here: queue.runs_on_this_replica,
        passes: queue.pass_count,
        last_pass_us: (queue.last_pass_duration_ms * 1_000.0).round() as u64,
        refusals: queue
            .refusal_counts
            .iter()
            .map(|(rule, count)| pb::RuleCount { rule: rule.to_string(), count: *count })
            .collect(),
        wait_p50_ms: queue.wait_percentiles_and_sample_count.map(|(p50, ..)| p50),
        wait_p90_ms: queue.wait_percentiles_and_sample_count.map(|(_, p90, _)| p90),
        wait_samples: queue.wait_percentiles_and_sample_count.map_or(0, |(.., count)| count),
        quality_p50: queue.median_quality,
        p90_estimate_met_percent: queue.p90_estimate_met_percent,
    };
    let set_statistics = |set: SetStatistics| pb::SetStatistics {
        matchmaking_set_id: set.set_id.0,
        silos: set.silo_count,
        waiting_tickets: set.waiting_tickets,
        waiting_players: set.waiting_players,
        matches: set.live_matches,
        longest_wait_ms: set.longest_wait_ms,
    };
    let response = pb::GetStatisticsResponse {
        since_unix_ms: counted.as_ref().map(|counted| counted.since.0),
        truncated: counted.as_ref().is_some_and(|counted| counted.is_truncated),
        sets: sets.into_iter().map(set_statistics).collect(),
        queues: queues.into_iter().map(queue_statistics).collect(),
        ..Default::default()
    };
    with_counts(response, counted.map_or_else(Vec::new, |counted| counted.counts))
}

/// The response with the counts of a period.
fn with_counts(
    mut response: pb::GetStatisticsResponse,
    counts: Vec<(StatisticKey, BucketCounts)>,
) -> pb::GetStatisticsResponse {
    let mut feedback: BTreeMap<(Option<SetId>, Option<RulesetHash>), pb::RulesetFeedback> = BTreeMap::new();
    for (key, counts) in counts {
        let set_id = key.set_id.map(|set_id| set_id.0);
        let door = match key.kind {
            StatisticKind::SearchRefusals => pb::MatchmakingDoor::Search,
            StatisticKind::PassRefusals => pb::MatchmakingDoor::Queue,
            StatisticKind::Feedback | StatisticKind::Results => {
                let row = feedback.entry((key.set_id, key.ruleset_hash)).or_insert_with(|| pb::RulesetFeedback {
                    matchmaking_set_id: set_id,
                    service_configuration_hash: key.ruleset_hash.map_or(0, |hash| hash.0),
                    star_counts: vec![0; StatisticKind::Feedback.bounds().len()],
                    ..Default::default()
                });
                add_feedback(row, &counts);
                continue;
            }
            kind => {
                response.distributions.push(distribution(distribution_kind(kind), &key, counts));
                continue;
            }
        };
        response.refusals.push(pb::RuleRefusals {
            door: door.into(),
            matchmaking_set_id: set_id,
            party_size: key.party_size.as_str().to_owned(),
            rule: key.rule.into(),
            count: counts.value_count(),
        });
    }
    response.ruleset_feedback = feedback.into_values().collect();
    response
}

fn add_feedback(row: &mut pb::RulesetFeedback, counts: &BucketCounts) {
    if counts.kind == StatisticKind::Results {
        row.match_results = counts.value_count();
        return;
    }
    row.feedback_count = counts.value_count();
    row.mean_stars = (row.feedback_count > 0).then(|| counts.sum / row.feedback_count as f64);
    row.star_counts = counts.counts[..StatisticKind::Feedback.bounds().len()].to_vec();
}

/// Kind on the wire; of refusals, feedback and results there is no distribution.
fn distribution_kind(kind: StatisticKind) -> pb::DistributionKind {
    match kind {
        StatisticKind::SearchToSeat => pb::DistributionKind::SearchToSeatMs,
        StatisticKind::EnterToMatch => pb::DistributionKind::EnterToMatchMs,
        StatisticKind::EnterToPlay => pb::DistributionKind::EnterToPlayMs,
        StatisticKind::MatchQuality => pb::DistributionKind::MatchQuality,
        StatisticKind::SeatScore => pb::DistributionKind::SeatScore,
        StatisticKind::SeatDistance => pb::DistributionKind::SeatDistanceKm,
        StatisticKind::MatchDistance => pb::DistributionKind::MatchDistanceKm,
        StatisticKind::SeatRoundTrip => pb::DistributionKind::SeatRoundTripMs,
        StatisticKind::MatchRoundTrip => pb::DistributionKind::MatchRoundTripMs,
        StatisticKind::SearchRefusals
        | StatisticKind::PassRefusals
        | StatisticKind::Feedback
        | StatisticKind::Results => pb::DistributionKind::Unspecified,
    }
}

fn distribution(kind: pb::DistributionKind, key: &StatisticKey, counts: BucketCounts) -> pb::Distribution {
    let quantile = |share| counts.quantile(share).unwrap_or(0.0);
    pb::Distribution {
        kind: kind.into(),
        matchmaking_set_id: key.set_id.map(|set_id| set_id.0),
        region: key.region.to_string(),
        party_size: key.party_size.as_str().to_owned(),
        count: counts.value_count(),
        sum: counts.sum,
        p50: quantile(0.5),
        p90: quantile(0.9),
        p99: quantile(0.99),
        upper_bounds: counts.kind.bounds().to_vec(),
        bucket_counts: counts.counts,
    }
}
