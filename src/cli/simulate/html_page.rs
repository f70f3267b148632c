//! HTML page of charts: one file. Its script draws the charts of the page's data; it makes no request, and the policy allows none.

use std::collections::BTreeMap;

use anyhow::Context as _;
use base64::Engine as _;
use sha2::{Digest as _, Sha256};

use crate::cli::simulate::charts::{Chart, GroupPercentiles, Line};
use crate::cli::simulate::text_report;
use crate::sim::comparison::StatisticDelta;
use crate::sim::statistics::{Percentiles, SimStatistics};
use crate::sim::tally::SimTally;

/// Script of the page, built from `console/src/report`.
const SCRIPT: &str = include_str!("page/report.js");

/// Style of the page, built from `console/report.css`.
const STYLE: &str = include_str!("page/report.css");

/// One of the simulated rulesets: its name, and the results of its worlds together.
pub(super) struct SimulatedRuleset<'a> {
    pub(super) name: &'a str,
    pub(super) statistics: &'a SimStatistics,
    pub(super) tally: &'a SimTally,
}

/// Page of one simulated ruleset.
pub(super) fn simulation_page(header: &str, simulated: &SimulatedRuleset<'_>) -> anyhow::Result<String> {
    let SimulatedRuleset { name, statistics, tally } = simulated;
    let distribution = |name: &str, values: Vec<f64>| Line::of_distribution(name, values);
    let mut charts = vec![
        wait_chart(tally),
        Chart::of_distributions(
            "Rating gap in a match",
            "points",
            vec![
                distribution("lowest to highest player", tally.rating_gaps.clone()),
                distribution("team means", tally.team_mean_gaps.clone()),
            ],
        ),
        Chart::of_distributions(
            "Round trips",
            "ms",
            vec![
                distribution("round trip", to_f64(&tally.round_trips_ms)),
                distribution("excess over the best possible", to_f64(&tally.round_trip_regrets_ms)),
            ],
        ),
    ];
    charts.extend(wait_charts_by_group(std::slice::from_ref(simulated)));
    if !tally.searches.is_empty() {
        charts.push(search_regret_chart(tally));
    }
    charts.push(calibration_chart(statistics));
    let line = |index: usize, name: &str| {
        let points = tally.samples_per_minute.iter().zip(0..);
        Line::new(name, points.map(|(counts, minute)| (f64::from(minute), f64::from(counts[index]))).collect())
    };
    let over_time = vec![line(0, "tickets waiting"), line(1, "matches running")];
    charts.push(Chart::of_lines("Over time, all worlds together", ("minute", "count"), over_time));
    let charts: Vec<Chart> = charts.into_iter().flatten().collect();
    render_page(&simulation_headline(name, statistics), header, &text_report::format_statistics(statistics), &charts)
}

/// Page of two compared rulesets.
pub(super) fn comparison_page(
    headline: &str,
    (header, table): (&str, &str),
    differences: &[StatisticDelta],
    compared: &[SimulatedRuleset<'_>; 2],
) -> anyhow::Result<String> {
    type ValuesOf = fn(&SimTally) -> Vec<f64>;
    let distributions: [(&str, &str, ValuesOf); 5] = [
        ("Waits", "seconds", |tally| {
            tally.matched_waits.iter().map(|wait| f64::from(wait.waited_ms) / 1_000.0).collect()
        }),
        ("Rating gap in a match", "points", |tally| tally.rating_gaps.clone()),
        ("Favourite's chance by true skill", "%", |tally| {
            tally.true_favorite_probabilities.iter().map(|probability| probability * 100.0).collect()
        }),
        ("Round trip", "ms", |tally| to_f64(&tally.round_trips_ms)),
        ("Excess over the best possible round trip", "ms", |tally| to_f64(&tally.round_trip_regrets_ms)),
    ];
    let [first, second] = compared;
    let title = format!("{}, less {}", second.name, first.name);
    let mut charts = vec![Chart::of_differences(&title, differences)];
    charts.extend(distributions.map(|(title, unit, values_of)| {
        let lines = compared.each_ref().map(|one| Line::of_distribution(one.name, values_of(one.tally)));
        Chart::of_distributions(title, unit, lines.into())
    }));
    charts.extend(wait_charts_by_group(compared));
    let charts: Vec<Chart> = charts.into_iter().flatten().collect();
    render_page(headline, header, table, &charts)
}

/// Page with a headline, the text above the charts, the charts, and the text below them.
pub fn render_page(headline: &str, header: &str, table: &str, charts: &[Chart]) -> anyhow::Result<String> {
    // A script ends at `</script`, and a comment begins at `<!--`, also inside a string.
    let data = serde_json::to_string(charts).context("write the charts as JSON")?.replace('<', "\\u003c");
    let policy = format!(
        "default-src 'none'; script-src '{}'; style-src '{}'; base-uri 'none'; form-action 'none'",
        content_hash(SCRIPT),
        content_hash(STYLE)
    );
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{headline}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{headline}</h1>\n<pre>{header}</pre>\n\
         <p class=\"note\">Point at a chart for its values; drag to enlarge, double-click to see all. Dots on lines are the 50th, 90th and \
         99th percentile.</p>\n<section id=\"plots\"></section>\n<pre>{table}</pre>\n\
         <script type=\"application/json\" id=\"charts\">{data}</script>\n<script type=\"module\">{SCRIPT}</script>\n\
         </body>\n</html>\n",
        headline = escape_html(headline),
        header = escape_html(header),
        table = escape_html(table),
    ))
}

/// Source of a content policy that allows this text and no other.
fn content_hash(text: &str) -> String {
    format!("sha256-{}", base64::engine::general_purpose::STANDARD.encode(Sha256::digest(text)))
}

/// Headline of one ruleset, as `Duel: median wait 12 s, 90 % within 60 s; 3.1 % gave up`.
fn simulation_headline(name: &str, statistics: &SimStatistics) -> String {
    let (waits, tickets) = (&statistics.waits_s, &statistics.tickets);
    if waits.count == 0 {
        return name.to_owned();
    }
    let gave_up = 100.0 * tickets.gave_up as f64 / tickets.entered.max(1) as f64;
    format!("{name}: median wait {:.0} s, 90 % within {:.0} s; {gave_up:.1} % gave up", waits.p50, waits.p90)
}

fn to_f64(values: &[f32]) -> Vec<f64> {
    values.iter().copied().map(f64::from).collect()
}

fn wait_chart(tally: &SimTally) -> Option<Chart> {
    let waits = tally.matched_waits.iter().map(|wait| f64::from(wait.waited_ms) / 1_000.0);
    let gave_up = tally.abandoned_waits_ms.iter().map(|&ms| f64::from(ms) / 1_000.0);
    let lines = vec![Line::of_distribution("matched after", waits), Line::of_distribution("gave up after", gave_up)];
    Chart::of_distributions("Waits", "seconds", lines)
}

/// Waits by region, by size of the party and by hour of the day.
fn wait_charts_by_group(simulated: &[SimulatedRuleset<'_>]) -> [Option<Chart>; 3] {
    [
        wait_chart_by("Waits by region", simulated, |it| &it.waits_s_by_region, String::clone),
        wait_chart_by("Waits by party", simulated, |it| &it.waits_s_by_party, |size| format!("party of {size}")),
        wait_chart_by("Waits by time of day, UTC", simulated, |it| &it.waits_s_by_utc_hour, |hour| format!("{hour} h")),
    ]
}

fn wait_chart_by<K: Ord + Clone>(
    title: &str,
    simulated: &[SimulatedRuleset<'_>],
    waits_of: fn(&SimStatistics) -> &BTreeMap<K, Percentiles>,
    name_of: impl Fn(&K) -> String,
) -> Option<Chart> {
    let mut groups: Vec<K> = simulated.iter().flat_map(|one| waits_of(one.statistics).keys().cloned()).collect();
    groups.sort_unstable();
    groups.dedup();
    let series = simulated.iter().map(|one| {
        let waits = waits_of(one.statistics);
        GroupPercentiles::of_groups(one.name, &groups, |group| waits.get(group))
    });
    Chart::of_groups(title, "seconds, p50 and p90", groups.iter().map(name_of).collect(), series.collect())
}

/// Regret of searches by the source of the round trips by which they chose.
fn search_regret_chart(tally: &SimTally) -> Option<Chart> {
    let lines = tally.searches.iter().map(|(source, searches)| {
        Line::of_distribution(source.as_str(), searches.joined.iter().map(|search| search.regret_ms))
    });
    Chart::of_distributions("Round trip regret of searches", "ms", lines.collect())
}

/// Predicted win probability of favorites against their share of wins.
fn calibration_chart(statistics: &SimStatistics) -> Option<Chart> {
    let calibration = statistics.fairness.as_ref()?;
    let bands = calibration.bands.iter().filter(|band| band.matches >= 20);
    let actual: Vec<(f64, f64)> = bands.map(|band| (band.predicted_percent, band.won_percent)).collect();
    let expected = Line::new("as predicted", vec![(0.0, 0.0), (100.0, 100.0)]);
    let lines = vec![Line::new("won", actual), expected];
    Chart::of_lines("Favourites: predicted and actual wins", ("predicted, %", "won, %"), lines)
}

/// Escapes text for HTML, because ruleset names may contain any characters.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
