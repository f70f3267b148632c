//! Runs many worlds in parallel, one per core, with a progress bar.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressStyle};

use crate::cli::simulate::input::RulesetWithCityMap;
use crate::sim::ScenarioError;
use crate::sim::scenario::Scenario;
use crate::sim::search_world::SearchWorld;
use crate::sim::tally::SimTally;
use crate::sim::world::SimWorld;

/// Steps of the progress bar per world.
const PROGRESS_STEPS_PER_WORLD: u64 = 1_000;

/// Maximum number of threads.
const WORLD_THREADS_MAX: usize = 64;

/// Runs every seed with every ruleset. Returns, per ruleset, the tallies in the order of the seeds.
pub(super) fn run_worlds(
    scenario: &Scenario,
    rulesets: &[RulesetWithCityMap],
    seeds: &[u64],
) -> Result<Vec<Vec<SimTally>>, ScenarioError> {
    let job_count = rulesets.len() * seeds.len();
    let bar = progress_bar(job_count as u64 * PROGRESS_STEPS_PER_WORLD);
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<SimTally, ScenarioError>>>> =
        (0..job_count).map(|_| Mutex::default()).collect();
    let work = || {
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = results.get(job) else { break };
            let result = run_world(scenario, &rulesets[job / seeds.len()], seeds[job % seeds.len()], &bar);
            *slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(result);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(job_count).min(WORLD_THREADS_MAX);
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    bar.finish_and_clear();
    let done = results.into_iter().filter_map(|slot| slot.into_inner().ok().flatten());
    let tallies: Vec<SimTally> = done.collect::<Result<_, _>>()?;
    Ok(tallies.chunks(seeds.len()).map(<[SimTally]>::to_vec).collect())
}

/// Runs the queue of a ruleset, if it has one, and the searches of the scenario, if it has any.
fn run_world(
    scenario: &Scenario,
    loaded: &RulesetWithCityMap,
    seed: u64,
    bar: &ProgressBar,
) -> Result<SimTally, ScenarioError> {
    let mut shown = 0;
    let mut tally = if loaded.ruleset.queue.is_some() {
        SimWorld::new(scenario, &loaded.ruleset, &loaded.city_map, seed)?.run(&mut |share| {
            let progress = (share * PROGRESS_STEPS_PER_WORLD as f64) as u64;
            bar.inc(progress.saturating_sub(shown));
            shown = shown.max(progress);
        })
    } else {
        SimTally::default()
    };
    for source in &loaded.latency_sources {
        let map = loaded.search_map.as_ref();
        if let Some(searches) = map.and_then(|map| SearchWorld::new(scenario, &loaded.ruleset, map, *source, seed)) {
            tally.searches.insert(*source, searches.run());
        }
    }
    bar.inc(PROGRESS_STEPS_PER_WORLD.saturating_sub(shown));
    Ok(tally)
}

/// Progress bar on standard error; hidden if that is not a terminal.
pub(super) fn progress_bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {bar:40} {percent:>3} %, {eta} to go") {
        bar.set_style(style);
    }
    bar
}
