//! Plays a population through a ruleset in invented time and shows what it is like: in text, as JSON, as a page of
//! plots; two rulesets side by side; or the thesis's study of rating systems.

mod page;
mod plot;
mod prepare;
mod study;
mod text;
mod worlds;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::Serialize;

use crate::cli::simulate::prepare::{Set, Stage};
use crate::cli::{Exit, done};
use crate::domain::ruleset::Ruleset;
use crate::sim::compare::{Difference, differences};
use crate::sim::figures::Figures;
use crate::sim::tally::Tally;

pub use study::{Study, StudyReading};

/// Worlds of one run, at most.
const SEEDS_MAX: u32 = 1_000;

/// Worlds of a comparison, unless said otherwise: enough for an interval.
const SEEDS_COMPARED: u32 = 8;

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
    study: Option<Study>,
    /// How the study's matches come out.
    #[arg(long, value_name = "READING", default_value = "all-against-all", requires = "study")]
    study_reading: StudyReading,
}

/// What goes to disk and to standard output when all is done.
struct Shown {
    text: String,
    json: serde_json::Value,
    page: String,
}

/// Runs the command.
pub fn simulate(flags: &SimulateFlags) -> Exit {
    let shown = match (&flags.study, &flags.compare) {
        (Some(_), _) => study::shown(flags.study_reading, flags.seed, flags.plot.is_some()),
        (None, Some(files)) => match prepare::stage(flags, files) {
            Ok(stage) => compared(flags, &stage),
            Err(why) => return misused(&why),
        },
        (None, None) => match prepare::stage(flags, flags.ruleset.as_slice()) {
            Ok(stage) => simulated(flags, &stage),
            Err(why) => return misused(&why),
        },
    };
    done(shown.and_then(|shown| hand_over(flags, &shown)))
}

fn misused(why: &anyhow::Error) -> Exit {
    eprintln!("fireteam: {why:#}");
    Exit::Misused
}

fn hand_over(flags: &SimulateFlags, shown: &Shown) -> anyhow::Result<()> {
    let json = || serde_json::to_string_pretty(&shown.json).context("write the figures as JSON");
    let mut out = io::stdout().lock();
    match &flags.json {
        Some(path) if path.as_os_str() == "-" => writeln!(out, "{}", json()?)?,
        other => {
            out.write_all(shown.text.as_bytes())?;
            if let Some(path) = other {
                write(path, &format!("{}\n", json()?))?;
            }
        }
    }
    flags.plot.as_ref().map_or(Ok(()), |path| write(path, &shown.page))
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

/// One ruleset in some worlds.
#[derive(Serialize)]
struct Document<'a> {
    fireteam: &'static str,
    scenario: &'a str,
    hours: f64,
    measured_round_trips: bool,
    seeds: Vec<u64>,
    ruleset: Named<'a>,
    figures: Figures,
    by_seed: Vec<Figures>,
}

/// Two rulesets in the same worlds.
#[derive(Serialize)]
struct Comparison<'a> {
    fireteam: &'static str,
    scenario: &'a str,
    hours: f64,
    measured_round_trips: bool,
    seeds: Vec<u64>,
    first: Named<'a>,
    second: Named<'a>,
    differences: &'a [Difference],
    first_by_seed: Vec<Figures>,
    second_by_seed: Vec<Figures>,
}

/// Which ruleset.
#[derive(Serialize)]
struct Named<'a> {
    name: &'a str,
    set_id: u32,
    hash: u32,
}

impl<'a> Named<'a> {
    fn of(ruleset: &'a Ruleset) -> Self {
        Self { name: &ruleset.name, set_id: ruleset.set_id.0, hash: ruleset.hash.0 }
    }
}

fn seeds(flags: &SimulateFlags, otherwise: u32) -> Vec<u64> {
    (0..u64::from(flags.seeds.unwrap_or(otherwise))).map(|more| flags.seed.wrapping_add(more)).collect()
}

fn simulated(flags: &SimulateFlags, stage: &Stage) -> anyhow::Result<Shown> {
    let seeds = seeds(flags, 1);
    let Set { ruleset, map, file } = &stage.sets[0];
    let tallies = worlds::play(&stage.scenario, &[(ruleset, map)], &seeds)?.remove(0);
    let by_seed: Vec<Figures> = tallies.iter().map(|tally| Figures::of(tally, map)).collect();
    let tally = sum(tallies);
    let figures = Figures::of(&tally, map);
    let head = text::head(stage, &[(file, ruleset)], &seeds, &figures);
    let page = match flags.plot {
        Some(_) => page::of_world(&head, &figures, &tally)?,
        None => String::new(),
    };
    let document = Document {
        fireteam: env!("CARGO_PKG_VERSION"),
        scenario: &flags.scenario,
        hours: stage.scenario.hours,
        measured_round_trips: stage.is_measured,
        seeds,
        ruleset: Named::of(ruleset),
        by_seed,
        figures: figures.clone(),
    };
    let json = serde_json::to_value(&document)?;
    Ok(Shown { text: format!("{head}\n{}", text::figures(&figures)), json, page })
}

fn compared(flags: &SimulateFlags, stage: &Stage) -> anyhow::Result<Shown> {
    let seeds = seeds(flags, SEEDS_COMPARED);
    let sets: Vec<_> = stage.sets.iter().map(|set| (&set.ruleset, &set.map)).collect();
    let mut tallies = worlds::play(&stage.scenario, &sets, &seeds)?.into_iter();
    let (first, second) = (tallies.next().unwrap_or_default(), tallies.next().unwrap_or_default());
    let figures = |tallies: &[Tally], set: &Set| -> Vec<Figures> {
        tallies.iter().map(|tally| Figures::of(tally, &set.map)).collect()
    };
    let (first_by_seed, second_by_seed) = (figures(&first, &stage.sets[0]), figures(&second, &stage.sets[1]));
    let differences = differences(&first_by_seed, &second_by_seed);
    let (first, second) = (sum(first), sum(second));
    let whole = Figures::of(&first, &stage.sets[0].map);
    let files: Vec<(&PathBuf, &Ruleset)> = stage.sets.iter().map(|set| (&set.file, &set.ruleset)).collect();
    let head = text::head(stage, &files, &seeds, &whole);
    let table = text::differences(&differences);
    let page = match flags.plot {
        Some(_) => page::of_two(&head, &table, &first, &second)?,
        None => String::new(),
    };
    let document = Comparison {
        fireteam: env!("CARGO_PKG_VERSION"),
        scenario: &flags.scenario,
        hours: stage.scenario.hours,
        measured_round_trips: stage.is_measured,
        seeds,
        first: Named::of(&stage.sets[0].ruleset),
        second: Named::of(&stage.sets[1].ruleset),
        differences: &differences,
        first_by_seed,
        second_by_seed,
    };
    let json = serde_json::to_value(&document)?;
    Ok(Shown { text: format!("{head}\n{table}"), json, page })
}

fn sum(tallies: Vec<Tally>) -> Tally {
    let mut sum = Tally::default();
    tallies.into_iter().for_each(|tally| sum.add(tally));
    sum
}
