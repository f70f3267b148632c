//! Replays matches from a file through a rating system: predicts each, then learns from it, and says how good the predictions
//! were and who is best. The tables of docs/BENCHMARKS.md come from here.

mod match_rows;
mod prediction_tally;
mod replay;
mod report;

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::backtest::match_rows::{MatchRows, RejectedMatchRow};
use crate::cli::backtest::replay::RatingReplay;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::rating::RatingSpec;
use crate::rules::{self, RenderedDiagnostic};

/// Bad rows that are shown; all are counted.
const REJECTED_ROWS_SHOWN_MAX: usize = 20;

/// Rows between two looks at how far it has come.
const PROGRESS_INTERVAL_ROWS: u64 = 1_000;

/// What is rated by where nothing is said.
const DEFAULT_RATING_SYSTEM: &str = "glicko2";

/// What `rate` takes.
#[derive(Clone, Debug, Args)]
pub struct BacktestFlags {
    /// The matches, oldest first: CSV with the columns match_id, time, teams and ranks. `;` stands between teams and between
    /// ranks, `+` between players; rank 1 is best, equal ranks are a draw.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// The rating system, with the constants that a ruleset has which does not say any: elo, glicko, glicko2, trueskill or
    /// plackett_luce [default: glicko2, or the ruleset's].
    #[arg(long, value_name = "SYSTEM")]
    pub system: Option<String>,
    /// Take the system and its constants from this ruleset's <Rating>.
    #[arg(long, value_name = "FILE")]
    pub ruleset: Option<PathBuf>,
    /// Take them from this, as it would stand in a ruleset: <Rating System="elo" K="32"/>.
    #[arg(long, value_name = "XML", conflicts_with_all = ["system", "ruleset"])]
    pub rating: Option<String>,
    /// How many places of the leaderboard to show.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub top: usize,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Replays the file and prints on `out` what came of it. Rows that are wrong are told on standard error and skipped.
pub fn backtest(flags: &BacktestFlags, out: &mut dyn Write) -> anyhow::Result<()> {
    let spec = requested_rating_spec(flags)?;
    let file = File::open(&flags.file).with_context(|| format!("open {}", flags.file.display()))?;
    let bar = file_progress_bar(file.metadata().map_or(0, |about| about.len()));
    let mut matches =
        MatchRows::open(BufReader::new(file)).with_context(|| format!("read {}", flags.file.display()))?;
    let mut replay = RatingReplay::new(spec);
    let mut bad: Vec<RejectedMatchRow> = Vec::new();
    let mut skipped: u64 = 0;
    let mut rows: u64 = 0;
    while let Some(row) = matches.next_match().with_context(|| format!("read {}", flags.file.display()))? {
        rows += 1;
        if rows.is_multiple_of(PROGRESS_INTERVAL_ROWS) {
            bar.set_position(matches.bytes_read());
        }
        if let Err(why) = row.and_then(|row| replay.predict_and_learn(row)) {
            skipped += 1;
            if bad.len() < REJECTED_ROWS_SHOWN_MAX {
                bar.suspend(|| eprintln!("fireteam: {}:{why}; skipped", flags.file.display()));
                bad.push(why);
            }
        }
    }
    bar.finish_and_clear();
    if replay.is_empty() {
        bail!("{}: none of {rows} rows can be rated", flags.file.display());
    }
    let shown = bad.len() as u64;
    if shown < skipped {
        eprintln!("fireteam: {} more rows skipped", skipped - shown);
    }
    let report = report::build_report(&flags.file, replay, flags.top, skipped, bad);
    if flags.json { report.write_json(out) } else { report.write_text(out) }.context("print the report")
}

/// A bar that shows itself on a terminal and nowhere else.
fn file_progress_bar(bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} % of {total_bytes}, {eta} to go");
    ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr())
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The rating system that was asked for.
fn requested_rating_spec(flags: &BacktestFlags) -> anyhow::Result<RatingSpec> {
    if let Some(element) = &flags.rating {
        return rating_spec_from_xml(element);
    }
    let Some(path) = &flags.ruleset else {
        return rating_spec_by_name(flags.system.as_deref().unwrap_or(DEFAULT_RATING_SYSTEM));
    };
    let text = rules::load::read_file(path).map_err(diagnostics_to_error)?;
    let ruleset = rules::parse_ruleset(&path.to_string_lossy(), &text).map_err(diagnostics_to_error)?;
    let spec = rating_spec_of_ruleset(ruleset, path)?;
    match &flags.system {
        Some(system) if system != spec.system.as_str() => {
            bail!("{} rates by {}, not by {system}; leave --system out", path.display(), spec.system.as_str())
        }
        _ => Ok(spec),
    }
}

/// A system with the constants of a ruleset that does not say any: by way of such a ruleset, so that there is one table of them.
fn rating_spec_by_name(system: &str) -> anyhow::Result<RatingSpec> {
    if system.is_empty() || !system.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_') {
        bail!("--system is `{system}`: name one of elo, glicko, glicko2, trueskill, plackett_luce");
    }
    let text = format!("<Ruleset Name=\"rate\" SetId=\"0\"><Rating System=\"{system}\"/></Ruleset>");
    match rules::parse_ruleset("--system", &text) {
        Ok(ruleset) => rating_spec_of_ruleset(ruleset, Path::new("--system")),
        Err(_) => bail!("--system is `{system}`: name one of elo, glicko, glicko2, trueskill, plackett_luce"),
    }
}

/// An element, in a line of its own so that mistakes are told by its columns.
fn rating_spec_from_xml(element: &str) -> anyhow::Result<RatingSpec> {
    let text = format!("<Ruleset Name=\"rate\" SetId=\"0\">\n{element}\n</Ruleset>");
    rating_spec_of_ruleset(
        rules::parse_ruleset("--rating", &text).map_err(diagnostics_to_error)?,
        Path::new("--rating"),
    )
}

fn rating_spec_of_ruleset(ruleset: Ruleset, path: &Path) -> anyhow::Result<RatingSpec> {
    ruleset.rating.with_context(|| format!("{} has no <Rating>: add one, or name a --system", path.display()))
}

fn diagnostics_to_error(problems: Vec<RenderedDiagnostic>) -> anyhow::Error {
    anyhow::Error::msg(problems.iter().map(RenderedDiagnostic::to_string).collect::<Vec<_>>().join("\n"))
}
