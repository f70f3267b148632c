//! `fireteam simulate`: simulates a queue, or compares two rulesets. Prints text, and writes JSON and a page of charts.

pub mod charts;
mod flags;
mod headline;
pub mod html_page;
mod input;
mod parallel_worlds;
mod pass_trigger_cost;
mod search_report;
mod text_report;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use crate::cli::error_text::error_text;
use crate::cli::simulate::html_page::SimulatedRuleset;
use crate::cli::simulate::input::{RulesetWithCityMap, SimulationInput};
use crate::cli::{ExitStatus, report_result};
use crate::domain::ruleset::Ruleset;
use crate::sim::comparison::{StatisticDelta, compare_statistics};
use crate::sim::statistics::SimStatistics;
use crate::sim::tally::SimTally;

pub use flags::SimulateFlags;

/// Default number of worlds of a comparison, enough for a confidence interval.
const COMPARISON_SEEDS_DEFAULT: u32 = 8;

/// Output of a run: text for standard output, JSON and HTML for files.
struct SimulationOutput {
    text: String,
    json: serde_json::Value,
    html_page: String,
}

/// Runs the command.
pub fn simulate(flags: &SimulateFlags) -> ExitStatus {
    let output = match &flags.compare {
        Some(files) => match input::load_input(flags, files) {
            Ok(input) => compare_rulesets(flags, &input),
            Err(error) => return report_usage_error(&error),
        },
        None => match input::load_input(flags, flags.ruleset.as_slice()) {
            Ok(input) => simulate_ruleset(flags, &input),
            Err(error) => return report_usage_error(&error),
        },
    };
    report_result(output.and_then(|output| write_output(flags, &output)))
}

fn report_usage_error(error: &anyhow::Error) -> ExitStatus {
    eprintln!("fireteam: {}", error_text(error));
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
    /// Passes on change less passes at the interval, if the ruleset has passes on change.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_change_less_interval: Option<Vec<StatisticDelta>>,
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
    headline: &'a str,
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
    let RulesetWithCityMap { ruleset, city_map, file, .. } = &input.rulesets[0];
    let tallies = parallel_worlds::run_worlds(&input.scenario, &input.rulesets, &seeds)?.remove(0);
    let by_seed: Vec<SimStatistics> = tallies.iter().map(|tally| SimStatistics::from_tally(tally, city_map)).collect();
    let on_change_less_interval = pass_trigger_cost::compare_with_interval(input, &seeds, &by_seed)?;
    let tally = merge_tallies(tallies);
    let statistics = SimStatistics::from_tally(&tally, city_map);
    let trigger_cost = match (&on_change_less_interval, &ruleset.queue) {
        (Some(differences), Some(queue)) => pass_trigger_cost::format_differences(differences, queue.pass_interval_ms),
        _ => String::new(),
    };
    let header = text_report::format_header(input, &[(file, ruleset)], &seeds, &statistics);
    let html_page = match flags.plot {
        Some(_) => {
            let simulated = SimulatedRuleset { name: &ruleset.name, statistics: &statistics, tally: &tally };
            html_page::simulation_page(&header, &simulated)?
        }
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
        on_change_less_interval,
    };
    let json = serde_json::to_value(&document)?;
    let text = format!("{header}\n{}{trigger_cost}", text_report::format_statistics(&statistics));
    Ok(SimulationOutput { text, json, html_page })
}

fn compare_rulesets(flags: &SimulateFlags, input: &SimulationInput) -> anyhow::Result<SimulationOutput> {
    let seeds = seed_list(flags, COMPARISON_SEEDS_DEFAULT);
    let mut tallies = parallel_worlds::run_worlds(&input.scenario, &input.rulesets, &seeds)?.into_iter();
    let (first, second) = (tallies.next().unwrap_or_default(), tallies.next().unwrap_or_default());
    let statistics_of = |tallies: &[SimTally], ruleset_with_city_map: &RulesetWithCityMap| -> Vec<SimStatistics> {
        tallies.iter().map(|tally| SimStatistics::from_tally(tally, &ruleset_with_city_map.city_map)).collect()
    };
    let (first_by_seed, second_by_seed) =
        (statistics_of(&first, &input.rulesets[0]), statistics_of(&second, &input.rulesets[1]));
    let differences = compare_statistics(&first_by_seed, &second_by_seed);
    let (first, second) = (merge_tallies(first), merge_tallies(second));
    let first_statistics = SimStatistics::from_tally(&first, &input.rulesets[0].city_map);
    let second_statistics = SimStatistics::from_tally(&second, &input.rulesets[1].city_map);
    let names = input.names_of_compared();
    let headline = headline::headline(&names, &differences);
    let files: Vec<(&PathBuf, &Ruleset)> = input
        .rulesets
        .iter()
        .map(|ruleset_with_city_map| (&ruleset_with_city_map.file, &ruleset_with_city_map.ruleset))
        .collect();
    let header = text_report::format_header(input, &files, &seeds, &first_statistics);
    let table = text_report::format_differences(&names, &differences);
    let html_page = match flags.plot {
        Some(_) => {
            let compared = [
                SimulatedRuleset { name: &names[0], statistics: &first_statistics, tally: &first },
                SimulatedRuleset { name: &names[1], statistics: &second_statistics, tally: &second },
            ];
            html_page::comparison_page(&headline, (&header, &table), &differences, &compared)?
        }
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
        headline: &headline,
        differences: &differences,
        first_by_seed,
        second_by_seed,
    };
    let json = serde_json::to_value(&document)?;
    Ok(SimulationOutput { text: format!("{headline}\n\n{header}\n{table}"), json, html_page })
}

fn merge_tallies(tallies: Vec<SimTally>) -> SimTally {
    let mut merged = SimTally::default();
    tallies.into_iter().for_each(|tally| merged.merge(tally));
    merged
}
