//! Every target in one binary, because each would link the whole server again; the variable FUZZ_TARGET chooses.

#![no_main]

use std::sync::LazyLock;

#[path = "../targets.rs"]
mod targets;

static CHOSEN: LazyLock<targets::Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    match targets::TARGETS.iter().find(|(known, _)| *known == name) {
        Some((_, target)) => *target,
        None => panic!("FUZZ_TARGET: one of {:?}", targets::TARGETS.map(|(name, _)| name)),
    }
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| CHOSEN(bytes));
