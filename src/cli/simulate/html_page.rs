//! A page of plots: one file, no scripts, nothing from elsewhere.

use crate::cli::simulate::svg_plot::{Series, cumulative_series, line_plot};
use crate::cli::simulate::text_report;
use crate::sim::statistics::SimStatistics;
use crate::sim::tally::SimTally;

const SHARE_AXIS_LABEL: &str = "% of them, at most";

/// One ruleset.
pub(super) fn simulation_page(head: &str, figures: &SimStatistics, tally: &SimTally) -> anyhow::Result<String> {
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
    plots.push(calibration_plot(figures)?);
    let minute = |pick: usize, name: &str| Series {
        name: name.into(),
        points: tally.samples_per_minute.iter().zip(0..).map(|(it, at)| (f64::from(at), f64::from(it[pick]))).collect(),
    };
    let over_time = [minute(0, "tickets waiting"), minute(1, "matches running")];
    plots.push(line_plot("Over time, all worlds together", ("minute", "count"), &over_time)?);
    Ok(render_page(head, &text_report::format_statistics(figures), &plots))
}

/// Two rulesets side by side.
pub(super) fn comparison_page(head: &str, table: &str, first: &SimTally, second: &SimTally) -> anyhow::Result<String> {
    type ValuesOf = fn(&SimTally) -> Vec<f64>;
    let kinds: [(&str, &str, ValuesOf); 5] = [
        ("Waits", "seconds", |it| it.matched_waits.iter().map(|wait| f64::from(wait.waited_ms) / 1_000.0).collect()),
        ("Rating gap in a match", "points", |it| it.rating_gaps.clone()),
        ("Favourite's chance by true skill", "%", |it| {
            it.true_favorite_probabilities.iter().map(|it| it * 100.0).collect()
        }),
        ("Round trip", "ms", |it| it.round_trips_ms.iter().copied().map(f64::from).collect()),
        ("Round trip regret", "ms", |it| it.round_trip_regrets_ms.iter().copied().map(f64::from).collect()),
    ];
    let both = |(title, unit, pick): (&str, &str, ValuesOf)| {
        line_plot(
            title,
            (unit, SHARE_AXIS_LABEL),
            &[cumulative_series("A", pick(first)), cumulative_series("B", pick(second))],
        )
    };
    let plots = kinds.into_iter().map(both).collect::<anyhow::Result<Vec<String>>>()?;
    Ok(render_page(head, table, &plots))
}

fn wait_plot(tally: &SimTally) -> anyhow::Result<String> {
    let mut sizes: Vec<u16> = tally.matched_waits.iter().map(|wait| wait.party_size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let of = |size: Option<u16>| {
        let kept = tally.matched_waits.iter().filter(move |wait| size.is_none_or(|size| wait.party_size == size));
        kept.map(|wait| f64::from(wait.waited_ms) / 1_000.0)
    };
    let mut all = vec![cumulative_series("all", of(None))];
    if 1 < sizes.len() {
        all.extend(sizes.into_iter().map(|size| cumulative_series(format!("party of {size}"), of(Some(size)))));
    }
    all.push(cumulative_series("gave up after", tally.abandoned_waits_ms.iter().map(|&ms| f64::from(ms) / 1_000.0)));
    line_plot("Waits", ("seconds", SHARE_AXIS_LABEL), &all)
}

fn round_trip_plot(name: &str, tally: &SimTally) -> anyhow::Result<String> {
    let of = |values: &[f32]| values.iter().copied().map(f64::from).collect::<Vec<f64>>();
    let all = [
        cumulative_series(format!("{name}round trip"), of(&tally.round_trips_ms)),
        cumulative_series(format!("{name}regret"), of(&tally.round_trip_regrets_ms)),
    ];
    line_plot("Round trips", ("ms", SHARE_AXIS_LABEL), &all)
}

/// What favourites were given, and how often they won.
fn calibration_plot(figures: &SimStatistics) -> anyhow::Result<String> {
    let Some(fair) = &figures.fairness else { return Ok(String::new()) };
    let bands = fair.bands.iter().filter(|band| 20 <= band.matches);
    let seen: Vec<(f64, f64)> = bands.map(|band| (band.predicted_percent, band.won_percent)).collect();
    let right = vec![(0.0, 0.0), (100.0, 100.0)];
    let all = [Series { name: "won".into(), points: seen }, Series { name: "as predicted".into(), points: right }];
    line_plot("Favourites: chance given and games won", ("chance given, %", "won, %"), &all)
}

/// The page: what was simulated, the plots, the table.
pub(super) fn render_page(head: &str, table: &str, plots: &[String]) -> String {
    let title = head.lines().next().unwrap_or("fireteam simulate");
    let style = "body{font-family:sans-serif;max-width:84rem;margin:2rem auto;padding:0 1rem}\
                 section{display:flex;flex-wrap:wrap;gap:1rem}pre{overflow-x:auto}svg{max-width:100%;height:auto}";
    let plots: String = plots.iter().map(|svg| format!("<figure>{svg}</figure>\n")).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{style}</style></head>\n<body>\n<pre>{head}</pre>\n<section>\n{plots}</section>\n<pre>{table}</pre>\n\
         </body>\n</html>\n",
        title = escape_html(title),
        head = escape_html(head),
        table = escape_html(table),
    )
}

/// Text that HTML shows as it is; rulesets' names are their authors'.
fn escape_html(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
