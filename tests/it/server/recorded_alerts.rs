//! Recorded series of the tests of alerts: a running server still has their names and labels.

use std::collections::{BTreeMap, BTreeSet};

use fireteam::telemetry::metric::METRIC_ROWS;

use crate::support::server_process::ServerProcess;
use crate::support::source_tree;

const RECORDING: &str = "packaging/prometheus/alerts_recorded_test.yaml";

/// Labels that Prometheus adds.
const ADDED_LABELS: [&str; 2] = ["instance", "job"];

/// Name and labels of a series.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Series<'a> {
    name: &'a str,
    labels: BTreeMap<&'a str, &'a str>,
}

impl<'a> Series<'a> {
    /// Reads `name{label="value"}` or `name`, without the labels that Prometheus adds.
    fn parse(text: &'a str) -> Self {
        let (name, labels) = text.trim_end_matches('}').split_once('{').unwrap_or((text, ""));
        let parse_label = |label: &'a str| {
            let (name, value) = label.split_once('=').unwrap_or_else(|| panic!("{text}: {label}"));
            (name, value.trim_matches('"'))
        };
        let labels = labels.split(',').filter(|label| !label.is_empty()).map(parse_label);
        Self { name, labels: labels.filter(|(name, _)| !ADDED_LABELS.contains(name)).collect() }
    }

    /// Names of the labels that the metric table gives it; `None` if the server has no such metric.
    fn label_names_of_table(&self) -> Option<BTreeSet<&'static str>> {
        METRIC_ROWS.iter().find_map(|row| {
            let end = self.name.strip_prefix(row.name)?;
            let bucket_label = match (row.kind, end) {
                ("histogram", "_bucket") => Some("le"),
                ("histogram", "_sum" | "_count") => None,
                ("histogram", _) => return None,
                (_, "") => None,
                _ => return None,
            };
            Some(row.labels.iter().copied().chain(bucket_label).collect())
        })
    }
}

/// The recorded series.
fn recorded_series(recording: &str) -> BTreeSet<Series<'_>> {
    let series = recording.lines().filter_map(|line| line.trim().strip_prefix("- series: '")?.strip_suffix('\''));
    series.map(Series::parse).filter(|series| series.name != "up").collect()
}

/// Recorded series that a page of metrics lacks, though it has the metric with labels from closed lists.
fn missing_series<'a>(recorded: &'a BTreeSet<Series<'a>>, page: &'a str) -> Vec<&'a Series<'a>> {
    let lines = page.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
    let present: BTreeSet<Series<'_>> = lines.map(|(series, _)| Series::parse(series)).collect();
    let names: BTreeSet<&str> = present.iter().map(|series| series.name).collect();
    // Sets are of the ruleset, and a call has a series when it was made.
    let is_open = |series: &&Series<'_>| series.labels.contains_key("set") || series.labels.contains_key("code");
    let closed = recorded.iter().filter(|series| names.contains(series.name) && !is_open(series));
    closed.filter(|series| !present.contains(series)).collect()
}

/// Names and labels of the recording are those of the table, and the values of closed lists are on the page of a running server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_alerts_have_series_of_a_running_server() {
    let recording = std::fs::read_to_string(source_tree::repository_root().join(RECORDING)).expect("the recording");
    let recorded = recorded_series(&recording);
    assert!(recorded.len() > 100, "{} series", recorded.len());
    for series in &recorded {
        let names: BTreeSet<&str> = series.labels.keys().copied().collect();
        assert_eq!(series.label_names_of_table().as_ref(), Some(&names), "{series:?}: record again");
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let server = ServerProcess::start(folder.path(), &["--audit-log-file", "audit"]);
    let page = server.operator_page("/metrics").await;
    assert_eq!(missing_series(&recorded, &page), Vec::<&Series<'_>>::new(), "record again");
}

#[test]
fn recorded_alerts_that_the_server_lacks_are_reported() {
    let recording = "  - series: 'fireteam_rate_limited_total{instance=\"a\",role=\"client\",limit=\"old\"}'\n  \
                     - series: 'fireteam_rate_limited_total{instance=\"a\",role=\"client\",limit=\"call\"}'\n  \
                     - series: 'fireteam_old_total{instance=\"a\"}'\n  - series: 'up{job=\"fireteam\",instance=\"a\"}'\n";
    let recorded = recorded_series(recording);
    let names: Vec<_> = recorded.iter().map(|series| series.label_names_of_table().map(|names| names.len())).collect();
    assert_eq!(names, [None, Some(2), Some(2)]);
    let page = "# TYPE x counter\nfireteam_rate_limited_total{role=\"client\",limit=\"call\"} 0\n";
    let missing: Vec<_> = missing_series(&recorded, page).iter().map(|series| series.labels["limit"]).collect();
    assert_eq!(missing, ["old"]);
}
