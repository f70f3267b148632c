//! The thesis's study of rating systems, as text and plots.

use std::fmt::Write as _;

use crate::cli::simulate::svg_plot::{Series, line_plot};
use crate::cli::simulate::{SimulationOutput, html_page, parallel_worlds};
use crate::sim::rating_study::{
    CHECKPOINT_MATCHES, EXTENDED_STUDY_MATCHES, RatingHistory, STUDY_MATCH_PLAYERS_MAX, STUDY_MATCHES, STUDY_PLAYERS,
    StudyResult, StudyScheme, TRUE_SKILL_SD, run_study, studied_systems,
};

/// Study to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StudyKind {
    /// Elo and Glicko against known true skill.
    EloGlicko,
}

/// Scheme by which match results are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StudySchemeFlag {
    /// Each pair of 2 to 12 players has its own result, drawn with Elo's probability.
    AllAgainstAll,
    /// 2 to 12 players in one ranking.
    OneOrder,
    /// Two teams; the one with the higher mean true skill wins.
    TwoTeams,
}

impl StudySchemeFlag {
    fn scheme_and_description(self) -> (StudyScheme, &'static str) {
        match self {
            Self::AllAgainstAll => (
                StudyScheme::AllAgainstAll,
                "each pair of 2 to 12 players has its own result, drawn by true skill; changes are averaged",
            ),
            Self::OneOrder => (StudyScheme::OneOrder, "2 to 12 players in one ranking, drawn by true skill"),
            Self::TwoTeams => {
                (StudyScheme::TwoTeams, "two teams of 1 to 6; the team with the higher mean true skill wins")
            }
        }
    }
}

/// Runs the study and formats its results.
pub(super) fn run_and_render_study(
    reading: StudySchemeFlag,
    seed: u64,
    with_page: bool,
) -> anyhow::Result<SimulationOutput> {
    let (reading, description) = reading.scheme_and_description();
    let systems = studied_systems();
    let bar = parallel_worlds::progress_bar(1_000 * systems.len() as u64);
    let mut results = Vec::new();
    for (index, (name, spec)) in systems.iter().enumerate() {
        let mut progress = |share: f64| bar.set_position(1_000 * index as u64 + (share * 1_000.0) as u64);
        results.push(run_study((name, spec), reading, seed, EXTENDED_STUDY_MATCHES, &mut progress)?);
    }
    bar.finish_and_clear();
    let header = format!(
        "The thesis's study: {STUDY_PLAYERS} players, true skill normal around 0 with deviation {TRUE_SKILL_SD}, {STUDY_MATCHES} matches\n\
         of up to {STUDY_MATCH_PLAYERS_MAX} players, seed {seed}\nreading: {description}\n"
    );
    let table = format_table(&results);
    let html_page =
        if with_page { html_page::render_page(&header, &table, &draw_plots(&results)?) } else { String::new() };
    let json = serde_json::json!({
        "fireteam": env!("CARGO_PKG_VERSION"),
        "study": "elo-glicko",
        "reading": reading,
        "seed": seed,
        "outcomes": results,
    });
    Ok(SimulationOutput { text: format!("{header}\n{table}"), json, html_page })
}

fn format_table(results: &[StudyResult]) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "after {STUDY_MATCHES} matches");
    let _ = write!(text, "  {:<10}{:>16}", "", "matches each");
    if let Some(first) = results.first() {
        for (points, _) in first.within {
            let _ = write!(text, "{:>13}", format!("within {points:.0}"));
        }
    }
    let _ = writeln!(text, "{:>10}{:>10}{:>14}", "mean off", "most off", "sd of ratings");
    for result in results {
        let _ = write!(text, "  {:<10}{:>16.1}", result.system, result.matches_mean);
        for (_, percent) in result.within {
            let _ = write!(text, "{percent:>11.1} %");
        }
        let _ = writeln!(text, "{:>10.1}{:>10.1}{:>14.1}", result.distance_mean, result.distance_max, result.rating_sd);
    }
    let _ = writeln!(text, "\ndistance from the true skill by number of matches of a player");
    let _ = writeln!(
        text,
        "  {:<10}{:>9}{:>9}{:>12}{:>12}{:>9}{:>9}{:>9}",
        "", "matches", "players", "within 50", "within 100", "p50", "p90", "max"
    );
    for result in results {
        for point in &result.convergence {
            let _ = writeln!(
                text,
                "  {:<10}{:>9}{:>9}{:>10.1} %{:>10.1} %{:>9.1}{:>9.1}{:>9.1}",
                result.system,
                point.matches,
                point.players,
                point.within_50,
                point.within_100,
                point.p50,
                point.p90,
                point.max
            );
        }
    }
    text
}

fn draw_plots(results: &[StudyResult]) -> anyhow::Result<Vec<String>> {
    let mut plots = Vec::new();
    let mut ratings = Vec::new();
    if let Some(first) = results.first() {
        let true_skill = first.histogram.iter().map(|&(from, player_count, _)| (from, f64::from(player_count)));
        ratings.push(Series { name: "true skill".into(), points: true_skill.collect() });
    }
    for result in results {
        let points = result.histogram.iter().map(|&(from, _, rated)| (from, f64::from(rated))).collect();
        ratings.push(Series { name: result.system.into(), points });
    }
    plots.push(line_plot("Players by rating", ("rating", "players in 50 points"), &ratings)?);
    for (index, matches) in CHECKPOINT_MATCHES.iter().enumerate() {
        let series = |result: &StudyResult| {
            let percentiles = result.percentiles.get(index).map_or(&[][..], Vec::as_slice);
            let points =
                percentiles.iter().zip(1..).map(|(&distance, percent)| (f64::from(percent), distance)).collect();
            Series { name: result.system.into(), points }
        };
        let all_series: Vec<Series> = results.iter().map(series).collect();
        let title = format!("Distance from the true skill after {matches} matches");
        plots.push(line_plot(&title, ("% of players, at most", "points"), &all_series)?);
    }
    for result in results {
        let series = |history: &RatingHistory| {
            let points =
                history.ratings.iter().enumerate().map(|(matches, &rating)| (matches as f64, rating)).collect();
            Series { name: format!("true skill {:.0}", history.truth), points }
        };
        let all_series: Vec<Series> = result.histories.iter().map(series).collect();
        let title = format!("Five players, match by match: {}", result.system);
        plots.push(line_plot(&title, ("matches of the player", "rating"), &all_series)?);
    }
    Ok(plots)
}
