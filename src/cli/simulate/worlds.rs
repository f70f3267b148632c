//! Plays many worlds at once, one on each core, and shows on a terminal how far they are.

use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use indicatif::{ProgressBar, ProgressStyle};

use crate::domain::ruleset::Ruleset;
use crate::sim::Unplayable;
use crate::sim::map::Map;
use crate::sim::scenario::Scenario;
use crate::sim::tally::Tally;
use crate::sim::world::World;

/// Parts of a world that the bar tells apart.
const PARTS: u64 = 1_000;

/// Threads at most.
const THREADS_MAX: usize = 64;

/// Every seed with every ruleset: by ruleset the tallies in the order of the seeds.
pub(super) fn play(
    scenario: &Scenario,
    sets: &[(&Ruleset, &Map)],
    seeds: &[u64],
) -> Result<Vec<Vec<Tally>>, Unplayable> {
    let jobs = sets.len() * seeds.len();
    let bar = bar(jobs as u64 * PARTS);
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<Tally, Unplayable>>>> = (0..jobs).map(|_| Mutex::default()).collect();
    let work = || {
        loop {
            let job = next.fetch_add(1, Ordering::Relaxed);
            let Some(slot) = results.get(job) else { break };
            let (ruleset, map) = sets[job / seeds.len()];
            let result = one(scenario, ruleset, map, seeds[job % seeds.len()], &bar);
            *slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(result);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(jobs).min(THREADS_MAX);
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    bar.finish_and_clear();
    let done = results.into_iter().filter_map(|slot| slot.into_inner().ok().flatten());
    let tallies: Vec<Tally> = done.collect::<Result<_, _>>()?;
    Ok(tallies.chunks(seeds.len()).map(<[Tally]>::to_vec).collect())
}

fn one(scenario: &Scenario, ruleset: &Ruleset, map: &Map, seed: u64, bar: &ProgressBar) -> Result<Tally, Unplayable> {
    let world = World::new(scenario, ruleset, map, seed)?;
    let mut told = 0;
    let tally = world.run(&mut |share| {
        let now = (share * PARTS as f64) as u64;
        bar.inc(now.saturating_sub(told));
        told = told.max(now);
    });
    bar.inc(PARTS.saturating_sub(told));
    Ok(tally)
}

/// A bar on standard error; where that is no terminal nothing is drawn.
pub(super) fn bar(length: u64) -> ProgressBar {
    let bar = ProgressBar::new(length);
    if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {bar:40} {percent:>3} %, {eta} to go") {
        bar.set_style(style);
    }
    bar
}
