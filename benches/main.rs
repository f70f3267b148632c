//! Measures what docs/BENCHMARKS.md promises: `cargo bench -- PS1 PU1` runs the goals named, without names all.

mod durable;
mod engine;
mod harness;
mod hostile;
mod index;
mod leaderboard;
mod population;
mod queue;
mod rating;
mod rpc;
mod shared;
mod simulate;
mod store;

/// The server's allocator, so that updates cost here what they cost there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    // `cargo test --all-targets` builds and starts this too, but without the word that `cargo bench` passes.
    if !std::env::args().any(|word| word == "--bench") {
        return;
    }
    let words: Vec<String> = std::env::args().collect();
    if let Some(at) = words.iter().position(|word| word == rpc::child::WORD) {
        return rpc::child::serve(&words[at + 1], words[at + 2].parse().expect("a number of advertisements"));
    }
    let named: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let wanted = |goal: &str| named.is_empty() || named.iter().any(|name| goal.starts_with(name.as_str()));
    harness::header();
    index::run(&wanted);
    engine::run(&wanted);
    rpc::run(&wanted);
    store::run(&wanted);
    shared::run(&wanted);
    hostile::run(&wanted);
    queue::run(&wanted);
    leaderboard::run(&wanted);
    rating::run(&wanted);
    simulate::run(&wanted);
}
