//! The thesis's study of rating systems, printed and plotted.

use std::fmt::Write as _;

use crate::cli::simulate::svg_plot::{Series, line_plot};
use crate::cli::simulate::{SimulationOutput, html_page, parallel_worlds};
use crate::sim::rating_study::{
    CHECKPOINT_MATCHES, EXTENDED_STUDY_MATCHES, RatingHistory, STUDY_MATCH_PLAYERS_MAX, STUDY_MATCHES, STUDY_PLAYERS,
    StudyResult, StudyScheme, TRUE_SKILL_SD, run_study, studied_systems,
};

/// Which study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StudyKind {
    /// Elo and Glicko against known strengths.
    EloGlicko,
}

/// How its matches come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StudySchemeFlag {
    /// Every two of 2 to 12 players have a result of their own, drawn with the chance that Elo gives it.
    AllAgainstAll,
    /// 2 to 12 players come in in one order.
    OneOrder,
    /// Two teams; the one that is truly better on average wins.
    TwoTeams,
}

impl StudySchemeFlag {
    fn scheme_and_description(self) -> (StudyScheme, &'static str) {
        match self {
            Self::AllAgainstAll => (
                StudyScheme::AllAgainstAll,
                "each two of 2 to 12 players have a result of their own, drawn by true strengths; changes averaged",
            ),
            Self::OneOrder => {
                (StudyScheme::OneOrder, "2 to 12 players come in in one order, drawn by their true strengths")
            }
            Self::TwoTeams => {
                (StudyScheme::TwoTeams, "two teams of 1 to 6; the one that is truly better on average wins")
            }
        }
    }
}

/// Runs the study.
pub(super) fn run_and_render_study(
    reading: StudySchemeFlag,
    seed: u64,
    with_page: bool,
) -> anyhow::Result<SimulationOutput> {
    let (reading, words) = reading.scheme_and_description();
    let systems = studied_systems();
    let bar = parallel_worlds::progress_bar(1_000 * systems.len() as u64);
    let mut outcomes = Vec::new();
    for (number, (name, spec)) in systems.iter().enumerate() {
        let mut progress = |share: f64| bar.set_position(1_000 * number as u64 + (share * 1_000.0) as u64);
        outcomes.push(run_study((name, spec), reading, seed, EXTENDED_STUDY_MATCHES, &mut progress)?);
    }
    bar.finish_and_clear();
    let head = format!(
        "The thesis's study: {STUDY_PLAYERS} players, true strengths normal around 0 with deviation {TRUE_SKILL_SD}, {STUDY_MATCHES} matches\n\
         of up to {STUDY_MATCH_PLAYERS_MAX} players, seed {seed}\nreading: {words}\n"
    );
    let table = format_table(&outcomes);
    let page = if with_page { html_page::render_page(&head, &table, &draw_plots(&outcomes)?) } else { String::new() };
    let json = serde_json::json!({
        "fireteam": env!("CARGO_PKG_VERSION"),
        "study": "elo-glicko",
        "reading": reading,
        "seed": seed,
        "outcomes": outcomes,
    });
    Ok(SimulationOutput { text: format!("{head}\n{table}"), json, html_page: page })
}

fn format_table(outcomes: &[StudyResult]) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "after {STUDY_MATCHES} matches");
    let _ = write!(text, "  {:<10}{:>16}", "", "matches each");
    if let Some(first) = outcomes.first() {
        for (points, _) in first.within {
            let _ = write!(text, "{:>13}", format!("within {points:.0}"));
        }
    }
    let _ = writeln!(text, "{:>10}{:>10}{:>14}", "mean off", "most off", "sd of ratings");
    for it in outcomes {
        let _ = write!(text, "  {:<10}{:>16.1}", it.system, it.matches_mean);
        for (_, percent) in it.within {
            let _ = write!(text, "{percent:>11.1} %");
        }
        let _ = writeln!(text, "{:>10.1}{:>10.1}{:>14.1}", it.distance_mean, it.distance_max, it.rating_sd);
    }
    let _ = writeln!(text, "\ndistance from the truth when a player has played so many matches");
    let _ = writeln!(
        text,
        "  {:<10}{:>9}{:>9}{:>12}{:>12}{:>9}{:>9}{:>9}",
        "", "matches", "players", "within 50", "within 100", "p50", "p90", "max"
    );
    for it in outcomes {
        for at in &it.convergence {
            let _ = writeln!(
                text,
                "  {:<10}{:>9}{:>9}{:>10.1} %{:>10.1} %{:>9.1}{:>9.1}{:>9.1}",
                it.system, at.matches, at.players, at.within_50, at.within_100, at.p50, at.p90, at.max
            );
        }
    }
    text
}

fn draw_plots(outcomes: &[StudyResult]) -> anyhow::Result<Vec<String>> {
    let mut plots = Vec::new();
    let mut ratings = Vec::new();
    if let Some(first) = outcomes.first() {
        let truth = first.histogram.iter().map(|&(from, truly, _)| (from, f64::from(truly)));
        ratings.push(Series { name: "truth".into(), points: truth.collect() });
    }
    for it in outcomes {
        let points = it.histogram.iter().map(|&(from, _, rated)| (from, f64::from(rated))).collect();
        ratings.push(Series { name: it.system.into(), points });
    }
    plots.push(line_plot("Players by rating", ("rating", "players in 50 points"), &ratings)?);
    for (at, matches) in CHECKPOINT_MATCHES.iter().enumerate() {
        let line = |it: &StudyResult| {
            let percentiles = it.percentiles.get(at).map_or(&[][..], Vec::as_slice);
            let points = percentiles.iter().zip(1..).map(|(&off, percent)| (f64::from(percent), off)).collect();
            Series { name: it.system.into(), points }
        };
        let all: Vec<Series> = outcomes.iter().map(line).collect();
        let title = format!("Distance from the truth after {matches} matches");
        plots.push(line_plot(&title, ("% of players, at most", "points"), &all)?);
    }
    for it in outcomes {
        let line = |history: &RatingHistory| {
            let points =
                history.ratings.iter().enumerate().map(|(matches, &rating)| (matches as f64, rating)).collect();
            Series { name: format!("truly {:.0}", history.truth), points }
        };
        let all: Vec<Series> = it.histories.iter().map(line).collect();
        let title = format!("Five players, match by match: {}", it.system);
        plots.push(line_plot(&title, ("matches of the player", "rating"), &all)?);
    }
    Ok(plots)
}
