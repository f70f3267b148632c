//! HTML page of plots: one file without scripts or external resources.

use crate::cli::simulate::svg_plot::{Series, cumulative_series, line_plot};
use crate::cli::simulate::text_report;
use crate::sim::statistics::SimStatistics;
use crate::sim::tally::SimTally;

const SHARE_AXIS_LABEL: &str = "% of them, at most";

/// Page of one simulated ruleset.
pub(super) fn simulation_page(header: &str, statistics: &SimStatistics, tally: &SimTally) -> anyhow::Result<String> {
    let mut plots = vec![wait_plot(tally)?];
    plots.push(line_plot(
        "Rating gap in a match",
        ("points", SHARE_AXIS_LABEL),
        &[
            cumulative_series("lowest to highest player", tally.rating_gaps.iter().copied()),
            cumulative_series("team means", tally.team_mean_gaps.iter().copied()),
        ],
    )?);
    plots.push(round_trip_plot("", tally)?);
    if !tally.searches.is_empty() {
        plots.push(search_regret_plot(tally)?);
    }
    plots.push(calibration_plot(statistics)?);
    let series = |index: usize, name: &str| Series {
        name: name.into(),
        points: tally
            .samples_per_minute
            .iter()
            .zip(0..)
            .map(|(counts, minute)| (f64::from(minute), f64::from(counts[index])))
            .collect(),
    };
    let over_time = [series(0, "tickets waiting"), series(1, "matches running")];
    plots.push(line_plot("Over time, all worlds together", ("minute", "count"), &over_time)?);
    Ok(render_page(header, &text_report::format_statistics(statistics), &plots))
}

/// Page of two compared rulesets.
pub(super) fn comparison_page(
    header: &str,
    table: &str,
    first: &SimTally,
    second: &SimTally,
) -> anyhow::Result<String> {
    type ValuesOf = fn(&SimTally) -> Vec<f64>;
    let plots_to_draw: [(&str, &str, ValuesOf); 5] = [
        ("Waits", "seconds", |tally| {
            tally.matched_waits.iter().map(|wait| f64::from(wait.waited_ms) / 1_000.0).collect()
        }),
        ("Rating gap in a match", "points", |tally| tally.rating_gaps.clone()),
        ("Favorite's win probability by true skill", "%", |tally| {
            tally.true_favorite_probabilities.iter().map(|probability| probability * 100.0).collect()
        }),
        ("Round trip", "ms", |tally| tally.round_trips_ms.iter().copied().map(f64::from).collect()),
        ("Round trip regret", "ms", |tally| tally.round_trip_regrets_ms.iter().copied().map(f64::from).collect()),
    ];
    let plot = |(title, unit, values_of): (&str, &str, ValuesOf)| {
        line_plot(
            title,
            (unit, SHARE_AXIS_LABEL),
            &[cumulative_series("A", values_of(first)), cumulative_series("B", values_of(second))],
        )
    };
    let plots = plots_to_draw.into_iter().map(plot).collect::<anyhow::Result<Vec<String>>>()?;
    Ok(render_page(header, table, &plots))
}

fn wait_plot(tally: &SimTally) -> anyhow::Result<String> {
    let mut sizes: Vec<u16> = tally.matched_waits.iter().map(|wait| wait.party_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let waits_of = |size: Option<u16>| {
        let selected = tally.matched_waits.iter().filter(move |wait| size.is_none_or(|size| wait.party_size == size));
        selected.map(|wait| f64::from(wait.waited_ms) / 1_000.0)
    };
    let mut series = vec![cumulative_series("all", waits_of(None))];
    if sizes.len() > 1 {
        series
            .extend(sizes.into_iter().map(|size| cumulative_series(format!("party of {size}"), waits_of(Some(size)))));
    }
    series.push(cumulative_series("gave up after", tally.abandoned_waits_ms.iter().map(|&ms| f64::from(ms) / 1_000.0)));
    line_plot("Waits", ("seconds", SHARE_AXIS_LABEL), &series)
}

fn round_trip_plot(name: &str, tally: &SimTally) -> anyhow::Result<String> {
    let to_f64 = |values: &[f32]| values.iter().copied().map(f64::from).collect::<Vec<f64>>();
    let series = [
        cumulative_series(format!("{name}round trip"), to_f64(&tally.round_trips_ms)),
        cumulative_series(format!("{name}regret"), to_f64(&tally.round_trip_regrets_ms)),
    ];
    line_plot("Round trips", ("ms", SHARE_AXIS_LABEL), &series)
}

/// Regret of searches by the source of the round trips by which they chose.
fn search_regret_plot(tally: &SimTally) -> anyhow::Result<String> {
    let series = tally.searches.iter().map(|(source, searches)| {
        cumulative_series(source.as_str(), searches.joined.iter().map(|search| search.regret_ms))
    });
    let series: Vec<Series> = series.collect();
    line_plot("Round trip regret of searches", ("ms", SHARE_AXIS_LABEL), &series)
}

/// Predicted win probability of favorites against their share of wins.
fn calibration_plot(statistics: &SimStatistics) -> anyhow::Result<String> {
    let Some(calibration) = &statistics.fairness else { return Ok(String::new()) };
    let bands = calibration.bands.iter().filter(|band| band.matches >= 20);
    let actual: Vec<(f64, f64)> = bands.map(|band| (band.predicted_percent, band.won_percent)).collect();
    let expected = vec![(0.0, 0.0), (100.0, 100.0)];
    let series =
        [Series { name: "won".into(), points: actual }, Series { name: "as predicted".into(), points: expected }];
    line_plot("Favorites: predicted and actual wins", ("predicted, %", "won, %"), &series)
}

/// HTML page with header, plots and table.
pub fn render_page(header: &str, table: &str, plots: &[String]) -> String {
    let title = header.lines().next().unwrap_or("fireteam simulate");
    let style = "body{font-family:sans-serif;max-width:84rem;margin:2rem auto;padding:0 1rem}\
                 section{display:flex;flex-wrap:wrap;gap:1rem}pre{overflow-x:auto}svg{max-width:100%;height:auto}";
    let plots: String = plots.iter().map(|svg| format!("<figure>{svg}</figure>\n")).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<header><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{style}</style></header>\n<body>\n<pre>{header}</pre>\n<section>\n{plots}</section>\n<pre>{table}</pre>\n\
         </body>\n</html>\n",
        title = escape_html(title),
        header = escape_html(header),
        table = escape_html(table),
    )
}

/// Escapes text for HTML, because ruleset names may contain any characters.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
