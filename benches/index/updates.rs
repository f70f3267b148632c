//! Goals PU: rate of index updates, and search latency during and after them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fireteam::domain::index::{AdvertisementIndex, IndexEntry, InstructionSet, SearchResult};
use fireteam::domain::ruleset::Ruleset;
use parking_lot::RwLock;

use crate::harness::{clock, compare, machine, median, quantile};
use crate::index::world::{ROWS, SEARCHES, World};
use crate::population::{PopulationKind, RuleOptions, entry};
use crate::split_mix64::SplitMix64;

/// Entries that are created at a time, before the clock starts.
const CHUNK: u64 = 256;
/// Upserts per second while searches are timed (PU3).
const UPSERTS_PER_S: f64 = 100_000.0;
/// Calls of `tighten_and_join_some_leaves` that cover the whole index; the server makes two per second.
const TIDY: usize = 110;

pub(super) fn run(mut world: World, wanted: &dyn Fn(&str) -> bool) {
    if wanted("PU1") {
        for group in [1, 16] {
            let (took, freed) = move_all(&mut world.index, &Arc::clone(&world.ruleset), 90 + group as u64, group);
            println!(
                "| PU1 | index_update: move-upsert into 1M, {group} at a time, M/s | 2 | {:.2} | | {} | {took:.3} | | | {} |",
                1.0 / took,
                ROWS / CHUNK,
                machine()
            );
            println!("| PU1 | index_update: dropping the old entry, us | | | | | {freed:.3} | | | {} |", machine());
        }
        world.check_against_oracle(&Arc::clone(&world.ruleset));
    }
    if wanted("PU3") {
        under_writes(world);
    }
    if wanted("PU2") {
        let base = RuleOptions { skill: 0.6, distance: 0.4, ..RuleOptions::default() };
        against_fresh("no filter", base, 1);
        against_fresh("4 seats", base, 4);
        against_fresh("1 % filter as partition", RuleOptions { key: true, ..base }, 1);
        against_fresh("1 % filter across partitions", RuleOptions { mode: true, ..base }, 1);
        against_fresh("limits of both sides", RuleOptions { limits: true, ..base }, 1);
    }
}

/// Moves each entry, in an order unrelated to locations. Entries are created before the clock starts, as a server decodes
/// requests first, and old ones are dropped after it stops. Returns the median time per entry to move and to drop.
fn move_all(index: &mut AdvertisementIndex, ruleset: &Ruleset, seed: u64, group: usize) -> (f64, f64) {
    let mut rng = SplitMix64(seed);
    let (mut moved, mut freed) = (Vec::new(), Vec::new());
    for chunk in 0..ROWS / CHUNK {
        let numbers = (chunk * CHUNK..(chunk + 1) * CHUNK).map(|number| number.wrapping_mul(7_919) % ROWS);
        let mut entries: Vec<IndexEntry> =
            numbers.map(|number| entry(&mut rng, ruleset, number, PopulationKind::Uniform)).collect();
        let mut old = Vec::with_capacity(entries.len());
        let begin = clock();
        while !entries.is_empty() {
            let from = entries.len().saturating_sub(group);
            if 1 < group {
                index.prefetch(entries[from..].iter().map(|entry| entry.advertisement.id));
            }
            old.extend(entries.drain(from..).map(|entry| index.upsert(entry)));
        }
        moved.push(begin.elapsed().as_secs_f64() * 1e6 / CHUNK as f64);
        let begin = clock();
        drop(old);
        freed.push(begin.elapsed().as_secs_f64() * 1e6 / CHUNK as f64);
    }
    (median(moved), median(freed))
}

/// PU2: an index in which each row has moved, compared with one built at the new locations: directly after the moves, and after
/// maintenance of all leaves.
fn against_fresh(name: &str, rules: RuleOptions, seats: u16) {
    let mut moved = World::new(rules, PopulationKind::Uniform);
    moved.seats = seats;
    let ruleset = Arc::clone(&moved.ruleset);
    move_all(&mut moved.index, &ruleset, 98, 16);
    let mut index = AdvertisementIndex::new(Arc::clone(&ruleset));
    for entry in moved.index.entries() {
        index.upsert(entry.clone());
    }
    let fresh = World { seats, ..World::of(Arc::clone(&ruleset), index) };
    moved.check_against_oracle(&ruleset);
    for tidied in [false, true] {
        let when = if tidied { "tidied" } else { "not yet tidied" };
        compare(
            "PU2",
            &format!("p50 after all moved, {name}, {when}"),
            "p50 of a fresh index",
            || moved.search(&ruleset, InstructionSet::Widest, 0.5),
            || fresh.search(&ruleset, InstructionSet::Widest, 0.5),
        );
        (0..TIDY).for_each(|_| moved.index.tighten_and_join_some_leaves());
    }
}

/// PU3: searches while another thread writes 100,000 rows per second under the engine's lock. Each entry is created before the
/// lock is taken and dropped after it is released.
fn under_writes(world: World) {
    let (shell, index) = world.take_index();
    let ruleset = Arc::clone(&shell.ruleset);
    let (lock, stop, wrote) = (RwLock::new(index), AtomicBool::new(false), AtomicU64::new(0));
    let round = || {
        let mut found = SearchResult::default();
        quantile(20 * SEARCHES, 0.99, |number| {
            let index = lock.read();
            index.search(&shell.query(&ruleset, number), &mut found);
        })
    };
    let mut rates = Vec::new();
    let write = || {
        let begin = clock();
        let mut rng = SplitMix64(5);
        while !stop.load(Ordering::Relaxed) {
            let due = (begin.elapsed().as_secs_f64() * UPSERTS_PER_S) as u64;
            if due <= wrote.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_micros(100));
                continue;
            }
            let number = rng.below(ROWS);
            let entry = entry(&mut rng, &ruleset, number, PopulationKind::Uniform);
            let old = lock.write().upsert(entry);
            drop(old);
            wrote.fetch_add(1, Ordering::Relaxed);
        }
    };
    compare(
        "PU3",
        "p99 under 100k upserts/s",
        "p99 idle",
        || {
            stop.store(false, Ordering::Relaxed);
            wrote.store(0, Ordering::Relaxed);
            std::thread::scope(|scope| {
                scope.spawn(write);
                let begin = clock();
                let took = round();
                rates.push(wrote.load(Ordering::Relaxed) as f64 / begin.elapsed().as_secs_f64());
                stop.store(true, Ordering::Relaxed);
                took
            })
        },
        round,
    );
    println!(
        "| PU3 | search_during_updates: upserts a second | 100000 | {:.0} | | | | | | {} |",
        median(rates),
        machine()
    );
}
