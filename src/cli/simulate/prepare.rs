//! Reads what a simulation is made of: rulesets, a scenario, measured round trips.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::cli::simulate::SimulateFlags;
use crate::domain::ruleset::Ruleset;
use crate::rules;
use crate::sim::latencies::{self, Matrix};
use crate::sim::map::Map;
use crate::sim::scenario::{self, Scenario};
use crate::sim::world;

/// All of it.
pub(super) struct Stage {
    pub(super) scenario: Scenario,
    pub(super) sets: Vec<Set>,
    pub(super) is_measured: bool,
}

/// A ruleset, and the map as its line has it.
pub(super) struct Set {
    pub(super) file: PathBuf,
    pub(super) ruleset: Ruleset,
    pub(super) map: Map,
}

pub(super) fn stage(flags: &SimulateFlags, files: &[PathBuf]) -> anyhow::Result<Stage> {
    let scenario = scenario(flags)?;
    let matrix = flags.latencies.as_deref().map(|pings| matrix(pings, flags.latency_sites.as_deref())).transpose()?;
    let set = |file: &PathBuf| {
        let ruleset = ruleset(file)?;
        let map = world::map(&scenario, &ruleset, matrix.as_ref())?;
        Ok(Set { file: file.clone(), ruleset, map })
    };
    let sets: Vec<Set> = files.iter().map(set).collect::<anyhow::Result<_>>()?;
    if let Some(set) = sets.iter().find(|set| set.ruleset.queue.is_none()) {
        bail!("{}: the ruleset has no <Queue>, and only queues are simulated", set.file.display());
    }
    Ok(Stage { scenario, sets, is_measured: matrix.is_some() })
}

fn ruleset(file: &Path) -> anyhow::Result<Ruleset> {
    let problems = |problems: Vec<rules::Problem>| {
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{}", lines.join("\nfireteam: "))
    };
    let text = rules::load::read(file).map_err(problems)?;
    rules::parse(&file.to_string_lossy(), &text).map_err(problems)
}

fn scenario(flags: &SimulateFlags) -> anyhow::Result<Scenario> {
    let path = Path::new(&flags.scenario);
    let is_file = path.extension().is_some_and(|it| it.eq_ignore_ascii_case("toml"));
    let mut scenario = match is_file {
        true => Scenario::parse(&flags.scenario, &read(path, scenario::BYTES_MAX as u64)?)?,
        false => Scenario::shipped(&flags.scenario)?,
    };
    if let Some(hours) = flags.hours {
        scenario.hours = hours;
        scenario.check().map_err(|why| anyhow::anyhow!("--hours: {why}"))?;
    }
    Ok(scenario)
}

fn matrix(pings: &Path, sites: Option<&Path>) -> anyhow::Result<Matrix> {
    let sites = sites.map_or_else(|| beside(pings), |path| Ok(path.to_owned()))?;
    let matrix = Matrix::parse(&read(pings, latencies::BYTES_MAX)?, &read(&sites, latencies::BYTES_MAX)?)?;
    if 0 < matrix.misplaced {
        let (gone, left) = (matrix.misplaced, matrix.len());
        eprintln!(
            "fireteam: {gone} of the sites beat light to the others, so they are elsewhere: left out; {left} stay"
        );
    }
    Ok(matrix)
}

/// The file of sites that lies beside the round trips.
fn beside(pings: &Path) -> anyhow::Result<PathBuf> {
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

fn read(path: &Path, bytes_max: u64) -> anyhow::Result<String> {
    let context = || format!("read {}", path.display());
    let mut text = String::new();
    let read = File::open(path).with_context(context)?.take(bytes_max + 1).read_to_string(&mut text);
    if bytes_max < read.with_context(context)? as u64 {
        bail!("{} has more than {bytes_max} bytes", path.display());
    }
    Ok(text)
}
