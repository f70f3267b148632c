//! Goals PL: a leaderboard of a million users while ratings change, compared with a sorted list.

use std::hint::black_box;

use fireteam::domain::id::UserKey;
use fireteam::domain::rating::leaderboard::{Leaderboard, LeaderboardEntry};

use crate::goals::describe;
use crate::harness::{Timing, clock, compare, machine, quantile, time_all};
use crate::split_mix64::SplitMix64;

/// Users on the leaderboard.
const USERS: usize = 1_000_000;
/// Queries of one round.
const QUERIES: usize = 100_000;
/// Entries of a page.
const PAGE: usize = 20;
/// Limit on the p99 of a query, microseconds.
const MOST_US: f64 = 1_000.0;

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    if !wanted("PL1") && !wanted("PL2") && !wanted("PL3") {
        return;
    }
    let mut rng = SplitMix64(11);
    let entries: Vec<LeaderboardEntry> = (0..USERS as u64).map(|n| entry(n, &mut rng)).collect();
    let started = clock();
    let mut board = Leaderboard::from_entries(entries.clone());
    let made_ms = started.elapsed().as_secs_f64() * 1e3;
    println!("| PL0 | leaderboard_build: {USERS} users, ms | | {made_ms:.0} | | 1 | | | | {} |", machine());
    let mut sorted = entries.clone();
    sorted.sort_unstable_by(order);
    let queries: Vec<LeaderboardEntry> = (0..QUERIES).map(|_| entries[rng.below(USERS as u64) as usize]).collect();
    if wanted("PL1") {
        ranks(&board, &sorted, &queries);
    }
    if wanted("PL2") {
        pages(&board, &sorted, &mut rng);
    }
    if wanted("PL3") {
        moves(&mut board, &entries, &mut rng);
    }
}

fn entry(n: u64, rng: &mut SplitMix64) -> LeaderboardEntry {
    let user = UserKey::from_bytes((u128::from(rng.next()) << 64 | u128::from(n)).to_be_bytes());
    // A sum of uniform numbers is nearly normal, as ratings are.
    let score = (0..6).map(|_| rng.below(500) as f64).sum::<f64>();
    LeaderboardEntry { conservative_rating: score, user }
}

fn order(one: &LeaderboardEntry, other: &LeaderboardEntry) -> std::cmp::Ordering {
    other.conservative_rating.total_cmp(&one.conservative_rating).then(one.user.cmp(&other.user))
}

/// PL1: rank of a user.
fn ranks(board: &Leaderboard, sorted: &[LeaderboardEntry], queries: &[LeaderboardEntry]) {
    let rank = |it: &LeaderboardEntry| board.index_of(it);
    let searched = |it: &LeaderboardEntry| sorted.partition_point(|known| order(known, it).is_lt());
    assert!(queries.iter().step_by(997).all(|it| rank(it) == searched(it)), "both results are equal");
    let subject = || time_all(QUERIES, |at| _ = black_box(rank(&queries[at])));
    let reference = || time_all(QUERIES, |at| _ = black_box(searched(&queries[at])));
    compare("PL1", "a rank among 1M", "binary search of a sorted list", subject, reference);
    worst("PL1", "a rank", |at| _ = black_box(rank(&queries[at % QUERIES])));
}

/// PL2: a page at any rank.
fn pages(board: &Leaderboard, sorted: &[LeaderboardEntry], rng: &mut SplitMix64) {
    let from: Vec<usize> = (0..QUERIES).map(|_| rng.below((USERS - PAGE) as u64) as usize).collect();
    let page = |at: usize| board.iter_from(from[at]).take(PAGE).fold(0.0, |sum, (_, it)| sum + it.conservative_rating);
    let slice = |at: usize| sorted[from[at]..from[at] + PAGE].iter().fold(0.0, |sum, it| sum + it.conservative_rating);
    assert!((0..QUERIES).step_by(997).all(|at| page(at) == slice(at)), "both results are equal");
    let subject = || time_all(QUERIES, |at| _ = black_box(page(at)));
    let reference = || time_all(QUERIES, |at| _ = black_box(slice(at)));
    compare("PL2", "a page of 20 among 1M", "a slice of a sorted list", subject, reference);
    worst("PL2", "a page of 20", |at| _ = black_box(page(at % QUERIES)));
}

/// PL3: one user's rating changes. The reference moves the user in a sorted list, a thousand times.
fn moves(board: &mut Leaderboard, entries: &[LeaderboardEntry], rng: &mut SplitMix64) {
    let mut now = entries.to_vec();
    let mut sorted = entries.to_vec();
    sorted.sort_unstable_by(order);
    let changes: Vec<(usize, f64)> =
        (0..QUERIES).map(|_| (rng.below(USERS as u64) as usize, rng.below(3_000) as f64)).collect();
    let mut listed = now.clone();
    let subject = || {
        time_all(QUERIES, |at| {
            let (who, score) = changes[at];
            assert!(board.remove(&now[who]));
            now[who].conservative_rating = score;
            assert!(board.insert(now[who]));
        })
    };
    let reference = || -> Timing {
        time_all(1_000, |at| {
            let (who, score) = changes[at];
            let from = sorted.partition_point(|known| order(known, &listed[who]).is_lt());
            sorted.remove(from);
            listed[who].conservative_rating = score;
            let to = sorted.partition_point(|known| order(known, &listed[who]).is_lt());
            sorted.insert(to, listed[who]);
        })
    };
    compare("PL3", "a user moves among 1M", "the same in a sorted list", subject, reference);
}

/// Prints the p99 of a query against the limit.
fn worst(goal: &str, what: &str, run: impl FnMut(usize)) {
    let took = quantile(QUERIES, 0.99, run);
    let (ratio, wall_us) = (MOST_US / took.wall_us, took.wall_us);
    let what = describe(goal, what);
    println!(
        "| {goal} < 1 ms | {what}, p99 us | {MOST_US:.0} | {ratio:.0} | | {QUERIES} | {wall_us:.2} | | | {} |",
        machine()
    );
}
