//! Hands the command line to `cli` and its exit code to the system.

use std::process::ExitCode;

/// Under many small allocations from many threads it is a good deal faster than the system's.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    fireteam::cli::run()
}
