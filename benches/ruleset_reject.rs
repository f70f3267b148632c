//! Time until a hostile ruleset is rejected: at most 50 ms for the slowest.

#[path = "../tests/it/support/hostile_documents.rs"]
mod hostile_documents;

use fireteam::rules;

use crate::harness::{clock, machine, median};

/// Times that each document is read.
const TIMES: usize = 21;

pub(crate) fn run(wanted: &dyn Fn(&str) -> bool) {
    if !wanted("SEC14") {
        return;
    }
    let mut worst = (0.0, "");
    for (name, bytes, _) in hostile_documents::hostile_documents() {
        let once = || {
            let started = clock();
            let read = rules::ruleset_text_from_bytes("hostile.xml", &bytes)
                .and_then(|text| rules::parse_ruleset("hostile.xml", text).map(|_| ()));
            assert!(read.is_err(), "{name}");
            started.elapsed().as_secs_f64() * 1e3
        };
        let took = median((0..TIMES).map(|_| once()).collect());
        if worst.0 < took {
            worst = (took, name);
        }
    }
    let (took, name) = worst;
    println!(
        "| SEC14 | ruleset_rejection: {took:.3} ms, {name} | 50 ms | {:.4} | | {TIMES} | | | | {} |",
        took / 50.0,
        machine()
    );
}
