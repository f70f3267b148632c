//! Dashboards and alerts: they name metrics of the server, docs/DASHBOARDS.md explains each panel, each alert links to a heading of
//! the runbook, and fires in its case of `promtool test rules`.

use std::collections::BTreeSet;
use std::process::Command;

use fireteam::telemetry::metric::METRIC_ROWS;
use serde_json::Value;

use crate::support::source_tree::{self, SourceFile, assert_exact_violations, assert_no_violations};

const DASHBOARDS: &str = "packaging/grafana/dashboards/";
const DASHBOARD_PAGE: &str = "docs/DASHBOARDS.md";
const RULES: &str = "packaging/prometheus/";
const ALERTS: &str = "packaging/prometheus/alerts.yaml";
const RUNBOOK: &str = "docs/RUNBOOK.md";

/// Panel of a dashboard.
pub(crate) struct Panel {
    /// Title of the dashboard, and of the panel.
    pub(crate) title: [String; 2],
    description: String,
    /// Queries in PromQL, with Grafana's variables.
    pub(crate) queries: Vec<String>,
}

/// Panels with queries of all dashboards in a tree.
pub(crate) fn panels(tree: &[SourceFile]) -> Vec<Panel> {
    let files = tree.iter().filter(|it| it.path.starts_with(DASHBOARDS) && it.path.ends_with(".json"));
    files
        .flat_map(|file| {
            let dashboard: Value =
                serde_json::from_str(&file.text).unwrap_or_else(|error| panic!("{}: {error}", file.path));
            let panels = dashboard["panels"].as_array().cloned().unwrap_or_default();
            let with_queries = panels.into_iter().filter(|panel| panel["type"] != "row");
            with_queries.map(move |panel| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                let queries = panel["targets"].as_array().into_iter().flatten().map(|target| text(&target["expr"]));
                Panel {
                    title: [text(&dashboard["title"]), text(&panel["title"])],
                    description: text(&panel["description"]),
                    queries: queries.collect(),
                }
            })
        })
        .collect()
}

/// Words in `text` that name metrics.
fn metric_words(text: &str) -> BTreeSet<&str> {
    let words = text.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
    words.filter(|word| word.starts_with("fireteam_") || word.starts_with("process_")).collect()
}

/// Whether the server has a series of this name.
fn is_series(name: &str) -> bool {
    METRIC_ROWS.iter().any(|row| match row.kind {
        "histogram" => name.strip_prefix(row.name).is_some_and(|end| ["_bucket", "_sum", "_count"].contains(&end)),
        _ => name == row.name,
    })
}

/// Anchor of a heading, as Markdown renderers make it.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase();
    kept.chars()
        .filter(|it| it.is_alphanumeric() || *it == ' ' || *it == '-')
        .map(|it| if it == ' ' { '-' } else { it })
        .collect()
}

/// Metrics in dashboards and alerts that the server does not have.
fn unknown_metrics(tree: &[SourceFile]) -> Vec<String> {
    let mut complaints = Vec::new();
    for panel in panels(tree) {
        let names: BTreeSet<&str> = panel.queries.iter().flat_map(|query| metric_words(query)).collect();
        let unknown = names.iter().filter(|name| !is_series(name));
        complaints.extend(unknown.map(|name| format!("{}: the server has no series {name}", panel.title.join(", "))));
    }
    for file in tree.iter().filter(|it| it.path.starts_with(RULES)) {
        let unknown = metric_words(&file.text).into_iter().filter(|name| !is_series(name));
        complaints.extend(unknown.map(|name| format!("{}: the server has no series {name}", file.path)));
    }
    complaints
}

/// Panels that the page does not explain, in the words of the dashboard, and rows of the page that no panel has.
fn unexplained_panels(tree: &[SourceFile]) -> Vec<String> {
    let page = tree.iter().find(|it| it.path == DASHBOARD_PAGE).map_or("", |it| it.text.as_str());
    let mut chapter = "";
    let mut rows = BTreeSet::new();
    for line in page.lines() {
        chapter = line.strip_prefix("## ").unwrap_or(chapter);
        if line.starts_with("| ") && !line.starts_with("| panel |") {
            rows.insert(format!("{chapter}: {line}"));
        }
    }
    let of_panels: BTreeSet<String> = panels(tree)
        .into_iter()
        .map(|panel| format!("{}: | {} | {} |", panel.title[0], panel.title[1], panel.description))
        .collect();
    let missing = of_panels.difference(&rows).map(|row| format!("{DASHBOARD_PAGE} lacks the row {row}"));
    missing.chain(rows.difference(&of_panels).map(|row| format!("no panel has the row {row}"))).collect()
}

/// Alerts whose runbook entry does not exist, or that lack one of the two cases of the tests.
fn incomplete_alerts(tree: &[SourceFile]) -> Vec<String> {
    let text_of = |path: &str| tree.iter().find(|it| it.path == path).map_or("", |it| it.text.as_str());
    let anchors: BTreeSet<String> =
        text_of(RUNBOOK).lines().filter_map(|line| line.strip_prefix("## ")).map(anchor).collect();
    let cases: String = tree.iter().filter(|it| it.path.ends_with("_test.yaml")).map(|it| it.text.as_str()).collect();
    let mut complaints = Vec::new();
    for alert in text_of(ALERTS).split("- alert: Fireteam").skip(1) {
        let name = alert.lines().next().unwrap_or_default();
        let link = alert.lines().find_map(|line| line.trim().strip_prefix("runbook: docs/RUNBOOK.md#"));
        if !link.is_some_and(|link| anchors.contains(link)) {
            complaints.push(format!("{name}: {RUNBOOK} has no heading {}", link.unwrap_or("(no annotation runbook)")));
        }
        for case in ["fires", "does not fire"] {
            if !cases.contains(&format!("- name: \"{name} {case}\"")) {
                complaints.push(format!("{name}: no test in which it {case}"));
            }
        }
    }
    complaints
}

#[test]
fn dashboards_and_alerts_name_metrics_of_the_server() {
    let tree = source_tree::read_source_files(source_tree::repository_root());
    assert!(panels(&tree).len() > 50, "the dashboards are read");
    assert_no_violations(&unknown_metrics(&tree));
}

#[test]
fn dashboard_page_explains_each_panel() {
    assert_no_violations(&unexplained_panels(&source_tree::read_source_files(source_tree::repository_root())));
}

#[test]
fn alerts_link_to_the_runbook_and_have_tests() {
    let tree = source_tree::read_source_files(source_tree::repository_root());
    assert!(tree.iter().any(|it| it.path == ALERTS && it.text.contains("- alert: Fireteam")), "the alerts are read");
    assert_no_violations(&incomplete_alerts(&tree));
}

#[test]
fn dashboard_and_alert_violations_are_reported() {
    let dashboard = r#"{"title": "D", "panels": [{"type": "row"},
        {"type": "stat", "title": "P", "description": "Meaning.", "targets": [{"expr": "fireteam_tickets + fireteam_no"}]}]}"#;
    let alert = "- alert: FireteamOne\n expr: fireteam_pass_duration_seconds > fireteam_pass_duration_seconds_sum\n\
                 runbook: docs/RUNBOOK.md#feed-lag\n- alert: FireteamTwo\nrunbook: docs/RUNBOOK.md#nothing\n";
    let tree = source_tree::example_tree(&[
        ("packaging/grafana/dashboards/d.json", dashboard),
        (ALERTS, alert),
        (
            "packaging/prometheus/alerts_test.yaml",
            "- name: \"One fires\"\n- name: \"One does not fire\"\n- name: \"Two fires\"\n",
        ),
        (DASHBOARD_PAGE, "# D\n## D\n| panel | meaning |\n| P | Other. |\n"),
        (RUNBOOK, "# Runbook\n## Feed lag\n"),
    ]);
    let unknown = [
        "D, P: the server has no series fireteam_no",
        "alerts.yaml: the server has no series fireteam_pass_duration_seconds",
    ];
    assert_exact_violations(&unknown_metrics(&tree), &unknown);
    let rows = ["lacks the row D: | P | Meaning. |", "no panel has the row D: | P | Other. |"];
    assert_exact_violations(&unexplained_panels(&tree), &rows);
    let alerts = ["Two: docs/RUNBOOK.md has no heading nothing", "Two: no test in which it does not fire"];
    assert_exact_violations(&incomplete_alerts(&tree), &alerts);
}

/// Each alert fires in its case, and does not in the other.
#[test]
fn alerts_fire_in_their_tests() {
    let folder = source_tree::repository_root().join(RULES);
    let promtool = |arguments: &[&str]| Command::new("promtool").args(arguments).current_dir(&folder).output();
    let Ok(checked) = promtool(&["check", "rules", "alerts.yaml"]) else {
        println!("SKIPPED: promtool is not installed");
        return;
    };
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let tests = ["alerts_test.yaml", "alerts_of_age_test.yaml", "alerts_recorded_test.yaml"];
    let tested = promtool(&[&["test", "rules"], &tests[..]].concat()).expect("promtool");
    assert!(
        tested.status.success(),
        "{}{}",
        String::from_utf8_lossy(&tested.stdout),
        String::from_utf8_lossy(&tested.stderr)
    );
    let configured =
        Command::new("promtool").args(["check", "config", "prometheus.yml"]).current_dir(folder.join("..")).output();
    let configured = configured.expect("promtool");
    assert!(configured.status.success(), "{}", String::from_utf8_lossy(&configured.stderr));
}
