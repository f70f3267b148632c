//! Records matchmaking statistics by set, region and party size. The caller limits the number of series.

use crate::domain::statistic::{StatisticKey, StatisticKind};
use crate::telemetry::label::StatisticLabels;
use crate::telemetry::metric::Metrics;
use crate::telemetry::metric::statistic_buckets::to_base_unit;

impl Metrics {
    /// Records `count` events with a value in the unit of its kind.
    pub fn record_statistic_events(&self, key: &StatisticKey, value: f64, count: u64) {
        let labels = StatisticLabels::new(key);
        let histogram = match key.kind {
            StatisticKind::SearchRefusals => {
                self.search_rule_refusals.get_or_create(&labels).inc_by(count);
                return;
            }
            StatisticKind::PassRefusals => {
                self.pass_rule_refusals.get_or_create(&labels).inc_by(count);
                return;
            }
            StatisticKind::Results => {
                self.match_results.get_or_create(&labels).inc_by(count);
                return;
            }
            StatisticKind::SearchToSeat => &self.search_to_seat_seconds,
            StatisticKind::EnterToMatch => &self.enter_to_match_seconds,
            StatisticKind::EnterToPlay => &self.enter_to_play_seconds,
            StatisticKind::MatchQuality => &self.match_quality,
            StatisticKind::SeatScore => &self.seat_score,
            StatisticKind::SeatDistance => &self.seat_distance_meters,
            StatisticKind::MatchDistance => &self.match_distance_meters,
            StatisticKind::SeatRoundTrip => &self.seat_round_trip_seconds,
            StatisticKind::MatchRoundTrip => &self.match_round_trip_seconds,
            StatisticKind::Feedback => &self.feedback_stars,
        };
        let histogram = histogram.get_or_create(&labels);
        let value = to_base_unit(key.kind, value);
        (0..count).for_each(|_| histogram.observe(value));
    }
}
