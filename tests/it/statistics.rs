//! Statistics of both doors: what is counted, by which keys, on every server, and after a restart or an outage.

mod feedback;
mod kill_server;
mod match_events;
mod queues;
mod retention;
mod searches;
mod seat_attempts;
mod store_contract;

use crate::support::generated_client::{Distribution, DistributionKind, GetStatisticsRequest, GetStatisticsResponse};
use crate::support::generated_client::{MatchmakingDoor, StatisticsPeriod};
use crate::support::party_site::{PartySite, by_operator};
use crate::support::queue_server::operator_client;

/// Request for the statistics of an hour, by region and party size.
fn by_all() -> GetStatisticsRequest {
    GetStatisticsRequest { by_region: true, by_party_size: true, ..of_hour() }
}

/// Request for the totals of an hour.
fn of_hour() -> GetStatisticsRequest {
    GetStatisticsRequest { period: StatisticsPeriod::Hour.into(), ..Default::default() }
}

/// Statistics that one server of a site returns.
async fn statistics(site: &PartySite, server: usize, request: GetStatisticsRequest) -> GetStatisticsResponse {
    let mut operator = operator_client(&site.servers[server]).await;
    operator.get_statistics(by_operator(site, request)).await.expect("statistics").into_inner()
}

/// Distributions of a kind: region, party size, count and sum.
fn rows<'a>(statistics: &'a GetStatisticsResponse, kind: DistributionKind) -> Vec<(&'a str, &'a str, u64, f64)> {
    let of_kind = |row: &&'a Distribution| row.kind() == kind;
    let row = |row: &'a Distribution| {
        let Distribution { region, party_size, count, sum, bucket_counts, upper_bounds, .. } = row;
        assert_eq!(bucket_counts.iter().sum::<u64>(), *count, "{row:?}");
        assert_eq!(bucket_counts.len(), upper_bounds.len() + 1, "{row:?}");
        (&**region, &**party_size, *count, *sum)
    };
    statistics.distributions.iter().filter(of_kind).map(row).collect()
}

/// Refusals at a door: party size, rule and count.
fn refusals(statistics: &GetStatisticsResponse, door: MatchmakingDoor) -> Vec<(&str, &str, u64)> {
    let of_door = statistics.refusals.iter().filter(|row| row.door() == door);
    of_door.map(|row| (&*row.party_size, &*row.rule, row.count)).collect()
}
