//! A page of plots: one file, no scripts, nothing from elsewhere.

use crate::cli::simulate::plot::{Line, lines, spread};
use crate::cli::simulate::text;
use crate::sim::figures::Figures;
use crate::sim::tally::Tally;

const SHARE: &str = "% of them, at most";

/// One ruleset.
pub(super) fn of_world(head: &str, figures: &Figures, tally: &Tally) -> anyhow::Result<String> {
    let mut plots = vec![waits(tally)?];
    plots.push(lines(
        "Rating gap in a match",
        ("points", SHARE),
        &[
            spread("lowest to highest player", tally.rating_gaps.iter().copied()),
            spread("team means", tally.team_gaps.iter().copied()),
        ],
    )?);
    plots.push(trips("", tally)?);
    plots.push(calibration(figures)?);
    let minute = |pick: usize, name: &str| Line {
        name: name.into(),
        points: tally.minutes.iter().zip(0..).map(|(it, at)| (f64::from(at), f64::from(it[pick]))).collect(),
    };
    let over_time = [minute(0, "tickets waiting"), minute(1, "matches running")];
    plots.push(lines("Over time, all worlds together", ("minute", "count"), &over_time)?);
    Ok(page(head, &text::figures(figures), &plots))
}

/// Two rulesets side by side.
pub(super) fn of_two(head: &str, table: &str, first: &Tally, second: &Tally) -> anyhow::Result<String> {
    type Pick = fn(&Tally) -> Vec<f64>;
    let kinds: [(&str, &str, Pick); 5] = [
        ("Waits", "seconds", |it| it.waits.iter().map(|wait| f64::from(wait.ms) / 1_000.0).collect()),
        ("Rating gap in a match", "points", |it| it.rating_gaps.clone()),
        ("Favourite's chance by true skill", "%", |it| it.true_favourites.iter().map(|it| it * 100.0).collect()),
        ("Round trip", "ms", |it| it.round_trips_ms.iter().copied().map(f64::from).collect()),
        ("Round trip regret", "ms", |it| it.regrets_ms.iter().copied().map(f64::from).collect()),
    ];
    let both = |(title, unit, pick): (&str, &str, Pick)| {
        lines(title, (unit, SHARE), &[spread("A", pick(first)), spread("B", pick(second))])
    };
    let plots = kinds.into_iter().map(both).collect::<anyhow::Result<Vec<String>>>()?;
    Ok(page(head, table, &plots))
}

fn waits(tally: &Tally) -> anyhow::Result<String> {
    let mut sizes: Vec<u16> = tally.waits.iter().map(|wait| wait.party).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let of = |size: Option<u16>| {
        let kept = tally.waits.iter().filter(move |wait| size.is_none_or(|size| wait.party == size));
        kept.map(|wait| f64::from(wait.ms) / 1_000.0)
    };
    let mut all = vec![spread("all", of(None))];
    if 1 < sizes.len() {
        all.extend(sizes.into_iter().map(|size| spread(format!("party of {size}"), of(Some(size)))));
    }
    all.push(spread("gave up after", tally.gave_up_ms.iter().map(|&ms| f64::from(ms) / 1_000.0)));
    lines("Waits", ("seconds", SHARE), &all)
}

fn trips(name: &str, tally: &Tally) -> anyhow::Result<String> {
    let of = |values: &[f32]| values.iter().copied().map(f64::from).collect::<Vec<f64>>();
    let all = [
        spread(format!("{name}round trip"), of(&tally.round_trips_ms)),
        spread(format!("{name}regret"), of(&tally.regrets_ms)),
    ];
    lines("Round trips", ("ms", SHARE), &all)
}

/// What favourites were given, and how often they won.
fn calibration(figures: &Figures) -> anyhow::Result<String> {
    let Some(fair) = &figures.fairness else { return Ok(String::new()) };
    let bands = fair.bands.iter().filter(|band| 20 <= band.matches);
    let seen: Vec<(f64, f64)> = bands.map(|band| (band.predicted_percent, band.won_percent)).collect();
    let right = vec![(0.0, 0.0), (100.0, 100.0)];
    let all = [Line { name: "won".into(), points: seen }, Line { name: "as predicted".into(), points: right }];
    lines("Favourites: chance given and games won", ("chance given, %", "won, %"), &all)
}

/// The page: what was simulated, the plots, the table.
pub(super) fn page(head: &str, table: &str, plots: &[String]) -> String {
    let title = head.lines().next().unwrap_or("fireteam simulate");
    let style = "body{font-family:sans-serif;max-width:84rem;margin:2rem auto;padding:0 1rem}\
                 section{display:flex;flex-wrap:wrap;gap:1rem}pre{overflow-x:auto}svg{max-width:100%;height:auto}";
    let plots: String = plots.iter().map(|svg| format!("<figure>{svg}</figure>\n")).collect();
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{style}</style></head>\n<body>\n<pre>{head}</pre>\n<section>\n{plots}</section>\n<pre>{table}</pre>\n\
         </body>\n</html>\n",
        title = escaped(title),
        head = escaped(head),
        table = escaped(table),
    )
}

/// Text that HTML shows as it is; rulesets' names are their authors'.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
