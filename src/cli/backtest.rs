//! `fireteam backtest`: replays matches from a file through a rating system. Predicts each match, then rates it, and
//! reports prediction quality and a leaderboard. The tables of docs/BENCHMARKS.md come from here.

mod fit;
mod match_rows;
mod match_time;
mod prediction_tally;
mod replay;
mod report;

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::backtest::fit::{FIT_MATCHES_MAX, fit_and_replay};
use crate::cli::backtest::match_rows::{MatchRows, RejectedMatchRow, ReplayMatch};
use crate::cli::backtest::replay::RatingReplay;
use crate::domain::ruleset::Ruleset;
use crate::domain::ruleset::rating::RatingSpec;
use crate::rules::{self, FileDiagnostic};

/// Maximum number of rejected rows that are printed; all are counted.
const REJECTED_ROWS_SHOWN_MAX: usize = 20;

/// Number of rows between updates of the progress bar.
const PROGRESS_INTERVAL_ROWS: u64 = 1_000;

/// Rating system without --system, --ruleset or --rating.
const DEFAULT_RATING_SYSTEM: &str = "glicko2";

/// Flags of `backtest`.
#[derive(Clone, Debug, Args)]
pub struct BacktestFlags {
    /// CSV file of matches, oldest first, with the columns match_id, time, teams and ranks; `;` separates teams and
    /// ranks, `+` players, rank 1 is best.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Rating system with default constants: elo, glicko, glicko2, trueskill or plackett_luce [default: glicko2, or the
    /// ruleset's].
    #[arg(long, value_name = "SYSTEM")]
    pub system: Option<String>,
    /// Ruleset file whose <Rating> gives the system and its constants.
    #[arg(long, value_name = "FILE")]
    pub ruleset: Option<PathBuf>,
    /// Rating element in place of a ruleset's: <Rating System="elo" K="32"/>.
    #[arg(long, value_name = "XML", conflicts_with_all = ["system", "ruleset"])]
    pub rating: Option<String>,
    /// Choose the system's constants on the first half of the matches, at most 1000000 matches, and compare the second half
    /// by them, by the constants before and by a coin.
    #[arg(long)]
    pub fit: bool,
    /// Number of leaderboard rows to print.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub top: usize,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Replays the file and prints the report to `out`. Prints rejected rows to standard error and skips them.
pub fn backtest(flags: &BacktestFlags, out: &mut dyn Write) -> anyhow::Result<()> {
    let spec = requested_rating_spec(flags)?;
    let FileReplay { replay, matches_to_fit, rejected_rows, skipped_rows } = replay_file(flags, spec)?;
    let shown_count = rejected_rows.len() as u64;
    if shown_count < skipped_rows {
        eprintln!("fireteam: {} more rows skipped", skipped_rows - shown_count);
    }
    let (replay, fit) = if flags.fit {
        let (fitted_replay, fit) = fit_and_replay(spec, &matches_to_fit).map_err(anyhow::Error::msg)?;
        (fitted_replay, Some(fit))
    } else {
        (replay, None)
    };
    let report = report::build_report(&flags.file, replay, fit, flags.top, skipped_rows, rejected_rows);
    if flags.json { report.write_json(out) } else { report.write_text(out) }.context("print the report")
}

/// Replay of a file.
struct FileReplay {
    replay: RatingReplay,
    /// Accepted matches, with --fit.
    matches_to_fit: Vec<ReplayMatch>,
    /// First rejected rows.
    rejected_rows: Vec<RejectedMatchRow>,
    /// Number of rejected rows.
    skipped_rows: u64,
}

/// Replays the file by `spec`. Fails if no row can be rated.
fn replay_file(flags: &BacktestFlags, spec: RatingSpec) -> anyhow::Result<FileReplay> {
    let file = File::open(&flags.file).with_context(|| format!("open {}", flags.file.display()))?;
    let bar = file_progress_bar(file.metadata().map_or(0, |metadata| metadata.len()));
    let mut matches =
        MatchRows::open(BufReader::new(file)).with_context(|| format!("read {}", flags.file.display()))?;
    let mut read = FileReplay {
        replay: RatingReplay::new(spec),
        matches_to_fit: Vec::new(),
        rejected_rows: Vec::new(),
        skipped_rows: 0,
    };
    let mut rows: u64 = 0;
    while let Some(row) = matches.next_match().with_context(|| format!("read {}", flags.file.display()))? {
        rows += 1;
        if rows.is_multiple_of(PROGRESS_INTERVAL_ROWS) {
            bar.set_position(matches.bytes_read());
        }
        match row.and_then(|row| read.replay.predict_and_learn(&row).map(|()| row)) {
            Ok(_) if read.matches_to_fit.len() == FIT_MATCHES_MAX => {
                bail!("{}: --fit takes at most {FIT_MATCHES_MAX} matches; use a shorter file", flags.file.display())
            }
            Ok(row) if flags.fit => read.matches_to_fit.push(row),
            Ok(_) => {}
            Err(error) => {
                read.skipped_rows += 1;
                if read.rejected_rows.len() < REJECTED_ROWS_SHOWN_MAX {
                    bar.suspend(|| eprintln!("fireteam: {}:{error}; skipped", flags.file.display()));
                    read.rejected_rows.push(error);
                }
            }
        }
    }
    bar.finish_and_clear();
    if read.replay.is_empty() {
        bail!("{}: none of {rows} rows can be rated; check the reported rows", flags.file.display());
    }
    if flags.fit && read.matches_to_fit.len() < 2 {
        bail!("{}: --fit needs at least 2 matches; use a longer file", flags.file.display());
    }
    Ok(read)
}

/// Progress bar by bytes read; hidden if standard error is not a terminal.
fn file_progress_bar(bytes: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent:>3} % of {total_bytes}, {eta} to go");
    ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr())
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

/// Rating system of the flags.
fn requested_rating_spec(flags: &BacktestFlags) -> anyhow::Result<RatingSpec> {
    if let Some(element) = &flags.rating {
        return rating_spec_from_xml(element);
    }
    let Some(path) = &flags.ruleset else {
        return rating_spec_by_name(flags.system.as_deref().unwrap_or(DEFAULT_RATING_SYSTEM));
    };
    let text = rules::load::read_file(path).map_err(diagnostics_to_error)?;
    let ruleset = rules::parse_ruleset(&path.to_string_lossy(), &text).map_err(diagnostics_to_error)?;
    let rating_spec = rating_spec_of_ruleset(ruleset, path)?;
    match &flags.system {
        Some(system) if system != rating_spec.system.as_str() => {
            bail!("{} uses {}, not {system}; remove --system", path.display(), rating_spec.system.as_str())
        }
        _ => Ok(rating_spec),
    }
}

/// Rating system with default constants. Parses a minimal ruleset, so that the defaults are defined once.
fn rating_spec_by_name(system: &str) -> anyhow::Result<RatingSpec> {
    if system.is_empty()
        || !system.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
    {
        bail!("unknown --system `{system}`; use elo, glicko, glicko2, trueskill or plackett_luce");
    }
    let text = format!("<Ruleset Name=\"rate\" SetId=\"0\"><Rating System=\"{system}\"/></Ruleset>");
    match rules::parse_ruleset("--system", &text) {
        Ok(ruleset) => rating_spec_of_ruleset(ruleset, Path::new("--system")),
        Err(_) => bail!("unknown --system `{system}`; use elo, glicko, glicko2, trueskill or plackett_luce"),
    }
}

/// Rating system of an XML element. The element has its own line, so that errors name its columns.
fn rating_spec_from_xml(element: &str) -> anyhow::Result<RatingSpec> {
    let text = format!("<Ruleset Name=\"rate\" SetId=\"0\">\n{element}\n</Ruleset>");
    rating_spec_of_ruleset(
        rules::parse_ruleset("--rating", &text).map_err(diagnostics_to_error)?,
        Path::new("--rating"),
    )
}

fn rating_spec_of_ruleset(ruleset: Ruleset, path: &Path) -> anyhow::Result<RatingSpec> {
    ruleset.rating.with_context(|| format!("{} has no <Rating>; add one, or use --system", path.display()))
}

fn diagnostics_to_error(problems: Vec<FileDiagnostic>) -> anyhow::Error {
    anyhow::Error::msg(problems.iter().map(FileDiagnostic::to_string).collect::<Vec<_>>().join("\n"))
}
