//! Replays matches from a file through a rating system: predicts each, then learns from it, and says how good the predictions
//! were and who is best. The tables of docs/BENCHMARKS.md come from here.

mod matches;
mod replay;
mod report;
mod tally;

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::rate::matches::{BadRow, Matches};
use crate::cli::rate::replay::Replay;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::rating::RatingSpec;
use crate::rules::{self, Problem};

/// Bad rows that are shown; all are counted.
const BAD_ROWS_SHOWN: usize = 20;

/// Rows between two looks at how far it has come.
const PROGRESS_EVERY: u64 = 1_000;

/// What is rated by where nothing is said.
const DEFAULT_SYSTEM: &str = "glicko2";

/// What `rate` takes.
#[derive(Clone, Debug, Args)]
pub struct RateFlags {
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
pub fn rate(flags: &RateFlags, out: &mut dyn Write) -> anyhow::Result<()> {
    let spec = spec(flags)?;
    let file = File::open(&flags.file).with_context(|| format!("open {}", flags.file.display()))?;
    let bar = bar(file.metadata().map_or(0, |about| about.len()));
    let mut matches = Matches::open(BufReader::new(file)).with_context(|| format!("read {}", flags.file.display()))?;
    let mut replay = Replay::new(spec);
    let mut bad: Vec<BadRow> = Vec::new();
    let mut skipped: u64 = 0;
    let mut rows: u64 = 0;
    while let Some(row) = matches.next().with_context(|| format!("read {}", flags.file.display()))? {
        rows += 1;
        if rows.is_multiple_of(PROGRESS_EVERY) {
            bar.set_position(matches.bytes());
        }
        if let Err(why) = row.and_then(|row| replay.play(row)) {
            skipped += 1;
            if bad.len() < BAD_ROWS_SHOWN {
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
    let report = report::of(&flags.file, replay, flags.top, skipped, bad);
    if flags.json { report.json(out) } else { report.text(out) }.context("print the report")
}

/// A bar that shows itself on a terminal and nowhere else.
fn bar(bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} % of {total_bytes}, {eta} to go");
    ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr())
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// The rating system that was asked for.
fn spec(flags: &RateFlags) -> anyhow::Result<RatingSpec> {
    if let Some(element) = &flags.rating {
        return written(element);
    }
    let Some(path) = &flags.ruleset else {
        return named(flags.system.as_deref().unwrap_or(DEFAULT_SYSTEM));
    };
    let text = rules::load::read(path).map_err(told)?;
    let ruleset = rules::parse(&path.to_string_lossy(), &text).map_err(told)?;
    let spec = rating_of(ruleset, path)?;
    match &flags.system {
        Some(system) if system != spec.system.as_str() => {
            bail!("{} rates by {}, not by {system}; leave --system out", path.display(), spec.system.as_str())
        }
        _ => Ok(spec),
    }
}

/// A system with the constants of a ruleset that does not say any: by way of such a ruleset, so that there is one table of them.
fn named(system: &str) -> anyhow::Result<RatingSpec> {
    if system.is_empty() || !system.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'_') {
        bail!("--system is `{system}`: name one of elo, glicko, glicko2, trueskill, plackett_luce");
    }
    let text = format!("<Ruleset Name=\"rate\" SetId=\"0\"><Rating System=\"{system}\"/></Ruleset>");
    match rules::parse("--system", &text) {
        Ok(ruleset) => rating_of(ruleset, Path::new("--system")),
        Err(_) => bail!("--system is `{system}`: name one of elo, glicko, glicko2, trueskill, plackett_luce"),
    }
}

/// An element, in a line of its own so that mistakes are told by its columns.
fn written(element: &str) -> anyhow::Result<RatingSpec> {
    let text = format!("<Ruleset Name=\"rate\" SetId=\"0\">\n{element}\n</Ruleset>");
    rating_of(rules::parse("--rating", &text).map_err(told)?, Path::new("--rating"))
}

fn rating_of(ruleset: Ruleset, path: &Path) -> anyhow::Result<RatingSpec> {
    ruleset.rating.with_context(|| format!("{} has no <Rating>: add one, or name a --system", path.display()))
}

fn told(problems: Vec<Problem>) -> anyhow::Error {
    anyhow::Error::msg(problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n"))
}
