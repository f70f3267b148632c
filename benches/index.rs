//! Goals PS and PU: search and updates of an index of a million advertisements.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fireteam::domain::advertisement::Kind;
use fireteam::domain::facts::Facts;
use fireteam::domain::filter::Searcher;
use fireteam::domain::id::SiloId;
use fireteam::domain::index::{Entry, Found, Index, Path, Query, oracle};
use fireteam::domain::ruleset::{Ruleset, SearchLimits};
use fireteam::domain::session::Session;
use fireteam::domain::time::UnixMs;

use crate::harness::{Took, compare, machine, quantile, resident_bytes, together};
use crate::population::{Dice, NOW, Rules, Spread, entry, ruleset, session};

/// Advertisements.
const ROWS: u64 = 1_000_000;
/// Bytes of column that a scan would read for each: four floats, expiry, seats and slot.
const COLUMN_BYTES: usize = 28;
/// Searches in a round.
const SEARCHES: usize = 200;

/// The cheapest possible pass over the columns of a million rows: XOR of all their bytes.
struct Floor(Vec<u64>);

impl Floor {
    fn new() -> Self {
        let mut dice = Dice(1);
        Self((0..ROWS as usize * COLUMN_BYTES / 8).map(|_| dice.next()).collect())
    }

    fn took(&self) -> Took {
        quantile(20, 0.5, |_| {
            black_box(pulp::Arch::new().dispatch(|| self.0.iter().fold(0, |sum, word| sum ^ word)));
        })
    }
}

/// A population under some rules, and sessions that search it.
struct World {
    ruleset: Arc<Ruleset>,
    index: Index,
    searchers: Vec<(Session, Facts)>,
    seats: u16,
}

impl World {
    fn new(rules: Rules, spread: Spread) -> Self {
        let ruleset = Arc::new(ruleset(rules));
        let mut index = Index::new(Arc::clone(&ruleset));
        let mut dice = Dice(7);
        (0..ROWS).for_each(|number| index.upsert(entry(&mut dice, &ruleset, number, spread)));
        let searchers = (0..SEARCHES).map(|_| session(&mut dice, Spread::Globe));
        let searchers = searchers.map(|it| (it.clone(), Facts::of(&ruleset, &it))).collect();
        Self { ruleset, index, searchers, seats: 1 }
    }

    fn query<'a>(&'a self, ruleset: &'a Ruleset, number: usize) -> Query<'a> {
        let (session, facts) = &self.searchers[number % self.searchers.len()];
        let searcher = Searcher {
            facts,
            locality: session.locality,
            regions: &[],
            seats: self.seats,
            users: &[],
            subject: None,
            excluded: &[],
            waited_ms: 4_000_000,
        };
        let limits = SearchLimits { max_results: 50, max_evaluated: u32::MAX };
        Query { ruleset, searcher, silo: SiloId(1), kind: Kind::Session, limits, now: UnixMs(NOW) }
    }

    /// A round of searches, judged at the quantile `at`.
    fn search(&self, ruleset: &Ruleset, path: Path, at: f64) -> Took {
        let mut found = Found::default();
        quantile(SEARCHES, at, |number| {
            self.index.search_on(path, &self.query(ruleset, number), &mut found);
            black_box(&found);
        })
    }

    /// Every figure is void unless the answers are the oracle's.
    fn judge(&self, ruleset: &Ruleset) {
        let mut found = Found::default();
        for number in 0..3 {
            let query = self.query(ruleset, number);
            self.index.search(&query, &mut found);
            let hits = found.hits.iter().map(|hit| (self.index.entry(hit.slot).advertisement.id, hit.score));
            assert!(hits.eq(oracle::search(&self.index, &query)), "the index and the oracle disagree");
        }
        eprintln!("evaluated {} refusals {:?} hits {}", found.evaluated, found.refusals, found.hits.len());
    }
}

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    let floor = Floor::new();
    if ["PS1", "PS2", "PS4", "PU", "MEM"].iter().any(|goal| wanted(goal)) {
        even(wanted, &floor);
    }
    if wanted("PS4") {
        adversarial(&floor);
    }
}

fn even(wanted: &dyn Fn(&str) -> bool, floor: &Floor) {
    let before = resident_bytes();
    let mut world = World::new(Rules { skill: 0.6, distance: 0.4, ..Rules::default() }, Spread::Globe);
    let bytes = (resident_bytes() - before) / ROWS;
    println!("| MEM | bytes for each of 1M advertisements | 1024 | {bytes} | | 1 | | | | {} |", machine());
    let ruleset = Arc::clone(&world.ruleset);
    world.judge(&ruleset);
    if wanted("PS1") {
        search(&world, &ruleset, floor, "PS1", "1M, top 50, p50", Path::Widest, 0.5);
        search(&world, &ruleset, floor, "PS1", "1M, top 50, p99", Path::Widest, 0.99);
        world.seats = 4;
        search(&world, &ruleset, floor, "PS1", "1M, 4 seats, p50", Path::Widest, 0.5);
        search(&world, &ruleset, floor, "PS1", "1M, 4 seats, p99", Path::Widest, 0.99);
        world.seats = 1;
    }
    if wanted("PS2") {
        search(&world, &ruleset, floor, "PS2", "1M, portable, p50", Path::Portable, 0.5);
    }
    if wanted("PS4") {
        for (name, skill, distance) in
            [("skill only", 1.0, 0.0), ("distance only", 0.0, 1.0), ("20:1", 20.0, 1.0), ("1:20", 1.0, 20.0)]
        {
            let ruleset = crate::population::ruleset(Rules { skill, distance, ..Rules::default() });
            world.judge(&ruleset);
            search(&world, &ruleset, floor, "PS4", name, Path::Widest, 0.5);
            search(&world, &ruleset, floor, "PS4", &format!("{name}, portable"), Path::Portable, 0.5);
        }
        let sessions = std::mem::take(&mut world.searchers);
        let far = |(mut session, _): (Session, Facts)| {
            session.attributes.iter_mut().for_each(|(name, value)| {
                if **name == *"skill" {
                    *value = fireteam::domain::attribute::Value::Number(1e6);
                }
            });
            let facts = Facts::of(&ruleset, &session);
            (session, facts)
        };
        world.searchers = sessions.into_iter().map(far).collect();
        world.judge(&ruleset);
        search(&world, &ruleset, floor, "PS4", "far query", Path::Widest, 0.5);
    }
    if wanted("PU") {
        updates(world, wanted);
    }
}

fn search(world: &World, ruleset: &Ruleset, floor: &Floor, goal: &str, name: &str, path: Path, at: f64) {
    compare(goal, name, "floor", || world.search(ruleset, path, at), || floor.took());
}

fn adversarial(floor: &Floor) {
    let base = Rules { skill: 0.6, distance: 0.4, ..Rules::default() };
    for (name, rules, spread) in [
        ("duplicates", base, Spread::Duplicates),
        ("refused by all advertisers", Rules { limits: true, ..base }, Spread::Globe),
        ("1 % filter, not partitioned", Rules { mode: true, ..base }, Spread::Globe),
        ("a filter that nobody passes", Rules { nobody: true, ..base }, Spread::Globe),
        ("1 % filter, partitioned", Rules { key: true, ..base }, Spread::Globe),
    ] {
        let world = World::new(rules, spread);
        world.judge(&world.ruleset);
        search(&world, &world.ruleset, floor, "PS4", name, Path::Widest, 0.5);
        search(&world, &world.ruleset, floor, "PS4", &format!("{name}, portable"), Path::Portable, 0.5);
    }
}

/// Every advertisement moved once, in an order that has nothing to do with where it is.
fn updates(mut world: World, wanted: &dyn Fn(&str) -> bool) {
    let ruleset = Arc::clone(&world.ruleset);
    let fresh = world.search(&ruleset, Path::Widest, 0.5);
    move_all(&mut world.index, &ruleset, 98, true);
    move_all(&mut world.index, &ruleset, 99, false);
    world.judge(&ruleset);
    if wanted("PU2") {
        compare(
            "PU2",
            "p50 after all moved",
            "p50 fresh (once)",
            || world.search(&ruleset, Path::Widest, 0.5),
            || fresh,
        );
    }
    if wanted("PU3") {
        under_writes(world);
    }
}

/// Moves everybody and says how fast. When `kept`, what the old entries held is given back afterwards and not counted.
fn move_all(index: &mut Index, ruleset: &Ruleset, seed: u64, kept: bool) {
    let mut dice = Dice(seed);
    let numbers = (0..ROWS).map(|number| number.wrapping_mul(7_919) % ROWS);
    let mut moves: Vec<Entry> = numbers.map(|number| entry(&mut dice, ruleset, number, Spread::Globe)).collect();
    let held: Vec<_> = index.entries().filter(|_| kept).map(|entry| Arc::clone(&entry.advertisement)).collect();
    let took = together(ROWS as usize, |_| {
        if let Some(entry) = moves.pop() {
            index.upsert(entry);
        }
    });
    drop(held);
    let what = if kept { "freeing not counted" } else { "freeing counted" };
    let (rate, machine) = (1.0 / took.wall_us, machine());
    println!(
        "| PU1 | move-upsert into 1M, {what}, M/s | 2 | {rate:.2} | | 1 | {:.3} | | {:.3} | {machine} |",
        took.wall_us, took.cpu_us
    );
}

/// Searches while another thread writes 100,000 rows a second in batches of 64.
fn under_writes(world: World) {
    let World { ruleset, index, searchers, seats } = world;
    let (lock, stop, wrote) = (RwLock::new(index), AtomicBool::new(false), AtomicU64::new(0));
    let shell = World { ruleset: Arc::clone(&ruleset), index: Index::new(Arc::clone(&ruleset)), searchers, seats };
    let round = || {
        let mut found = Found::default();
        quantile(20 * SEARCHES, 0.99, |number| {
            let index = lock.read().expect("no thread panics");
            index.search(&shell.query(&ruleset, number), &mut found);
        })
    };
    let write = || {
        let begin = crate::harness::clock();
        let mut dice = Dice(5);
        while !stop.load(Ordering::Relaxed) {
            let due = (begin.elapsed().as_secs_f64() * 100_000.0) as u64;
            if due < wrote.load(Ordering::Relaxed) + 64 {
                std::thread::sleep(std::time::Duration::from_micros(200));
                continue;
            }
            let next = |_| {
                let number = dice.below(ROWS);
                entry(&mut dice, &ruleset, number, Spread::Globe)
            };
            let batch: Vec<Entry> = (0..64).map(next).collect();
            let mut index = lock.write().expect("no thread panics");
            batch.into_iter().for_each(|entry| index.upsert(entry));
            wrote.fetch_add(64, Ordering::Relaxed);
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
                let took = round();
                stop.store(true, Ordering::Relaxed);
                took
            })
        },
        round,
    );
}
