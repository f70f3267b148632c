//! Buckets of the metrics of statistics: those of the statistics, in the base units of metrics.

use prometheus_client::metrics::histogram::Histogram;

use crate::domain::statistic::StatisticKind;

/// Value in the base unit of metrics: seconds, meters.
pub(super) fn to_base_unit(kind: StatisticKind, value: f64) -> f64 {
    match kind {
        StatisticKind::SeatDistance | StatisticKind::MatchDistance => value * 1_000.0,
        StatisticKind::SearchToSeat
        | StatisticKind::EnterToMatch
        | StatisticKind::EnterToPlay
        | StatisticKind::SeatRoundTrip
        | StatisticKind::MatchRoundTrip => value / 1_000.0,
        _ => value,
    }
}

/// Histogram with the same buckets as the statistics of `kind`.
fn histogram_of(kind: StatisticKind) -> Histogram {
    Histogram::new(kind.bounds().iter().map(|bound| to_base_unit(kind, *bound)))
}

pub(super) fn empty_wait_seconds_histogram() -> Histogram {
    histogram_of(StatisticKind::SearchToSeat)
}

pub(super) fn empty_quality_histogram() -> Histogram {
    histogram_of(StatisticKind::MatchQuality)
}

pub(super) fn empty_distance_meters_histogram() -> Histogram {
    histogram_of(StatisticKind::MatchDistance)
}

pub(super) fn empty_round_trip_seconds_histogram() -> Histogram {
    histogram_of(StatisticKind::MatchRoundTrip)
}

pub(super) fn empty_stars_histogram() -> Histogram {
    histogram_of(StatisticKind::Feedback)
}
