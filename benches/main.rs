//! Benchmarks of docs/BENCHMARKS.md. `cargo bench -- PS1 index_update` runs the goals with these codes or words, and
//! `cargo bench` runs all.

mod beacon;
mod engine_heartbeats;
mod goals;
mod harness;
mod idle_queues;
mod index;
mod leaderboard;
mod past_matches;
mod population;
mod queue_pass;
mod rating_update;
mod round_trip_prediction;
mod rpc;
mod ruleset_reject;
mod simulator;
mod split_mix64;
mod store_common;
mod store_postgres;
mod store_sqlite;

/// The server's allocator, so that allocations cost the same here.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    // `cargo test --all-targets` runs this too, without the argument that `cargo bench` adds.
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    let words: Vec<String> = std::env::args().collect();
    if let Some(at) = words.iter().position(|word| word == rpc::server_process::SERVE_ARGUMENT) {
        let advertisements = words[at + 2].parse().expect("a number of advertisements");
        return rpc::server_process::serve(&words[at + 1], advertisements, &words[at + 3..]);
    }
    let named: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |goal: &str| goals::is_selected(goal, &named);
    harness::header();
    index::run(&wanted);
    engine_heartbeats::run(&wanted);
    rpc::run(&wanted);
    store_sqlite::run(&wanted);
    store_postgres::run(&wanted);
    ruleset_reject::run(&wanted);
    queue_pass::run(&wanted);
    idle_queues::run(&wanted);
    leaderboard::run(&wanted);
    rating_update::run(&wanted);
    round_trip_prediction::run(&wanted);
    simulator::run(&wanted);
    beacon::run(&wanted);
}
