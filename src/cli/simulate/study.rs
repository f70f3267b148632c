//! The thesis's study of rating systems, printed and plotted.

use std::fmt::Write as _;

use crate::cli::simulate::plot::{Line, lines};
use crate::cli::simulate::{Shown, page, worlds};
use crate::sim::study::{
    History, LOOKED_AT, MATCH_MAX, MATCHES, MATCHES_LATER, Outcome, PLAYERS, Reading, SD, run, systems,
};

/// Which study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Study {
    /// Elo and Glicko against known strengths.
    EloGlicko,
}

/// How its matches come out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StudyReading {
    /// Every two of 2 to 12 players have a result of their own, drawn with the chance that Elo gives it.
    AllAgainstAll,
    /// 2 to 12 players come in in one order.
    OneOrder,
    /// Two teams; the one that is truly better on average wins.
    TwoTeams,
}

impl StudyReading {
    fn reading(self) -> (Reading, &'static str) {
        match self {
            Self::AllAgainstAll => (
                Reading::AllAgainstAll,
                "each two of 2 to 12 players have a result of their own, drawn by true strengths; changes averaged",
            ),
            Self::OneOrder => {
                (Reading::OneOrder, "2 to 12 players come in in one order, drawn by their true strengths")
            }
            Self::TwoTeams => (Reading::TwoTeams, "two teams of 1 to 6; the one that is truly better on average wins"),
        }
    }
}

/// Runs the study.
pub(super) fn shown(reading: StudyReading, seed: u64, with_page: bool) -> anyhow::Result<Shown> {
    let (reading, words) = reading.reading();
    let systems = systems();
    let bar = worlds::bar(1_000 * systems.len() as u64);
    let mut outcomes = Vec::new();
    for (number, (name, spec)) in systems.iter().enumerate() {
        let mut progress = |share: f64| bar.set_position(1_000 * number as u64 + (share * 1_000.0) as u64);
        outcomes.push(run((name, spec), reading, seed, MATCHES_LATER, &mut progress)?);
    }
    bar.finish_and_clear();
    let head = format!(
        "The thesis's study: {PLAYERS} players, true strengths normal around 0 with deviation {SD}, {MATCHES} matches\n\
         of up to {MATCH_MAX} players, seed {seed}\nreading: {words}\n"
    );
    let table = table(&outcomes);
    let page = if with_page { page::page(&head, &table, &plots(&outcomes)?) } else { String::new() };
    let json = serde_json::json!({
        "fireteam": env!("CARGO_PKG_VERSION"),
        "study": "elo-glicko",
        "reading": reading,
        "seed": seed,
        "outcomes": outcomes,
    });
    Ok(Shown { text: format!("{head}\n{table}"), json, page })
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "after {MATCHES} matches");
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

fn plots(outcomes: &[Outcome]) -> anyhow::Result<Vec<String>> {
    let mut plots = Vec::new();
    let mut ratings = Vec::new();
    if let Some(first) = outcomes.first() {
        let truth = first.histogram.iter().map(|&(from, truly, _)| (from, f64::from(truly)));
        ratings.push(Line { name: "truth".into(), points: truth.collect() });
    }
    for it in outcomes {
        let points = it.histogram.iter().map(|&(from, _, rated)| (from, f64::from(rated))).collect();
        ratings.push(Line { name: it.system.into(), points });
    }
    plots.push(lines("Players by rating", ("rating", "players in 50 points"), &ratings)?);
    for (at, matches) in LOOKED_AT.iter().enumerate() {
        let line = |it: &Outcome| {
            let percentiles = it.percentiles.get(at).map_or(&[][..], Vec::as_slice);
            let points = percentiles.iter().zip(1..).map(|(&off, percent)| (f64::from(percent), off)).collect();
            Line { name: it.system.into(), points }
        };
        let all: Vec<Line> = outcomes.iter().map(line).collect();
        let title = format!("Distance from the truth after {matches} matches");
        plots.push(lines(&title, ("% of players, at most", "points"), &all)?);
    }
    for it in outcomes {
        let line = |history: &History| {
            let points =
                history.ratings.iter().enumerate().map(|(matches, &rating)| (matches as f64, rating)).collect();
            Line { name: format!("truly {:.0}", history.truth), points }
        };
        let all: Vec<Line> = it.histories.iter().map(line).collect();
        let title = format!("Five players, match by match: {}", it.system);
        plots.push(lines(&title, ("matches of the player", "rating"), &all)?);
    }
    Ok(plots)
}
