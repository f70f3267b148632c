//! The thesis's study of rating systems: Elo and Glicko against known true skill. Needs no server.
//!
//! `cargo run --release --example rating_study -- --plot study.html`
//!
//! Prints the accuracy of each system as text. The same seed gives the same result.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use fireteam::cli::simulate::charts::{Chart, Line};
use fireteam::cli::simulate::html_page::render_page;
use fireteam_sim::rating_study::{
    CHECKPOINT_MATCHES, EXTENDED_STUDY_TOTAL_MATCHES, RatingHistory, STUDY_MATCH_PLAYERS_MAX, STUDY_MATCHES,
    STUDY_PLAYERS, StudyResult, StudyScheme, TRUE_SKILL_SD, run_study, studied_systems,
};

/// Measures how close Elo and Glicko ratings come to known true skill.
#[derive(Debug, Parser)]
pub(crate) struct StudyFlags {
    /// Scheme by which the study draws match results.
    #[arg(long, value_name = "SCHEME", default_value = "all-against-all")]
    scheme: StudySchemeFlag,
    /// Seed; the same seed gives the same study.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// File for all results as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// File for a page of plots, HTML.
    #[arg(long, value_name = "FILE.html")]
    plot: Option<PathBuf>,
}

/// Scheme by which match results are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum StudySchemeFlag {
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

fn main() -> anyhow::Result<()> {
    let flags = StudyFlags::parse();
    let (scheme, description) = flags.scheme.scheme_and_description();
    let mut results = Vec::new();
    for (name, spec) in &studied_systems() {
        results.push(run_study((name, spec), scheme, flags.seed, EXTENDED_STUDY_TOTAL_MATCHES, &mut |_| {})?);
    }
    let header = format!(
        "The thesis's study: {STUDY_PLAYERS} players, true skill normal around 0 with deviation {TRUE_SKILL_SD}, {STUDY_MATCHES} matches\n\
         of up to {STUDY_MATCH_PLAYERS_MAX} players, seed {}\nscheme: {description}\n",
        flags.seed
    );
    let table = format_table(&results);
    print!("{header}\n{table}");
    if let Some(path) = &flags.json {
        let json = serde_json::json!({ "scheme": scheme, "seed": flags.seed, "results": results });
        std::fs::write(path, format!("{json:#}\n")).with_context(|| format!("write {}", path.display()))?;
    }
    if let Some(path) = &flags.plot {
        let page = render_page("Study of rating systems", &header, &table, &rating_charts(&results))?;
        std::fs::write(path, page).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
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

fn rating_charts(results: &[StudyResult]) -> Vec<Chart> {
    let mut charts = Vec::new();
    let mut ratings = Vec::new();
    if let Some(first) = results.first() {
        let true_skill = first.histogram.iter().map(|&(from, player_count, _)| (from, f64::from(player_count)));
        ratings.push(Line::new("true skill", true_skill.collect()));
    }
    for result in results {
        let points = result.histogram.iter().map(|&(from, _, rated)| (from, f64::from(rated))).collect();
        ratings.push(Line::new(result.system, points));
    }
    charts.push(Chart::of_lines("Players by rating", ("rating", "players in 50 points"), ratings));
    for (index, matches) in CHECKPOINT_MATCHES.iter().enumerate() {
        let series = |result: &StudyResult| {
            let percentiles = result.percentiles.get(index).map_or(&[][..], Vec::as_slice);
            let points =
                percentiles.iter().zip(1..).map(|(&distance, percent)| (f64::from(percent), distance)).collect();
            Line::new(result.system, points)
        };
        let lines: Vec<Line> = results.iter().map(series).collect();
        let title = format!("Distance from the true skill after {matches} matches");
        charts.push(Chart::of_lines(&title, ("% of players, at most", "points"), lines));
    }
    for result in results {
        let series = |history: &RatingHistory| {
            let points =
                history.ratings.iter().enumerate().map(|(matches, &rating)| (matches as f64, rating)).collect();
            Line::new(format!("true skill {:.0}", history.truth), points)
        };
        let lines: Vec<Line> = result.histories.iter().map(series).collect();
        let title = format!("Five players, match by match: {}", result.system);
        charts.push(Chart::of_lines(&title, ("matches of the player", "rating"), lines));
    }
    charts.into_iter().flatten().collect()
}
