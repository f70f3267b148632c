//! Input of a simulation: rulesets, a scenario and measured round trips.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::cli::simulate::flags::SimulateFlags;
use crate::domain::ruleset::Ruleset;
use crate::rules;
use crate::sim::city_map::CityMap;
use crate::sim::latency_matrix::{self, LatencyMatrix};
use crate::sim::latency_source::LatencySource;
use crate::sim::scenario::{self, Scenario};
use crate::sim::search_map::SearchMap;
use crate::sim::world;

/// Loaded input.
pub(super) struct SimulationInput {
    pub(super) scenario: Scenario,
    pub(super) rulesets: Vec<RulesetWithCityMap>,
    pub(super) has_measured_latencies: bool,
}

impl SimulationInput {
    /// Names by which the two rulesets of a comparison differ: their own, else their files, else the sources of their searches.
    pub(super) fn names_of_compared(&self) -> [String; 2] {
        type NameOf = fn(&RulesetWithCityMap) -> String;
        let ways: [NameOf; 4] = [
            |loaded| loaded.ruleset.name.to_string(),
            |loaded| loaded.file.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            |loaded| loaded.file.display().to_string(),
            |loaded| loaded.latency_sources.first().map_or("no searches", |source| source.as_str()).to_owned(),
        ];
        let names = ways.map(|name_of| [name_of(&self.rulesets[0]), name_of(&self.rulesets[1])]);
        let differing = names.into_iter().find(|[first, second]| first != second);
        differing.unwrap_or_else(|| ["first", "second, the same"].map(str::to_owned))
    }
}

/// Ruleset, with the city map by its latency model.
pub(super) struct RulesetWithCityMap {
    pub(super) file: PathBuf,
    pub(super) ruleset: Ruleset,
    pub(super) city_map: CityMap,
    /// Map of the scenario's searches, if it has any.
    pub(super) search_map: Option<SearchMap>,
    /// Sources of round trips by which the searches choose, each in a run of its own.
    pub(super) latency_sources: Vec<LatencySource>,
}

pub(super) fn load_input(flags: &SimulateFlags, files: &[PathBuf]) -> anyhow::Result<SimulationInput> {
    let scenario = load_scenario(flags)?;
    let latency_sources = latency_sources(flags, &scenario, files.len())?;
    let matrix = flags
        .latencies
        .as_deref()
        .map(|pings| load_latency_matrix(pings, flags.latency_sites.as_deref()))
        .transpose()?;
    let ruleset_with_city_map = |(file, latency_sources): (&PathBuf, Vec<LatencySource>)| {
        let ruleset = load_ruleset(file)?;
        let city_map = world::build_city_map(&scenario, &ruleset, matrix.as_ref())?;
        let search_map = SearchMap::build(&scenario, &ruleset.latency_model, matrix.as_ref(), &city_map)?;
        Ok(RulesetWithCityMap { file: file.clone(), ruleset, city_map, search_map, latency_sources })
    };
    let rulesets: Vec<RulesetWithCityMap> =
        files.iter().zip(latency_sources).map(ruleset_with_city_map).collect::<anyhow::Result<_>>()?;
    if scenario.latency.is_none()
        && let Some(loaded) = rulesets.iter().find(|loaded| loaded.ruleset.queue.is_none())
    {
        let file = loaded.file.display();
        bail!("{file}: ruleset has no <Queue>; use a ruleset with a queue, or a scenario with [latency]");
    }
    Ok(SimulationInput { scenario, rulesets, has_measured_latencies: matrix.is_some() })
}

/// Sources of each ruleset. A comparison needs one of each, otherwise the default is to run all.
fn latency_sources(
    flags: &SimulateFlags,
    scenario: &Scenario,
    ruleset_count: usize,
) -> anyhow::Result<Vec<Vec<LatencySource>>> {
    let named = &flags.latency_source;
    if scenario.latency.is_none() && !named.is_empty() {
        bail!("--latency-source: the scenario has no searches; add [latency] to it");
    }
    match (ruleset_count, named.as_slice()) {
        (2, []) => Ok(vec![vec![LatencySource::Measured]; 2]),
        (2, [both]) => Ok(vec![vec![*both]; 2]),
        (2, [first, second]) => Ok(vec![vec![*first], vec![*second]]),
        (2, _) => bail!("--latency-source names {} sources; use one or two with --compare", named.len()),
        (_, []) => Ok(vec![LatencySource::ALL.to_vec()]),
        (_, _) => Ok(vec![named.clone()]),
    }
}

fn load_ruleset(file: &Path) -> anyhow::Result<Ruleset> {
    let to_error = |diagnostics: Vec<rules::FileDiagnostic>| {
        let messages: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{}", messages.join("\nfireteam: "))
    };
    let text = rules::load::read_file(file).map_err(to_error)?;
    rules::parse_ruleset(&file.to_string_lossy(), &text).map_err(to_error)
}

fn load_scenario(flags: &SimulateFlags) -> anyhow::Result<Scenario> {
    let path = Path::new(&flags.scenario);
    let is_file = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("toml"));
    let mut scenario = if is_file {
        Scenario::parse(&flags.scenario, &read_file_up_to(path, scenario::SCENARIO_BYTES_MAX as u64)?)?
    } else {
        Scenario::bundled(&flags.scenario)?
    };
    if let Some(hours) = flags.hours {
        scenario.hours = hours;
        scenario.validate().map_err(|error| anyhow::anyhow!("--hours: {error}"))?;
    }
    Ok(scenario)
}

fn load_latency_matrix(pings: &Path, sites: Option<&Path>) -> anyhow::Result<LatencyMatrix> {
    let sites = sites.map_or_else(|| find_sites_file(pings), |path| Ok(path.to_owned()))?;
    let matrix = LatencyMatrix::parse(
        &read_file_up_to(pings, latency_matrix::LATENCY_FILE_BYTES_MAX)?,
        &read_file_up_to(&sites, latency_matrix::LATENCY_FILE_BYTES_MAX)?,
    )?;
    if matrix.misplaced_sites > 0 {
        let (misplaced, remaining) = (matrix.misplaced_sites, matrix.site_count());
        eprintln!("fireteam: {misplaced} sites with round trips faster than light were left out; {remaining} remain");
    }
    Ok(matrix)
}

/// Path of the sites file beside the pings file.
fn find_sites_file(pings: &Path) -> anyhow::Result<PathBuf> {
    let folder = pings.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut candidates = Vec::new();
    for entry in folder.read_dir().with_context(|| format!("list servers*.csv in {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with("servers") && name.ends_with(".csv") {
            candidates.push(path);
        }
    }
    match <[PathBuf; 1]>::try_from(candidates) {
        Ok([path]) => Ok(path),
        Err(candidates) => {
            let count = candidates.len();
            bail!("{} has {count} files servers*.csv; use --latency-sites", folder.display())
        }
    }
}

fn read_file_up_to(path: &Path, bytes_max: u64) -> anyhow::Result<String> {
    let context = || format!("read {}", path.display());
    let mut text = String::new();
    let bytes_read = File::open(path).with_context(context)?.take(bytes_max + 1).read_to_string(&mut text);
    if bytes_read.with_context(context)? as u64 > bytes_max {
        bail!("{} is too large; use at most {bytes_max} bytes", path.display());
    }
    Ok(text)
}
