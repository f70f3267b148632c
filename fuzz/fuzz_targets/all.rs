//! All targets in one binary, because each binary would link the whole server; the variable FUZZ_TARGET selects one.

#![no_main]

use std::sync::LazyLock;

#[path = "../targets.rs"]
mod targets;

static SELECTED: LazyLock<targets::Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    match targets::TARGETS.iter().find(|(known, _)| *known == name) {
        Some((_, target)) => *target,
        None => panic!("FUZZ_TARGET must be one of {:?}", targets::TARGETS.map(|(name, _)| name)),
    }
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| SELECTED(bytes));
