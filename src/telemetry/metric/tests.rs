//! The metric table against the scrape and docs/METRICS.md, and the bound on the number of series.

use std::collections::BTreeSet;

use super::*;
use crate::domain::filter::RefusingSide;
use crate::domain::id::{RulesetHash, SetId};
use crate::domain::statistic::{PartySizeClass, StatisticKey, StatisticKind};
use crate::telemetry::metric::set_gauges::{AdvertisementCounts, QueueCounts};

/// Names and kinds from the `# TYPE` lines of a scrape, with `_total` and `_info` appended again.
fn metric_names_and_kinds(text: &str) -> BTreeSet<(String, String)> {
    let parse_line = |line: &str| {
        let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
        let suffix = match kind {
            "counter" => "_total",
            "info" => "_info",
            _ => "",
        };
        Some((format!("{name}{suffix}"), kind.to_owned()))
    };
    text.lines().filter_map(parse_line).collect()
}

#[test]
fn metric_table_equals_the_scrape() {
    let metrics = Metrics::new();
    metrics.record_call(Method::Search, GrpcCode::Ok, 0.001, None);
    metrics.record_store(StoreOperation::Commit, 3, 0.001, false);
    metrics.disk_free_bytes.get_or_create(&DiskFolder::Store).set(1);
    StatisticKind::ALL
        .iter()
        .for_each(|kind| metrics.record_statistic_events(&StatisticKey::for_overflow(*kind), 1.0, 1));
    metrics.feed_age_seconds.get_or_create(&FeedLabel::Queues).set(1.0);
    metrics.set_queue_counts([(SetId(1), QueueCounts::default())]);
    metrics.set_advertisement_counts([(SetId(1), AdvertisementCounts::default())]);
    metrics.record_match_event(SetId(1), MatchEventLabel::Proposed);
    metrics.record_ticket_end(SetId(1), TicketOutcomeLabel::Left, 1.0);
    metrics.record_seat_attempt(SetId(1), SeatOutcomeLabel::Seated, 1.0);
    metrics.record_pass(SetId(1), 0.1, &PassReport::default(), 0);
    let table = METRIC_ROWS.iter().map(|row| (row.name.to_owned(), row.kind.to_owned())).collect();
    assert_eq!(metric_names_and_kinds(&metrics.render()), table);
}

/// docs/METRICS.md has exactly one row for each metric, in this order, with its kind, labels and help.
#[test]
fn metric_table_equals_the_document() {
    let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/METRICS.md")).unwrap();
    let documented: Vec<&str> =
        text.lines().filter(|line| line.starts_with("| `fireteam_") || line.starts_with("| `process_")).collect();
    let document_row = |row: &MetricRow| {
        let labels: Vec<String> = row.labels.iter().map(|label| format!("`{label}`")).collect();
        format!("| `{}` | {} | {} | {} |", row.name, row.kind, labels.join(", "), row.help)
    };
    assert_eq!(documented, METRIC_ROWS.iter().map(document_row).collect::<Vec<_>>());
}

#[test]
fn metric_names_follow_the_prometheus_conventions() {
    for row in METRIC_ROWS {
        // Figures of the process have the names that Prometheus' own clients give them.
        assert!(row.name.starts_with("fireteam_") || row.name.starts_with("process_"), "{}", row.name);
        assert_eq!(row.kind == "counter", row.name.ends_with("_total"), "{}", row.name);
        assert!(row.help.ends_with('.') && !row.help.contains('|'), "{}", row.help);
    }
}

#[test]
fn metrics_record_a_search_with_its_refusals() {
    let metrics = Metrics::new();
    let filter = |filter| Refusal::HardFilter { filter_index: filter, side: RefusingSide::Searcher };
    metrics.record_search(
        100,
        3,
        true,
        &[(Refusal::NotEnoughSeats, 4), (filter(0), 2), (filter(1), 5), (filter(2), 1)],
        2,
    );
    let text = metrics.render();
    for line in [
        "fireteam_search_refusals_total{refusal=\"full\"} 4",
        "fireteam_search_refusals_total{refusal=\"filter\"} 7",
        "fireteam_search_refusals_total{refusal=\"allowed_range\"} 1",
        "fireteam_search_refusals_total{refusal=\"own\"} 0",
        "fireteam_search_truncated_total 1",
        "fireteam_search_evaluated_rows_sum 100.0",
        "fireteam_search_candidates_count 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

#[test]
fn metrics_record_calls_lookups_and_store_operations() {
    let metrics = Metrics::new();
    metrics.record_call(Method::Reserve, GrpcCode::from_number(9), 0.25, None);
    metrics.record_store(StoreOperation::Commit, 3, 0.5, true);
    metrics.record_store(StoreOperation::Commit, 2, 0.5, false);
    metrics.record_locality_lookup(true);
    let text = metrics.render();
    for line in [
        "fireteam_rpc_calls_total{method=\"reserve\",code=\"failed_precondition\"} 1",
        "fireteam_rpc_duration_seconds_sum{method=\"reserve\"} 0.25",
        "fireteam_store_rows_total{operation=\"commit\"} 5",
        "fireteam_store_duration_seconds_count{operation=\"commit\"} 2",
        "fireteam_store_failures_total{operation=\"commit\"} 1",
        "fireteam_locality_lookups_total{outcome=\"hit\"} 1",
        "fireteam_locality_lookups_total{outcome=\"miss\"} 0",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}

/// SEC-19: the number of series depends on the closed label sets only, not on the recorded events.
#[test]
fn metric_series_count_is_bounded() {
    let metrics = Metrics::new();
    let record_all = |metrics: &Metrics| {
        for method in Method::ALL {
            metrics.rpc_duration_seconds.get_or_create(method).observe(0.1, None, None);
            for number in -50..50 {
                metrics.rpc_calls.get_or_create(&(*method, GrpcCode::from_number(number))).inc();
            }
        }
        for filter in 0..1_000 {
            metrics.record_search(
                1,
                1,
                false,
                &[(Refusal::HardFilter { filter_index: filter, side: RefusingSide::Advertiser }, 1)],
                10,
            );
        }
    };
    record_all(&metrics);
    let before = metrics.render().lines().count();
    record_all(&metrics);
    assert_eq!(metrics.render().lines().count(), before);
    assert!(metrics.render().ends_with("# EOF\n"));
}

/// Statistics have the labels of docs/METRICS.md, and their values the base unit.
#[test]
fn metrics_record_statistics_in_base_units() {
    let metrics = Metrics::new();
    let key = |kind| StatisticKey::of_matchmaking_set(kind, SetId(7));
    let of_pair =
        StatisticKey { party_size: PartySizeClass::Two, region: "eu".into(), ..key(StatisticKind::SearchToSeat) };
    metrics.record_statistic_events(&of_pair, 1_500.0, 1);
    metrics.record_statistic_events(&key(StatisticKind::MatchDistance), 2.5, 1);
    let refusal = StatisticKey { rule: "ping".into(), ..key(StatisticKind::SearchRefusals) };
    metrics.record_statistic_events(&refusal, 0.0, 5);
    let stars = StatisticKey { ruleset_hash: Some(RulesetHash(9)), ..key(StatisticKind::Feedback) };
    metrics.record_statistic_events(&stars, 4.0, 1);
    metrics.record_statistic_events(&StatisticKey::for_overflow(StatisticKind::Results), 0.0, 1);
    let text = metrics.render();
    for line in [
        "fireteam_search_to_seat_seconds_sum{set=\"7\",region=\"eu\",party_size=\"2\"} 1.5",
        "fireteam_search_to_seat_seconds_bucket{le=\"1.0\",set=\"7\",region=\"eu\",party_size=\"2\"} 0",
        "fireteam_search_to_seat_seconds_bucket{le=\"2.0\",set=\"7\",region=\"eu\",party_size=\"2\"} 1",
        "fireteam_match_distance_meters_sum{set=\"7\",region=\"\",party_size=\"\"} 2500.0",
        "fireteam_search_rule_refusals_total{set=\"7\",party_size=\"\",rule=\"ping\"} 5",
        "fireteam_feedback_stars_sum{set=\"7\",ruleset=\"9\"} 4.0",
        "fireteam_match_results_total{set=\"other\",ruleset=\"\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
}
