//! Entry point of the `fireteam` binary: runs `cli` and returns its exit code.

use std::process::ExitCode;

/// mimalloc: faster than the system allocator for many small allocations from many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    #[cfg(feature = "failpoints")]
    let _fail_points = fail::FailScenario::setup();
    fireteam::cli::run()
}
