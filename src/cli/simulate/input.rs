//! Reads what a simulation is made of: rulesets, a scenario, measured round trips.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::cli::simulate::SimulateFlags;
use crate::domain::ruleset::Ruleset;
use crate::rules;
use crate::sim::city_map::CityMap;
use crate::sim::latency_matrix::{self, LatencyMatrix};
use crate::sim::scenario::{self, Scenario};
use crate::sim::world;

/// All of it.
pub(super) struct SimulationInput {
    pub(super) scenario: Scenario,
    pub(super) rulesets: Vec<RulesetWithMap>,
    pub(super) has_measured_latencies: bool,
}

/// A ruleset, and the map as its line has it.
pub(super) struct RulesetWithMap {
    pub(super) file: PathBuf,
    pub(super) ruleset: Ruleset,
    pub(super) map: CityMap,
}

pub(super) fn load_input(flags: &SimulateFlags, files: &[PathBuf]) -> anyhow::Result<SimulationInput> {
    let scenario = load_scenario(flags)?;
    let matrix = flags
        .latencies
        .as_deref()
        .map(|pings| load_latency_matrix(pings, flags.latency_sites.as_deref()))
        .transpose()?;
    let set = |file: &PathBuf| {
        let ruleset = load_ruleset(file)?;
        let map = world::build_city_map(&scenario, &ruleset, matrix.as_ref())?;
        Ok(RulesetWithMap { file: file.clone(), ruleset, map })
    };
    let sets: Vec<RulesetWithMap> = files.iter().map(set).collect::<anyhow::Result<_>>()?;
    if let Some(set) = sets.iter().find(|set| set.ruleset.queue.is_none()) {
        bail!("{}: the ruleset has no <Queue>, and only queues are simulated", set.file.display());
    }
    Ok(SimulationInput { scenario, rulesets: sets, has_measured_latencies: matrix.is_some() })
}

fn load_ruleset(file: &Path) -> anyhow::Result<Ruleset> {
    let problems = |problems: Vec<rules::RenderedDiagnostic>| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{}", lines.join("\nfireteam: "))
    };
    let text = rules::load::read_file(file).map_err(problems)?;
    rules::parse_ruleset(&file.to_string_lossy(), &text).map_err(problems)
}

fn load_scenario(flags: &SimulateFlags) -> anyhow::Result<Scenario> {
    let path = Path::new(&flags.scenario);
    let is_file = path.extension().is_some_and(|it| it.eq_ignore_ascii_case("toml"));
    let mut scenario = match is_file {
        true => Scenario::parse(&flags.scenario, &read_file_up_to(path, scenario::SCENARIO_BYTES_MAX as u64)?)?,
        false => Scenario::bundled(&flags.scenario)?,
    };
    if let Some(hours) = flags.hours {
        scenario.hours = hours;
        scenario.validate().map_err(|why| anyhow::anyhow!("--hours: {why}"))?;
    }
    Ok(scenario)
}

fn load_latency_matrix(pings: &Path, sites: Option<&Path>) -> anyhow::Result<LatencyMatrix> {
    let sites = sites.map_or_else(|| find_sites_file(pings), |path| Ok(path.to_owned()))?;
    let matrix = LatencyMatrix::parse(
        &read_file_up_to(pings, latency_matrix::LATENCY_FILE_BYTES_MAX)?,
        &read_file_up_to(&sites, latency_matrix::LATENCY_FILE_BYTES_MAX)?,
    )?;
    if 0 < matrix.misplaced_sites {
        let (gone, left) = (matrix.misplaced_sites, matrix.site_count());
        eprintln!(
            "fireteam: {gone} of the sites beat light to the others, so they are elsewhere: left out; {left} stay"
        );
    }
    Ok(matrix)
}

/// The file of sites that lies beside the round trips.
fn find_sites_file(pings: &Path) -> anyhow::Result<PathBuf> {
    let folder = pings.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut found = Vec::new();
    for entry in folder.read_dir().with_context(|| format!("look for servers*.csv in {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("servers") && name.ends_with(".csv") {
            found.push(path);
        }
    }
    match <[PathBuf; 1]>::try_from(found) {
        Ok([path]) => Ok(path),
        Err(found) => {
            let count = found.len();
            bail!("{} has {count} files servers*.csv: say with --latency-sites where the sites are", folder.display())
        }
    }
}

fn read_file_up_to(path: &Path, bytes_max: u64) -> anyhow::Result<String> {
    let context = || format!("read {}", path.display());
    let mut text = String::new();
    let read = File::open(path).with_context(context)?.take(bytes_max + 1).read_to_string(&mut text);
    if bytes_max < read.with_context(context)? as u64 {
        bail!("{} has more than {bytes_max} bytes", path.display());
    }
    Ok(text)
}
