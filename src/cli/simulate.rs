//! `fireteam simulate`: simulates a queue, compares two rulesets, or runs the thesis's study of rating systems. Prints
//! text, and writes JSON and a page of plots.

mod html_page;
mod input;
mod parallel_worlds;
mod study;
mod svg_plot;
mod text_report;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use crate::cli::simulate::input::{RulesetWithMap, SimulationInput};
use crate::cli::{ExitStatus, report_result};
use crate::domain::ruleset::Ruleset;
use crate::sim::comparison::{StatisticDelta, compare_statistics};
use crate::sim::statistics::SimStatistics;
use crate::sim::tally::SimTally;

pub use study::{StudyKind, StudySchemeFlag};

/// Maximum number of worlds in one run.
const SEEDS_MAX: u32 = 1_000;

/// Default number of worlds of a comparison, enough for a confidence interval.
const COMPARISON_SEEDS_DEFAULT: u32 = 8;

/// Flags of `simulate`.
#[derive(Debug, clap::Args)]
pub struct SimulateFlags {
    /// Ruleset file.
    #[arg(value_name = "RULESET", required_unless_present_any = ["compare", "study"])]
    ruleset: Option<PathBuf>,
    /// Scenario: low, normal, launch_day, leagues, outliers_evening, night, or a .toml file.
    #[arg(long, value_name = "NAME|FILE", default_value = "normal")]
    scenario: String,
    /// First seed; the same seed gives the same world.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Number of worlds, one seed each, 1 to 1000 [default: 1; with --compare 8].
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=i64::from(SEEDS_MAX)))]
    seeds: Option<u32>,
    /// Counted time in hours [default: as in the scenario].
    #[arg(long, value_name = "H")]
    hours: Option<f64>,
    /// File for all statistics as JSON; `-` prints only them to standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// File for a page of plots, HTML.
    #[arg(long, value_name = "FILE.html")]
    plot: Option<PathBuf>,
    /// Measured round trips, CSV file with source, destination, avg in ms [default: the ruleset's latency model].
    #[arg(long, value_name = "CSV")]
    latencies: Option<PathBuf>,
    /// Site locations of --latencies, CSV file with id, latitude, longitude [default: servers*.csv beside it].
    #[arg(long, value_name = "CSV", requires = "latencies")]
    latency_sites: Option<PathBuf>,
    /// Compare two rulesets on the same players.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["ruleset", "study"])]
    compare: Option<Vec<PathBuf>>,
    /// Run a study of rating systems instead of a queue.
    #[arg(long, value_name = "STUDY", conflicts_with_all = ["ruleset", "latencies"])]
    study: Option<StudyKind>,
    /// Scheme by which the study draws match results.
    #[arg(long, value_name = "READING", default_value = "all-against-all", requires = "study")]
    study_reading: StudySchemeFlag,
}

/// Output of a run: text for standard output, JSON and HTML for files.
struct SimulationOutput {
    text: String,
    json: serde_json::Value,
    html_page: String,
}

/// Runs the command.
pub fn simulate(flags: &SimulateFlags) -> ExitStatus {
    let output = match (&flags.study, &flags.compare) {
        (Some(_), _) => study::run_and_render_study(flags.study_reading, flags.seed, flags.plot.is_some()),
        (None, Some(files)) => match input::load_input(flags, files) {
            Ok(input) => compare_rulesets(flags, &input),
            Err(error) => return report_usage_error(&error),
        },
        (None, None) => match input::load_input(flags, flags.ruleset.as_slice()) {
            Ok(input) => simulate_ruleset(flags, &input),
            Err(error) => return report_usage_error(&error),
        },
    };
    report_result(output.and_then(|output| write_output(flags, &output)))
}

fn report_usage_error(error: &anyhow::Error) -> ExitStatus {
    eprintln!("fireteam: {error:#}");
    ExitStatus::UsageError
}

fn write_output(flags: &SimulateFlags, output: &SimulationOutput) -> anyhow::Result<()> {
    let json = || serde_json::to_string_pretty(&output.json).context("write the statistics as JSON");
    let mut out = io::stdout().lock();
    match &flags.json {
        Some(path) if path.as_os_str() == "-" => writeln!(out, "{}", json()?)?,
        json_path => {
            out.write_all(output.text.as_bytes())?;
            if let Some(path) = json_path {
                write_file(path, &format!("{}\n", json()?))?;
            }
        }
    }
    flags.plot.as_ref().map_or(Ok(()), |path| write_file(path, &output.html_page))
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// JSON output for one ruleset.
#[derive(Serialize)]
struct SimulationJson<'a> {
    fireteam: &'static str,
    scenario: &'a str,
    hours: f64,
    measured_round_trips: bool,
    seeds: Vec<u64>,
    ruleset: RulesetJson<'a>,
    figures: SimStatistics,
    by_seed: Vec<SimStatistics>,
}

/// JSON output for two compared rulesets.
#[derive(Serialize)]
struct ComparisonJson<'a> {
    fireteam: &'static str,
    scenario: &'a str,
    hours: f64,
    measured_round_trips: bool,
    seeds: Vec<u64>,
    first: RulesetJson<'a>,
    second: RulesetJson<'a>,
    differences: &'a [StatisticDelta],
    first_by_seed: Vec<SimStatistics>,
    second_by_seed: Vec<SimStatistics>,
}

/// Identity of a ruleset.
#[derive(Serialize)]
struct RulesetJson<'a> {
    name: &'a str,
    set_id: u32,
    hash: u32,
}

impl<'a> RulesetJson<'a> {
    fn from_ruleset(ruleset: &'a Ruleset) -> Self {
        Self { name: &ruleset.name, set_id: ruleset.set_id.0, hash: ruleset.hash.0 }
    }
}

fn seed_list(flags: &SimulateFlags, default_count: u32) -> Vec<u64> {
    (0..u64::from(flags.seeds.unwrap_or(default_count))).map(|offset| flags.seed.wrapping_add(offset)).collect()
}

fn simulate_ruleset(flags: &SimulateFlags, input: &SimulationInput) -> anyhow::Result<SimulationOutput> {
    let seeds = seed_list(flags, 1);
    let RulesetWithMap { ruleset, map, file } = &input.rulesets[0];
    let tallies = parallel_worlds::run_worlds(&input.scenario, &[(ruleset, map)], &seeds)?.remove(0);
    let by_seed: Vec<SimStatistics> = tallies.iter().map(|tally| SimStatistics::from_tally(tally, map)).collect();
    let tally = merge_tallies(tallies);
    let statistics = SimStatistics::from_tally(&tally, map);
    let header = text_report::format_header(input, &[(file, ruleset)], &seeds, &statistics);
    let html_page = match flags.plot {
        Some(_) => html_page::simulation_page(&header, &statistics, &tally)?,
        None => String::new(),
    };
    let document = SimulationJson {
        fireteam: env!("CARGO_PKG_VERSION"),
        scenario: &flags.scenario,
        hours: input.scenario.hours,
        measured_round_trips: input.has_measured_latencies,
        seeds,
        ruleset: RulesetJson::from_ruleset(ruleset),
        by_seed,
        figures: statistics.clone(),
    };
    let json = serde_json::to_value(&document)?;
    Ok(SimulationOutput { text: format!("{header}\n{}", text_report::format_statistics(&statistics)), json, html_page })
}

fn compare_rulesets(flags: &SimulateFlags, input: &SimulationInput) -> anyhow::Result<SimulationOutput> {
    let seeds = seed_list(flags, COMPARISON_SEEDS_DEFAULT);
    let rulesets: Vec<_> =
        input.rulesets.iter().map(|ruleset_with_map| (&ruleset_with_map.ruleset, &ruleset_with_map.map)).collect();
    let mut tallies = parallel_worlds::run_worlds(&input.scenario, &rulesets, &seeds)?.into_iter();
    let (first, second) = (tallies.next().unwrap_or_default(), tallies.next().unwrap_or_default());
    let statistics_of = |tallies: &[SimTally], ruleset_with_map: &RulesetWithMap| -> Vec<SimStatistics> {
        tallies.iter().map(|tally| SimStatistics::from_tally(tally, &ruleset_with_map.map)).collect()
    };
    let (first_by_seed, second_by_seed) =
        (statistics_of(&first, &input.rulesets[0]), statistics_of(&second, &input.rulesets[1]));
    let differences = compare_statistics(&first_by_seed, &second_by_seed);
    let (first, second) = (merge_tallies(first), merge_tallies(second));
    let first_statistics = SimStatistics::from_tally(&first, &input.rulesets[0].map);
    let files: Vec<(&PathBuf, &Ruleset)> =
        input.rulesets.iter().map(|ruleset_with_map| (&ruleset_with_map.file, &ruleset_with_map.ruleset)).collect();
    let header = text_report::format_header(input, &files, &seeds, &first_statistics);
    let table = text_report::format_differences(&differences);
    let html_page = match flags.plot {
        Some(_) => html_page::comparison_page(&header, &table, &first, &second)?,
        None => String::new(),
    };
    let document = ComparisonJson {
        fireteam: env!("CARGO_PKG_VERSION"),
        scenario: &flags.scenario,
        hours: input.scenario.hours,
        measured_round_trips: input.has_measured_latencies,
        seeds,
        first: RulesetJson::from_ruleset(&input.rulesets[0].ruleset),
        second: RulesetJson::from_ruleset(&input.rulesets[1].ruleset),
        differences: &differences,
        first_by_seed,
        second_by_seed,
    };
    let json = serde_json::to_value(&document)?;
    Ok(SimulationOutput { text: format!("{header}\n{table}"), json, html_page })
}

fn merge_tallies(tallies: Vec<SimTally>) -> SimTally {
    let mut merged = SimTally::default();
    tallies.into_iter().for_each(|tally| merged.merge(tally));
    merged
}
