//! Plays many worlds at once, one on each core, and shows on a terminal how far they are.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressStyle};

use crate::domain::ruleset::Ruleset;
use crate::sim::ScenarioError;
use crate::sim::city_map::CityMap;
use crate::sim::scenario::Scenario;
use crate::sim::tally::SimTally;
use crate::sim::world::SimWorld;

/// Parts of a world that the bar tells apart.
const PROGRESS_STEPS_PER_WORLD: u64 = 1_000;

/// Threads at most.
const WORLD_THREADS_MAX: usize = 64;

/// Every seed with every ruleset: by ruleset the tallies in the order of the seeds.
pub(super) fn run_worlds(
    scenario: &Scenario,
    sets: &[(&Ruleset, &CityMap)],
    seeds: &[u64],
) -> Result<Vec<Vec<SimTally>>, ScenarioError> {
    let jobs = sets.len() * seeds.len();
    let bar = progress_bar(jobs as u64 * PROGRESS_STEPS_PER_WORLD);
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<SimTally, ScenarioError>>>> = (0..jobs).map(|_| Mutex::default()).collect();
    let work = || {
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = results.get(job) else { break };
            let (ruleset, map) = sets[job / seeds.len()];
            let result = run_world(scenario, ruleset, map, seeds[job % seeds.len()], &bar);
            *slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(result);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(jobs).min(WORLD_THREADS_MAX);
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    bar.finish_and_clear();
    let done = results.into_iter().filter_map(|slot| slot.into_inner().ok().flatten());
    let tallies: Vec<SimTally> = done.collect::<Result<_, _>>()?;
    Ok(tallies.chunks(seeds.len()).map(<[SimTally]>::to_vec).collect())
}

fn run_world(
    scenario: &Scenario,
    ruleset: &Ruleset,
    map: &CityMap,
    seed: u64,
    bar: &ProgressBar,
) -> Result<SimTally, ScenarioError> {
    let world = SimWorld::new(scenario, ruleset, map, seed)?;
    let mut told = 0;
    let tally = world.run(&mut |share| {
        let now = (share * PROGRESS_STEPS_PER_WORLD as f64) as u64;
        bar.inc(now.saturating_sub(told));
        told = told.max(now);
    });
    bar.inc(PROGRESS_STEPS_PER_WORLD.saturating_sub(told));
    Ok(tally)
}

/// A bar on standard error; where that is no terminal nothing is drawn.
pub(super) fn progress_bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {bar:40} {percent:>3} %, {eta} to go") {
        bar.set_style(style);
    }
    bar
}
