//! The subcommands and the exit codes.

pub mod check;
