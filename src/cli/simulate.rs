//! Plays a population through a ruleset in invented time and shows what it is like: in text, as JSON, as a page of
//! plots; two rulesets side by side; or the thesis's study of rating systems.

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

/// Worlds of one run, at most.
const SEEDS_MAX: u32 = 1_000;

/// Worlds of a comparison, unless said otherwise: enough for an interval.
const COMPARISON_SEEDS_DEFAULT: u32 = 8;

/// What the command takes.
#[derive(Debug, clap::Args)]
pub struct SimulateFlags {
    /// The ruleset, a file.
    #[arg(value_name = "RULESET", required_unless_present_any = ["compare", "study"])]
    ruleset: Option<PathBuf>,
    /// Who plays: a scenario that ships (low, normal, launch_day, leagues, outliers_evening, night) or a .toml file.
    #[arg(long, value_name = "NAME|FILE", default_value = "normal")]
    scenario: String,
    /// The first seed: the same seed is the same world.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// How many worlds, one seed each [default: 1; with --compare 8].
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=i64::from(SEEDS_MAX)))]
    seeds: Option<u32>,
    /// How many hours are counted [default: as the scenario says].
    #[arg(long, value_name = "H")]
    hours: Option<f64>,
    /// Write all figures there as JSON; `-` for standard output, and nothing else to it.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page of plots there.
    #[arg(long, value_name = "FILE.html")]
    plot: Option<PathBuf>,
    /// Measured round trips, CSV with source, destination, avg [default: the ruleset's line].
    #[arg(long, value_name = "CSV")]
    latencies: Option<PathBuf>,
    /// Where the sites of --latencies are, CSV with id, latitude, longitude [default: servers*.csv beside it].
    #[arg(long, value_name = "CSV", requires = "latencies")]
    latency_sites: Option<PathBuf>,
    /// Two rulesets on the same people.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["ruleset", "study"])]
    compare: Option<Vec<PathBuf>>,
    /// A study instead of a queue.
    #[arg(long, value_name = "STUDY", conflicts_with_all = ["ruleset", "latencies"])]
    study: Option<StudyKind>,
    /// How the study's matches come out.
    #[arg(long, value_name = "READING", default_value = "all-against-all", requires = "study")]
    study_reading: StudySchemeFlag,
}

/// What goes to disk and to standard output when all is done.
struct SimulationOutput {
    text: String,
    json: serde_json::Value,
    html_page: String,
}

/// Runs the command.
pub fn simulate(flags: &SimulateFlags) -> ExitStatus {
    let shown = match (&flags.study, &flags.compare) {
        (Some(_), _) => study::run_and_render_study(flags.study_reading, flags.seed, flags.plot.is_some()),
        (None, Some(files)) => match input::load_input(flags, files) {
            Ok(stage) => compare_rulesets(flags, &stage),
            Err(why) => return report_usage_error(&why),
        },
        (None, None) => match input::load_input(flags, flags.ruleset.as_slice()) {
            Ok(stage) => simulate_ruleset(flags, &stage),
            Err(why) => return report_usage_error(&why),
        },
    };
    report_result(shown.and_then(|shown| write_output(flags, &shown)))
}

fn report_usage_error(why: &anyhow::Error) -> ExitStatus {
    eprintln!("fireteam: {why:#}");
    ExitStatus::UsageError
}

fn write_output(flags: &SimulateFlags, shown: &SimulationOutput) -> anyhow::Result<()> {
    let json = || serde_json::to_string_pretty(&shown.json).context("write the figures as JSON");
    let mut out = io::stdout().lock();
    match &flags.json {
        Some(path) if path.as_os_str() == "-" => writeln!(out, "{}", json()?)?,
        other => {
            out.write_all(shown.text.as_bytes())?;
            if let Some(path) = other {
                write_file(path, &format!("{}\n", json()?))?;
            }
        }
    }
    flags.plot.as_ref().map_or(Ok(()), |path| write_file(path, &shown.html_page))
}

fn write_file(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// One ruleset in some worlds.
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

/// Two rulesets in the same worlds.
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

/// Which ruleset.
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

fn seed_list(flags: &SimulateFlags, otherwise: u32) -> Vec<u64> {
    (0..u64::from(flags.seeds.unwrap_or(otherwise))).map(|more| flags.seed.wrapping_add(more)).collect()
}

fn simulate_ruleset(flags: &SimulateFlags, stage: &SimulationInput) -> anyhow::Result<SimulationOutput> {
    let seeds = seed_list(flags, 1);
    let RulesetWithMap { ruleset, map, file } = &stage.rulesets[0];
    let tallies = parallel_worlds::run_worlds(&stage.scenario, &[(ruleset, map)], &seeds)?.remove(0);
    let by_seed: Vec<SimStatistics> = tallies.iter().map(|tally| SimStatistics::from_tally(tally, map)).collect();
    let tally = merge_tallies(tallies);
    let figures = SimStatistics::from_tally(&tally, map);
    let head = text_report::format_header(stage, &[(file, ruleset)], &seeds, &figures);
    let page = match flags.plot {
        Some(_) => html_page::simulation_page(&head, &figures, &tally)?,
        None => String::new(),
    };
    let document = SimulationJson {
        fireteam: env!("CARGO_PKG_VERSION"),
        scenario: &flags.scenario,
        hours: stage.scenario.hours,
        measured_round_trips: stage.has_measured_latencies,
        seeds,
        ruleset: RulesetJson::from_ruleset(ruleset),
        by_seed,
        figures: figures.clone(),
    };
    let json = serde_json::to_value(&document)?;
    Ok(SimulationOutput {
        text: format!("{head}\n{}", text_report::format_statistics(&figures)),
        json,
        html_page: page,
    })
}

fn compare_rulesets(flags: &SimulateFlags, stage: &SimulationInput) -> anyhow::Result<SimulationOutput> {
    let seeds = seed_list(flags, COMPARISON_SEEDS_DEFAULT);
    let sets: Vec<_> = stage.rulesets.iter().map(|set| (&set.ruleset, &set.map)).collect();
    let mut tallies = parallel_worlds::run_worlds(&stage.scenario, &sets, &seeds)?.into_iter();
    let (first, second) = (tallies.next().unwrap_or_default(), tallies.next().unwrap_or_default());
    let figures = |tallies: &[SimTally], set: &RulesetWithMap| -> Vec<SimStatistics> {
        tallies.iter().map(|tally| SimStatistics::from_tally(tally, &set.map)).collect()
    };
    let (first_by_seed, second_by_seed) = (figures(&first, &stage.rulesets[0]), figures(&second, &stage.rulesets[1]));
    let differences = compare_statistics(&first_by_seed, &second_by_seed);
    let (first, second) = (merge_tallies(first), merge_tallies(second));
    let whole = SimStatistics::from_tally(&first, &stage.rulesets[0].map);
    let files: Vec<(&PathBuf, &Ruleset)> = stage.rulesets.iter().map(|set| (&set.file, &set.ruleset)).collect();
    let head = text_report::format_header(stage, &files, &seeds, &whole);
    let table = text_report::format_differences(&differences);
    let page = match flags.plot {
        Some(_) => html_page::comparison_page(&head, &table, &first, &second)?,
        None => String::new(),
    };
    let document = ComparisonJson {
        fireteam: env!("CARGO_PKG_VERSION"),
        scenario: &flags.scenario,
        hours: stage.scenario.hours,
        measured_round_trips: stage.has_measured_latencies,
        seeds,
        first: RulesetJson::from_ruleset(&stage.rulesets[0].ruleset),
        second: RulesetJson::from_ruleset(&stage.rulesets[1].ruleset),
        differences: &differences,
        first_by_seed,
        second_by_seed,
    };
    let json = serde_json::to_value(&document)?;
    Ok(SimulationOutput { text: format!("{head}\n{table}"), json, html_page: page })
}

fn merge_tallies(tallies: Vec<SimTally>) -> SimTally {
    let mut sum = SimTally::default();
    tallies.into_iter().for_each(|tally| sum.merge(tally));
    sum
}
